"""The command line: every step as a command, made from the step's own signature and docstring.

The last line on stdout is the result's URI (with ``--json`` one line of JSON that has it); all else goes to stderr.
Modules are imported only for the command that is called, so that ``tlm --help`` answers at once.
"""

import errno
import signal
import sys
from typing import TYPE_CHECKING, Any

from tlm import __version__
from tlm.errors import Cancelled, InputError, Interrupted, Terminated, TlmError, printable

if TYPE_CHECKING:
    import typer  # by the functions below: what is imported here comes before Ctrl-C is heeded

COMMANDS = {  # name: (module:function, what stands in the list of commands)
    "preflight": ("tlm.cluster.preflight:preflight", "Check the store, the disk and Elasticsearch before a run"),
    "load-corpus": ("tlm.data.corpus:load_corpus", "Read a corpus and cut it into passages"),
    "load-task": ("tlm.data.tasks.task:load_task", "Read a labelled task"),
    "index": ("tlm.retrieval.search.index:build_index", "Index a corpus for BM25"),
    "retrieve": ("tlm.retrieval.search.retrieve:retrieve", "Fetch passages for every training example"),
    "export": ("tlm.retrieval.subset.export:export", "Export what was fetched, filtered, as a subset"),
    "merge-subsets": ("tlm.retrieval.subset.merge:merge_subsets", "Make one subset of those of several tasks"),
    "import-subset": ("tlm.retrieval.subset.import_subset:import_subset", "Take a subset that others selected"),
    "tokenizer": ("tlm.training.input.tokenizer:build_tokenizer", "Make the vocabulary that all arms share"),
    "tokenize": ("tlm.training.input.tokenize:tokenize", "Turn a task's or subset's texts into token ids"),
    "load-model": ("tlm.training.load_model:load_model", "Take a published model instead of training one"),
    "train": ("tlm.training.stage1:train", "Stage 1: train from scratch on both at once"),
    "train-multitask": (
        "tlm.training.stage1:train_multitask",
        "Stage 1 for several tasks: one encoder, a head for each",
    ),
    "finetune": ("tlm.training.stage2:finetune", "Stage 2: fine-tune on the task alone"),
    "evaluate": ("tlm.evaluation.score.evaluate:evaluate", "Score a model on dev and test"),
    "baseline": ("tlm.evaluation.score.baseline:baseline", "Score tf-idf and logistic regression"),
    "report": ("tlm.evaluation.report.report:report", "Put the runs of a task side by side"),
    "report-multitask": (
        "tlm.evaluation.report.multitask:report_multitask",
        "Put tasks side by side, alone and together",
    ),
    "preview": ("tlm.analysis.retrieval.preview:preview", "Show examples with what was retrieved for them"),
    "retrieval-study": (
        "tlm.analysis.retrieval.step:retrieval_study",
        "Lay subsets side by side: overlap, sources, words",
    ),
    "attention": ("tlm.analysis.attention.step:attention", "Compare what models' attention heads look at"),
    "predict": ("tlm.evaluation.score.predict:predict_command", "Label new texts"),
    "fetch": ("tlm.upkeep:fetch", "Copy a model or any artifact out of the store"),
    "show": ("tlm.show:show", "Print a preset's settings and their sources"),
    "advise": ("tlm.advise:advise_command", "Choose K, rho1 and rho2 for a task by the paper's rules"),
    "paper": ("tlm.paper.command:paper", "Lay what was run beside the paper's tables"),
    "keep": ("tlm.paper.keep:keep", "Keep finished runs as result files of the paper's tables"),
    "ls": ("tlm.upkeep:ls", "List finished artifacts"),
    "gc": ("tlm.upkeep:gc", "Remove what no kept report or study needs"),
}


def build(arguments: list[str]) -> "typer.Typer":
    """The application for these arguments: the command that they name is imported, the others are only listed."""
    import typer

    from tlm.command import command

    def options(
        version: bool = typer.Option(
            False, "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ) -> None:
        """Options that stand before the command."""

    app = typer.Typer(
        help="Train a text classifier from scratch on a task and the part of a corpus that matters to it.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    for name, (target, summary) in COMMANDS.items():
        app.command(name, help=summary)(command(target) if name in arguments[:1] else _listed)
    return app


def main() -> None:
    """Run, turning what went wrong into one sentence and an exit code.

    The codes: 2 input, 3 resumable, 130 Ctrl-C, 143 SIGTERM.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    try:
        build(sys.argv[1:])()
    except _Stopped as stopped:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one ends what is left at once
        _fail(stopped.error(f"stopped by {stopped.error.by}; repeat the command to go on"))
    except TlmError as error:
        _fail(error)
    except OSError as error:
        where = error.filename or "while reading or writing"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _fail(Interrupted(f"no space left on the disk ({where}); free some, then repeat"))
        _fail(InputError(f"{where}: {error.strerror or error}; mend that, then repeat"))


class _Stopped(BaseException):
    """A signal: no Exception, lest whoever looks out for any fault of a library takes it for one."""

    def __init__(self, error: type[Terminated]) -> None:
        self.error = error


def _fail(error: TlmError) -> None:
    print(f"tlm: {printable(str(error))}", file=sys.stderr)
    sys.exit(error.exit_code)


def _on_signal(number: int, frame: Any) -> None:
    raise _Stopped(Cancelled if number == signal.SIGINT else Terminated)


def _listed() -> None:
    """Stand-in of a command that was not called."""


def _print_version(wanted: bool) -> None:
    if wanted:
        import typer

        print(__version__)
        raise typer.Exit


if __name__ == "__main__":
    main()
