"""The step `attention`: positional and vertical heads of several models side by side (section 4.4.1, Figure 3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.digest import file_sha256, value_sha256
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.errors import InputError

VERSION = 1


@dataclass(frozen=True)
class Subject:
    """A model to look into.

    Attributes:
        name: What it is called on the page.
        group: The name without the seed; equal for models that differ in nothing else.
        arm: The arm that trained it; "" for a folder.
        artifact: A `model` or `checkpoint`; None for a folder.
        place: The folder; None for an artifact.
        content: Digest of its files.
    """

    name: str
    group: str
    arm: str
    artifact: Artifact | None
    place: Path | None
    content: str

    def folder(self) -> Path:
        """The verified folder with config.json."""
        if self.artifact is not None:
            return self.artifact.path("model")
        assert self.place is not None
        return self.place


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
        task: URI of the task whose texts are read.
        names: What to call the models, in their order; without it, by arm and seed, or by folder.
        split: Which examples: train, dev or test.
        examples: How many of them at most, evenly spaced.
        threshold: Share of tokens that makes a head positional or vertical; the paper's is 0.9.
        max_length: Tokens of a text that are read.
        device: Where to compute: auto, cpu, cuda or cuda:N, mps.
        root: Where artifacts are kept.
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
        "models": [[one.name, one.group, one.arm, "" if one.artifact else one.content] for one in found],
    }
    inputs = {f"model-{number:03d}": one.artifact for number, one in enumerate(found) if one.artifact is not None}
    recipe = Recipe("study", "attention", VERSION, settings, {"task": opened, **inputs})

    def write(draft: Draft) -> None:
        from tlm.analysis.attention_study import write_study

        write_study(draft, opened, found, settings, device)

    return produce(recipe, root, write)


def subjects(models: Sequence[str], names: Sequence[str] = ()) -> list[Subject]:
    """The models in their order, each under a name of its own.

    Raises:
        InputError: there is none, one is given twice, or `names` do not fit.
    """
    found = [_subject(model) for model in models]
    if not found:
        raise InputError("attention needs at least one model: a URI, or a folder with config.json")
    if names and len(names) != len(found):
        raise InputError(f"{len(names)} names for {len(found)} models; give one name for each, in their order")
    if names:
        found = [Subject(name, name, *_rest(one)) for name, one in zip(names, found, strict=True)]
    called = [one.name for one in found]
    twice = [model for one, model in zip(found, models, strict=True) if called.count(one.name) > 1]
    if twice:
        name = next(name for name in called if called.count(name) > 1)
        raise InputError(f"{' and '.join(twice[:2])} are both called '{name}'; give --names that differ")
    return found


def _rest(subject: Subject) -> tuple[str, Artifact | None, Path | None, str]:
    return subject.arm, subject.artifact, subject.place, subject.content


def _subject(model: str) -> Subject:
    folder = Path(model)
    if (folder / "config.json").is_file():
        files = {path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
        name = folder.resolve().name
        return Subject(name, name, "", None, folder, value_sha256(files))
    if folder.is_dir() and not (folder / "manifest.json").is_file():
        raise InputError(f"{model} has no config.json; expected a folder as `save_pretrained` writes it, or a URI")
    artifact = Artifact.open(model, "model", "checkpoint")
    arm, seed = artifact.details["arm"], artifact.details["seed"]
    group = arm if artifact.manifest.kind == "model" else f"{arm}, stage 1"
    return Subject(f"{group}, seed {seed}", group, arm, artifact, None, artifact.content)
