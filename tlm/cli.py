"""The command line: every step as a command, made from the step's own signature and docstring.

The last line on stdout is the result's URI (with ``--json`` one line of JSON that has it); all else goes to stderr.
Modules are imported only for the command that is called, so that ``tlm --help`` answers at once.
"""

import errno
import signal
import sys
from typing import Any

import typer

from tlm import __version__
from tlm.command import command
from tlm.errors import Interrupted, Terminated, TlmError

COMMANDS = {  # name: (module:function, its docstring's first line)
    "load-corpus": ("tlm.data.corpus:load_corpus", "Load a corpus: documents are cleaned, cut into passages, and each text is kept once"),
    "load-task": ("tlm.data.task:load_task", "Load a labelled task: a folder with train, dev and test files, or one file to be split"),
    "index": ("tlm.retrieval.index:build_index", ""),
    "retrieve": ("tlm.retrieval.retrieve:retrieve", ""),
    "export": ("tlm.retrieval.export:export", "Export the passages that were hit as a subset ready for training, with who asked for them and what was removed"),
    "tokenizer": ("tlm.training.tokenizer:build_tokenizer", "Make a vocabulary from a sample of the corpus and the training split of the task, or adopt an existing one"),
    "tokenize": ("tlm.training.tokens:tokenize", "Turn the texts of a task or a subset into token ids, without special tokens and uncut"),
    "train": ("tlm.training.joint:train", "Train a model from scratch on the retrieved passages and the task together (stage 1)"),
    "finetune": ("tlm.training.finetune:finetune", "Fine-tune a stage-1 checkpoint on the task alone and keep the weights that are best on dev (stage 2)"),
    "evaluate": ("tlm.evaluation.evaluate:evaluate", "Score a model (or a stage-1 checkpoint) on the dev and test examples of a task"),
    "baseline": ("tlm.evaluation.baseline:baseline", "Score tf-idf with logistic regression (ridge for float targets) on a task"),
    "report": ("tlm.evaluation.report:report", "Put runs of one task side by side: arms and seeds beside the baseline, cost, losses, retrieved passages"),
    "predict": ("tlm.evaluation.predict:predict_command", "Predict the label (or value) of every row, with probabilities. A bad row is answered with an error"),
    "fetch": ("tlm.upkeep:fetch", "Copy an artifact's files, verified, into a folder under their plain names"),
    "show": ("tlm.show:show", "Print a preset: every setting, its value, what it means, where it comes from"),
    "ls": ("tlm.upkeep:ls", "List the finished artifacts, oldest first: when made, kind, key, size, main counts"),
    "gc": ("tlm.upkeep:gc", "Remove what the newest runs (reports) do not need: artifacts, unfinished work, Elasticsearch indices"),
}


def build(arguments: list[str]) -> typer.Typer:
    """The application for these arguments: the command that they name is imported, the others are only listed."""
    app = typer.Typer(
        help="Train a text classifier from scratch on a task and the part of a corpus that matters to it.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_version)
    for name, (target, summary) in COMMANDS.items():
        app.command(name, help=summary)(command(target) if name in arguments[:1] else _listed)
    return app


def main() -> None:
    """Run, turning what went wrong into one sentence and an exit code (2 input, 3 resumable, 143 SIGTERM)."""
    signal.signal(signal.SIGTERM, _on_sigterm)
    try:
        build(sys.argv[1:])()
    except TlmError as error:
        _fail(error)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _fail(Interrupted(f"no space left on the disk ({error.filename or 'while writing'}); free some, then repeat"))


def _fail(error: TlmError) -> None:
    print(f"tlm: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


def _on_sigterm(signum: int, frame: Any) -> None:
    raise Terminated("stopped by SIGTERM; repeat the command to go on")


def _listed() -> None:
    """Stand-in of a command that was not called."""


def _version(version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True)) -> None:
    if version:
        print(__version__)
        raise typer.Exit


if __name__ == "__main__":
    main()
