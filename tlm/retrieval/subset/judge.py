"""Judging the union of the hits: which passages go into the subset, and why the others do not."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.task import examples
from tlm.errors import InputError
from tlm.progress import say
from tlm.retrieval.subset.near_duplicates import find_near_duplicates
from tlm.retrieval.subset.ngrams import Ints, TokenLists, Vocabulary
from tlm.retrieval.subset.overlap import MIN_TOKENS, find_overlaps

KEPT, TOO_SHORT, OVERLAPS_TEST, OVERLAPS_DEV, NEAR_DUPLICATE, SURPLUS = range(6)
REASONS = ("kept", "too short", "overlaps test", "overlaps dev", "near-duplicate", "surplus")


@dataclass(frozen=True)
class Filters:
    """What to remove; None switches a filter off."""

    min_words: int
    jaccard: float | None
    overlap_share: float | None
    passage_share: float | None
    ngram: int | None

    @classmethod
    def of(
        cls,
        *,
        near_duplicates: bool,
        overlap: bool,
        jaccard: float,
        overlap_share: float,
        passage_share: float,
        ngram: int,
        min_words: int = 0,
    ) -> "Filters":
        """The filters that a step's settings ask for.

        Raises:
            InputError: a setting is out of range, even one of a filter that is off.
        """
        for name, share in (("jaccard", jaccard), ("overlap_share", overlap_share), ("passage_share", passage_share)):
            if not 0 < share <= 1:
                raise InputError(f"{name} is {share}; expected a share above 0 and up to 1")
        if ngram < MIN_TOKENS:
            expected = f"expected at least {MIN_TOKENS}: shorter runs of words are in every text"
            raise InputError(f"ngram is {ngram}; {expected}")
        if min_words < 0:
            raise InputError(f"min_words is {min_words}; expected 0 (keep all) or more")
        overlaps = (overlap_share, passage_share, ngram) if overlap else (None, None, None)
        return cls(min_words, jaccard if near_duplicates else None, *overlaps)


@dataclass(frozen=True)
class Verdicts:
    """For each passage of the union: the reason (an index into `REASONS`) and what it is about.

    `about` is the example's ordinal (overlap), the row of the kept passage in the union (near-duplicate) or the number
    of words (too short); `degree` the share of n-grams (overlap: the passage's own where `of_passage` is set, else the
    example's), or the Jaccard similarity.
    """

    reason: npt.NDArray[np.int8]
    about: Ints
    degree: npt.NDArray[np.float64]
    of_passage: npt.NDArray[np.bool_]

    @classmethod
    def keep_all(cls, size: int) -> "Verdicts":
        """All of so many passages are kept, so far."""
        return cls(np.zeros(size, np.int8), np.zeros(size, np.int64), np.zeros(size), np.zeros(size, bool))

    def part(self, rows: slice) -> "Verdicts":
        """A view of some rows: what is marked there is marked here."""
        return Verdicts(self.reason[rows], self.about[rows], self.degree[rows], self.of_passage[rows])

    def rows(self, reason: int = KEPT) -> Ints:
        """The rows that have this verdict, ascending."""
        return np.flatnonzero(self.reason == reason)

    def mark(
        self,
        rows: Ints,
        reason: int | npt.NDArray[np.int8],
        about: Ints | int,
        degree: npt.NDArray[np.float64] | float = 0,
    ) -> None:
        """Enter a verdict for `rows`."""
        self.reason[rows], self.about[rows], self.degree[rows] = reason, about, degree

    def overlap(self, row: int) -> str:
        """How the passage of this row overlaps an example, in words."""
        grams = "its n-grams are in" if self.of_passage[row] else "the n-grams of"
        return f"{self.degree[row]:.2f} of {grams} example {self.about[row]}"


def judge(
    texts: Iterable[str], best_first: Ints, task: Artifact | None, filters: Filters, like: int | None
) -> Verdicts:
    """Judge the passages of the union.

    Too short ones go first, then those that overlap test or dev text, so that no removed passage can push out a clean
    near-duplicate of itself; last, if `like` is given, all but the first so many.

    Args:
        texts: The passages' texts, in the order of the union.
        best_first: The rows of the union in the order in which near-duplicates compete for a place.
        task: Whose dev and test texts to protect (None where that filter is off).
        filters: What to remove.
        like: How many to keep at most; None for all.
    """
    vocabulary = Vocabulary()
    words = vocabulary.encode(texts)
    verdicts = Verdicts.keep_all(len(words))
    short = np.flatnonzero(words.lengths < filters.min_words)
    verdicts.mark(short, TOO_SHORT, words.lengths[short])
    if task is not None:
        remove_overlaps(verdicts, words, Protected.of(task, vocabulary), filters)
    if filters.jaccard is not None:
        remove_near_duplicates(verdicts, words, best_first, filters.jaccard)
    if like is not None:
        surplus = best_first[verdicts.reason[best_first] == KEPT][like:]
        verdicts.mark(surplus, SURPLUS, 0)
    return verdicts


@dataclass(frozen=True)
class Protected:
    """The texts of dev and test: the ordinals of their examples, the verdict on what overlaps them, their words."""

    ordinals: Ints
    reasons: npt.NDArray[np.int8]
    words: TokenLists

    @classmethod
    def of(cls, task: Artifact, vocabulary: Vocabulary) -> "Protected":
        """Those of `task`, test before dev; says how many are too short to be looked for."""
        ordinals, reasons, texts = _held_out(task)
        words = vocabulary.encode(texts)
        skipped = int((words.lengths < MIN_TOKENS).sum())
        if skipped:
            say(f"warning: {skipped} dev and test texts have fewer than {MIN_TOKENS} words and are not looked for")
        return cls(ordinals, reasons, words)


def remove_overlaps(verdicts: Verdicts, words: TokenLists, protected: Protected, filters: Filters) -> None:
    """Enter the verdict on every kept passage that overlaps a protected text, unless that filter is off."""
    if filters.ngram is None or filters.overlap_share is None or filters.passage_share is None:
        return
    rows = verdicts.rows()
    shares = filters.overlap_share, filters.passage_share
    found = find_overlaps(words.select(rows), protected.words, filters.ngram, *shares)
    overlapping = found.text >= 0
    rows, text = rows[overlapping], found.text[overlapping]
    verdicts.mark(rows, protected.reasons[text], protected.ordinals[text], found.share[overlapping])
    verdicts.of_passage[rows] = found.of_passage[overlapping]


def remove_near_duplicates(verdicts: Verdicts, words: TokenLists, best_first: Ints, jaccard: float) -> None:
    """Enter the verdict on every kept passage that nearly repeats one which is kept and stands before it."""
    rows = best_first[verdicts.reason[best_first] == KEPT]
    twins = find_near_duplicates(words.select(rows), jaccard)
    found = twins.twin >= 0
    verdicts.mark(rows[found], NEAR_DUPLICATE, rows[twins.twin[found]], twins.similarity[found])


def _held_out(task: Artifact) -> tuple[Ints, npt.NDArray[np.int8], list[str]]:
    """The texts (and second texts) of test, then of dev: ordinals of their examples, the verdict, the texts."""
    table = examples(task)
    ordinals, reasons, texts = [], [], []
    for split, reason in (("test", OVERLAPS_TEST), ("dev", OVERLAPS_DEV)):
        chosen = np.flatnonzero(pc.equal(table["split"], split).to_numpy())
        for column in ("text", "text_pair"):
            values = table[column].take(pa.array(chosen))
            there = values.is_valid().to_numpy()
            ordinals.append(chosen[there])
            reasons.append(np.full(int(there.sum()), reason, np.int8))
            texts += values.drop_null().to_pylist()
    return np.concatenate(ordinals), np.concatenate(reasons), texts
