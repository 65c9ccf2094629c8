"""What a step set aside, said whenever it ends: after its result was made, and again when it is found finished."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.progress import say

LEFT_OUT = (
    *("duplicates", "empty", "cut", "no hit", "rejected"),
    *("too short", "overlaps test", "overlaps dev", "near-duplicate", "surplus", "missing"),
)
TOTALS = ("candidates", "queries", "passages", "documents")  # the first that an artifact counts: what they are out of
REASONS_SHOWN, PLACES_SHOWN = 3, 5


def tell(artifact: Artifact) -> None:
    """Say which rows were set aside and why, and what else was left out; nothing where all was used."""
    step, counts = artifact.manifest.step, artifact.counts
    for line in _rejected(artifact):
        say(f"{step}: {line}")
    left_out = [f"{counts[name]:,} {name}" for name in LEFT_OUT if isinstance(counts.get(name), int) and counts[name]]
    total = next((name for name in TOTALS if name in counts), None)
    if left_out and total:
        kept = [f"{counts['kept']:,} kept"] if "kept" in counts else []
        say(f"{step}: {counts[total]:,} {total}; {', '.join(kept + left_out)}")


def _rejected(artifact: Artifact) -> Iterator[str]:
    """A line for each split, or one for all rows where there are no splits."""
    if not isinstance(artifact.counts.get("rejected"), dict) or not artifact.counts["rejected"]:
        return
    import pyarrow.parquet as pq  # finding an artifact needs nothing heavy

    splits = _splits(artifact)
    by_split: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in pq.read_table(artifact.path("rejected.parquet")).to_pylist():
        by_split[splits.get(row["file"], "")].append(row)
    for split, rows in by_split.items():
        read = _read(artifact, split, len(rows))
        named = f"{split} rows" if split else "rows"
        yield f"{read - len(rows):,} of {read:,} {named} used, {len(rows):,} set aside: {_reasons(rows, artifact.uri)}"


def _splits(artifact: Artifact) -> dict[str, str]:
    """The split of each file of a task that has a file for each; of the one file that was split there is none."""
    files = artifact.manifest.settings["files"] if artifact.manifest.kind == "task" else []
    return {name: split for split, name, _ in files if split in artifact.counts}


def _read(artifact: Artifact, split: str, rejected: int) -> int:
    """The rows of the files of a split: what it has, and what was drawn from it for a split that has no file."""
    counts = artifact.counts
    if not split:
        return int(counts["read"] if "read" in counts else counts["candidates"])
    drawn = artifact.manifest.settings["shares"] if split == "train" else {}
    return rejected + sum(int(counts[name]) for name in (split, *drawn))


def _reasons(rows: list[dict[str, Any]], uri: str) -> str:
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        places[row["reason"], row["detail"]].append(f"{row['file']}:{row['line']}")
    frequent = Counter({why: len(where) for why, where in places.items()}).most_common(REASONS_SHOWN)
    told = [f"{count:,} {reason}, {detail} ({_some(places[reason, detail])})" for (reason, detail), count in frequent]
    more = len(rows) - sum(count for _, count in frequent)
    if more:
        told.append(f"and {more:,} more, all in {uri}/rejected.parquet")
    return "; ".join(told)


def _some(places: list[str]) -> str:
    return ", ".join(places[:PLACES_SHOWN]) + " …" * (len(places) > PLACES_SHOWN)
