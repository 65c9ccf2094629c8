"""Find near-duplicates: passages whose sets of word 5-grams have at least a given Jaccard similarity.

The search is exact, by prefix filtering (Bayardo, Ma and Srikant, "Scaling up all pairs similarity search", WWW 2007).
Two sets with Jaccard ≥ t have at least a fraction t of either in common. So if each set's shingles are ordered by
rarity, and its prefix is the first ``size - ceil(t size) + 1`` of them, then the prefixes of the two have a shingle in
common. It is fast because a shingle that only one passage has cannot match, and most passages have so many of these
that they cannot be similar to any other.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from fractions import Fraction
from itertools import pairwise
from tempfile import TemporaryFile

import numpy as np
import numpy.typing as npt

from tlm.data.overlap import Hashes, HashSet, TokenLists, distinct, shingles
from tlm.data.ranges import Ints
from tlm.progress import track

SHINGLE = 5
PASSAGES_AT_ONCE = 20_000
SHINGLES_AT_ONCE = 1 << 25  # 256 MiB of hashes, and as much to collect them


def find_near_duplicates(passages: TokenLists, jaccard: float) -> tuple[Ints, npt.NDArray[np.float64]]:
    """Find near-duplicates; a passage is kept unless it nearly repeats an earlier one that is kept.

    If it nearly repeats several kept ones, its original is the first of them. Passages with fewer than `SHINGLE` tokens
    are compared as a whole.

    Args:
        passages: The passages, in order of preference.
        jaccard: The similarity from which passages are near-duplicates, in (0, 1].

    Returns:
        For each passage the kept one that it nearly repeats, -1 if it is kept itself; and their Jaccard similarity.
    """
    threshold = Fraction(jaccard).limit_denominator(10**6)
    kept = _Kept(threshold)
    originals, similarities = np.full(len(passages), -1, np.int64), np.zeros(len(passages))
    rows, singles, sets = _candidates(passages, threshold)
    candidates = track(rows.tolist(), "looking for near-duplicates", len(rows), "passages with shared wording")
    for row, single, shared in zip(candidates, singles.tolist(), sets, strict=True):
        similar = kept.first_similar(shared, single)
        if similar is None:
            kept.add(row, shared, single)
        else:
            originals[row], similarities[row] = similar
    return originals, similarities


class _Kept:
    """The passages kept so far, indexed by the rarest shingles of each; in arrays, which take little memory."""

    def __init__(self, threshold: Fraction) -> None:
        self.numerator, self.denominator = threshold.numerator, threshold.denominator
        self.sets: list[tuple[int, array[int], int]] = []  # row, shared shingles, size with the others
        # by shingle, of each kept passage with it: position of the shingle in its set, size of the set, passage
        self.index: defaultdict[int, array[int]] = defaultdict(lambda: array("q"))

    def add(self, row: int, shared: list[int], single: int) -> None:
        which, size = len(self.sets), len(shared) + single
        self.sets.append((row, array("q", shared), size))
        for place, shingle in self._prefix(shared, single):
            self.index[shingle].extend((place, size, which))

    def first_similar(self, shared: list[int], single: int) -> tuple[int, float] | None:
        """The first kept passage that is similar enough, and its similarity."""
        size, members = len(shared) + single, frozenset(shared)
        for which in sorted(self._possible(shared, single)):
            row, others, its_size = self.sets[which]
            common = len(members.intersection(others))
            union = size + its_size - common
            if common * self.denominator >= union * self.numerator:
                return row, common / union
        return None

    def _possible(self, shared: list[int], single: int) -> set[int]:
        """Kept passages with a shingle in common so early in their order that enough others can follow."""
        size, found = len(shared) + single, set[int]()
        numerator, total = self.numerator, self.numerator + self.denominator
        for place, shingle in self._prefix(shared, single):
            entries = iter(self.index.get(shingle, ()))
            for its_place, its_size, which in zip(entries, entries, entries, strict=True):
                if min(size - place, its_size - its_place) * total >= (size + its_size) * numerator:
                    found.add(which)
        return found

    def _prefix(self, shared: list[int], single: int) -> list[tuple[int, int]]:
        """The shared shingles in the set's prefix, with their positions in the order of rarity.

        Shingles that no other passage has are rarest and come first. Any similar set has one of the prefix's shingles.
        """
        size = len(shared) + single
        least = -(-size * self.numerator // self.denominator)
        return list(enumerate(shared[: max(0, size - least + 1 - single)], start=single))


def _candidates(passages: TokenLists, threshold: Fraction) -> tuple[Ints, Ints, Iterator[list[int]]]:
    """Find the passages that share enough shingles with others to be similar to one of them.

    Returns the passages, ascending; how many shingles each has that no other passage has; and for each, the numbers of
    its other shingles, rarest first.
    """
    chunks = np.split(np.arange(len(passages)), range(PASSAGES_AT_ONCE, len(passages), PASSAGES_AT_ONCE))
    repeated = _repeated(passages, chunks)
    rows, singles, shared_hashes, owners = [], [], [], []
    for chunk in chunks:
        hashes, owner = shingles(passages.select(chunk), SHINGLE)
        is_shared = np.zeros(len(hashes), bool)
        is_shared[repeated.find(hashes)[0]] = True
        # repeats within a passage count as shared, too: an upper bound
        shared = np.bincount(owner[is_shared], minlength=len(chunk))
        single = np.bincount(owner[~is_shared], minlength=len(chunk))
        possible = shared * threshold.denominator >= (shared + single) * threshold.numerator
        rows.append(chunk[possible])
        singles.append(single[possible])
        wanted = is_shared & possible[owner]
        chunk_hashes, chunk_owner = distinct(hashes[wanted], owner[wanted])
        shared_hashes.append(chunk_hashes)
        owners.append(chunk[chunk_owner])
    candidates, owner, numbers = np.concatenate(rows), np.concatenate(owners), _by_rarity(np.concatenate(shared_hashes))
    in_order = numbers[np.lexsort((numbers, owner))]  # by passage, then by rarity
    ends = np.cumsum(np.bincount(owner, minlength=len(passages)))[candidates].tolist()
    sets = (in_order[start:end].tolist() for start, end in pairwise([0, *ends]))
    return candidates, np.concatenate(singles), sets


def _repeated(passages: TokenLists, chunks: list[Ints]) -> HashSet:
    """The hashes that occur more than once. Very many are put into files first, which are looked at one by one."""
    hashes = (shingles(passages.select(rows), SHINGLE)[0] for rows in chunks)
    files = 1 + int(passages.lengths.sum()) // SHINGLES_AT_ONCE
    parts = [np.concatenate(list(hashes))] if files == 1 else _distributed(hashes, files)
    found = [np.zeros(0, np.uint64)]
    for part in parts:
        part.sort()
        found.append(part[1:][part[1:] == part[:-1]])
    return HashSet(np.concatenate(found))


def _distributed(hashes: Iterator[Hashes], count: int) -> Iterator[Hashes]:
    """The same hashes in so many parts, each by way of a file, equal ones in the same part."""
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile()) for _ in range(count)]
        for portion in hashes:
            part = portion % np.uint64(count)
            for number, file in enumerate(files):
                file.write(portion[part == number].tobytes())
        for file in files:
            file.seek(0)
            yield np.fromfile(file, np.uint64)


def _by_rarity(hashes: Hashes) -> Ints:
    """Number the distinct hashes by rarity, rarest first. Returns the number of each hash."""
    values, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    numbers = np.empty(len(values), np.int64)
    numbers[np.lexsort((values, counts))] = np.arange(len(values))
    return numbers[inverse]
