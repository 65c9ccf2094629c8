"""Commands of `tlm` in processes of their own, forked from one that has imported everything and computed nothing.

So a process starts in milliseconds; what befalls it is real.
"""

import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

WARM = (
    *("tlm.cli.main", "docstring_parser", "tlm.data.corpus.load", "tlm.data.tasks.task", "tlm.retrieval.search.index"),
    *(
        "tlm.retrieval.search.embedded",
        "tlm.retrieval.search.embedded",
        "tlm.retrieval.retrieve",
        "research.multitask.merge",
    ),
    *("tlm.training.input.tokenizer", "tlm.training.joint", "tlm.training.classification"),
    *(
        "tlm.training.classification",
        "tlm.evaluation.predict.classifier",
        "transformers.models.modernbert.modeling_modernbert",
    ),
    *(
        "tlm.shallow.tfidf",
        "tlm.evaluation.report.report",
        "tlm.evaluation.pages.render",
        "matplotlib.backends.backend_svg",
    ),
    *("research.attention.study", "research.retrieval.study", "pyarrow.dataset"),
)
HOME = Path(__file__).parents[2]
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(list(WARM))


def nothing() -> None:
    """Prepares a child that is left as it is."""


@dataclass(frozen=True)
class Both:
    """Prepares a child by one and by another."""

    one: Callable[[], None]
    another: Callable[[], None]

    def __call__(self) -> None:
        """In the child."""
        self.one()
        self.another()


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code, or minus the number of the signal; what it printed; how long it took."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def sentence(self) -> str:
        """The last line on stderr."""
        return (self.err.splitlines() or [""])[-1]


class Child:
    """A command of `tlm`, started; `prepare` is called in its process first."""

    def __init__(self, arguments: list[str], said: Path, prepare: Callable[[], None] = nothing) -> None:
        os.environ |= {"PYTHONPATH": str(HOME), "OMP_NUM_THREADS": "1", "TLM_THREADS": "1"}
        said.mkdir(parents=True, exist_ok=True)
        self._said, self._started = said, time.monotonic()
        self._process: ForkServerProcess = SERVER.Process(target=_command, args=(arguments, said, prepare), daemon=True)
        self._process.start()

    def signal(self, number: int, after: float = 0.0) -> bool:
        """Send it a signal so many seconds after its start; whether it was still alive."""
        self._process.join(max(0.0, self._started + after - time.monotonic()))
        if not self._process.is_alive() or self._process.pid is None:
            return False
        try:
            os.kill(self._process.pid, number)
        except ProcessLookupError:  # over since
            return False
        return True

    def wait(self, patience: float = 300.0) -> Ended:
        """For its end, which is brought about after `patience` seconds."""
        self._process.join(patience)
        self._process.kill()
        self._process.join()
        out, err = ((self._said / name).read_text() if (self._said / name).exists() else "" for name in ("out", "err"))
        return Ended(self._process.exitcode or 0, out, err, time.monotonic() - self._started)


def run(arguments: list[str], said: Path, prepare: Callable[[], None] = nothing) -> Ended:
    """A command from its start to its end."""
    return Child(arguments, said, prepare).wait()


def _command(arguments: list[str], said: Path, prepare: Callable[[], None]) -> None:
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(said / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    sys.argv = ["tlm", *arguments]
    code = 1
    try:
        from tlm.cli import main

        prepare()
        main.main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # a traceback is what the tests look for
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
