"""The command `preview`: a few examples of each label with the passages retrieved for them."""

import sys
from collections.abc import Iterator
from typing import Any, Literal

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError, nearest
from tlm.evaluation.pages.blocks import Block, Heading, Items, Quote, Span, Text

Form = Literal["auto", "terminal", "markdown"]


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
    from tlm.evaluation.pages.plain import markdown, terminal

    shown = _blocks(sampled(Artifact.open(source, "hits", "subset"), examples, passages, label, width))
    on_terminal = form == "terminal" or (form == "auto" and sys.stdout.isatty())
    return (terminal(shown, styled=True) if on_terminal else markdown(shown)).rstrip("\n")


def _blocks(contents: dict[str, Any]) -> Iterator[Block]:
    yield Heading(contents["title"], 1)
    yield Text(contents["facts"])
    for group in contents["groups"]:
        if group["label"]:
            yield Heading(Span(group["label"]))
        for example in group["examples"]:
            if example["text"]:
                yield Text((Span("Example", "bold"), " ", Span(example["id"]), ": ", Quote.of(example["text"])))
            passages = [(_place(passage), Quote(tuple(passage["pieces"]))) for passage in example["passages"]]
            yield Items((*passages, *filter(None, [example["missing"]])))


def _place(passage: dict[str, Any]) -> str:
    if not passage["rank"]:
        return f"{passage['doc']}: "
    return f"rank {passage['rank']}, score {passage['score']:.1f}, passage {passage['doc']}: "
