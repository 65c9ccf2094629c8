"""The candidates for a subset, each passage once, and the verdicts: which are kept, and why the others are not."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tlm.artifacts.artifact import Artifact
from tlm.data.overlap import AT_ONCE, OverlapFinder, TokenLists, Vocabulary
from tlm.data.ranges import Ints
from tlm.data.tasks.examples import examples
from tlm.errors import NothingLeft
from tlm.progress import say, track
from tlm.retrieval.subset.duplicates import find_near_duplicates
from tlm.settings.options import MIN_CHARACTERS, MIN_TOKENS, Filters

NO_ROWS: Ints = np.zeros(0, np.int64)
NO_RANK = np.iinfo(np.int32).max
NO_SCORE = -np.inf


@dataclass(frozen=True)
class Candidates:
    """The passages that a subset is chosen from, in ascending order of `docs`.

    Attributes:
        source: What they were taken from, for messages.
        read: Starts reading all passages (``doc``, ``text``), ascending; there may be more than the candidates.
        docs: Their document numbers.
        best_rank: The best rank that any query gave each one, from 1; `NO_RANK` if none did.
        best_score: The best score that any query gave each one; `NO_SCORE` if none did.
    """

    source: str
    read: Callable[[], Iterable[pa.RecordBatch]]
    docs: Ints
    best_rank: npt.NDArray[np.int32]
    best_score: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.docs)

    def best(self, rows: Ints) -> dict[str, pa.Array]:
        """The columns `best_rank` and `best_score` of the given rows, null where there is none."""
        rank, score = self.best_rank[rows], self.best_score[rows]
        ranks, scores = pa.array(rank, mask=rank == NO_RANK), pa.array(score, mask=score == NO_SCORE)
        return {"best_rank": ranks, "best_score": scores}

    def best_first(self) -> Ints:
        """Rows by best rank ascending, best score descending, document ascending."""
        return np.lexsort((self.docs, -self.best_score, self.best_rank))

    def texts(self, rows: Ints | slice = slice(None)) -> Iterator[pa.Array]:
        """Read the texts of the given rows (ascending), in portions."""
        portions = track(self.read(), "reading candidates", unit="portions")
        return (batch.column("text") for batch in of_docs(portions, self.docs[rows]))


def of_docs(passages: Iterable[pa.RecordBatch], docs: Ints) -> Iterator[pa.RecordBatch]:
    """Yield the passages with these numbers; both are in ascending order of `doc`."""
    for batch in passages:
        here = batch.column("doc").to_numpy()
        start, stop = np.searchsorted(docs, [here[0], here[-1] + 1]) if len(here) else (0, 0)
        if start < stop:
            yield batch.take(pa.array(np.searchsorted(here, docs[start:stop])))


KEPT, TOO_SHORT, OVERLAPS_TEST, OVERLAPS_DEV, NEAR_DUPLICATE, SURPLUS = range(6)
REASONS = ("kept", "too short", "overlaps test", "overlaps dev", "near-duplicate", "surplus")


@dataclass(frozen=True)
class Verdicts:
    """The verdicts: which candidates are kept, and why the others are not.

    Attributes:
        candidates: The passages.
        reason: For each candidate an index into `REASONS`.
        details: More about the reason, by row; for every removed candidate except surplus ones.
    """

    candidates: Candidates
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
    repeats: Ints = NO_ROWS,
    like: int | None = None,
) -> Verdicts:
    """Decide which candidates are kept.

    Repeated texts and short ones go first, then what overlaps test or dev texts, so that no removed passage can push
    out a clean near-duplicate of itself. Near-duplicates follow. If `like` is given, all but the first so many go last.

    Args:
        candidates: The passages to judge.
        filters: What to remove.
        tasks: Tasks whose dev and test texts the overlap filter protects, by the name to give in details ("" for none).
        repeats: The candidates whose text an earlier one has, ascending.
        like: How many to keep at most; None for all.

    Raises:
        NothingLeft: nothing is left.
    """
    verdicts = Verdicts(candidates, np.zeros(len(candidates), np.int8))
    verdicts.remove(repeats, NEAR_DUPLICATE, ["the same text as an earlier passage"] * len(repeats))
    words = _remove_short_and_overlapping(verdicts, filters, tasks)
    best_first = candidates.best_first()
    if words is not None:
        _remove_near_duplicates(verdicts, words, best_first, filters.jaccard)
    if like is not None:
        verdicts.reason[best_first[verdicts.reason[best_first] == KEPT][like:]] = SURPLUS
    if not len(verdicts.rows()):
        counts = Counter(REASONS[reason] for reason in verdicts.reason.tolist())
        removed = ", ".join(f"{reason} {count:,}" for reason, count in counts.items())
        total = f"{len(candidates):,} passages of {candidates.source}"
        raise NothingLeft(f"the filters leave none of the {total} ({removed})")
    return verdicts


def _remove_short_and_overlapping(
    verdicts: Verdicts, filters: Filters, tasks: Mapping[str, Artifact]
) -> TokenLists | None:
    """Judge each candidate by itself, in portions. Returns the words of all if near-duplicates are looked for."""
    vocabulary = Vocabulary()
    protected = [_HeldOut(name, task, vocabulary, filters) for name, task in tasks.items() if filters.overlap]
    if not filters.near_duplicates:
        vocabulary.close()
    ids, lengths, start = array("i"), [np.zeros(0, np.int64)], 0
    texts = (text for portion in verdicts.candidates.texts() for text in portion.to_pylist())
    while True:
        words, as_compared = vocabulary.encode_both(islice(texts, AT_ONCE))
        if not len(words):
            break
        rows = start + np.flatnonzero(verdicts.reason[start : start + len(words)] == KEPT)
        short = rows[words.lengths[rows - start] < filters.min_words]
        verdicts.remove(short, TOO_SHORT, (f"{count} words" for count in words.lengths[short - start]))
        for texts_of_task in protected:
            rows = rows[verdicts.reason[rows] == KEPT]
            texts_of_task.remove_overlaps(verdicts, rows, as_compared.select(rows - start))
        if filters.near_duplicates:
            ids.frombytes(words.packed().ids.tobytes())
            lengths.append(words.lengths)
        start += len(words)
    if not filters.near_duplicates:
        return None
    return TokenLists.of(np.frombuffer(ids, np.int32), np.concatenate(lengths))


def _remove_near_duplicates(verdicts: Verdicts, words: TokenLists, best_first: Ints, jaccard: float) -> None:
    """Remove candidates that nearly repeat a kept one that comes before them in the order `best_first`."""
    rows = best_first[verdicts.reason[best_first] == KEPT]
    originals, similarities = find_near_duplicates(words.select(rows), jaccard)
    found = np.flatnonzero(originals >= 0)
    pairs = zip(similarities[found], verdicts.candidates.docs[rows[originals[found]]], strict=True)
    details = (f"Jaccard {similarity:.2f} with doc {doc}" for similarity, doc in pairs)
    verdicts.remove(rows[found], NEAR_DUPLICATE, details)


class _HeldOut:
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
        # short texts are encoded as empty ones, which `OverlapFinder` skips
        words = vocabulary.encode([text if len(text) >= MIN_CHARACTERS else "" for text in texts])
        if skipped := int((words.lengths < MIN_TOKENS).sum()):
            limits = f"{MIN_TOKENS} words or {MIN_CHARACTERS} characters"
            say(f"warning: {skipped:,} dev and test texts have fewer than {limits}: passages may contain them")
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
