"""Measure what is claimed: ``python -m research.benchmarks all|NAME… [--quick] [--out research/BENCHMARKS.md]``.

A full run keeps its numbers beside the page (``results/benchmarks/NAME.json``) and writes the page anew; numbers that
another machine measured stay where this one cannot. A quick run has small sizes and writes nothing, unless ``--out``
says where.
"""

import argparse
import importlib
import os
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from research.benchmarks import kept, page
from research.benchmarks.machine import machine, revision, versions
from research.benchmarks.row import NOT_MEASURED, NotMeasured, Result, Row, not_measured, number
from research.paper.results import FOLDER
from tlm import __version__

ROWS = (  # modules, in the order of the data
    "data_steps",
    "load_parts",
    "elastic_index",
    "elastic_retrieve",
    "export_large",
    "embedded",
    "embedded_1m",
    "embedded_4m",
    "many_classes",
    "selectors",
    "training_cpu",
    "training_bf16",
    "levers",
    "snapshots",
    "training_gpu",
    "gpu",
    "growth",
    "students",
    "serving",
    "serving_load",
    "startup",
    "overhead",
    "demo",
    "dev_tasks",
)
PAGE = Path("research/BENCHMARKS.md")
THREADS = ("OMP", "MKL", "OPENBLAS", "NUMBA", "RAYON")  # libraries that would take all cores
WIDE = 160  # columns where there is no terminal


def main(arguments: list[str] | None = None) -> int:
    """0; 1 where a row failed; 2 where there is no such row, or the code is not committed."""
    given = _parse(arguments)
    names = ROWS if "all" in given.names else tuple(name.replace("-", "_") for name in given.names)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        print(f"benchmarks: '{unknown[0]}' is no row; expected all, {', '.join(ROWS)}", file=sys.stderr)
        return 2
    out = given.out or (None if given.quick else PAGE)
    code = revision(Path(__file__).parents[2])
    if out == PAGE and code.endswith("-dirty"):
        print(
            f"benchmarks: the code is not that of a commit ({code}); commit it, or name another --out", file=sys.stderr
        )
        return 2
    os.environ["TLM_BENCHMARK_DEVICE"] = given.device
    for name in ("TLM_THREADS", *(f"{library}_NUM_THREADS" for library in THREADS)):
        os.environ.setdefault(name, "1")  # rows import numerical libraries after this
    failed = 0
    for row in map(load, names):
        results, whole = measure(row, given.quick)
        failed += not whole
        show(row, results)
        if out and (any(result.ours is not None for result in results) or not kept.read(row.name, _numbers(out))):
            kept.keep(_with_facts(row, results, given.quick, code), _numbers(out))
    if out:
        page.write(out, _numbers(out), [load(name) for name in ROWS])
        print(f"{out} was written from {_numbers(out)}")
    return int(failed > 0)


def load(name: str) -> Row:
    """The row of a module."""
    row: Row = importlib.import_module(f"research.benchmarks.{name}").ROW
    return row


def measure(row: Row, quick: bool) -> tuple[list[Result], bool]:
    """The results of a row, and whether it succeeded; what is missing here is a result as well."""
    print(f"{row.stage}, against {row.against} …", file=sys.stderr, flush=True)
    started = time.monotonic()
    try:
        return row.run(quick), True
    except NotMeasured as error:
        return [not_measured(row.stage, str(error), row.target)], True
    except Exception as error:
        traceback.print_exc()
        return [not_measured(row.stage, f"failed, {type(error).__name__}: {error}", row.target)], False
    finally:
        print(f"  {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def show(row: Row, results: list[Result]) -> None:
    """Print a row's table."""
    table = Table(
        "", "against", "ours", "other", "unit", "ratio", "target", "verdict", title=row.stage, title_justify="left"
    )
    for result in results:
        table.add_row(
            result.label, result.against, number(result.ours), number(result.theirs),
            result.unit, page.ratio(result), result.target, result.verdict.partition(":")[0],
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else WIDE).print(table)
    notes = [note for result in results for note in (result.note, result.verdict) if len(note) > len(NOT_MEASURED)]
    for note in dict.fromkeys(notes):
        print(f"  {note}")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m research.benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"all, {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, one or two repeats: shows that it runs")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="of training_gpu; cpu rehearses it")
    parser.add_argument("--out", type=Path, help=f"the page to write ({PAGE}, unless --quick)")
    return parser.parse_args(arguments)


def _numbers(out: Path) -> Path:
    return out.parent / Path(FOLDER).name / kept.NUMBERS


def _with_facts(row: Row, results: list[Result], quick: bool, code: str) -> kept.Kept:
    command = f"python -m research.benchmarks {row.name}{' --quick' if quick else ''}"
    found = {"tlm": __version__, **versions(row.packages)}
    day = datetime.now(UTC).date().isoformat()
    return kept.Kept(row.name, command, day, code, quick, machine(), found, results)


if __name__ == "__main__":
    sys.exit(main())
