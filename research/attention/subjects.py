"""The models of an attention study: artifacts and folders, each with its own name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from research.studies import unique_names
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores.store import file_sha256, value_sha256
from tlm.errors import InputError


@dataclass(frozen=True)
class Subject:
    """A model to study.

    Attributes:
        name: Its name on the page.
        group: The name without the seed; models of one group differ in their seed only.
        arm: The arm that trained it; "" for a folder.
        source: A `model` or `checkpoint` artifact, or a folder.
        content: Digest of the folder's files; "" for an artifact.
    """

    name: str
    group: str
    arm: str
    source: Artifact | Path
    content: str = ""

    def folder(self) -> Path:
        """The folder with config.json; files of an artifact are verified."""
        return self.source if isinstance(self.source, Path) else self.source.path("model")


def subjects(models: Sequence[str], names: Sequence[str] = ()) -> list[Subject]:
    """Open the models, in order.

    Args:
        models: URIs, or folders with config.json.
        names: Their names; by default arm and seed, or the name of the folder.

    Raises:
        InputError: There is no model, a folder holds none, or names are missing or equal.
    """
    if not models:
        raise InputError("attention needs at least one model: a URI, or a folder with config.json")
    found = [_subject(model) for model in models]
    chosen = unique_names(names, [one.name for one in found], models, "models")
    return [replace(one, name=name, group=name) for one, name in zip(found, chosen, strict=True)] if names else found


def _subject(model: str) -> Subject:
    folder = Path(model)
    if (folder / "config.json").is_file():
        files = {path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
        name = folder.resolve().name
        return Subject(name, name, "", folder, value_sha256(files))
    if folder.is_dir() and not (folder / "manifest.json").is_file():
        raise InputError(f"{model} has no config.json; expected a folder as `save_pretrained` writes it, or a URI")
    artifact = Artifact.open(model, "model", "checkpoint")
    arm, seed = artifact.details["arm"], artifact.details["seed"]
    group = arm if artifact.manifest.kind == "model" else f"{arm}, stage 1"
    return Subject(f"{group}, seed {seed}", group, arm, artifact)
