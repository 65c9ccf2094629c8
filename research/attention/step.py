"""The step `attention`: positional and vertical heads of several models side by side (section 4.4.1, Figure 3)."""

from collections.abc import Sequence
from typing import Literal

from research.attention.subjects import subjects
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.errors import InputError

VERSION = 5


def attention(
    models: list[str],
    *,
    task: str,
    names: Sequence[str] = (),
    split: Literal["train", "dev", "test"] = "test",
    examples: int = 200,
    threshold: float = 0.9,
    max_length: int = 128,
    device: str = "auto",
    root: str | None = None,
) -> str:
    """Count positional and vertical attention heads of models, layer by layer, on the same texts of a task.

    Writes study.html (self-contained, without any script), study.md, study.json, heads.parquet (a row for each model,
    layer and head) and the figures as SVG.

    Args:
        models: URIs of models or checkpoints, or folders of any encoder that transformers loads (BERT, RoBERTa).
        task: URI of the task whose texts the models read.
        names: Name of a model on the page; repeated, in order of the models; by default arm and seed, or the folder's
            name.
        split: Which examples to read: train, dev or test.
        examples: Maximum number of examples, evenly spaced.
        threshold: Share of tokens that makes a head positional or vertical; the paper's is 0.9.
        max_length: Maximum number of tokens read from a text.
        device: Where to compute: auto (cuda if there is one, else cpu; never mps), cpu, cuda, cuda:N or mps.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    if not 0.5 < threshold <= 1:
        raise InputError(f"threshold is {threshold}; expected a share above 0.5 and up to 1")
    if examples < 1 or max_length < 8:
        raise InputError(f"examples is {examples} and max_length {max_length}; expected at least 1 and 8")
    opened = Artifact.open(task, "task")
    if split not in ("train", "dev", "test") or not opened.counts.get(split):
        raise InputError(f"{opened.uri} has no examples in split '{split}'; expected train, dev or test")
    found = subjects(models, names)
    settings = {
        "split": split,
        "examples": examples,
        "threshold": threshold,
        "max_length": max_length,
        "models": [[one.name, one.group, one.arm, one.content] for one in found],
    }
    sources = [("task", opened), *((f"model-{number:03d}", one.source) for number, one in enumerate(found))]
    inputs = {name: source for name, source in sources if isinstance(source, Artifact)}
    recipe = Recipe("study", "attention", VERSION, settings, inputs)

    def write(draft: Draft) -> None:
        from research.attention.study import write_study

        write_study(draft, opened, found, settings, device)

    return produce(recipe, root, write)
