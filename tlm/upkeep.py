"""Looking after a store: list what is there, fetch an artifact out of it, remove what no kept run needs."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.manifest import MANIFEST
from tlm.artifacts.roots import open_store, resolve_root
from tlm.artifacts.store import Store
from tlm.errors import InputError
from tlm.progress import say

HOUR = 3600.0
RESULTS = ("report", "study")  # what people read: with what it was made from, it is kept


def fetch(uri: str, folder: str, *, force: bool = False) -> str:
    """Copy an artifact's files, verified, into a folder under their plain names.

    A model, checkpoint or tokenizer arrives so that ``from_pretrained(folder)`` loads it.

    Args:
        uri: URI of the artifact, as a step printed it.
        folder: Folder to write to; made where it is absent.
        force: Write even if the folder is not empty.
    """
    artifact, target = Artifact.open(uri), Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())) and not force:
        raise InputError(f"{folder} is not an empty folder; name another, or give --force to write into it")
    for entry in artifact.entries():
        name = entry.logical.removeprefix("model/").removeprefix("tokenizer/")
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(artifact.verified(entry), path)
    return folder


def ls(*, kind: str = "", root: str | None = None) -> str:
    """List the finished artifacts, oldest first: when made, kind, key, size, main counts.

    Args:
        kind: Only artifacts of this kind.
        root: Where artifacts are kept.
    """
    lines = []
    for modified, artifact in _finished(open_store(resolve_root(root))):
        manifest = artifact.manifest
        if kind not in ("", manifest.kind):
            continue
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(modified))
        size = sum(entry.size for entry in manifest.files) / 1e6
        counts = " ".join(f"{name}={value}" for name, value in list(manifest.counts.items())[:4])
        lines.append(f"{when}  {manifest.kind:<10} {manifest.key}  {size:>9,.1f} MB  {counts}".rstrip())
    return "\n".join(lines) or "no finished artifacts here"


def gc(*, keep_runs: int = 3, older_than_hours: float = 24.0, delete: bool = False, root: str | None = None) -> str:
    """Remove what the newest reports and studies do not need: artifacts, unfinished work and uploads, indices.

    A dry run unless ``--delete`` is given. What is younger than ``--older-than-hours`` stays: it may belong to a
    run under way.

    Args:
        keep_runs: How many of the newest reports, and of the newest studies, are kept, with all they were made from.
        older_than_hours: Spare what is younger than this.
        delete: Really remove.
        root: Where artifacts are kept.
    """
    if keep_runs < 0 or older_than_hours < 0:
        raise InputError("keep-runs and older-than-hours must not be negative")
    store = open_store(resolve_root(root))
    needed = _needed(store, keep_runs)
    horizon = time.time() - older_than_hours * HOUR
    folders: dict[str, list[tuple[str, int, float]]] = {}
    for stored in store.list(""):
        folders.setdefault("/".join(stored.name.split("/")[:2]), []).append((stored.name, stored.size, stored.modified))
    freed = 0
    for folder, files in sorted(folders.items()):
        if folder in needed or max(modified for _, _, modified in files) > horizon:
            continue
        freed += sum(size for _, size, _ in files)
        say(f"{'removing' if delete else 'would remove'} {folder}")
        if delete:
            _remove(store, folder, [name for name, _, _ in files])
    for name in store.abandoned(horizon, delete):
        say(f"{'removing' if delete else 'would remove'} the unfinished upload of {name}")
    return f"{freed / 1e6:,.1f} MB {'freed' if delete else 'would be freed; give --delete to remove'}"


def _finished(store: Store) -> list[tuple[float, Artifact]]:
    found: list[tuple[float, Artifact]] = []
    for stored in store.list(""):
        parts = stored.name.split("/")
        if len(parts) == 3 and parts[2] == MANIFEST:
            artifact = Artifact.find(store, parts[0], parts[1])
            if artifact is not None:
                found.append((stored.modified, artifact))
    return sorted(found, key=lambda pair: (pair[0], pair[1].folder_name))


def _needed(store: Store, keep_runs: int) -> set[str]:
    newest = [artifact for _, artifact in reversed(_finished(store))]
    needed: set[str] = set()
    for kind in RESULTS:
        for result in [artifact for artifact in newest if artifact.manifest.kind == kind][:keep_runs]:
            needed.update(_with_inputs(result, needed))
    return needed


def _with_inputs(artifact: Artifact, known: set[str]) -> Iterator[str]:
    if artifact.folder_name in known:
        return
    yield artifact.folder_name
    for ref in artifact.manifest.inputs.values():
        source = Artifact.find(artifact.store, ref.kind, ref.key)
        if source is not None:
            yield from _with_inputs(source, known)


def _remove(store: Store, folder: str, names: list[str]) -> None:
    kind, _, key = folder.partition("/")
    artifact = Artifact.find(store, kind, key) if kind == "index" else None
    if artifact is not None and artifact.details.get("engine") == "elasticsearch":
        from tlm.retrieval.elastic import drop_index
        from tlm.retrieval.index import located

        drop_index(located(artifact))
    for name in sorted(
        names, key=lambda name: not name.endswith(MANIFEST)
    ):  # manifest first: then nobody reads the rest
        store.delete(name)
