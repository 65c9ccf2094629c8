"""Make queries: whole training texts or their RAKE keywords, each distinct query once, cut to what engines accept."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log1p
from statistics import median

from tlm.data.passages import count
from tlm.progress import say
from tlm.retrieval.search.analyzer import terms
from tlm.retrieval.search.bulk_analyzer import terms_of_each
from tlm.retrieval.search.rake import keywords

LONG_WORDS = 100  # from a median of more words on, "auto" uses RAKE
MOST_TERMS = 1000  # most distinct terms in a query

Dropped = tuple[int, str, str]


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        text: Its text.
        examples: The training examples that have this query: row ordinals, ascending.
    """

    text: str
    examples: list[int]


def choose(texts: Sequence[str]) -> str:
    """Choose the kind of query for "auto": "rake" if the training texts are long, else "full"."""
    return "rake" if texts and median(map(count, texts)) > LONG_WORDS else "full"


def make_queries(examples: Iterable[tuple[int, str]], kind: str) -> list[Query]:
    """Make one query per distinct query text, in order of first appearance; `kind` is "full" or "rake"."""
    examples_of: dict[str, list[int]] = {}
    of_text: dict[str, str] = {}
    for ordinal, text in examples:
        if text not in of_text:
            of_text[text] = text if kind == "full" else " ".join(phrase for phrase, _ in keywords(text))
        examples_of.setdefault(of_text[text], []).append(ordinal)
    return [Query(text, ordinals) for text, ordinals in examples_of.items()]


def fit(queries: list[Query], passages: Callable[[], Iterable[str]]) -> tuple[list[Query], list[Dropped]]:
    """Cut queries with more than `MOST_TERMS` distinct terms to those of the highest tf·idf.

    Both engines search the cut texts, so that both find the same.

    Args:
        queries: The queries.
        passages: Starts reading the index's texts; called only if a query must be cut, for document frequencies.

    Returns:
        The queries, and for each that was cut or has no terms: its number, "cut" or "empty", and what happened.
    """
    sizes = [len(set(found)) for found in terms_of_each(query.text for query in queries)]
    dropped = [(number, "empty", "it has no term") for number, size in enumerate(sizes) if size == 0]
    long = [number for number, size in enumerate(sizes) if size > MOST_TERMS]
    if long:
        say(f"{len(long)} queries have more than {MOST_TERMS} terms; counting the passages that contain these")
        idf = _idf(passages(), {term for number in long for term in terms(queries[number].text)})
        queries = list(queries)
        for number in long:
            queries[number] = Query(_shorten(queries[number].text, idf), queries[number].examples)
            detail = (
                f"{sizes[number] - MOST_TERMS} of {sizes[number]} distinct terms are left out: the lowest by tf·idf"
            )
            dropped.append((number, "cut", detail))
    return queries, dropped


def _idf(passages: Iterable[str], wanted: set[str]) -> dict[str, float]:
    """BM25's idf of those wanted terms that occur in any passage."""
    frequency: Counter[str] = Counter()
    number = 0
    for found in terms_of_each(passages):
        frequency.update(wanted.intersection(found))
        number += 1
    return {term: log1p((number - df + 0.5) / (df + 0.5)) for term, df in frequency.items()}


def _shorten(text: str, idf: Mapping[str, float]) -> str:
    found = terms(text)
    counts = Counter(found)
    # Sorting is stable: of equally good terms the first are kept.
    best = sorted(counts, key=lambda term: -counts[term] * idf.get(term, 0.0))
    kept = set(best[:MOST_TERMS])
    return " ".join(term for term in found if term in kept)
