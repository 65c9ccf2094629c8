"""Judge the candidates for a subset: which are kept, and why the others are not."""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from tlm.artifacts.artifact import Artifact
from tlm.data.overlap import AT_ONCE, OverlapFinder, TokenLists, Vocabulary
from tlm.data.ranges import Ints
from tlm.data.tasks.examples import examples
from tlm.errors import InputError
from tlm.progress import say
from tlm.retrieval.subset.candidates import Candidates
from tlm.retrieval.subset.duplicates import find_near_duplicates
from tlm.settings.options import MIN_TOKENS, Filters

KEPT, TOO_SHORT, OVERLAPS_TEST, OVERLAPS_DEV, NEAR_DUPLICATE, SURPLUS = range(6)
REASONS = ("kept", "too short", "overlaps test", "overlaps dev", "near-duplicate", "surplus")


@dataclass(frozen=True)
class Verdicts:
    """Which candidates are kept, and why the others are not.

    Attributes:
        reason: For each candidate an index into `REASONS`.
        details: More about the reason, by row; for every removed candidate except surplus ones.
    """

    reason: npt.NDArray[np.int8]
    details: dict[int, str] = field(default_factory=dict)

    def rows(self, reason: int = KEPT) -> Ints:
        """The rows that have this verdict, ascending."""
        return np.flatnonzero(self.reason == reason)

    def remove(self, rows: Ints, reason: int | npt.NDArray[np.int8], details: Iterable[str]) -> None:
        """Remove the candidates at `rows`."""
        self.reason[rows] = reason
        self.details.update(zip(rows.tolist(), details, strict=True))


def judge(
    candidates: Candidates,
    filters: Filters,
    tasks: Mapping[str, Artifact],
    *,
    repeats: npt.NDArray[np.bool_] | None = None,
    like: int | None = None,
) -> Verdicts:
    """Decide which candidates are kept.

    Repeated texts and short ones go first, then what overlaps test or dev texts, so that no removed passage can push
    out a clean near-duplicate of itself. Near-duplicates follow. If `like` is given, all but the first so many go last.

    Args:
        candidates: The passages to judge.
        filters: What to remove.
        tasks: Tasks whose dev and test texts the overlap filter protects, by the name to give in details ("" for none).
        repeats: Whether an earlier candidate has the same text.
        like: How many to keep at most; None for all.

    Raises:
        InputError: nothing is left.
    """
    verdicts = Verdicts(np.zeros(len(candidates), np.int8))
    if repeats is not None:
        rows = np.flatnonzero(repeats)
        verdicts.remove(rows, NEAR_DUPLICATE, ["the same text as an earlier passage"] * len(rows))
    words = _remove_short_and_overlapping(verdicts, candidates, filters, tasks)
    best_first = candidates.best_first()
    if words is not None:
        _remove_near_duplicates(verdicts, candidates, words, best_first, filters.jaccard)
    if like is not None:
        verdicts.reason[best_first[verdicts.reason[best_first] == KEPT][like:]] = SURPLUS
    if not len(verdicts.rows()):
        counts = Counter(REASONS[reason] for reason in verdicts.reason.tolist())
        removed = ", ".join(f"{reason} {count:,}" for reason, count in counts.items())
        total = f"{len(candidates):,} passages of {candidates.source}"
        raise InputError(f"the filters leave none of the {total} ({removed})")
    return verdicts


def _remove_short_and_overlapping(
    verdicts: Verdicts, candidates: Candidates, filters: Filters, tasks: Mapping[str, Artifact]
) -> TokenLists | None:
    """Judge each candidate by itself, in portions. Returns the words of all if near-duplicates are looked for."""
    vocabulary = Vocabulary()
    held_out = tasks.items() if filters.overlap else ()
    protected = [_Protected(name, task, vocabulary, filters) for name, task in held_out]
    if not filters.near_duplicates:
        vocabulary.close()
    ids, lengths, start = array("i"), [np.zeros(0, np.int64)], 0
    texts = (text for portion in candidates.texts() for text in portion.to_pylist())
    while len((both := vocabulary.encode_both(islice(texts, AT_ONCE)))[0]):
        words, as_compared = both
        rows = start + np.flatnonzero(verdicts.reason[start : start + len(words)] == KEPT)
        short = rows[words.lengths[rows - start] < filters.min_words]
        verdicts.remove(short, TOO_SHORT, (f"{count} words" for count in words.lengths[short - start]))
        for texts_of_task in protected:
            rows = rows[verdicts.reason[rows] == KEPT]
            texts_of_task.remove_overlaps(verdicts, rows, as_compared.select(rows - start))
        if filters.near_duplicates:
            ids.frombytes(words.ids.tobytes())
            lengths.append(words.lengths)
        start += len(words)
    if not filters.near_duplicates:
        return None
    return TokenLists.of(np.frombuffer(ids, np.int32), np.concatenate(lengths))


def _remove_near_duplicates(
    verdicts: Verdicts, candidates: Candidates, words: TokenLists, best_first: Ints, jaccard: float
) -> None:
    """Remove candidates that nearly repeat a kept one that comes before them in the order `best_first`."""
    rows = best_first[verdicts.reason[best_first] == KEPT]
    repeated = find_near_duplicates(words.select(rows), jaccard)
    found = np.flatnonzero(repeated.original >= 0)
    pairs = zip(repeated.similarity[found], candidates.docs[rows[repeated.original[found]]], strict=True)
    details = (f"Jaccard {similarity:.2f} with doc {doc}" for similarity, doc in pairs)
    verdicts.remove(rows[found], NEAR_DUPLICATE, details)


class _Protected:
    """The dev and test texts of a task, test first."""

    def __init__(self, name: str, task: Artifact, vocabulary: Vocabulary, filters: Filters) -> None:
        self.suffix = f" of {name}" if name else ""
        table = examples(task)
        ordinals, reasons, texts = [], [], []
        for split, reason in (("test", OVERLAPS_TEST), ("dev", OVERLAPS_DEV)):
            for column in ("text", "text_pair"):
                chosen = pc.and_(pc.equal(table["split"], split), pc.is_valid(table[column]))
                ordinals.append(np.flatnonzero(chosen.to_numpy()))
                reasons.append(np.full(len(ordinals[-1]), reason, np.int8))
                texts += table[column].filter(chosen).to_pylist()
        self.ordinals, self.reasons = np.concatenate(ordinals), np.concatenate(reasons)
        words = vocabulary.encode(texts)
        skipped = int((words.lengths < MIN_TOKENS).sum())
        if skipped:
            say(f"warning: {skipped} dev and test texts have fewer than {MIN_TOKENS} words and are not looked for")
        self.finder = OverlapFinder(words, filters.ngram, filters.overlap_share, filters.passage_share)

    def remove_overlaps(self, verdicts: Verdicts, rows: Ints, words: TokenLists) -> None:
        """Remove those candidates (at `rows`, with these words) that overlap one of the texts."""
        found = self.finder.find(words)
        overlapping = np.flatnonzero(found.text >= 0)
        details = []
        for row in overlapping.tolist():
            grams = "its n-grams are in" if found.of_passage[row] else "the n-grams of"
            example = self.ordinals[found.text[row]]
            details.append(f"{found.share[row]:.2f} of {grams} example {example}{self.suffix}")
        verdicts.remove(rows[overlapping], self.reasons[found.text[overlapping]], details)
