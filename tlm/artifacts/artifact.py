"""Artifacts: a manifest, written last, that names every file and input; files are verified when they are read."""

import fnmatch
import json
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from tlm import __version__
from tlm.artifacts.stores import named_root, open_store
from tlm.artifacts.stores.store import KINDS, Store, file_sha256, signed_facts, signed_json, value_sha256
from tlm.errors import Damaged, InputError, TlmError, with_article
from tlm.progress import say, track

MANIFEST = "manifest.json"
RUN = "run.json"

_NAME = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_DIGEST_IN_NAME = re.compile(r"-[0-9a-f]{16}(?=(\.[^.]*)?$)")
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
    """The facts about an artifact that never change. Time and host are in run.json beside it.

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

    def to_bytes(self) -> bytes:
        """Return the bytes of the published file; equal manifests have equal bytes."""
        return signed_json(self.model_dump())

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "Manifest":
        """Parse and check a published manifest at the address `where`. Raises Damaged; InputError if it is newer."""
        facts = signed_facts(data)
        if facts is None:
            raise Damaged(f"{where}: the manifest is damaged or from another version; repeat its step")
        try:
            return cls.model_validate(facts)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the file"
            raise InputError(f"{where}: {field}: {first['msg']}; a newer tlm wrote it; upgrade here") from None


def content_digest(files: list[FileEntry], details: dict[str, Any]) -> str:
    """Return the digest that is equal exactly when the data files (name, sha256) and the details are equal."""
    return value_sha256({"files": sorted([file.name, file.sha256] for file in files), "details": details})


def add_files(store: Store, place: str, folder: Path, rows: dict[str, int]) -> list[FileEntry]:
    """Move every file in `folder` to `place` in the store, under its published name; return the entries, by name.

    A file gets 16 digits of its sha256 into its name. A sub-folder (such as a model, whose readers expect certain file
    names) gets 16 digits over all its files. So a second writer cannot damage what is published.

    Args:
        store: The store of the artifact.
        place: Its folder there: ``<kind>/<key>``.
        folder: Folder with its files.
        rows: Row counts by logical name.
    """
    entries: list[FileEntry] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            digests = {file: file_sha256(file) for file in sorted(path.rglob("*")) if file.is_file()}
            whole = value_sha256({str(file.relative_to(path)): sha256 for file, sha256 in digests.items()})
        else:
            whole = file_sha256(path)
            digests = {path: whole}
        published = Path(f"{path.stem}-{whole[:16]}{path.suffix}")
        for file, sha256 in digests.items():
            name, size = (published / file.relative_to(path)).as_posix(), file.stat().st_size
            entries.append(FileEntry(name=name, size=size, sha256=sha256, rows=rows.get(path.name)))
            store.add(f"{place}/{name}", file)
    return sorted(entries, key=lambda entry: entry.name)


USED = "used.json"  # beside the manifest; its age tells `tlm gc` when the artifact was last used
USED_SECONDS = 3600.0  # a younger note is not written again


class Artifact:
    """A published artifact, whose files are verified (size, sha256) before a reader gets their paths.

    Attributes:
        store: Store that holds it.
        manifest: Kind, inputs, files and all else that is known about it.
        folder_name: The folder below the root: ``<kind>/<key>``.
        uri: The address that steps print and take: ``<root>/<kind>/<key>``.
        content: Digest of the data files and details; equal artifacts have equal content.
        details: Facts that later steps need; part of `content`.
        counts: Numbers for users; not part of `content`.
    """

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self.store, self.manifest, self.folder_name = store, manifest, manifest.folder_name
        self.uri = f"{store.root}/{self.folder_name}"
        self.content, self.details, self.counts = manifest.content, manifest.details, manifest.counts
        self._known: dict[str, Artifact | None] = {}

    @classmethod
    def open(cls, uri: str, *kinds: str) -> "Artifact":
        """Open the artifact at ``<root>/<kind>/<key>``, and note that it is used.

        Args:
            uri: URI of the artifact, as a step printed it.
            kinds: Kinds that are accepted; without any, all are.

        Raises:
            InputError: there is none, or it is unfinished, damaged, or of another kind.
        """
        folder, _, key = uri.rstrip("/").rpartition("/")
        root, _, kind = folder.rpartition("/")
        if not (root and kind and key) or (kinds and kind not in (*kinds, *KINDS)):
            raise InputError(f"'{uri}' is no artifact URI; expected <root>/<kind>/<key> as a step prints it")
        if kinds and kind not in kinds:
            raise InputError(f"{uri} is {with_article(kind)}; expected {' or '.join(map(with_article, kinds))}")
        found = cls.find(open_store(root), kind, key)
        if found is None:
            raise InputError(f"{uri}: there is no finished {kind} here; check the URI, or run the step that makes it")
        found.note_use()
        return found

    @classmethod
    def find(cls, store: Store, kind: str, key: str) -> "Artifact | None":
        """Return the artifact of that kind and key in `store`, or None if it is missing or unfinished."""
        name = f"{kind}/{key}/{MANIFEST}"
        data = store.read(name)
        if data is None:
            return None
        manifest = Manifest.from_bytes(data, f"{store.root}/{name}")
        if (manifest.kind, manifest.key) != (kind, key):
            raise Damaged(
                f"{store.root}/{name} is the manifest of {manifest.folder_name}; move it back there, or repeat "
                f"the step that makes {kind}/{key}"
            )
        return cls(store, manifest)

    def note_use(self) -> None:
        """Note that the artifact is used now; no error if the store cannot be written to."""
        name = f"{self.folder_name}/{USED}"
        with suppress(TlmError, OSError):
            noted = max((stored.modified for stored in self.store.list(name)), default=0.0)
            if time.time() - noted > USED_SECONDS:
                self.store.write(name, time.strftime('{"used":"%Y-%m-%dT%H:%M:%SZ"}\n', time.gmtime()).encode())

    def as_input(self) -> Reference:
        """Return the reference to this artifact for the manifest of one that is made from it."""
        return Reference(kind=self.manifest.kind, key=self.manifest.key, content=self.content)

    def input(self, name: str) -> "Artifact":
        """Return the input `name` of this artifact, from the same store. Raises InputError if it is gone."""
        if name not in self.manifest.inputs:
            raise InputError(f"{self.uri} has no input '{name}'; it has {', '.join(self.manifest.inputs) or 'none'}")
        ref = self.manifest.inputs[name]
        found = Artifact.find(self.store, ref.kind, ref.key)
        if found is None:
            raise InputError(f"{self.uri} was made from {ref.folder_name}, which is gone; run its step again")
        if found.content != ref.content:
            raise InputError(f"{found.uri} differs from what {self.uri} was made from; run the later step again")
        return found

    def _opened(self, name: str) -> "Artifact | None":
        """The input `name`, opened once for all artifacts that were reached from the same one; None if it is gone."""
        ref = self.manifest.inputs.get(name)
        if ref is None:
            return None
        if ref.folder_name not in self._known:
            self._known[ref.folder_name] = None
            with suppress(InputError):
                found = self._known[ref.folder_name] = self.input(name)
                found._known = self._known
        return self._known[ref.folder_name]

    def lineage(self, *through: str) -> Iterator["Artifact"]:
        """Yield this artifact, then all that it was made from and that is there: each once, the nearest first.

        Given kinds, it looks for the inputs of artifacts of these kinds only.
        """
        seen, waiting = set[str](), deque([self])
        while waiting:
            artifact = waiting.popleft()
            if artifact.folder_name not in seen:
                seen.add(artifact.folder_name)
                yield artifact
                if not through or artifact.manifest.kind in through:
                    waiting += filter(None, (follow(artifact, name) for name in artifact.manifest.inputs))

    def nearest(self, kind: str) -> "Artifact | None":
        """Return the artifact of that kind that is nearest to this one in its lineage; None if there is none."""
        return next((one for one in self.lineage() if one.manifest.kind == kind), None)

    def path(self, logical: str) -> Path:
        """Return a verified local path of a file or sub-folder by its logical name (``hits.parquet``, ``model``)."""
        files = {entry.logical: entry for entry in self.manifest.files}
        if logical in files:
            return self.verified(files[logical])
        inside = [entry for name, entry in files.items() if name.startswith(f"{logical}/")]
        if not inside:
            raise InputError(f"{self.uri} has no file '{logical}'; it has {', '.join(sorted(files))}")
        return self._folder(inside)

    def json(self, logical: str) -> Any:
        """Return what a JSON file holds (``report.json``)."""
        return json.loads(self.path(logical).read_text(encoding="utf-8"))

    def address(self, logical: str) -> str:
        """Return the URI of a top-level folder by its logical name (``model``). The digest of the files is in it."""
        inside = next(entry for entry in self.manifest.files if entry.logical.startswith(f"{logical}/"))
        return f"{self.uri}/{inside.name.partition('/')[0]}"

    def entries(self, pattern: str = "*") -> list[FileEntry]:
        """Return the entries whose logical names match `pattern`, sorted so that 99999 comes before 100000."""
        chosen = [entry for entry in self.manifest.files if fnmatch.fnmatchcase(entry.logical, pattern)]
        return sorted(chosen, key=lambda entry: re.sub("[0-9]+", lambda number: number[0].zfill(12), entry.logical))

    def run(self) -> dict[str, Any]:
        """Return the facts about the run that made it (time, host, seconds, threads); {} if they are lost."""
        data = self.store.read(f"{self.folder_name}/{RUN}")
        facts = {} if data is None else signed_facts(data)
        if facts is None:
            say(f"warning: {self.uri}/{RUN} is damaged, so the facts about the run (time, cost) are left out")
        return facts or {}

    def _folder(self, entries: list[FileEntry]) -> Path:
        """Return the folder of these files, all verified. It has no others, as its reader may load any file in it."""
        shown = track(entries, f"reading {self.folder_name}", len(entries), "files")  # on S3, each is a download
        paths = dict.fromkeys(map(self.verified, shown))  # a set that keeps their order
        folder = next(iter(paths)).parents[entries[0].name.count("/") - 1]  # the first in the names of the entries
        for path in folder.rglob("*"):
            if path not in paths and path.is_file() and not path.name.startswith("."):
                raise Damaged(f"{path} does not belong to {self.uri}; remove it")
        return folder

    def verified(self, entry: FileEntry) -> Path:
        """Return a verified local path of one of `entries`, for readers that take one shard at a time."""
        name = f"{self.folder_name}/{entry.name}"
        for _ in range(5):
            path = self.store.local(name)
            if _matches(path, entry):
                return path
            self.store.forget(name)  # damaged, or just removed by another process: repeat it
        raise Damaged(
            f"{self.uri}/{entry.name} is damaged or missing: size or sha256 differs from the manifest; "
            f"remove {self.uri} and run its step again"
        )


def follow(start: Artifact | None, *names: str) -> Artifact | None:
    """Return the input `names[0]` of `start`, that one's input `names[1]` and so on; None if one is missing or gone."""
    found = start
    for name in names:
        found = found._opened(name) if found is not None else None
    return found


def share_inputs(artifacts: Iterable[Artifact]) -> None:
    """Let artifacts that were made from the same ones open these only once, which takes a while on S3."""
    known: dict[str, Artifact | None] = {}
    for artifact in artifacts:
        artifact._known = known


def remove(store: Store, folder: str) -> None:
    """Remove all files in a folder of `store`, the manifests first: without a manifest there is no artifact."""
    files = sorted(store.list(f"{folder}/"), key=lambda stored: not stored.name.endswith(f"/{MANIFEST}"))
    for stored in track(files, f"removing {folder}", len(files), "files"):
        store.delete(stored.name)


def _matches(path: Path, entry: FileEntry) -> bool:
    if not path.is_file():
        return False
    stat = path.stat()
    return stat.st_size == entry.size and _sha256_once(path, stat.st_size, stat.st_mtime_ns) == entry.sha256


@lru_cache(maxsize=65536)
def _sha256_once(path: Path, size: int, modified_ns: int) -> str:
    return file_sha256(path)


def home(root: str | None, inputs: Iterable[Artifact]) -> Store:
    """Return the store at `root`, else at ``TLM_ROOT``, else that of the inputs, else ``./artifacts``.

    Raises:
        InputError: an input, or something that it was made from, is not in that store; or the inputs are in different
            stores and no root is named.
    """
    inputs = list(inputs)
    named = named_root(root)
    store = open_store(root) if named or not inputs else inputs[0].store
    for artifact in inputs:
        if artifact.store.root != store.root:
            if not named:
                raise InputError(
                    f"{inputs[0].uri} and {artifact.uri} lie in different stores; name one that holds both with --root"
                )
            _check_copied(artifact, store)
    return store


def _check_copied(artifact: Artifact, store: Store) -> None:
    """Check that the artifact and all that it was made from are in `store`: this step or a later one needs them."""
    for source in artifact.lineage():
        copy = Artifact.find(store, source.manifest.kind, source.manifest.key)
        if copy is None or copy.content != source.content:
            raise InputError(
                f"{source.uri} is not in {store.root}, where this step looks for its inputs and writes; give --root "
                f"{source.store.root}, or copy it and what it was made from to {store.root}"
            )
