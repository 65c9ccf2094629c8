"""The command `preview`: a few examples of each label with the passages retrieved for them."""

import sys
from collections.abc import Iterator
from typing import Any, Literal

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError, nearest

Form = Literal["auto", "terminal", "markdown"]
BOLD, DIM, MARKED, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[4m", "\x1b[0m"


def preview(
    source: str, *, examples: int = 1, passages: int = 3, label: str = "", form: Form = "auto", width: int = 300
) -> str:
    """Print a few training examples of each label, each with its best passages.

    Words that a passage shares with its example are marked. Random passages belong to no example: some are shown,
    evenly spaced.

    Args:
        source: URI of hits or of a subset; a subset shows only passages that its filters kept.
        examples: Number of examples of each label (for regression, of five ranges of values), evenly spaced.
        passages: Number of passages for each example.
        label: Show only this label.
        form: terminal, markdown or auto, which is terminal if standard output is one.
        width: Number of characters shown of each text.
    """
    if min(examples, passages) < 1 or width < 40:
        raise InputError(f"examples is {examples}, passages {passages}, width {width}; expected at least 1, 1 and 40")
    if form not in ("auto", "terminal", "markdown"):
        raise InputError(f"form '{form}' is unknown{nearest(form, ['auto', 'terminal', 'markdown'])}")
    from tlm.analysis.retrieval.samples import sampled

    contents = sampled(Artifact.open(source, "hits", "subset"), examples, passages, label, width)
    on_terminal = form == "terminal" or (form == "auto" and sys.stdout.isatty())
    return "\n".join(_terminal(contents) if on_terminal else _markdown(contents))


def _markdown(contents: dict[str, Any]) -> Iterator[str]:
    from tlm.evaluation.pages.text import code, prose

    yield f"# {prose(contents['title'])}\n\n{prose(contents['facts'])}"
    for group in contents["groups"]:
        yield f"\n## {code(group['label'])}" if group["label"] else ""
        for example in group["examples"]:
            if example["text"]:
                yield f"\n**Example** {code(example['id'])}: {code(example['text'])}\n"
            yield from (f"{_place(passage)} {code(passage['text'])}" for passage in example["passages"])
            if example["missing"]:
                yield f"- {prose(example['missing'])}"


def _place(passage: dict[str, Any]) -> str:
    if not passage["rank"]:
        return f"- {passage['doc']}:"
    return f"- rank {passage['rank']}, score {passage['score']:.1f}, passage {passage['doc']}:"


def _terminal(contents: dict[str, Any]) -> Iterator[str]:
    yield f"{BOLD}{contents['title']}{PLAIN}\n{contents['facts']}"
    for group in contents["groups"]:
        for example in group["examples"]:
            if example["text"]:
                yield f"\n{BOLD}{group['label']}{PLAIN}  {DIM}{example['id']}{PLAIN}\n{example['text']}"
            for passage in example["passages"]:
                words = "".join(f"{MARKED}{piece}{PLAIN}" if same else piece for piece, same in passage["pieces"])
                yield f"  {DIM}{_place(passage)}{PLAIN} {words}"
            if example["missing"]:
                yield f"  {DIM}{example['missing']}{PLAIN}"
