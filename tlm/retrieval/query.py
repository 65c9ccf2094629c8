"""Queries: training texts as they are, or their RAKE keywords; equal ones once; the longest cut to what engines take."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log1p
from statistics import median

from tlm.retrieval.analyzer import terms
from tlm.retrieval.rake import keywords

LONG_WORDS = 100  # training texts with a median above this are documents, and RAKE makes their queries
MOST_TERMS = 1000  # distinct terms in a query


@dataclass(frozen=True)
class Query:
    """A query text and the training examples (row ordinals, ascending) that ask it."""

    text: str
    examples: list[int]


def choose(texts: Sequence[str]) -> str:
    """What ``auto`` means for these training texts: "rake" where they are long, else "full"."""
    return "rake" if texts and median(len(text.split()) for text in texts) > LONG_WORDS else "full"


def make_queries(examples: Iterable[tuple[int, str]], kind: str) -> list[Query]:
    """One query for each distinct query text, in order of first appearance; `kind` is "full" or "rake"."""
    asked: dict[str, list[int]] = {}
    of_text: dict[str, str] = {}
    for ordinal, text in examples:
        if text not in of_text:
            of_text[text] = text if kind == "full" else " ".join(phrase for phrase, _ in keywords(text))
        asked.setdefault(of_text[text], []).append(ordinal)
    return [Query(text, ordinals) for text, ordinals in asked.items()]


def shorten(text: str, document_frequency: Mapping[str, int], documents: int) -> str:
    """The query without its least telling terms, by tf·idf, so that `MOST_TERMS` distinct ones are left.

    Both engines search this text, so that both find the same.
    """
    found = terms(text)
    counts = Counter(found)

    def weight(term: str) -> float:
        df = document_frequency.get(term, 0)
        return counts[term] * log1p((documents - df + 0.5) / (df + 0.5))

    kept = set(sorted(counts, key=weight, reverse=True)[:MOST_TERMS])  # stable: among equals the first stay
    return " ".join(term for term in found if term in kept)
