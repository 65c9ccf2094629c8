"""The step `train`: stage 1, joint training on external and internal data (paper, section 3.2)."""

from collections.abc import Sequence

from tlm import presets
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.home import home
from tlm.artifacts.produce import Draft, Recipe
from tlm.errors import InputError
from tlm.settings import Model
from tlm.training.distributed.launch import Command, train_together
from tlm.training.effective import model_settings, train_settings
from tlm.training.input.tokenize import tokenize
from tlm.training.model.architectures import check_architecture

VERSION = 2
TASK_ONLY = "task-only"


def train(
    task: str,
    *,
    tokenizer: str = "",
    subset: str = "",
    start: str = "",
    preset: str = "pocket",
    overrides: list[str] = (),  # type: ignore[assignment]
    seed: int = 0,
    device: str = "auto",
    save_steps: int = 0,
    save_minutes: float = 5.0,
    gpus: int = 0,
    root: str | None = None,
) -> str:
    """Train a model on the retrieved passages and the task together, from scratch or on from a checkpoint (stage 1).

    Saves its state while it works, also on SIGTERM and Ctrl-C, and goes on from there when it is repeated.

    Args:
        task: URI of the task.
        tokenizer: URI of the tokenizer; the same one for all arms, so that their losses compare. Empty: that of
            `start`.
        subset: URI of the subset; without one the task's own texts are all there is (the task-only arm, as many steps).
        start: URI of the checkpoint whose weights it begins with, such as a published model that `tlm load-model` made;
            the model's shape is then its own. Empty: fresh weights.
        preset: Named settings; `tlm show` lists them.
        overrides: Settings to change, such as train.rho1=4 or train.rho1=inf.
        seed: For weights, order, masks and dropout.
        device: Where to compute: auto, cpu, cuda or cuda:N, mps.
        save_steps: Save the state every so many steps; 0: not by steps.
        save_minutes: Save the state every so many minutes; 0: not by time.
        gpus: How many GPUs of this machine to train on; fewer are an error. 0: all that there are, or the CPU.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    given = dict(locals())
    check_numbers(seed=seed, save_steps=save_steps, save_minutes=save_minutes, gpus=gpus)
    recipe = checkpoint_recipe(task, tokenizer, subset, preset, overrides, seed, root, start=start)

    def write(draft: Draft) -> None:
        from tlm.training import stage1
        from tlm.training.checkpoint import Snapshots

        snapshots = Snapshots(recipe, root, save_steps, save_minutes, draft.spending)
        facts = {name: recipe.settings[name] for name in ("arm", "seed")}
        shape = {"model": Model.model_validate(recipe.settings["model"])}
        settings = presets.resolve(preset, overrides).model_copy(update=shape)
        stage1.write(draft, recipe.inputs, settings, facts, device, snapshots)
        draft.run |= presets.named(preset, overrides)

    return train_together(recipe, root, write, Command("tlm.training.joint:train", given))


def checkpoint_recipe(
    task: str,
    tokenizer: str,
    subset: str,
    preset: str,
    overrides: Sequence[str],
    seed: int,
    root: str | None,
    *,
    start: str = "",
) -> Recipe:
    """What decides the result of `train`, with everything checked and the texts tokenized."""
    settings = presets.resolve(preset, overrides)
    examples, begin = Artifact.open(task, "task"), Artifact.open(start, "checkpoint") if start else None
    vocabulary = _tokenizer(tokenizer, begin)
    passages = Artifact.open(subset, "subset") if subset else None
    root = home(root, [one for one in (examples, begin, vocabulary, passages) if one is not None]).root
    _check(settings, passages)
    model = settings.model if begin is None else _shape(begin, settings)
    check_architecture(model)
    inputs = {"task": examples, "task_tokens": Artifact.open(tokenize(examples.uri, vocabulary.uri, root=root))}
    if passages is not None:
        inputs["subset_tokens"] = Artifact.open(tokenize(passages.uri, vocabulary.uri, root=root))
    if begin is not None:
        inputs["start"] = begin
    facts = {"arm": _arm(begin, passages), "seed": seed}
    training = train_settings(settings.train, external=passages is not None)
    resolved = {**facts, "model": model_settings(model), "train": training}
    return Recipe("checkpoint", "train", VERSION, settings=resolved, inputs=inputs)


def _tokenizer(given: str, start: Artifact | None) -> Artifact:
    """The tokenizer that was given; with a checkpoint to go on from it has to be that one's own."""
    if start is None:
        if not given:
            raise InputError("no tokenizer is given; expected the URI that `tlm tokenizer` prints, or a start")
        return Artifact.open(given, "tokenizer")
    its = start.input("task_tokens").input("tokenizer")
    if given and Artifact.open(given, "tokenizer").content != its.content:
        raise InputError(f"{start.uri} was made with another tokenizer than {given}; leave it out, or give {its.uri}")
    return its


def _shape(start: Artifact, settings: presets.Preset) -> Model:
    """The model section of a checkpoint that stage 1 goes on from; the dropout is that of `settings`."""
    shape = Model.model_validate({**start.manifest.settings["model"], "dropout": settings.model.dropout})
    if settings.train.external_length > shape.reach:
        raise InputError(
            f"train.external_length is {settings.train.external_length} and {start.uri} has {shape.reach} positions; "
            "expected no longer passages"
        )
    return shape


def _arm(start: Artifact | None, passages: Artifact | None) -> str:
    """bm25, random or task-only; behind the arm of the checkpoint that is trained on, if there is one: plm-mlm."""
    own = TASK_ONLY if passages is None else str(passages.details["arm"])
    return own if start is None else f"{start.details['arm']}-{'mlm' if passages is None else own}"


def _check(settings: presets.Preset, passages: Artifact | None) -> None:
    if passages is None and settings.train.rho1 == "inf":
        raise InputError(
            "train.rho1=inf trains on external data only, but no subset is given; give one or another rho1"
        )
    if passages is not None and passages.details["passages"] == 0:
        raise InputError(f"{passages.uri} has no passages; retrieve with a larger K, or train without a subset")


def check_numbers(**numbers: float) -> None:
    """Raise InputError for one that is negative."""
    for name, value in numbers.items():
        if value < 0:
            raise InputError(f"{name} is {value}; expected 0 or more")
