"""The page of the attention study."""

from collections.abc import Iterator
from typing import Any

from research.studies import count, percent
from tlm.evaluation.pages.blocks import (
    Block,
    Column,
    Details,
    Drawn,
    Figure,
    Heading,
    Quote,
    Row,
    Span,
    Table,
    Text,
    opening,
)

FEW_HEADS = 16  # of a model whose heads are all listed
SHARES = {
    "before": "previous",
    "after": "next",
    "itself": "itself",
    "[CLS], [SEP]": "special",
    "period": "period",
    "other": "elsewhere",
}
Contents = dict[str, Any]


def blocks(contents: Contents, figures: dict[str, str]) -> Iterator[Block]:
    """Describe the page.

    Args:
        contents: The study's results.
        figures: SVG by name.
    """
    models, settings = len(contents["models"]), contents["settings"]
    known = f"{models} {'model' if models == 1 else 'models'} · {contents['examples']:,} {settings['split']} texts of "
    facts = (known, Span(contents["task"]))
    yield from opening("TLM study", "What the attention heads look at", facts, contents["findings"])
    yield from _kinds(contents, figures)
    yield _maps(contents, figures)
    yield from _heads(contents)


def _kinds(contents: Contents, figures: dict[str, str]) -> Iterator[Block]:
    groups, limit = contents["groups"], percent(contents["settings"]["threshold"])
    seeds = len(groups) < len(contents["models"])
    yield Heading("Two kinds of heads")
    yield Text(
        "In each head, every token of a text pays the most attention to one token. Where this maximum goes decides the "
        "kind of the head:"
    )
    yield Text(
        (
            Span("Positional", "bold", "other-2"),
            f": for at least {limit} of the tokens it goes to a neighbour, the token before or after. The attention "
            "map shows a line beside the diagonal. Such heads matter for a model’s predictions (Voita et al. 2019).",
        )
    )
    yield Text(
        (
            Span("Vertical", "bold", "other-3"),
            f": for more than {limit} of the tokens it goes to [CLS], [SEP] or a period. The map shows a column. Such "
            "heads may carry little information about the text (Kovaleva et al. 2019).",
        )
    )
    yield Text(
        "TLM’s paper (section 4.4.1, Figure 3) finds more positional and fewer vertical heads in TLM than in "
        "pretrained models.",
        "small",
    )
    beyond = "how often its maximum goes to a neighbour (violet), and to [CLS], [SEP] or a period (red)"
    shared = " Models that differ only in their seed share a panel." if seeds else ""
    note = Text(f"Right of the dashed line a head is positional (violet) or vertical (red).{shared}", "small")
    yield Drawn((Figure(f"Every head by layer: {beyond}", figures["layers"], "full"), note))
    heads = ["seeds"] * seeds + ["heads", "positional", "vertical", "to a neighbour", "to [CLS], [SEP], period"]
    yield Table(["Model", *heads], [_group(group, seeds=seeds) for group in groups])
    yield Details("Heads by layer", (_layers(groups),))
    yield Drawn((Figure("Where the maximal attention goes", figures["places"], "full"),))
    yield Text(
        "The figure and the last two columns of the table show shares over all heads and tokens. A token that looks at "
        "a [CLS], [SEP] or period next to it counts in both columns, but in the figure only as looking at a neighbour.",
        "small",
    )


def _group(group: dict[str, Any], *, seeds: bool) -> Row:
    counts = (group["heads"], group["counts"]["positional"], group["counts"]["vertical"])
    shares = (group["share"]["adjacent"], group["share"]["vertical"])
    number = [str(group["models"])] * seeds
    return (Span(group["name"], "name", group["role"]), *number, *map(count, counts), *map(percent, shares))


def _layers(groups: list[dict[str, Any]]) -> Table:
    kinds = ("positional", "vertical", "other")
    rows: list[Row] = [
        (Span(group["name"], "name", group["role"]), str(layer["layer"]), *(count(layer[kind]) for kind in kinds))
        for group in groups
        for layer in group["layers"]
    ]
    return Table(["Model", "layer", *kinds], rows)


def _maps(contents: Contents, figures: dict[str, str]) -> Drawn:
    note = (
        "In each map, a row is a token that pays attention and a column a token that receives it, from the first token "
        "on; stronger colour means more attention. Violet heads are positional, red ones vertical and grey ones "
        f"neither, judged on all {contents['examples']:,} texts. In a grid of maps, rows are layers and columns "
        "are heads."
    )
    maps = [Figure(drawn["name"], figures[drawn["figure"]], "full") for drawn in contents["maps"]]
    text = Text(Quote.of(contents["example"]), "small")
    return Drawn((Heading("The heads on one text"), Text(note, "small"), text, *maps))


def _heads(contents: Contents) -> Iterator[Block]:
    rows: list[Row] = [
        (
            Span(model["name"]),
            str(head["layer"]),
            str(head["head"]),
            head["kind"],
            *(percent(head[share]) for share in SHARES.values()),
        )
        for model in contents["models"]
        for head in model["heads"]
        if head["kind"] != "other" or len(model["heads"]) <= FEW_HEADS
    ]
    note = (
        f"Share of tokens whose maximal attention goes there. For models with more than {FEW_HEADS} heads, only "
        "positional and vertical heads are listed; heads.parquet and study.json list all heads."
    )
    yield Heading("All heads")
    table = Table(["Model", "layer", "head", Column("kind", "left"), *SHARES], rows, note)
    yield Details("Where each head looks", (table,))
    yield Text(
        "The attention that [CLS] and [SEP] pay is not counted, only what they receive. Texts are cut to "
        f"{contents['settings']['max_length']} tokens. Texts on this page are data: nothing in them is executed.",
        "small",
    )
