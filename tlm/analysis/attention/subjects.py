"""Models to look into: artifacts and folders, each under a name of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.digest import file_sha256, value_sha256
from tlm.errors import InputError


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
