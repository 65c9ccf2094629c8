"""Names, pages and numbers that the studies share."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tlm.errors import InputError
from tlm.evaluation.pages.blocks import Block, Inline, Line, inlines
from tlm.evaluation.pages.render import write_pages


def unique_names(names: Sequence[str], default: Sequence[str], sources: Sequence[str], what: str) -> list[str]:
    """The names given on the command line, or the default ones if there are none.

    Args:
        names: Names given, in the order of `sources`; may be empty.
        default: Names to use otherwise.
        sources: URIs or folders of what is named, for the error message.
        what: What is named, in the plural.

    Raises:
        InputError: The number of names is wrong, or two of them are equal.
    """
    if names and len(names) != len(sources):
        raise InputError(f"{len(names)} names for {len(sources)} {what}; give one name for each, in their order")
    chosen = list(names or default)
    for name in chosen:
        same = [source for source, other in zip(sources, chosen, strict=True) if other == name]
        if len(same) > 1:
            raise InputError(f"{' and '.join(same[:2])} are both called '{name}'; give --names that differ")
    return chosen


def write_study_pages(
    folder: Path, title: str, blocks: Sequence[Block], contents: dict[str, Any], figures: dict[str, str]
) -> None:
    """Write study.html, study.md, study.json and a file ``<name>.svg`` for each figure (SVG by name)."""
    for name, svg in figures.items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8", newline="\n")
    write_pages(folder, "study", title, blocks, contents)


def percent(share: float | None) -> str:
    """A share as a percentage, with one decimal below 10 %."""
    if share is None:
        return "–"
    return f"{share:.0%}" if share >= 0.0995 or share == 0 else f"{share:.1%}"


def count(value: float | None) -> str:
    """A count, or a mean of counts with at most one decimal."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def cpu_seconds(run: dict[str, Any]) -> float:
    """The CPU seconds in a run.json: of all attempts, in a step with snapshots; of any other, those of the last one."""
    return float(max(run.get("process_seconds", 0.0), run.get("cpu_seconds", 0.0)))


def listed(pieces: Sequence[Line], separator: str = ", ") -> tuple[Inline, ...]:
    """Lines one after the other, with a separator between them."""
    return tuple(piece for place, line in enumerate(pieces) for piece in ((separator,) * bool(place) + inlines(line)))


def json_lines(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file with a line of JSON each; none if there is no file."""
    if file.exists():
        yield from map(json.loads, file.read_text(encoding="utf-8").splitlines())
