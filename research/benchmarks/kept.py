"""Numbers of a row as they are kept beside the page, so that a partial run refreshes only its rows."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from research.benchmarks.row import Result

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
    """The kept results of a row; None where nothing is kept."""
    file = folder / f"{name}.json"
    if not file.exists():
        return None
    facts = json.loads(file.read_text("utf-8"))
    return Kept(**{**facts, "results": [_result(result) for result in facts["results"]]})


def _result(facts: dict[str, Any]) -> Result:
    points = [(float(size), float(value)) for size, value in facts["points"]]
    return Result(**{**facts, "points": points, "axes": tuple(facts["axes"])})
