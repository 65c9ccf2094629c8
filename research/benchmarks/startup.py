"""The time that the command line takes to answer, and a check that it loads no heavy package."""

import subprocess
import sys

from research.benchmarks.measure import CPU, compare
from research.benchmarks.row import Result, Row, limit

SECONDS = 0.3
COMMANDS = {"tlm --help": ["--help"], "tlm show": ["show"], "tlm show small": ["show", "small"]}
HEAVY = ("torch", "transformers", "kfp", "elasticsearch", "sklearn", "matplotlib", "boto3", "pandas")
_LOADED = (
    "import sys\nfrom tlm.cli.main import main\nsys.argv = ['tlm', *sys.argv[1:]]\n"
    "try:\n    main()\nexcept SystemExit:\n    pass\n"
    f"print('\\n' + ' '.join(sorted(set({HEAVY!r}) & set(sys.modules))))"
)


def run(quick: bool) -> list[Result]:
    """CPU seconds of whole processes, and heavy packages that they imported."""
    results = []
    for label, arguments in COMMANDS.items():
        command = [sys.executable, "-m", "tlm.cli", *arguments]
        measured = compare({"ours": lambda c=command: _run(c)}, repeats=3 if quick else 11, warm_up=1)  # type: ignore[misc]
        spread = measured.spread("ours", CPU)
        note = f"{spread.low:.2f} to {spread.high:.2f} CPU s."
        results.append(limit(label, spread.middle, CPU.unit, SECONDS, note))
        loaded = heavy(arguments)
        results.append(limit(f"{label}: heavy packages imported", len(loaded), "", 0, ", ".join(loaded)))
    return results


def heavy(arguments: list[str]) -> list[str]:
    """Those of `HEAVY` that ``tlm`` imports for these arguments."""
    done = subprocess.run([sys.executable, "-c", _LOADED, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


def _run(command: list[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


ROW = Row(
    name="startup",
    stage="start-up",
    against="a bound",
    target=f"under {SECONDS:g} s of CPU, no heavy import",
    what="A whole process from start to end, with warm file caches: Python, our modules, the answer. It must not "
    f"import any of {', '.join(HEAVY)}.",
    run=run,
    packages=("typer", "pydantic"),
)
