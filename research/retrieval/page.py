"""The page of the retrieval study."""

from collections.abc import Iterator, Sequence
from typing import Any

from research.studies import count, listed, percent
from tlm.evaluation.pages.blocks import (
    Block,
    Card,
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

Contents = dict[str, Any]
Subsets = Sequence[dict[str, Any]]


def blocks(contents: Contents, figures: dict[str, str]) -> Iterator[Block]:
    """Describe the page.

    Args:
        contents: The study's results.
        figures: SVG by name.
    """
    subsets = contents["subsets"]
    yield from opening("TLM study", "What was retrieved", _facts(contents), contents["findings"], contents["gone"])
    yield from _sizes(subsets, figures)
    if contents["overlap"]:
        yield from _overlap(subsets, contents["overlap"], figures["overlap"])
    if "sources" in figures:
        yield from _sources(subsets, contents["sources"], figures["sources"])
    yield from _shift(subsets, contents["settings"]["sample"], figures)
    for one in subsets:
        if one["most_asked"]:
            yield from _most_asked(one)
    yield Text("Texts on this page are shortened, and are data: nothing in them is executed.", "small")


def _facts(contents: Contents) -> str:
    number, corpus = len(contents["subsets"]), contents["corpus"]
    facts = f"{number} {'subset' if number == 1 else 'subsets'}"
    if corpus["passages"]:
        sources = f"{corpus['sources']} {'source' if corpus['sources'] == 1 else 'sources'}"
        facts += f" of a corpus of {corpus['passages']:,} passages from {sources}"
    return facts


def _named(one: dict[str, Any]) -> Span:
    return Span(one["name"], "name", one["role"])


def _sizes(subsets: Subsets, figures: dict[str, str]) -> Iterator[Block]:
    columns = ["passages", "of the corpus", "KL reduction", "median best rank", "examples per passage"]
    note = (
        "KL reduction: how much closer the words and pairs of words of the passages are to the task’s than those of "
        "the corpus are, in nats (DSIR); the more, the closer."
    )
    yield Heading("Size and ranks")
    yield Table(["Subset", *columns, "for one example", "most examples"], [_size(one) for one in subsets], note)
    captions = {
        "ranks": "Best rank of the passages in any query",
        "shared": "Number of examples that share a passage",
    }
    drawn = [Figure(caption, figures[name]) for name, caption in captions.items() if name in figures]
    legend = [Text(tuple(_named(one) for one in subsets if one["ranks"]), "legend")] if len(subsets) > 1 else []
    if drawn:
        yield Drawn((*legend, *drawn))
        yield Text(
            "The best rank of a passage is its highest place in the results of any example’s query. “For one example” "
            "is the share of passages that were retrieved for a single example. Random subsets have no queries and no "
            "ranks.",
            "small",
        )


def _size(one: dict[str, Any]) -> Row:
    asked, closer = one["asked"], one["kl_reduction"]
    return (
        _named(one),
        f"{one['passages']:,}",
        percent(one["share"]),
        "–" if closer is None else f"{closer:.3f}",
        count(one["median_rank"]),
        "–" if asked["mean"] is None else f"{asked['mean']:.1f}",
        percent(asked["once"]),
        f"{asked['most']:,}" if asked["most"] else "–",
    )


def _overlap(subsets: Subsets, overlap: dict[str, Any], figure: str) -> Iterator[Block]:
    shares = listed([(Span(one["name"]), f" {percent(one['share'])}") for one in subsets])
    rows: list[Row] = [
        (
            _named(one),
            *(
                "–" if row == column else f"{percent(inside)} ({overlap['jaccard'][row][column]:.3f})"
                for column, inside in enumerate(overlap["inside"][row])
            ),
        )
        for row, one in enumerate(subsets)
    ]
    note = (
        "Share of the row’s passages that are also in the column’s subset. In parentheses, Jaccard: passages in both "
        "subsets, as a share of passages in either."
    )
    yield Heading("Overlap")
    caption = "Per cent of the row’s passages that are also in the column’s subset"
    yield Drawn((Figure(caption, figure, "natural"),))
    chance = "By chance, a row would share with each column the column’s share of the corpus: "
    yield Text((chance, *shares, "."), "small")
    yield Table(["Subset", *map(_column, subsets)], rows, note)


def _column(one: dict[str, Any]) -> Column:
    return Column(Span(one["name"]))


def _sources(subsets: Subsets, sources: Sequence[dict[str, Any]], figure: str) -> Iterator[Block]:
    rows: list[Row] = [
        (Span(row["source"]), f"{row['passages']:,}", percent(row["corpus"]), *map(percent, row["subsets"]))
        for row in sources
    ]
    caption = "Share of each source; a dot to the right of its ring means more passages than by chance"
    yield Heading("Sources")
    yield Drawn((Text(("◯ the corpus", *map(_named, subsets)), "legend"), Figure(caption, figure, "full")))
    yield Details("Share of each source", (Table(["Source", "passages", "corpus", *map(_column, subsets)], rows),))


def _shift(subsets: Subsets, sample: int, figures: dict[str, str]) -> Iterator[Block]:
    if not any(one["words"] for one in subsets):
        return
    yield Heading("Vocabulary shift")
    yield Text(
        "Words that are more or less frequent in a subset than in the passages of the corpus that it leaves out: "
        "log-odds ratio with an informative Dirichlet prior (Monroe et al. 2008). A large z-score means a certain "
        "difference, not a large one; a random subset shows what chance alone produces. Counted in at most "
        f"{sample:,} passages of each.",
        "small",
    )
    for number, one in enumerate(subsets):
        if drawn := figures.get(f"words-{number:02d}"):
            yield Heading(_named(one), 3)
            yield Drawn((Figure("Words by z-score", drawn, "full"),))
            yield Details("Words and their z-scores", tuple(_words(one["words"])))
        elif one["words"]:
            yield Text((Span(one["name"]), ": no word stands out."), "note")


def _words(shift: dict[str, Any]) -> Iterator[Block]:
    for name, what in (("over", "More frequent than in the rest of the corpus: "), ("under", "Less frequent: ")):
        if found := shift[name]:
            words = listed([(Span(word["word"]), f" {word['z']:.0f}") for word in found])
            yield Text((what, *words, "."), "small")


def _most_asked(one: dict[str, Any]) -> Iterator[Block]:
    yield Heading((_named(one), ": passages retrieved for the most examples"))
    yield Text(
        "Each passage with the labels of the examples that it was retrieved for, and some of these examples; words "
        "that the passage also contains are marked.",
        "small",
    )
    yield from map(_card, one["most_asked"])


def _card(passage: dict[str, Any]) -> Card:
    facts = f"passage {passage['doc']} · retrieved for {passage['asked']:,} examples · best rank {passage['best_rank']}"
    labels = listed([(Span(one["label"], "label"), f" {one['count']:,}") for one in passage["labels"]])
    examples = [(Span(one["label"], "label"), ": ", Quote(tuple(one["pieces"]))) for one in passage["examples"]]
    return Card(((f"{facts}: ", Quote.of(passage["text"])), labels, *examples))
