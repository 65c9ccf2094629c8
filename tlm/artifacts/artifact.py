"""Reading artifacts: by URI, every file verified, inputs found by lineage."""

import fnmatch
import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from tlm.artifacts.digest import SIGNATURE, file_sha256, value_sha256
from tlm.artifacts.manifest import MANIFEST, RUN, FileEntry, InputRef, Manifest
from tlm.artifacts.roots import open_store
from tlm.artifacts.stores.store import Store
from tlm.errors import Damaged, InputError, TlmError, with_article
from tlm.progress import say

USED = "used.json"  # beside the manifest; its age tells `tlm gc` when the artifact was last used
USED_SECONDS = 3600.0  # a younger note is not written again
_NUMBERS = re.compile(r"([0-9]+)")


class Artifact:
    """A published artifact. Its files are verified (size, sha256) before a reader gets their paths."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self.store, self.manifest = store, manifest

    @classmethod
    def open(cls, uri: str, *kinds: str) -> "Artifact":
        """The artifact at ``<root>/<kind>/<key>``, which from now on counts as used.

        Raises:
            InputError: there is none, it is unfinished, damaged, or of another kind than `kinds`.
        """
        root, kind, key = _split(uri)
        if kinds and kind not in kinds:
            raise InputError(f"{uri} is {with_article(kind)}; expected {' or '.join(map(with_article, kinds))}")
        found = cls.find(open_store(root), kind, key)
        if found is None:
            raise InputError(f"{uri}: there is no finished {kind} here; check the URI, or run the step that makes it")
        found.note_use()
        return found

    @classmethod
    def find(cls, store: Store, kind: str, key: str) -> "Artifact | None":
        """The artifact of that kind and key in `store`, or None where it is not (or not yet) whole."""
        name = f"{kind}/{key}/{MANIFEST}"
        data = store.read(name)
        if data is None:
            return None
        manifest = Manifest.from_bytes(data, f"{store.root}/{name}")
        if (manifest.kind, manifest.key) != (kind, key):
            raise Damaged(
                f"{store.root}/{name} is the manifest of {manifest.folder_name}; it was moved: put it back, or repeat "
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

    @property
    def uri(self) -> str:
        """``<root>/<kind>/<key>``: what steps print and take."""
        return f"{self.store.root}/{self.folder_name}"

    @property
    def folder_name(self) -> str:
        """``<kind>/<key>``: the folder below the root."""
        return self.manifest.folder_name

    @property
    def content(self) -> str:
        """Digest of the data files and details; equal artifacts have equal content."""
        return self.manifest.content

    @property
    def details(self) -> dict[str, Any]:
        """Facts that later steps need; part of `content`."""
        return self.manifest.details

    @property
    def counts(self) -> dict[str, Any]:
        """Numbers for people."""
        return self.manifest.counts

    def as_input(self) -> InputRef:
        """How the manifest of what is made from this artifact names it."""
        return InputRef(kind=self.manifest.kind, key=self.manifest.key, content=self.content)

    def input(self, name: str) -> "Artifact":
        """The artifact that was this one's input `name`, from the same root. Raises InputError if it is gone."""
        if name not in self.manifest.inputs:
            raise InputError(f"{self.uri} has no input '{name}'; it has {', '.join(self.manifest.inputs) or 'none'}")
        ref = self.manifest.inputs[name]
        found = Artifact.find(self.store, ref.kind, ref.key)
        if found is None:
            raise InputError(f"{self.uri} was made from {ref.folder_name}, which is gone; run its step again")
        if found.content != ref.content:
            raise InputError(f"{found.uri} differs from what {self.uri} was made from; run the later step again")
        return found

    def has_input(self, name: str) -> bool:
        """Whether this artifact was made from an input called `name`."""
        return name in self.manifest.inputs

    def lineage(self) -> Iterator["Artifact"]:
        """This artifact and all that it was made from, each once, as far as it can be read in the same store."""
        seen: set[str] = set()
        waiting = [self]
        while waiting:
            artifact = waiting.pop()
            if artifact.folder_name in seen:
                continue
            seen.add(artifact.folder_name)
            yield artifact
            for ref in artifact.manifest.inputs.values():
                with suppress(Damaged):
                    found = Artifact.find(self.store, ref.kind, ref.key)
                    waiting += [found] if found is not None else []

    def ancestor(self, kind: str) -> "Artifact | None":
        """The nearest artifact of `kind` among inputs and their inputs, or None. This artifact itself counts."""
        if self.manifest.kind == kind:
            return self
        for name in self.manifest.inputs:
            found = self.input(name).ancestor(kind)
            if found is not None:
                return found
        return None

    def path(self, logical: str) -> Path:
        """A verified local path of one file or sub-folder by the name its step gave (``hits.parquet``, ``model``)."""
        inside = [entry for entry in self.manifest.files if entry.logical.startswith(logical + "/")]
        if inside:
            return self._folder(inside)
        for entry in self.manifest.files:
            if entry.logical == logical:
                return self.verified(entry)
        names = ", ".join(sorted(entry.logical for entry in self.manifest.files))
        raise InputError(f"{self.uri} has no file '{logical}'; it has {names}")

    def paths(self, pattern: str) -> list[Path]:
        """Verified local paths of all files whose logical names match `pattern`, in the order of their names."""
        return [self.verified(entry) for entry in self.entries(pattern)]

    def entries(self, pattern: str = "*") -> list[FileEntry]:
        """Manifest entries by logical name; numbers in names count as numbers, so that shard 100000 follows 99999."""
        return sorted(
            (entry for entry in self.manifest.files if fnmatch.fnmatch(entry.logical, pattern)),
            key=lambda entry: [int(part) if part.isdecimal() else part for part in _NUMBERS.split(entry.logical)],
        )

    def run(self) -> dict[str, Any]:
        """What run.json tells of the run that made it (time, host, seconds, threads); {} where that is lost."""
        data = self.store.read(f"{self.folder_name}/{RUN}")
        if data is None:
            return {}
        try:
            facts: dict[str, Any] = json.loads(data)
            if facts.pop(SIGNATURE, None) in (None, value_sha256(facts)):  # versions before this one did not write it
                return facts
        except (ValueError, AttributeError):  # no JSON any more, or no object
            pass
        say(f"warning: {self.uri}/{RUN} is damaged, so what it told of the run (time, cost) is left out")
        return {}

    def _folder(self, entries: list[FileEntry]) -> Path:
        """The folder of these files, all verified; it has no others, for its reader may take whatever is there."""
        paths = [self.verified(entry) for entry in entries]
        folder = paths[0].parents[entries[0].name.count("/") - 1]
        for path in folder.rglob("*"):
            if path not in paths and path.is_file() and not path.name.startswith("."):
                raise Damaged(f"{path} does not belong to {self.uri}; remove it")
        return folder

    def verified(self, entry: FileEntry) -> Path:
        """A verified local path of one of `entries`: for readers that take one shard at a time."""
        name = f"{self.folder_name}/{entry.name}"
        path = self.store.local(name)
        if not _matches(path, entry):
            self.store.forget(name)
            path = self.store.local(name)
            if not _matches(path, entry):
                raise Damaged(
                    f"{self.uri}/{entry.name} is damaged or missing: size or sha256 differs from the manifest; "
                    f"remove {self.uri} and run its step again"
                )
        return path


def _matches(path: Path, entry: FileEntry) -> bool:
    if not path.is_file():
        return False
    stat = path.stat()
    return stat.st_size == entry.size and _sha256_once(path, stat.st_size, stat.st_mtime_ns) == entry.sha256


@lru_cache(maxsize=65536)
def _sha256_once(path: Path, size: int, modified_ns: int) -> str:
    return file_sha256(path)


def _split(uri: str) -> tuple[str, str, str]:
    root, _, rest = uri.rstrip("/").rpartition("/")
    root, _, kind = root.rpartition("/")
    if not (root and kind and rest):
        raise InputError(f"'{uri}' is no artifact URI; expected <root>/<kind>/<key> as a step prints it")
    return root, kind, rest
