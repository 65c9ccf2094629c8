"""Maintain a store: list its artifacts, copy one out of it, remove what no kept run needs."""

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from tlm.artifacts.artifact import MANIFEST, Artifact, home
from tlm.artifacts.artifact import remove as remove_artifact
from tlm.artifacts.stores import IDENTITY, identity, open_store
from tlm.artifacts.stores.local import here
from tlm.artifacts.stores.store import KINDS, Store, Stored, folder_of
from tlm.data.parallel import in_threads
from tlm.errors import Damaged, InputError, nearest, printable
from tlm.progress import Answer, say, track
from tlm.settings.options import NOT_NEGATIVE
from tlm.shallow.folder import CONFIG, KNOWN, UNFINISHED

DAY = 86_400.0
SHOWN = 4  # counts by reason or label
RESULTS = ("report", "study")  # what users read
CARD = "README.md"
ORIGIN = "\n## Provenance\n\n`tlm provenance {}` lists every source of this model, with its licence.\n"
READERS = 10  # of manifests at once: on S3 each is a request, and boto3 keeps as many connections
TRAINED = ("checkpoint", "model", "metrics")  # what takes long to make


def download(uri: str, folder: str, *, force: bool = False) -> str:
    """Copy the verified files of an artifact into a folder, under their names without digests.

    A model, checkpoint or tokenizer is copied so that ``from_pretrained(folder)`` loads it. A model's card gets a line
    on where it comes from, and its folder has ``tlm.json``, with its URI, and its version for `tlm serve`. An
    interrupted copy can be repeated; until it is whole, the folder has a file ``.unfinished-download``.

    Args:
        uri: URI of the artifact, as a step printed it.
        folder: Folder to write to; created if necessary.
        force: Write even if the folder is not empty.
    """
    artifact, target = Artifact.open(uri), here(folder)
    unfinished = target / UNFINISHED
    continues = unfinished.is_file() and unfinished.read_text() in ("", artifact.uri)  # "": the disk was full
    is_taken = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if is_taken and not (continues or force):
        raise InputError(f"{target} is not an empty folder; name another, or give --force to write into it")
    target.mkdir(parents=True, exist_ok=True)
    unfinished.write_text(artifact.uri)
    files = artifact.entries()
    for entry in track(files, f"copying {artifact.folder_name}", len(files), "files"):
        name = entry.logical.removeprefix("model/").removeprefix("tokenizer/")
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(artifact.verified(entry), path)
        if name == CARD:
            with path.open("a", encoding="utf-8") as card:
                card.write(ORIGIN.format(artifact.uri))
    if (target / CONFIG).is_file():
        known: dict[str, Any] = {"uri": artifact.uri, "content": artifact.content}
        if task := artifact.nearest("task"):
            known["pair"] = bool(task.details["pair"])
        (target / KNOWN).write_text(json.dumps(known) + "\n", encoding="utf-8")
    unfinished.unlink()
    return str(target)


def ls(*, kind: str = "", root: str | None = None) -> Answer:
    """List the finished artifacts, oldest first: time, kind, key, size, what it is of, counts. As JSON, objects.

    Args:
        kind: Only artifacts of this kind, such as task, model or report.
        root: Store to look at; by default TLM_ROOT, else ./artifacts.
    """
    if kind and kind not in KINDS:
        raise InputError(f"unknown kind '{kind}'{nearest(kind, KINDS)}")
    lines, facts = list[str](), list[dict[str, Any]]()
    store = open_store(root)
    for stored, artifact in _artifacts(store, store.list(f"{kind}/" if kind else ""), skipped=InputError):
        if artifact is None or artifact.manifest.kind.startswith("progress/"):
            continue
        manifest, size = artifact.manifest, sum(entry.size for entry in artifact.manifest.files)
        finished = time.gmtime(stored.modified)
        counts = [f"{name} {_count(value)}" for name, value in manifest.counts.items() if value]
        about = printable(", ".join([*_about(manifest.details), *counts]))
        shown = f"{time.strftime('%Y-%m-%d %H:%M', finished)}  {manifest.kind:<10} {manifest.key}"
        lines.append(f"{shown}  {size / 1e6:>9,.1f} MB  {about}".rstrip())
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", finished)
        fact = {"uri": artifact.uri, "kind": manifest.kind, "finished": when, "bytes": size}
        facts.append(fact | {"content": manifest.content, "counts": manifest.counts, "details": manifest.details})
    return Answer("\n".join(lines) or f"no finished artifacts in {store.root}", facts)


def _about(details: dict[str, Any]) -> Iterator[str]:
    """The task or name of an artifact, its arm and seed, and its score on test."""
    yield from (str(details[name]) for name in ("name", "task", "arm") if details.get(name))
    if "seed" in details and not details.get("fixed"):
        yield f"seed {details['seed']}"
    if isinstance(details.get("test"), float):
        yield f"{details['metric']} {details['test']:.4f} on test"


def _count(value: Any) -> str:
    """Return a count in short form; of counts by reason or label, the largest few."""
    if isinstance(value, dict) and value:
        largest = sorted(value.items(), key=lambda item: -item[1])[:SHOWN]
        shown = [f"{name} {_count(part)}" for name, part in largest]
        if len(value) > SHOWN:
            shown.append(f"{len(value) - SHOWN} more")
        return "{" + ", ".join(shown) + "}"
    return f"{value:.3g}" if isinstance(value, int | float) and value >= 1e9 else f"{value or 0:,}"


def gc(
    *,
    keep_runs: int = 3,
    keep: Sequence[str] = (),
    remove: Sequence[str] = (),
    unused_days: float = 7.0,
    delete: bool = False,
    root: str | None = None,
) -> Answer:
    """Remove what no kept run needs: artifacts, unfinished work and uploads, Elasticsearch indices.

    Without ``--delete``, this is a dry run. Kept are the newest reports and studies of each task, everything that was
    made or used in the last days (a running pipeline may need it), checkpoints, models and metrics that no report or
    study covers, and whatever these were made from. Files that are not of an artifact, a snapshot or an upload of tlm
    are left alone. As JSON: folders, uploads, their bytes, the number of other files, whether anything was deleted.

    Args:
        keep_runs: How many of each task's newest reports, and of its newest studies, to keep. Tasks with the same file
            name and the same labels are versions of one task.
        keep: URI of an artifact to keep as well, such as a model that is served; may be repeated.
        remove: URI of an artifact to remove with all that was made from it, used or not, such as a task with a text
            that has to be forgotten; may be repeated.
        unused_days: Remove only what was neither made nor used for this many days.
        delete: Really remove; without it, only list.
        root: Store to look at; by default TLM_ROOT, else ./artifacts.
    """
    NOT_NEGATIVE.check("keep_runs", keep_runs)
    NOT_NEGATIVE.check("unused_days", unused_days)
    store = open_store(root)
    pinned, removed = ([Artifact.open(uri) for uri in uris] for uris in (keep, remove))
    home(store.root, [*pinned, *removed])
    horizon = time.time() - unused_days * DAY
    folders, others = _by_folder(store)
    found = list(_artifacts(store, chain.from_iterable(folders.values())))
    artifacts = [artifact for _, artifact in found if artifact is not None]
    made_from = {one.folder_name: {source.folder_name for source in one.manifest.inputs.values()} for one in artifacts}
    doomed = _with_products([one.folder_name for one in removed], made_from)
    if both := [one.uri for one in pinned if one.folder_name in doomed]:
        raise InputError(f"--keep names {both[0]}, which --remove removes; leave one of them out")
    young = (folder for folder, files in folders.items() if _young(files, horizon))
    damaged = (folder_of(stored.name) for stored, artifact in found if artifact is None)
    kept = chain(_kept(artifacts, made_from, keep_runs, doomed), young, damaged, (one.folder_name for one in pinned))
    needed = _with_sources(kept, made_from) - doomed
    freed, unneeded, removing = 0, list[str](), "removing" if delete else "would remove"
    for folder in sorted(folders.keys() - needed):
        if delete and folder not in doomed and _young(store.list(f"{folder}/"), horizon):  # used in the meantime
            continue
        freed += sum(stored.size for stored in folders[folder])
        unneeded.append(folder)
        say(f"{removing} {folder}")
        if delete:
            _remove(store, folder)
    uploads = list[str]()
    for name in store.abandoned(horizon, delete):
        uploads.append(name)
        say(f"{removing} the unfinished upload of {name}")
    summary = f"{freed / 1e6:,.1f} MB {'freed' if delete else 'would be freed; give --delete to remove'}"
    if others:
        summary += f"; {others:,} other {'file is' if others == 1 else 'files are'} left alone"
    facts = {"folders": unneeded, "uploads": uploads, "bytes": freed, "other_files": others, "deleted": delete}
    return Answer(summary, facts)


def _by_folder(store: Store) -> tuple[dict[str, list[Stored]], int]:
    """Return all files of artifacts and snapshots by folder, and the number of files that are not of tlm."""
    folders: dict[str, list[Stored]] = {}
    others = 0
    for stored in store.list(""):
        if folder := folder_of(stored.name):
            folders.setdefault(folder, []).append(stored)
        elif stored.name != IDENTITY:
            others += 1
    return folders, others


Found = tuple[Stored, Artifact | None]  # a manifest, and its artifact or snapshot; None if it was skipped


def _artifacts(store: Store, files: Iterable[Stored], skipped: type[InputError] = Damaged) -> Iterator[Found]:
    """Yield the manifests among `files`, oldest first; with `skipped=InputError`, a newer tlm's are skipped, too."""

    def read(stored: Stored) -> list[Found]:
        try:
            artifact = Artifact.find(store, *folder_of(stored.name).rsplit("/", 1))
        except skipped as error:
            say(f"warning: skipped: {error}")
            return [(stored, None)]
        return [(stored, artifact)] if artifact is not None else []

    manifests = [stored for stored in files if stored.name == f"{folder_of(stored.name)}/{MANIFEST}"]
    manifests.sort(key=lambda stored: (stored.modified, stored.name))
    found = in_threads(read, manifests, READERS)
    yield from chain.from_iterable(track(found, "reading manifests", len(manifests), "files"))


def _kept(artifacts: list[Artifact], made_from: dict[str, set[str]], keep_runs: int, doomed: set[str]) -> set[str]:
    """Return the folders of the newest reports and studies of each task, and of what was trained but no result covers.

    Args:
        artifacts: All artifacts, oldest first.
        made_from: By folder, the folders of the inputs.
        keep_runs: How many reports, and how many studies, to keep of each task.
        doomed: What is removed all the same, and not said to be kept.
    """
    results = _results(artifacts[::-1], made_from)
    covered = _with_sources(chain.from_iterable(results), made_from)
    trained = {artifact.folder_name for artifact in artifacts if artifact.manifest.kind in TRAINED}
    kept = [folder for newest_first in results for folder in newest_first[:keep_runs]]
    say(f"keeping {len({*kept} - doomed)} of {sum(map(len, results))} reports and studies, the newest of each task")
    uncovered = trained - covered  # such as a model that was in use when its report went
    if number := len(uncovered - doomed):
        say(f"keeping {number} checkpoints, models and metrics of no report or study; --remove URI removes one")
    return uncovered.union(kept)


def _results(newest_first: list[Artifact], made_from: dict[str, set[str]]) -> list[list[str]]:
    """Return the folders of reports and of studies: a list for each task or set of tasks, the one begun last first."""
    tasks = {task.folder_name: _task(task) for task in newest_first if task.manifest.kind == "task"}
    results = [one for one in newest_first if one.manifest.kind in RESULTS]
    # by what they note, because a copy of the store has other times of files
    results.sort(key=lambda one: str(one.run().get("started", "")), reverse=True)
    alike: dict[tuple[str, ...], list[str]] = {}  # by kind and tasks
    for result in results:
        sources = _with_sources([result.folder_name], made_from)
        of_tasks = sorted({tasks[folder] for folder in sources if folder in tasks})
        alike.setdefault((result.manifest.kind, *of_tasks), []).append(result.folder_name)
    return list(alike.values())


def _task(task: Artifact) -> str:
    """Name and labels of a task, which its versions have in common, and another team's task seldom has."""
    return json.dumps([task.details.get(fact) for fact in ("name", "labels")])


def _with_sources(folders: Iterable[str], made_from: dict[str, set[str]]) -> set[str]:
    """Return `folders` and all that they were made from."""
    found: set[str] = set()
    waiting = list(folders)
    while waiting:
        folder = waiting.pop()
        if folder not in found:
            found.add(folder)
            waiting += made_from.get(folder, ())
    return found


def _with_products(folders: Iterable[str], made_from: dict[str, set[str]]) -> set[str]:
    """Return `folders` and all that was made from them."""
    products: dict[str, set[str]] = {}
    for folder, sources in made_from.items():
        for source in sources:
            products.setdefault(source, set()).add(folder)
    return _with_sources(folders, products)  # the same way, backwards


def _young(files: Iterable[Stored], horizon: float) -> bool:
    return any(stored.modified > horizon for stored in files)


def _remove(store: Store, folder: str) -> None:
    kind, _, key = folder.partition("/")
    artifact = Artifact.find(store, kind, key) if kind == "index" else None
    if artifact is not None and artifact.details.get("engine") == "elasticsearch":
        from tlm.retrieval.search.elastic_build import leave
        from tlm.retrieval.search.index import located

        try:
            details = located(artifact)
        except InputError as error:  # no index has such a name
            say(f"warning: only the artifact is removed: {error}")
        else:
            leave(details, identity(store))
    remove_artifact(store, folder)
