"""The command line: every step is a command, made from the step's own signature and docstring.

The last line on stdout is the result's URI (with ``--json`` a line of JSON with the URI); all else goes to stderr.
Only the module of the command that is called is imported, so that ``tlm --help`` answers at once.
"""

import errno
import io
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from tlm import __version__
from tlm.errors import NO_TORCH, STOPS, InputError, Interrupted, Terminated, TlmError, Unread, disk_full
from tlm.progress import say, unheard

if TYPE_CHECKING:
    import typer  # imported by the functions below: what is imported here runs before Ctrl-C is handled


COMMANDS = {  # name: (module:function, summary)
    "preflight": ("tlm.runs.preflight:preflight", "Check store, disk and Elasticsearch before a run"),
    "load-corpus": ("tlm.data.corpus.load:load_corpus", "Read a corpus and cut it into passages"),
    "load-task": ("tlm.data.tasks.task:load_task", "Read a labelled task"),
    "index": ("tlm.retrieval.search.index:build_index", "Index a corpus for BM25"),
    "retrieve": ("tlm.retrieval.retrieve:retrieve", "Retrieve passages for every training example"),
    "export": ("tlm.retrieval.subset.export:export", "Filter retrieved passages and write them as a subset"),
    "import-subset": ("tlm.retrieval.subset.export:import_subset", "Import a subset that others selected"),
    "tokenizer": ("tlm.training.input.tokenizer:build_tokenizer", "Build the vocabulary that all arms share"),
    "tokenize": ("tlm.training.input.tokenize:tokenize", "Convert the texts of a task or subset to token ids"),
    "load-model": ("tlm.training.stages:load_model", "Use a published model instead of stage 1"),
    "train": ("tlm.training.stages:train", "Stage 1: train from scratch on task and subset"),
    "finetune": ("tlm.training.stages:finetune", "Stage 2: fine-tune on the task alone"),
    "evaluate": ("tlm.evaluation.score.evaluate:evaluate", "Score a model on dev and test"),
    "serve": ("tlm.serving.serve:serve", "Serve a model over HTTP"),
    "kserve-manifest": ("tlm.serving.serve:manifest", "Print a KServe manifest for a model"),
    "distill": ("tlm.serving.distill:distill", "Train a small model on the answers of a better one"),
    "export-onnx": ("tlm.serving.export_onnx:export_onnx", "Write a model as ONNX, in float32 and int8"),
    "baseline": ("tlm.evaluation.score.baseline:baseline", "Train and score a linear model of words and spans"),
    "static": ("tlm.evaluation.score.baseline:static", "Train and score static vectors of retrieved text"),
    "label-names": ("tlm.evaluation.labelling:label_names", "Make a first model from descriptions of classes"),
    "label-next": ("tlm.evaluation.labelling:label_next", "Choose the texts of a pool to label next"),
    "label-errors": ("tlm.evaluation.labelling:label_errors", "List labels that look wrong"),
    "import-predictions": ("tlm.evaluation.score.imported:import_predictions", "Score what another model predicted"),
    "mix": ("tlm.evaluation.score.mix:mix", "Mix models of a task, or make a cascade"),
    "report": ("tlm.evaluation.report.report:report", "Compare the runs of a task"),
    "tune": ("tlm.runs.advise:tune", "Find settings of the retrieval on dev"),
    "register": ("tlm.runs.registry:register", "Register the model that a report recommends"),
    "preview": ("tlm.evaluation.report.preview:preview", "Show examples with their retrieved passages"),
    "notebook": ("tlm.evaluation.report.notebook:notebook", "Write a Jupyter notebook on a model"),
    "predict": ("tlm.evaluation.predict.files:predict_command", "Label new texts"),
    "explain": ("tlm.cli.show:explain", "Say why a model answers a text as it does"),
    "provenance": ("tlm.evaluation.origins.provenance:provenance", "List sources and licences behind an artifact"),
    "download": ("tlm.cli.upkeep:download", "Copy a model or any artifact out of the store"),
    "show": ("tlm.cli.show:show", "Print a preset's settings and their sources"),
    "advise": ("tlm.runs.advise:advise_command", "Choose K, query and rho1 by the paper's rules"),
    "ls": ("tlm.cli.upkeep:ls", "List finished artifacts"),
    "gc": ("tlm.cli.upkeep:gc", "Delete artifacts that no kept report or study uses"),
}
HELP = "Train a text classifier from scratch on a task and the part of a corpus that is relevant to it."


def build(arguments: list[str], commands: Mapping[str, tuple[str, str]] = COMMANDS, text: str = HELP) -> "typer.Typer":
    """Return the application for these arguments: the command they name is imported, the others are only listed."""
    from pkgutil import resolve_name

    import typer

    from tlm.cli.command import PLAIN, command

    wanted = typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)

    def options(version: Annotated[bool, wanted] = False) -> None:
        """Take the options that come before the command."""

    app = typer.Typer(help=text, **PLAIN)
    app.callback()(options)
    for name, (target, summary) in commands.items():
        named = arguments[:1] == [name]
        app.command(name, help=None if named else summary)(command(resolve_name(target)) if named else lambda: None)
    return app


def tlm() -> None:
    """Run the command that the arguments name."""
    build(sys.argv[1:])()


def main(run: Callable[[], object] = tlm) -> None:
    """Run the command line, or another program. Errors end it with one sentence on stderr and an exit code.

    The codes: 2 wrong input, 3 interrupted (repeat to resume), 129 SIGHUP, 130 Ctrl-C, 143 SIGTERM; 141 without a word
    if the program that read stdout has ended.
    """
    arrived: list[type[Terminated]] = []
    ready_streams()

    def stop(number: int, frame: Any) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of a lost terminal, shell and kernel send one each
        arrived.append(STOPS[number])
        raise _Stopped

    for number in STOPS:
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        run()
    except SystemExit as error:
        fail(for_users(error))
    except (Exception, _Stopped) as error:
        if arrived:  # even if a library has replaced _Stopped by an error of its own, as pydantic's schemas do
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends the process at once
            fail(arrived[0](f"stopped by {arrived[0].by}; repeat the command to resume"))
        fail(for_users(error))


def ready_streams() -> None:
    """Let stdout escape characters that its encoding lacks; a stream in memory lacks none.

    A stream that is closed (``>&-``) is /dev/null from here on, so that no file gets its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, errors="replace"))  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def for_users(error: BaseException) -> TlmError:
    """Return what to tell users of an exception; one that is not for them is raised again."""
    if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
        error = error.__context__  # for which typer ends with 1
    if isinstance(error, BrokenPipeError) and _unread():
        return Unread("")
    if isinstance(error, TlmError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "transformers"):
        return InputError(NO_TORCH)
    if isinstance(error, MemoryError) or "failed to map segment" in str(error):  # of a library, such as torch's
        return Interrupted("not enough memory; give this process more (`ulimit -v`, a pod's limit), then repeat")
    # no process can be forked, or no thread of pyarrow's or Python's started
    if isinstance(error, BlockingIOError) or any(one in str(error) for one in ("launch worker", "start new thread")):
        limits = "(`ulimit -v`, `ulimit -u`, a pod's limit)"
        return Interrupted(f"no thread can be started; give this process more memory or threads {limits}, then repeat")
    if not isinstance(error, OSError):
        raise error
    where = error.filename2 or error.filename or "while reading or writing"  # of a copy, what is written
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or str(error).endswith(" written"):  # numpy's, which has no errno
        return Interrupted(disk_full(where))
    return InputError(f"{where}: {error.strerror or error}; fix that, then repeat")


def _unread() -> bool:
    """Whether stdout is a pipe that nobody reads any more. Other pipes break, too: of processes and servers."""
    (stdout := select.poll()).register(1, 0)
    return bool(stdout.poll(0))


class _Stopped(BaseException):
    """A signal arrived. Not an Exception, so that no ``except Exception`` swallows it."""


def fail(error: TlmError, program: str = "tlm") -> NoReturn:
    """End the program with the sentence of an error, if it has one, and its exit code."""
    if str(error):
        say(f"{program}: {error}")
    with unheard("stdout"):  # what cannot be written is not tried again at the exit
        sys.stdout.flush()
    sys.exit(error.exit_code)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__, flush=True)
        sys.exit()
