"""The step `train`: stage 1, joint training on external and internal data (paper, section 3.2)."""

from collections.abc import Sequence

from tlm import presets
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe
from tlm.errors import InputError
from tlm.training.launch import Command, train_together
from tlm.training.tokens import tokenize

VERSION = 1
TASK_ONLY = "task-only"


def train(
    task: str,
    *,
    tokenizer: str,
    subset: str = "",
    preset: str = "pocket",
    overrides: list[str] = (),  # type: ignore[assignment]
    seed: int = 0,
    device: str = "auto",
    save_steps: int = 500,
    save_minutes: float = 5.0,
    gpus: int = 0,
    root: str | None = None,
) -> str:
    """Train a model from scratch on the retrieved passages and the task together (stage 1).

    Saves its state while it works, also on SIGTERM, and goes on from there when it is repeated.

    Args:
        task: URI of the task.
        tokenizer: URI of the tokenizer; the same one for all arms, so that their losses compare.
        subset: URI of the subset; without one the task's own texts are all there is (the task-only arm, as many steps).
        preset: Named settings; `tlm show` lists them.
        overrides: Settings to change, such as train.rho1=4 or train.rho1=inf.
        seed: For weights, order, masks and dropout.
        device: Where to compute: auto, cpu, cuda or cuda:N, mps.
        save_steps: Save the state every so many steps; 0: not by steps.
        save_minutes: Save the state every so many minutes; 0: not by time.
        gpus: How many GPUs of this machine to train on; fewer are an error. 0: all that there are, or the CPU.
        root: Where artifacts are kept.
    """
    given = dict(locals())
    _check_numbers(seed=seed, save_steps=save_steps, save_minutes=save_minutes, gpus=gpus)
    recipe = checkpoint_recipe(task, tokenizer, subset, preset, overrides, seed, root)

    def write(draft: Draft) -> None:
        from tlm.training import stage1
        from tlm.training.checkpoint import Snapshots

        snapshots = Snapshots(recipe.key, root, save_steps, save_minutes)
        facts = {name: recipe.settings[name] for name in ("arm", "seed", "preset")}
        stage1.write(draft, recipe.inputs, presets.resolve(preset, overrides), facts, device, snapshots)

    return train_together(recipe, root, write, Command("tlm.training.joint:train", given))


def checkpoint_recipe(
    task: str, tokenizer: str, subset: str, preset: str, overrides: Sequence[str], seed: int, root: str | None
) -> Recipe:
    """What decides the result of `train`, with everything checked and the texts tokenized."""
    settings = presets.resolve(preset, overrides)
    examples, vocabulary = Artifact.open(task, "task"), Artifact.open(tokenizer, "tokenizer")
    passages = Artifact.open(subset, "subset") if subset else None
    _check(settings, passages)
    inputs = {"task": examples, "task_tokens": Artifact.open(tokenize(examples.uri, vocabulary.uri, root=root))}
    if passages is not None:
        inputs["subset_tokens"] = Artifact.open(tokenize(passages.uri, vocabulary.uri, root=root))
    facts = {"arm": passages.details["arm"] if passages is not None else TASK_ONLY, "seed": seed, "preset": preset}
    resolved = {"model": settings.model.model_dump(mode="json"), "train": settings.train.model_dump(mode="json")}
    return Recipe("checkpoint", "train", VERSION, settings={**facts, **resolved}, inputs=inputs)


def _check(settings: presets.Preset, passages: Artifact | None) -> None:
    if passages is None and settings.train.rho1 == "inf":
        raise InputError(
            "train.rho1=inf trains on external data only, but no subset is given; give one or another rho1"
        )
    if passages is not None and passages.details["passages"] == 0:
        raise InputError(f"{passages.uri} has no passages; retrieve with a larger K, or train without a subset")


def _check_numbers(**numbers: float) -> None:
    for name, value in numbers.items():
        if value < 0:
            raise InputError(f"{name} is {value}; expected 0 or more")
