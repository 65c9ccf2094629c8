"""Make artifacts. A recipe determines the key of its result, so finished work is found and never done twice.

Snapshots of unfinished work are under ``progress/<key>/step-N/``, each complete or absent, for a step to resume from.
"""

import os
import platform
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from tlm import __version__
from tlm.artifacts.artifact import MANIFEST, RUN, Artifact, FileEntry, Manifest, add_files, content_digest, home, remove
from tlm.artifacts.spending import Spending, process_seconds
from tlm.artifacts.stores.local import scratch_folder
from tlm.artifacts.stores.store import ArtifactKind, Store, signed_json, value_sha256
from tlm.errors import Damaged
from tlm.progress import say

REVISION = "TLM_REVISION"  # set in the images
LEFT_OUT = (
    "duplicates", "empty", "cut", "no hit", "rejected",
    "too short", "overlaps test", "overlaps dev", "near-duplicate", "surplus", "missing",
)  # fmt: skip
TOTALS = ("candidates", "queries", "passages", "documents")  # the first of these that an artifact counts is the total
REASONS_SHOWN, PLACES_SHOWN = 3, 5


def tell(artifact: Artifact) -> None:
    """Print which rows were set aside and why, and how many others were left out; nothing if all were used."""
    step, counts = artifact.manifest.step, artifact.counts
    for line in _rejected(artifact):
        say(f"{step}: {line}")
    left_out = [f"{counts[name]:,} {name}" for name in LEFT_OUT if isinstance(counts.get(name), int) and counts[name]]
    total = next((name for name in TOTALS if name in counts), None)
    if left_out and total:
        kept = [f"{counts['kept']:,} kept"] if "kept" in counts else []
        say(f"{step}: {counts[total]:,} {total}; {', '.join(kept + left_out)}")


def _rejected(artifact: Artifact) -> Iterator[str]:
    """Yield a line for each split, for texts without labels, and for rows of no split."""
    counts = artifact.counts
    if not isinstance(counts.get("rejected"), dict) or not counts["rejected"]:
        return
    import pyarrow.parquet as pq  # not at the top: finding an artifact needs nothing heavy

    is_task = artifact.manifest.kind == "task"
    split_of = _split_of(artifact) if is_task else {}
    by_split: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in pq.read_table(artifact.path("rejected.parquet")).to_pylist():
        by_split[split_of.get(row["file"], "")].append(row)
    for split, rows in by_split.items():
        lost = _total(rows)
        used = _used(artifact, split) if is_task else counts["read" if "read" in counts else "candidates"] - lost
        named = f"{split} rows" if split else "rows"
        yield f"{used:,} of {used + lost:,} {named} used, {lost:,} set aside: {_reasons(rows, artifact.uri)}"


def _split_of(task: Artifact) -> dict[str, str]:
    """The split of each file of a task; a file that was divided has none."""
    settings = task.manifest.settings
    unlabelled = {name: "unlabelled" for name, _ in settings.get("unlabelled", ())}
    return unlabelled | {name: split for split, name, _ in settings["files"] if split in task.counts}


def _used(task: Artifact, split: str) -> int:
    """Count the rows used from the files of a split, or from the files that were divided, if `split` is ""."""
    names = {split or "train"}
    if split in ("", "train"):
        names.update(task.manifest.settings["shares"])  # the splits that were drawn from these files
    # Some texts without labels are left out for a reason, which is behind the comma
    return sum(count for name, count in task.counts.items() if name.partition(",")[0] in names)


def _total(rows: Iterable[Mapping[str, Any]]) -> int:
    """Count the rows: a malformed record counts as all its lines."""
    return sum(row.get("lines", 1) for row in rows)


def _reasons(rows: list[dict[str, Any]], uri: str) -> str:
    alike: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        alike[row["reason"], row["detail"]].append(row)
    most_first = sorted(alike.items(), key=lambda item: -_total(item[1]))
    parts = []
    for (reason, detail), some in most_first[:REASONS_SHOWN]:
        places = ", ".join(f"{row['file']}:{row['line']}" for row in some[:PLACES_SHOWN])
        parts.append(f"{_total(some):,} {reason}, {detail} ({places}{' …' * (len(some) > PLACES_SHOWN)})")
    if rest := sum(_total(some) for _, some in most_first[REASONS_SHOWN:]):
        parts.append(f"and {rest:,} more, all in {uri}/rejected.parquet")
    return "; ".join(parts)


P = ParamSpec("P")


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a result; its hash is the key of the artifact.

    Attributes:
        kind: Kind of the artifact, one of `tlm.artifacts.stores.store`.
        step: Name of the step that makes it.
        version: Version of the step's method; raised when the step writes something different.
        settings: Settings that change the result, as JSON values.
        inputs: Input artifacts by name; only their content counts, not where they are stored.
    """

    kind: ArtifactKind
    step: str
    version: int
    settings: dict[str, Any]
    inputs: dict[str, Artifact] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """The key, 24 hex digits: the name of the result's folder."""
        contents = {name: artifact.content for name, artifact in self.inputs.items()}
        return value_sha256([self.kind, self.step, self.version, self.settings, contents])[:24]


@dataclass
class Draft:
    """An artifact that is being made.

    Attributes:
        folder: Where the step writes the files.
        counts: Numbers for users, by name; not part of the content.
        details: Facts that later steps need; part of the content.
        rows: Row counts of files, by name.
        published: Files that other steps have put into the folder of the artifact already.
        run: Facts about this run (device, threads) for run.json; not part of the content.
        spending: Seconds and joules that the step spends.
    """

    folder: Path
    counts: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    published: list[FileEntry] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    spending: Spending = field(default_factory=Spending)


def produce(
    recipe: Recipe, root: str | None, write: Callable[Concatenate[Draft, P], None], *given: P.args, **named: P.kwargs
) -> str:
    """Return the URI of the recipe's result: found if it is finished, else made by `write` and published.

    It is stored at `root`, else at ``TLM_ROOT``, else where the inputs are; all inputs must be in that store. Data
    files are published first, the manifest last and only if there is none yet. If two processes make the same result,
    the first one wins and both return the same URI.

    Raises:
        InputError: an input is missing, or the store cannot be used.
    """
    store = home(root, recipe.inputs.values())
    found = _find(store, recipe)
    if found is not None:
        found.note_use()
        say(f"{recipe.step}: already there, nothing to do")
        tell(found)
        return found.uri
    started, used = time.time(), process_seconds()
    with scratch_folder(store.scratch(), f"{recipe.kind}-{recipe.key}") as folder:
        draft = Draft(folder)
        with draft.spending:
            write(draft, *given, **named)
        draft.run["process_seconds"] = round(process_seconds() - used, 3)
        made = _publish(store, recipe, draft, started)
    tell(made)
    return made.uri


def finished(recipe: Recipe, root: str | None) -> str | None:
    """Return the URI of the recipe's result if it is already where `produce` would publish it, else None."""
    found = _find(home(root, recipe.inputs.values()), recipe)
    return None if found is None else found.uri


def _find(store: Store, recipe: Recipe, again: bool = True) -> Artifact | None:
    """Return the recipe's result if it exists. A damaged manifest is moved aside, so the result is made again."""
    try:
        return Artifact.find(store, recipe.kind, recipe.key)
    except Damaged as error:
        if again:  # it may have been damaged on its way
            return _find(store, recipe, again=False)
        name = f"{recipe.kind}/{recipe.key}/{MANIFEST}"
        damaged = store.read(name)
        if damaged is not None:  # else another process has just renamed it
            say(f"warning: {error}; it is renamed to {MANIFEST}.damaged, and {recipe.step} makes the artifact again")
            store.write(f"{name}.damaged", damaged)
            store.delete(name)
        return None


def _publish(store: Store, recipe: Recipe, draft: Draft, started: float) -> Artifact:
    place = f"{recipe.kind}/{recipe.key}"
    own = add_files(store, place, draft.folder, draft.rows)
    files = sorted([*own, *draft.published], key=lambda entry: entry.name)
    manifest = Manifest(
        kind=recipe.kind, key=recipe.key, step=recipe.step, version=recipe.version, settings=recipe.settings,
        inputs={name: artifact.as_input() for name, artifact in recipe.inputs.items()}, counts=draft.counts,
        details=draft.details, files=files, content=content_digest(files, draft.details),
    )  # fmt: skip
    if store.read(f"{place}/{MANIFEST}") is None:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started))
        tools = {"host": platform.node(), "python": platform.python_version(), "tlm": __version__}
        if revision():
            tools["revision"] = revision()
        store.write(f"{place}/{RUN}", signed_json({"started": when, **draft.spending.facts(), **tools, **draft.run}))
    if store.create(f"{place}/{MANIFEST}", manifest.to_bytes()):
        return Artifact(store, manifest)
    winner = Artifact.open(f"{store.root}/{place}")
    if winner.content != manifest.content:
        say(f"warning: {winner.uri} was published meanwhile with other content; that one is kept")
    return winner


@cache
def revision(*options: str) -> str:
    """The commit of this code: of its image, or of its checkout, with ``-dirty`` if files differ; "" if neither.

    Args:
        options: More options of ``git describe``, such as ``--abbrev=40``.
    """
    if REVISION in os.environ:
        return os.environ[REVISION]
    checkout = Path(__file__).parents[2]
    if not (checkout / ".git").exists():  # installed, perhaps in an environment within another checkout
        return ""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude", "*", *options]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


KEPT = 2  # snapshots


class Progress:
    """Snapshots of the work on one result. The newest two are kept, in case the newest is damaged.

    Each names the inputs of the work, so that `tlm gc` keeps them.

    Attributes:
        kind: Kind of the snapshots as artifacts: ``progress/<key>``.
        store: Store of the snapshots, which is that of the result.
        inputs: Inputs of the work, by name.
        damaged: Snapshots that `latest` skipped; they are removed once there is a newer one.
    """

    def __init__(self, key: str, root: str | None, inputs: Mapping[str, Artifact] | None = None) -> None:
        self.inputs = inputs or {}
        self.store = home(root, self.inputs.values())
        self.kind = f"progress/{key}"
        self.damaged: set[str] = set()

    def save(self, step: int, fill: Callable[[Path], None], run: dict[str, Any] | None = None) -> None:
        """Publish a snapshot and remove all older ones except one.

        Args:
            step: Optimizer steps done.
            fill: Writes the files into the folder that it is given.
            run: Facts for run.json that are not part of the content, such as the time spent.
        """
        key = _name(step)
        place = f"{self.kind}/{key}"
        with scratch_folder(self.store.scratch(), key) as folder:
            fill(folder)
            files = add_files(self.store, place, folder, {})
        manifest = Manifest(
            kind=self.kind, key=key, content=content_digest(files, {}), step="snapshot", version=1,
            settings={}, inputs={name: artifact.as_input() for name, artifact in self.inputs.items()},
            counts={"step": step}, details={}, files=files,
        )  # fmt: skip
        self.store.write(f"{place}/{RUN}", signed_json(run or {}))
        self.store.write(f"{place}/{MANIFEST}", manifest.to_bytes())  # replaces a damaged one
        self.damaged.discard(key)
        intact = [name for name in self._steps() if name not in self.damaged]
        for old in [*intact[:-KEPT], *self.damaged]:
            remove(self.store, f"{self.kind}/{old}")
        self.damaged.clear()

    def latest(self, folder: Path) -> int | None:
        """Copy the files of the newest intact snapshot into `folder`, and return its step; None if there is none.

        Damaged snapshots are skipped with a warning.
        """
        for name in reversed(self._steps()):
            try:
                snapshot = Artifact.find(self.store, self.kind, name)
                if snapshot is None:
                    continue
                files = {entry.logical: snapshot.verified(entry) for entry in snapshot.entries()}
                for logical, source in files.items():
                    (folder / logical).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, folder / logical)
                return int(name.removeprefix("step-"))
            except Damaged as error:
                self.damaged.add(name)
                say(f"warning: snapshot {name} is skipped: {error}")
            except FileNotFoundError:  # another process that is further has just removed it
                continue
        return None

    def run(self, step: int) -> dict[str, Any]:
        """Return the facts about the run that `save` was given; {} if they are lost."""
        snapshot = Artifact.find(self.store, self.kind, _name(step))
        return {} if snapshot is None else snapshot.run()

    def clear(self) -> None:
        """Remove all snapshots, after the result is published."""
        remove(self.store, self.kind)

    def _steps(self) -> list[str]:
        names = (stored.name for stored in self.store.list(f"{self.kind}/") if stored.name.endswith(f"/{MANIFEST}"))
        return sorted(name.split("/")[-2] for name in names)


def _name(step: int) -> str:
    return f"step-{step:09d}"
