"""Report what a step left out: after its result was made, and again each time the finished result is found."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.progress import say

LEFT_OUT = (
    *("duplicates", "empty", "cut", "no hit", "rejected"),
    *("too short", "overlaps test", "overlaps dev", "near-duplicate", "surplus", "missing"),
)
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
    """Yield a line for each split, or one for all rows if there are no splits."""
    counts, settings = artifact.counts, artifact.manifest.settings
    if not isinstance(counts.get("rejected"), dict) or not counts["rejected"]:
        return
    import pyarrow.parquet as pq  # not at the top: finding an artifact needs nothing heavy

    # A task that was given a file for each split has rows of each split; a single file belongs to none.
    files = settings["files"] if artifact.manifest.kind == "task" else []
    split_of = {name: split for split, name, _ in files if split in counts}
    by_split: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in pq.read_table(artifact.path("rejected.parquet")).to_pylist():
        by_split[split_of.get(row["file"], "")].append(row)
    for split, rows in by_split.items():
        if split:
            shares = settings["shares"] if split == "train" else {}  # splits without a file are drawn from train
            used = sum(counts[name] for name in (split, *shares))
        else:
            used = counts["read" if "read" in counts else "candidates"] - _total(rows)
        lost, named = _total(rows), f"{split} rows" if split else "rows"
        yield f"{used:,} of {used + lost:,} {named} used, {lost:,} set aside: {_reasons(rows, artifact.uri)}"


def _total(rows: Iterable[Mapping[str, Any]]) -> int:
    """How many rows these are: a malformed record counts as all its lines."""
    return sum(row.get("lines", 1) for row in rows)


def _reasons(rows: list[dict[str, Any]], uri: str) -> str:
    alike: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        alike[row["reason"], row["detail"]].append(row)
    most_first = sorted(alike.items(), key=lambda item: -_total(item[1]))
    parts = []
    for (reason, detail), some in most_first[:REASONS_SHOWN]:
        places = ", ".join(f"{row['file']}:{row['line']}" for row in some[:PLACES_SHOWN])
        more = " …" if len(some) > PLACES_SHOWN else ""
        parts.append(f"{_total(some):,} {reason}, {detail} ({places}{more})")
    if rest := sum(_total(some) for _, some in most_first[REASONS_SHOWN:]):
        parts.append(f"and {rest:,} more, all in {uri}/rejected.parquet")
    return "; ".join(parts)
