"""research/BENCHMARKS.md, written from the kept numbers: prose in ``page.md.j2``, tables and plots from here."""

from pathlib import Path

import jinja2

from research.benchmarks import kept, pictures
from research.benchmarks.row import NOT_MEASURED, PASS, SHORT, Result, Row, number

FEW = 2  # labels that a note names
OVERVIEW = "ratios.svg"


def write(page: Path, numbers: Path, rows: list[Row]) -> None:
    """Write `page` anew from ``numbers/*.json``, and the plots beside those."""
    found = {row.name: kept.read(row.name, numbers) for row in rows}
    results = [(row, facts.results) for row in rows if (facts := found[row.name])]
    plots = {
        (row.name, result.label): pictures.growth(row, result, numbers).relative_to(page.parent).as_posix()
        for row, its in results
        for result in its
        if result.points
    }
    overview = pictures.overview(results, numbers / OVERVIEW).relative_to(page.parent).as_posix()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters.update(number=number, ratio=ratio, cell=cell, notes=notes)
    text = environment.get_template("page.md.j2").render(
        rows=rows, kept=found, plots=plots, overview=overview, verdict=verdict
    )
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, "utf-8")


def verdict(results: list[Result]) -> str:
    """The verdict of a row: short where a line is, PASS where all lines with a target do."""
    verdicts = [result.verdict for result in results if result.verdict]
    absent = sum(found.startswith(NOT_MEASURED) for found in verdicts)
    if not verdicts:
        return "for information"
    if absent == len(verdicts):
        return verdicts[0]
    short = verdicts.count(SHORT)
    words = f"{SHORT} ({short} of {len(verdicts) - absent})" if short else PASS
    return f"{words}; {absent} {NOT_MEASURED}" if absent else words


def notes(results: list[Result]) -> list[str]:
    """The notes, each once, after the names of its lines; of many lines, without names."""
    about: dict[str, dict[str, None]] = {}
    for result in results:
        if result.note:
            about.setdefault(result.note, {})[result.label] = None
    return [note if len(labels) > FEW else f"{'; '.join(labels)}: {note}" for note, labels in about.items()]


def ratio(result: Result) -> str:
    """The ratio with the smallest and largest of its repeats."""
    if result.ratio is None:
        return "–"
    spread = "" if result.low is None or result.high is None else f" ({number(result.low)}–{number(result.high)})"
    return f"{number(result.ratio)}×{spread}"


def cell(text: str) -> str:
    """Text that may stand in a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")
