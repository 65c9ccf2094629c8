"""Numbers of a row as they are kept beside the page, so that a partial run refreshes only its rows."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from research.benchmarks.row import Result, number

NUMBERS = "benchmarks"  # their folder, in that of all results


@dataclass(frozen=True)
class Kept:
    """A row's results with all that is needed to repeat them.

    Attributes:
        name: The row.
        command: What measured it.
        date: Day, UTC.
        revision: Of the code.
        quick: Whether the sizes were small: then the numbers show that it runs, no more.
        machine: See `research.benchmarks.machine.machine`.
        versions: Of the packages that the row names.
        results: What it found.
    """

    name: str
    command: str
    date: str
    revision: str
    quick: bool
    machine: dict[str, str]
    versions: dict[str, str]
    results: list[Result]


def keep(kept: Kept, folder: Path) -> None:
    """Write ``folder/NAME.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{kept.name}.json").write_text(json.dumps(asdict(kept), indent=1, ensure_ascii=False) + "\n", "utf-8")


def read(name: str, folder: Path) -> Kept | None:
    """The kept results of a row; None where nothing is kept. A row in pieces has a folder, a file for each piece."""
    file = folder / f"{name}.json"
    if (folder / name).is_dir():
        return _together(name, [_read(piece) for piece in sorted((folder / name).glob("*.json"))])
    return _read(file) if file.exists() else None


def _read(file: Path) -> Kept:
    facts = json.loads(file.read_text("utf-8"))
    return Kept(**{**facts, "results": [_result(result) for result in facts["results"]]})


def _together(name: str, pieces: list[Kept]) -> Kept | None:
    """A row of pieces, with every revision and machine that they have; results of one label are its seeds."""
    if not pieces:
        return None
    by_label: dict[tuple[str, str], list[Result]] = {}
    for result in (result for piece in pieces for result in piece.results):
        by_label.setdefault((result.label, result.against), []).append(result)
    machine = {
        fact: ", ".join(dict.fromkeys(piece.machine[fact] for piece in pieces if fact in piece.machine))
        for fact in dict.fromkeys(fact for piece in pieces for fact in piece.machine)
    }
    return replace(
        max(pieces, key=lambda piece: piece.date), name=name, machine=machine,
        quick=any(piece.quick for piece in pieces),
        revision=", ".join(dict.fromkeys(piece.revision for piece in pieces)),
        results=[_mean(results) for results in by_label.values()],
    )  # fmt: skip


def _mean(results: list[Result]) -> Result:
    """The mean of several runs, with the number of each and its note; a single one as it is."""
    values = [result.ours for result in results if result.ours is not None]
    if len(results) == 1 or not values:
        return results[0]
    runs = "; ".join(f"{number(result.ours)} ({result.note})" for result in results)
    return replace(results[0], ours=sum(values) / len(values), note=f"{len(values)} runs: {runs}.")


def _result(facts: dict[str, Any]) -> Result:
    points = [(float(size), float(value)) for size, value in facts["points"]]
    return Result(**{**facts, "points": points, "axes": tuple(facts["axes"])})
