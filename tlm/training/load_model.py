"""The step `load-model`: a published model as a `checkpoint`, for fine-tuning or for stage 1."""

import json
from collections.abc import Sequence
from pathlib import Path

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Recipe, produce
from tlm.artifacts.stores.store import file_sha256
from tlm.errors import InputError
from tlm.retrieval.select.retrieve import ARMS as RETRIEVED
from tlm.retrieval.select.retrieve import RERANKED
from tlm.retrieval.subset.export import TASK_ONLY
from tlm.retrieval.subset.protected import check_protected
from tlm.settings import presets
from tlm.settings.sections import model_settings
from tlm.training.input import trimmed
from tlm.training.input.located import CONVERT, WEIGHTS, files_of, model_folder, published_name
from tlm.training.input.tokenize import tokenize
from tlm.training.input.tokenizer import adopt_tokenizer

VERSION = 2
ARM, PUBLISHED = "plm", "published"  # the arm; and what the arms of the pipelines begin with: published-NAME


def load_model(
    model: str,
    task: str,
    *,
    arm: str = ARM,
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
        arm: Name of the arm in reports.
        layers: Keep the first so many layers, for a smaller and faster model; 0: all.
        trim_vocabulary: Keep only the tokens that occur in the training texts and the subset, and those of single
            characters. Texts of these tokens get the same answers; others are tokenized into smaller pieces.
        subset: URI of a subset whose tokens stay, too, for a model that is trained on it.
        preset: Named settings. This step uses max_length, cut and spans_first of the model, and the dropout of stage 1.
        overrides: Settings to change, such as model.max_length=256.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    examples, settings = Artifact.open(task, "task"), presets.resolve(preset, overrides)
    if subset and not trim_vocabulary:
        raise InputError("a subset is given, which matters to a trimmed vocabulary alone; add --trim-vocabulary")
    if subset:
        check_protected(Artifact.open(subset, "subset"), examples)
    root = home(root, [examples]).root
    with model_folder(model) as folder:
        digests = _digests(folder)
        from tlm.training.model import published

        shape = published.shape_of(folder, settings.model, layers)
        words = adopt_tokenizer(folder, root)
        if trim_vocabulary:
            words = trimmed.trim_vocabulary(words, task, subset, shape.spans_first, root)
        tokenizer = Artifact.open(words)
        tokens = Artifact.open(tokenize(examples.uri, tokenizer.uri, spans_first=shape.spans_first, root=root))
        facts = {"arm": arm, "seed": 0, "name": published_name(model)}
        resolved = {**facts, "model": model_settings(shape), "files": digests}
        recipe = Recipe("checkpoint", "load-model", VERSION, resolved, {"task": examples, "task_tokens": tokens})
        return produce(recipe, root, published.write, folder, recipe.inputs, shape, facts)


def _digests(folder: Path) -> dict[str, str]:
    """The sha256 of each of the model's files. Raises InputError if there is no config or no weights."""
    names = files_of([path.name for path in folder.iterdir() if path.is_file()])
    if "config.json" not in names or names == files_of(names, weights=False):
        raise InputError(f"{folder} has no config.json, or no weights ({WEIGHTS[0]}); {CONVERT}")
    if strange := _parts(folder) - {*names}:
        name = sorted(strange)[0]
        raise InputError(f"{folder}: its index names {name!r}, which is not in the folder; download the model again")
    return {name: file_sha256(folder / name) for name in names}


def _parts(folder: Path) -> set[str]:
    """The files of weights in several parts, as their index names them."""
    try:
        index = json.loads((folder / WEIGHTS[1]).read_text(encoding="utf-8"))
        return {str(name) for name in index["weight_map"].values()}
    except FileNotFoundError:
        return set()
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError(f"{folder / WEIGHTS[1]} is not an index of weights; download the model again") from None


def further_text(arm: str) -> str:
    """The arm whose text a published model went on with, as the name of its own arm ends: ``published-NAME-bm25``."""
    return next((text for text in (TASK_ONLY, *RETRIEVED, RERANKED) if arm.endswith(f"-{text}")), "")
