"""The steps `train` (stage 1, joint training; section 3.2) and `finetune` (stage 2; section 3.3).

Also `load-model`: a published model as a `checkpoint`, for fine-tuning or for stage 1. This module is imported without
torch: finding a finished checkpoint or model needs none.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.artifacts.stores.store import file_sha256
from tlm.data.tasks.labelled import UNLABELLED
from tlm.errors import InputError
from tlm.progress import say
from tlm.retrieval.subset.export import PUBLISHED, TASK_ONLY
from tlm.retrieval.subset.protected import check_protected, warn_of
from tlm.settings import presets
from tlm.settings.options import NOT_NEGATIVE, Compute, Range
from tlm.settings.sections import OWN, Model, Preset, Train
from tlm.training.distributed.launch import train_together
from tlm.training.input import tokenizer as vocabularies
from tlm.training.input.batches import Interleaving
from tlm.training.input.located import CONVERT, MLM_HEAD, WEIGHTS, files_of, model_folder, published_name
from tlm.training.input.tokenize import tokenize, tokens_for

VERSION, STAGE2_VERSION, LOAD_VERSION = 3, 6, 2  # of stage 1, of stage 2 and of `load-model`
PUBLISHED_RATE = 5e-4  # the highest learning rate for weights of a published model
PART_RATE = 3e-4  # the lowest one for a part of the weights

_OF_EXTERNAL = {"external_batch", "external_length", "head_steps"}
_OF_INTERNAL = {"internal_batch", "rho2"}
_OF_BOTH_LOSSES = {"internal_loss", "mask_internal"}


def train(
    task: str,
    *,
    tokenizer: str = "",
    subset: str = "",
    start: str = "",
    preset: str = "pocket",
    overrides: Sequence[str] = (),
    seed: int = 0,
    compute: Compute = Compute(),
    root: str | None = None,
) -> str:
    """Train a model on the retrieved passages and the task together, from scratch or from a checkpoint (stage 1).

    Saves its state while it works, also on SIGTERM, SIGHUP and Ctrl-C. Repeat the command to continue from there.

    Args:
        task: URI of the task.
        tokenizer: URI of the tokenizer; the same one for all arms, so that their losses compare. Empty: that of
            `start`.
        subset: URI of the subset. Without one, all steps train on the task's own texts (the task-only arm).
        start: URI of a checkpoint to begin with, such as a published model from `tlm load-model`. The model then has
            the checkpoint's shape. Empty: fresh weights.
        preset: Named settings; `tlm show` lists them.
        overrides: A setting to change, such as train.rho1=4 or train.rho1=inf; may be repeated.
        seed: For weights, order, masks and dropout.
        compute: Where to train, and how often to save the state.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    arguments = dict(locals())
    NOT_NEGATIVE.check("seed", seed)
    settings = presets.resolve(preset, overrides)
    recipe = checkpoint_recipe(task, tokenizer, subset, settings, seed, root, start)

    def write(draft: Draft) -> None:
        from tlm.training.joint import train_jointly

        train_jointly(draft, recipe, settings, compute, root)
        draft.run |= presets.named(preset, overrides)

    return train_together(recipe, root, write, train, arguments, rows_of(recipe))


def rows_of(recipe: Recipe) -> int:
    """The texts in most batches of stage 1: most steps are external, where there are such steps."""
    settings: dict[str, int] = recipe.settings["train"]
    return settings.get("external_batch") or settings["internal_batch"]


def checkpoint_recipe(
    task: str, tokenizer: str, subset: str, settings: Preset, seed: int, root: str | None, start: str = ""
) -> Recipe:
    """Return all that decides the result of `train`, with everything checked and the texts tokenized."""
    examples, begin = Artifact.open(task, "task"), Artifact.open(start, "checkpoint") if start else None
    vocabulary = _tokenizer(tokenizer, begin)
    passages = Artifact.open(subset, "subset") if subset else None
    if passages is not None:
        check_protected(passages, examples)
    if begin is not None:
        warn_of(begin, examples)
        _warn_of_rate(begin, "train.lr", settings.train.lr)
    root = home(root, [given for given in (examples, begin, vocabulary, passages) if given is not None]).root
    external = passages is not None or bool(examples.counts.get(UNLABELLED))
    if not external and settings.train.rho1 == "inf":
        raise InputError("train.rho1=inf trains on external data only; give a subset, or change train.rho1")
    model = settings.model if begin is None else _shape(begin, settings)
    if model.architecture not in OWN:
        from tlm.training.model.foreign import check_architecture

        check_architecture(model)
    tokens = tokenize(examples.uri, vocabulary.uri, spans_first=model.spans_first, root=root)
    inputs = {"task": examples, "task_tokens": Artifact.open(tokens)}
    if passages is not None:
        inputs["subset_tokens"] = Artifact.open(tokenize(passages.uri, vocabulary.uri, root=root))
    if begin is not None:
        inputs["start"] = begin
    training = train_settings(settings.train, external=external, fresh=begin is None)
    resolved = {"arm": _arm(begin, passages), "seed": seed, "model": model.for_key(), "train": training}
    if begin is not None and model.architecture in OWN and not begin.entries(MLM_HEAD):
        resolved["mlm_head"] = "identity"  # where it begins; checkpoints of before began with a random one
    return Recipe("checkpoint", "train", VERSION, settings=resolved, inputs=inputs)


def train_settings(train: Train, *, external: bool, fresh: bool = True) -> dict[str, Any]:
    """The settings of stage 1 that can change its result: these are in its key, and no others.

    Args:
        train: All settings of stage 1.
        external: Whether there are a subset or texts without labels. Without them every step is internal.
        fresh: Whether the weights are fresh, not those of a checkpoint.
    """
    internal_steps = Interleaving(train.rho1 if external else 0).internal_before(train.steps)
    without = set() if external else {"rho1"}
    if not fresh:
        without.add("embeddings")
    if internal_steps == train.steps:
        without |= _OF_EXTERNAL
    if internal_steps == 0:
        without |= _OF_INTERNAL
    if internal_steps == 0 or train.rho2 == "inf":
        without |= _OF_BOTH_LOSSES
    never = {"rho1": "inf"} if internal_steps == 0 else {}  # rho1 >= steps gives the same training
    return train.for_key(without) | never


def _tokenizer(uri: str, start: Artifact | None) -> Artifact:
    """The tokenizer that was given. With a checkpoint to start from, it must be the checkpoint's own."""
    if start is None:
        if not uri:
            raise InputError("no tokenizer is given; expected the URI that `tlm tokenizer` prints, or a start")
        return Artifact.open(uri, "tokenizer")
    own = start.input("task_tokens").input("tokenizer")
    if uri and Artifact.open(uri, "tokenizer").content != own.content:
        raise InputError(f"{start.uri} was made with another tokenizer than {uri}; give none, or {own.uri}")
    return own


def _shape(start: Artifact, settings: Preset) -> Model:
    """The model section of the checkpoint that stage 1 starts from, with the dropout of `settings`."""
    shape = Model.model_validate({**start.manifest.settings["model"], "dropout": settings.model.dropout})
    if settings.train.external_length > shape.reach:
        raise InputError(
            f"train.external_length is {settings.train.external_length} and {start.uri} has {shape.reach} positions; "
            "expected external_length to be at most the positions"
        )
    return shape


def _arm(start: Artifact | None, passages: Artifact | None) -> str:
    """Return bm25, random or task-only; after a checkpoint, its arm comes first, as in published-NAME-bm25."""
    arm = TASK_ONLY if passages is None else str(passages.details["arm"])
    return arm if start is None else f"{start.details['arm']}-{arm}"


def finetune(
    checkpoint: str,
    task: str,
    *,
    preset: str,
    overrides: Sequence[str] = (),
    seed: int = -1,
    compute: Compute = Compute(),
    root: str | None = None,
) -> str:
    """Fine-tune a stage-1 checkpoint on the task alone and keep the weights that are best on dev (stage 2).

    Saves its state while it works, also on SIGTERM, SIGHUP and Ctrl-C. Repeat the command to continue from there.

    Args:
        checkpoint: URI of the checkpoint.
        task: URI of the task.
        preset: Named settings, usually those of stage 1; `tlm show` lists them.
        overrides: A setting to change, such as finetune.lr=1e-4; may be repeated.
        seed: For the fresh head, order and dropout; -1: that of the checkpoint.
        compute: Where to train, and how often to save the state.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    arguments = dict(locals())
    start, examples = Artifact.open(checkpoint, "checkpoint"), Artifact.open(task, "task")
    settings = presets.resolve(preset, overrides).finetune
    Range("-1 or more", -1).check("seed", seed)
    warn_of(start, examples)
    if settings.weights == "all":
        _warn_of_rate(start, "finetune.lr", settings.lr)
    elif settings.lr < PART_RATE:
        say(f"warning: finetune.lr is {settings.lr:g}, low for finetune.weights={settings.weights}; 1e-3 is usual")
    root = home(root, [start, examples]).root
    tokens = tokens_for(start, examples, root)
    facts = {"arm": start.details["arm"], "seed": start.details["seed"] if seed < 0 else seed}
    inputs = {"checkpoint": start, "task": examples, "task_tokens": tokens}
    recipe = Recipe("model", "finetune", STAGE2_VERSION, {**facts, "finetune": settings.for_key()}, inputs)

    def write(draft: Draft) -> None:
        from tlm.training.classification import fine_tune

        fine_tune(draft, recipe, settings, compute, root)
        draft.run |= presets.named(preset, overrides)

    return train_together(recipe, root, write, finetune, arguments, settings.batch)


def _warn_of_rate(start: Artifact, setting: str, rate: float) -> None:
    """Warn of a learning rate for fresh weights where a published model is trained on."""
    if rate > PUBLISHED_RATE and any(artifact.manifest.step == "load-model" for artifact in start.lineage()):
        say(
            f"warning: {setting} is {rate:g}, with which a published model forgets what it knows; it takes 2e-5 "
            "(large) to 3e-4 (small), as in the presets finetune-published and adapt"
        )


def load_model(
    model: str,
    task: str,
    *,
    arm: str = PUBLISHED,
    layers: int = 0,
    trim_vocabulary: bool = False,
    subset: str = "",
    preset: str = "pocket",
    overrides: Sequence[str] = (),
    root: str | None = None,
) -> str:
    """Take a published model, with its own tokenizer, instead of training one: to fine-tune it, or to start stage 1.

    The cost of its pre-training is not counted.

    Args:
        model: A folder as transformers writes it, on this machine or on S3, or a name on the Hugging Face Hub, such as
            bert-base-uncased.
        task: URI of the task.
        arm: Name of the arm in reports: published, or one that begins with published-.
        layers: Number of layers to keep, from the first on, for a smaller and faster model; 0: all.
        trim_vocabulary: Keep only the tokens that occur in the training texts and the subset, and those of single
            characters. Texts of these tokens get the same answers; others are tokenized into smaller pieces.
        subset: URI of the subset that the model will be trained on, whose tokens stay, too.
        preset: Named settings. This step uses max_length, cut and spans_first of the model, and the dropout of stage 1.
        overrides: A setting to change, such as model.max_length=256; may be repeated.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    examples, settings = Artifact.open(task, "task"), presets.resolve(preset, overrides)
    if arm != PUBLISHED and not arm.startswith(f"{PUBLISHED}-"):
        raise InputError(f"arm is '{arm}', but reports expect names such as published-small; call it published-{arm}")
    if subset and not trim_vocabulary:
        raise InputError("a subset is given, which only --trim-vocabulary uses; add that option, or leave it out")
    if subset:
        check_protected(Artifact.open(subset, "subset"), examples)
    root = home(root, [examples]).root
    with model_folder(model) as folder:
        digests = _digests(folder)
        from tlm.training.model import published

        shape = published.shape_of(folder, settings.model, layers)
        words = vocabularies.adopt_tokenizer(folder, root)
        if trim_vocabulary:
            words = vocabularies.trim_vocabulary(words, task, subset, shape.spans_first, root)
        tokens = Artifact.open(tokenize(task, words, spans_first=shape.spans_first, root=root))
        facts = {"arm": arm, "seed": 0, "name": published_name(model)}
        resolved = {**facts, "model": shape.for_key(), "files": digests}
        recipe = Recipe("checkpoint", "load-model", LOAD_VERSION, resolved, {"task": examples, "task_tokens": tokens})
        return produce(recipe, root, published.write, folder, recipe.inputs, shape, facts)


def _digests(folder: Path) -> dict[str, str]:
    """The sha256 of each of the model's files. Raises InputError if there is no config or no weights."""
    names = files_of([path.name for path in folder.iterdir() if path.is_file()])
    if "config.json" not in names or names == files_of(names, weights=False):
        raise InputError(f"{folder} has no config.json, or no weights ({WEIGHTS[0]}); {CONVERT}")
    if strange := _indexed(folder) - {*names}:
        name = sorted(strange)[0]
        raise InputError(f"{folder}: its index names {name!r}, which is not in the folder; download the model again")
    return {name: file_sha256(folder / name) for name in names}


def _indexed(folder: Path) -> set[str]:
    """The files of weights in several parts, as their index names them."""
    try:
        index = json.loads((folder / WEIGHTS[1]).read_text(encoding="utf-8"))
        return {str(name) for name in index["weight_map"].values()}
    except FileNotFoundError:
        return set()
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError(f"{folder / WEIGHTS[1]} is not an index of weights; download the model again") from None
