"""The manifest of an artifact: what it is, what it was made from, and which files it has. It is written last."""

import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from tlm import __version__
from tlm.artifacts.digest import file_sha256, signed_json, value_sha256
from tlm.errors import Damaged

MANIFEST = "manifest.json"
RUN = "run.json"

_NAME = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_DIGEST_IN_NAME = re.compile(r"-[0-9a-f]{16}(?=(\.[^.]*)?$)")
_DAMAGED = "the manifest is damaged or from another version; repeat its step"
_CHECKED = ConfigDict(extra="forbid", frozen=True)


def _inside(name: str) -> str:
    if not _NAME.fullmatch(name) or not {".", ".."}.isdisjoint(name.split("/")):
        raise ValueError(f"file name {name!r} leaves the artifact's folder or has characters that are not allowed")
    return name


# Snapshots of unfinished work are artifacts too: kind progress/<key>, key step-<number>.
Kind: TypeAlias = Annotated[str, Field(pattern=r"^[a-z-]{1,32}(/[0-9a-z-]{1,32})?$")]
Key: TypeAlias = Annotated[str, Field(pattern=r"^([0-9a-f]{24}|step-[0-9]{9})$")]
Digest: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FileEntry(BaseModel):
    """A data file of an artifact.

    Attributes:
        name: Published name, with 16 digits of its sha256.
        size: Bytes.
        sha256: Digest of its bytes, in hex.
        rows: Number of rows, if it is a table.
    """

    model_config = _CHECKED
    name: Annotated[str, AfterValidator(_inside)]
    size: Annotated[int, Field(ge=0)]
    sha256: Digest
    rows: Annotated[int, Field(ge=0)] | None = None

    @property
    def logical(self) -> str:
        """The name that the step gave it: ``hits-0123456789abcdef.parquet`` is ``hits.parquet``."""
        first, *rest = self.name.split("/")
        return "/".join([_DIGEST_IN_NAME.sub("", first, count=1), *rest])


class Reference(BaseModel):
    """A reference to an artifact. It has no address, because stores can be moved.

    Attributes:
        kind: Kind of the artifact, such as corpus.
        key: Digest of its recipe, 24 hex digits; of a snapshot, its step.
        content: Digest of its files and details.
    """

    model_config = _CHECKED
    kind: Kind
    key: Key
    content: Digest

    @property
    def folder_name(self) -> str:
        """The folder below the root: ``<kind>/<key>``."""
        return f"{self.kind}/{self.key}"


class Manifest(Reference):
    """What is known about an artifact and never changes. Time and host are in run.json beside it.

    Attributes:
        schema_name: Name of this format.
        schema_version: Version of this format.
        step: Step that made it.
        version: Version of the step's method.
        settings: Settings of the step that change the result.
        inputs: Inputs of the step, by name.
        counts: Numbers for users.
        details: Facts that later steps need.
        files: Its data files, by name.
        tool: Version of tlm that made it.
        sha256: Digest of all the rest; only in the published file.
    """

    schema_name: Literal["tlm.manifest"] = "tlm.manifest"
    schema_version: Literal[1] = 1
    step: str
    version: int
    settings: dict[str, Any]
    inputs: dict[str, Reference]
    counts: dict[str, Any]
    details: dict[str, Any]
    files: list[FileEntry]
    tool: str = __version__
    sha256: Digest | None = Field(default=None, exclude=True)

    def to_bytes(self) -> bytes:
        """Return the bytes of the published file; equal manifests have equal bytes."""
        return signed_json(self.model_dump())

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "Manifest":
        """Parse and check a published manifest. Raises Damaged, with the address `where`, if it cannot be read."""
        try:
            manifest = cls.model_validate_json(data)
            content, whole = content_digest(manifest.files, manifest.details), value_sha256(manifest.model_dump())
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the file"
            raise Damaged(f"{where}: {field}: {first['msg']}; {_DAMAGED}") from None
        except ValueError as error:  # NaN or a lone surrogate, which our JSON never has
            raise Damaged(f"{where}: details: {error}; {_DAMAGED}") from None
        if manifest.content != content:
            raise Damaged(f"{where}: content: is not that of the files and details; {_DAMAGED}")
        if manifest.sha256 not in (None, whole):  # earlier versions did not write it
            raise Damaged(f"{where}: sha256: is not that of the rest; {_DAMAGED}")
        return manifest.model_copy(update={"sha256": None})


def content_digest(files: list[FileEntry], details: dict[str, Any]) -> str:
    """Return the digest that is equal exactly when the data files (name, sha256) and the details are equal."""
    return value_sha256({"files": sorted([file.name, file.sha256] for file in files), "details": details})


def seal(folder: Path, rows: dict[str, int]) -> list[FileEntry]:
    """Rename every file in `folder` to its published name, and return the entries, sorted by name.

    A file gets 16 digits of its sha256 into its name. A sub-folder (such as a model, whose readers expect certain file
    names) gets 16 digits over all its files. So a second writer cannot damage what is published.

    Args:
        folder: Folder with the files of the artifact.
        rows: Row counts by logical name.
    """
    entries: list[FileEntry] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            entries += _seal_folder(path)
        else:
            sha256 = file_sha256(path)
            sealed = path.rename(path.with_name(_with_digest(path.name, sha256)))
            size = sealed.stat().st_size
            entries.append(FileEntry(name=sealed.name, size=size, sha256=sha256, rows=rows.get(path.name)))
    return sorted(entries, key=lambda entry: entry.name)


def _seal_folder(folder: Path) -> list[FileEntry]:
    inner = {file.relative_to(folder): file_sha256(file) for file in sorted(folder.rglob("*")) if file.is_file()}
    digest = value_sha256({str(name): sha256 for name, sha256 in inner.items()})
    sealed = folder.rename(folder.with_name(_with_digest(folder.name, digest)))
    return [
        FileEntry(name=f"{sealed.name}/{name.as_posix()}", size=(sealed / name).stat().st_size, sha256=sha256)
        for name, sha256 in inner.items()
    ]


def _with_digest(name: str, sha256: str) -> str:
    suffix = "".join(PurePosixPath(name).suffixes[-1:])
    return f"{name.removesuffix(suffix)}-{sha256[:16]}{suffix}"
