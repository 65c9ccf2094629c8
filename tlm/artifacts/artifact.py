"""Read artifacts by URI: every file is verified, and inputs are found through the manifest."""

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
from tlm.artifacts.manifest import MANIFEST, RUN, FileEntry, Manifest, Reference
from tlm.artifacts.roots import open_store
from tlm.artifacts.stores.store import Store
from tlm.errors import Damaged, InputError, TlmError, with_article
from tlm.progress import say

USED = "used.json"  # beside the manifest; its age tells `tlm gc` when the artifact was last used
USED_SECONDS = 3600.0  # a younger note is not written again
LONGEST_NUMBER = 12  # digits
_NUMBERS = re.compile(r"[0-9]+")


class Artifact:
    """A published artifact, whose files are verified (size, sha256) before a reader gets their paths.

    Attributes:
        store: Store that holds it.
        manifest: What it is, what it was made from, and which files it has.
    """

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self.store, self.manifest = store, manifest

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
        if not (root and kind and key):
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

    @property
    def uri(self) -> str:
        """The address that steps print and take: ``<root>/<kind>/<key>``."""
        return f"{self.store.root}/{self.folder_name}"

    @property
    def folder_name(self) -> str:
        """The folder below the root: ``<kind>/<key>``."""
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
        """Numbers for users; not part of `content`."""
        return self.manifest.counts

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

    def lineage(self) -> Iterator["Artifact"]:
        """Yield this artifact and all that it was made from, each once, as far as the same store has them."""
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

    def path(self, logical: str) -> Path:
        """Return a verified local path of a file or sub-folder by its logical name (``hits.parquet``, ``model``)."""
        files = {entry.logical: entry for entry in self.manifest.files}
        if logical in files:
            return self.verified(files[logical])
        inside = [entry for name, entry in files.items() if name.startswith(f"{logical}/")]
        if not inside:
            raise InputError(f"{self.uri} has no file '{logical}'; it has {', '.join(sorted(files))}")
        return self._folder(inside)

    def address(self, logical: str) -> str:
        """Return the URI of a top-level folder by its logical name (``model``). The digest of the files is in it."""
        for entry in self.manifest.files:
            if entry.logical.startswith(f"{logical}/"):
                return f"{self.uri}/{entry.name.partition('/')[0]}"
        raise InputError(f"{self.uri} has no folder '{logical}'")

    def entries(self, pattern: str = "*") -> list[FileEntry]:
        """Return the entries whose logical names match `pattern`, sorted so that 99999 comes before 100000."""
        matches = re.compile(fnmatch.translate(pattern)).match
        return sorted(
            (entry for entry in self.manifest.files if matches(entry.logical)),
            key=lambda entry: _NUMBERS.sub(lambda number: number[0].zfill(LONGEST_NUMBER), entry.logical),
        )

    def run(self) -> dict[str, Any]:
        """Return the facts about the run that made it (time, host, seconds, threads); {} if they are lost."""
        data = self.store.read(f"{self.folder_name}/{RUN}")
        if data is None:
            return {}
        try:
            facts: dict[str, Any] = json.loads(data)
            if facts.pop(SIGNATURE, None) in (None, value_sha256(facts)):  # earlier versions did not write it
                return facts
        except (ValueError, AttributeError):  # no JSON, or no object
            pass
        say(f"warning: {self.uri}/{RUN} is damaged, so the facts about the run (time, cost) are left out")
        return {}

    def _folder(self, entries: list[FileEntry]) -> Path:
        """Return the folder of these files, all verified. It has no others, as its reader may load any file in it."""
        paths = [self.verified(entry) for entry in entries]
        folder = paths[0].parents[entries[0].name.count("/") - 1]
        for path in folder.rglob("*"):
            if path not in paths and path.is_file() and not path.name.startswith("."):
                raise Damaged(f"{path} does not belong to {self.uri}; remove it")
        return folder

    def verified(self, entry: FileEntry) -> Path:
        """Return a verified local path of one of `entries`, for readers that take one shard at a time."""
        name = f"{self.folder_name}/{entry.name}"
        for _ in range(2):
            path = self.store.local(name)
            if _matches(path, entry):
                return path
            self.store.forget(name)  # a damaged download is repeated once
        raise Damaged(
            f"{self.uri}/{entry.name} is damaged or missing: size or sha256 differs from the manifest; "
            f"remove {self.uri} and run its step again"
        )


def remove(store: Store, folder: str) -> None:
    """Remove all files in a folder of `store`, the manifests first: without a manifest there is no artifact."""
    for stored in sorted(store.list(f"{folder}/"), key=lambda stored: not stored.name.endswith(f"/{MANIFEST}")):
        store.delete(stored.name)


def _matches(path: Path, entry: FileEntry) -> bool:
    if not path.is_file():
        return False
    stat = path.stat()
    return stat.st_size == entry.size and _sha256_once(path, stat.st_size, stat.st_mtime_ns) == entry.sha256


@lru_cache(maxsize=65536)
def _sha256_once(path: Path, size: int, modified_ns: int) -> str:
    return file_sha256(path)
