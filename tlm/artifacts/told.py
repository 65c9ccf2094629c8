"""Report what a step left out: after its result was made, and again each time the finished result is found."""

from collections import defaultdict
from collections.abc import Iterator
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
            used = counts["read" if "read" in counts else "candidates"] - len(rows)
        named = f"{split} rows" if split else "rows"
        yield f"{used:,} of {used + len(rows):,} {named} used, {len(rows):,} set aside: {_reasons(rows, artifact.uri)}"


def _reasons(rows: list[dict[str, Any]], uri: str) -> str:
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        places[row["reason"], row["detail"]].append(f"{row['file']}:{row['line']}")
    most_first = sorted(places.items(), key=lambda item: -len(item[1]))
    parts = []
    for (reason, detail), where in most_first[:REASONS_SHOWN]:
        more = " …" if len(where) > PLACES_SHOWN else ""
        parts.append(f"{len(where):,} {reason}, {detail} ({', '.join(where[:PLACES_SHOWN])}{more})")
    if rest := sum(len(where) for _, where in most_first[REASONS_SHOWN:]):
        parts.append(f"and {rest:,} more, all in {uri}/rejected.parquet")
    return "; ".join(parts)
