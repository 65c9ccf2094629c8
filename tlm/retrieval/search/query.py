"""Queries, hits, and the interface of search engines between them.

Candidates are the runs of words between stop words and punctuation. A word's degree is the total length of the
candidate occurrences that contain it; its score is its degree over its frequency. A candidate's score is the sum over
its words. The best candidates are the keywords, a third as many as there are distinct words in all candidates.

Stop words are English; in other languages only punctuation ends a candidate. In scripts without spaces between words
(Han, Thai, …) each letter is a word. The paper's step of joining keywords across interior stop words ("axis of evil")
is left out: a query is a bag of words and has these words already.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import groupby
from math import log1p
from statistics import median
from typing import Protocol

import numpy as np
import numpy.typing as npt
import regex

from tlm.data.passages import count
from tlm.data.tasks.metrics import sum_in_order
from tlm.data.text import MARKS, word_pattern
from tlm.progress import say
from tlm.retrieval.search.analyzer import terms_of_each, terms_of_text

Docs = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
Found = tuple[int, Docs, Scores]  # the number of a query, and its hits


class Engine(Protocol):
    """A search engine on one index."""

    def search(self, queries: Sequence[str], top_k: int) -> Iterator[tuple[Docs, Scores]]:
        """Yield the best documents of each query, at most `top_k`, and their scores.

        Documents are ordered by BM25 score descending, then by number ascending. A query's hits do not depend on the
        other queries. A term that occurs n times in a query counts n times.
        """


LOW = 0xFFFFFFFF  # the lower half of a hit, which has the document


def packed(scores: Scores, docs: Docs) -> Docs:
    """Hits as numbers that are in their order: scores ascending, and of equal scores the first document last."""
    bits = (scores + np.float32(0)).view(np.int32)  # -0.0 becomes 0.0
    return (_ordered(bits).astype(np.int64) << 32) | (LOW - docs)


def unpacked(hits: Docs) -> tuple[Docs, Scores]:
    """The documents and scores of hits that were `packed`."""
    return LOW - (hits & LOW), _ordered((hits >> 32).astype(np.int32)).view(np.float32)


def _ordered(bits: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The bits of floats as integers in the order of the floats, and back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)  # type: ignore[no-any-return]


_PART = word_pattern()
_BREAK = regex.compile(rf"[^\p{{L}}\p{{N}}{MARKS}\s'-]+|\s[-']+\s", regex.V1)
_WORD = regex.compile(rf"(?<![\s'-])([\s'-]*+)({_PART}(?:['-]{_PART})*)", regex.V1)  # with what stands before it


def keywords(text: str) -> list[tuple[str, float]]:
    """Extract the keywords of `text`, lower-cased, with their scores: best first, equal ones in order of appearance.

    There are none if `text` has only stop words and punctuation.
    """
    candidates = _candidates(text)
    frequency, degree = Counter[str](), Counter[str]()
    for _, words in candidates:
        for word in words:
            frequency[word] += 1
            degree[word] += len(words)
    scores = {phrase: sum_in_order(degree[word] / frequency[word] for word in words) for phrase, words in candidates}
    best = sorted(scores.items(), key=lambda scored: -scored[1])
    return best[: max(1, len(frequency) // 3)]


def _candidates(text: str) -> list[tuple[str, list[str]]]:
    """Return the runs of words other than stop words, in order, with repetitions: each as text, and its words.

    Words of the text have a space between them where they stand apart.
    """
    candidates = []
    for phrase in _BREAK.split(text.lower().replace("’", "'")):
        for is_stop_word, run in groupby(_WORD.findall(phrase), lambda pair: pair[1] in _stop_words()):
            if not is_stop_word:
                pairs = list(run)  # of what stands before a word, and the word
                candidate = "".join(f" {word}" if gap else word for gap, word in pairs).lstrip()
                candidates.append((candidate, [word for _, word in pairs]))
    return candidates


@lru_cache(maxsize=1)
def _stop_words() -> frozenset[str]:
    lines = files("tlm.retrieval.search").joinpath("stop_words.txt").read_text("utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


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
    sizes = [len(set(terms)) for terms in terms_of_each(query.text for query in queries)]
    dropped = [(number, "empty", "it has no term") for number, size in enumerate(sizes) if size == 0]
    long = [number for number, size in enumerate(sizes) if size > MOST_TERMS]
    if long:
        say(f"{len(long)} queries have more than {MOST_TERMS} terms; counting the passages that contain these")
        idf = _idf(passages(), {term for number in long for term in terms_of_text(queries[number].text)})
        queries = list(queries)
        for number in long:
            queries[number] = Query(_shorten(queries[number].text, idf), queries[number].examples)
            cut = f"{sizes[number] - MOST_TERMS} of {sizes[number]} distinct terms are left out: the lowest by tf·idf"
            dropped.append((number, "cut", cut))
    return queries, dropped


def _idf(passages: Iterable[str], wanted: set[str]) -> dict[str, float]:
    """BM25's idf of those wanted terms that occur in any passage."""
    frequency, number = Counter[str](), 0
    for terms in terms_of_each(passages):
        frequency.update(wanted.intersection(terms))
        number += 1
    return {term: log1p((number - df + 0.5) / (df + 0.5)) for term, df in frequency.items()}


def _shorten(text: str, idf: Mapping[str, float]) -> str:
    terms = terms_of_text(text)
    counts = Counter(terms)
    # Sorting is stable: of equally good terms the first are kept.
    kept = set(sorted(counts, key=lambda term: -counts[term] * idf.get(term, 0.0))[:MOST_TERMS])
    return " ".join(term for term in terms if term in kept)
