"""docs/BENCHMARKS.md, written from the kept numbers: prose in ``page.md.j2``, tables and plots from here."""

import re
from pathlib import Path

import jinja2

from benchmarks import kept
from benchmarks.row import NOT_MEASURED, PASS, SHORT, Result, Row

FEW = 2  # labels that a note names


def write(page: Path, numbers: Path, rows: list[Row]) -> None:
    """Write `page` anew from ``numbers/*.json``, and the plots beside those."""
    found = {row.name: kept.read(row.name, numbers) for row in rows}
    plots = {
        (row.name, result.label): plot(row, result, numbers).relative_to(page.parent).as_posix()
        for row in rows
        for result in (found[row.name].results if found[row.name] else [])  # type: ignore[union-attr]
        if result.points
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters.update(number=number, ratio=ratio, cell=cell, notes=notes)
    text = environment.get_template("page.md.j2").render(rows=rows, kept=found, plots=plots, verdict=verdict)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, "utf-8")


def verdict(results: list[Result]) -> str:
    """Of a whole row: short where a line is, PASS where all lines with a target do."""
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
    """What a reader has to know, each once, after the lines that it is about; of many lines, alone."""
    about: dict[str, dict[str, None]] = {}
    for result in results:
        if result.note:
            about.setdefault(result.note, {})[result.label] = None
    return [note if len(labels) > FEW else f"{'; '.join(labels)}: {note}" for note, labels in about.items()]


def number(value: float | None) -> str:
    """Three digits that count, thousands separated; "–" where there is none."""
    if value is None:
        return "–"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ratio(result: Result) -> str:
    """The ratio with the smallest and largest of its repeats."""
    if result.ratio is None:
        return "–"
    spread = "" if result.low is None or result.high is None else f" ({number(result.low)}–{number(result.high)})"
    return f"{number(result.ratio)}×{spread}"


def cell(text: str) -> str:
    """Text that may stand in a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def plot(row: Row, result: Result, folder: Path) -> Path:
    """Both axes logarithmic, with the line of the fitted exponent and one of exponent 1; the file that was written."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "benchmarks"  # the same numbers give the same file
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(figsize=(4.8, 3.2), layout="constrained")
    sizes, values = zip(*sorted(result.points), strict=True)
    axes.loglog(sizes, values, "o-", color="#1f5fa8", label=f"measured, exponent {result.ours:.2f}")
    middle = len(sizes) // 2
    straight = [values[middle] * size / sizes[middle] for size in sizes]
    axes.loglog(sizes, straight, "--", color="#888888", label="in proportion")
    axes.minorticks_off()
    axes.set_xticks(sizes, [number(size) for size in sizes])
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: number(value)))
    axes.set(xlabel=result.axes[0], ylabel=result.axes[1], title=result.label)
    axes.legend(frameon=False)
    file = folder / f"{row.name}-{re.sub('[^a-z0-9]+', '-', result.label.lower()).strip('-')}.svg"
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
    return file
