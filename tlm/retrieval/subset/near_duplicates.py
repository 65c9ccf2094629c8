"""Near-duplicates: passages whose sets of word 5-grams have a Jaccard similarity of at least a threshold.

Exact, by prefix filtering (Bayardo, Ma and Srikant, "Scaling up all pairs similarity search", WWW 2007): two sets of
Jaccard ≥ t share at least a share t of either, so if shingles are ordered by rarity, each set's rarest (1 - t) + 1
hold one in common. Two observations make it fast: a shingle that only one passage has brings no two together, and
most passages have so many of those that nothing else needs to be looked at.
"""

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tlm.progress import track
from tlm.retrieval.subset.ngrams import Hashes, HashSet, Ints, TokenLists, distinct, offsets_of, shingles

SHINGLE = 5
PASSAGES_AT_ONCE = 20_000
SHINGLES_AT_ONCE = 1 << 27  # a gigabyte of hashes, and as much to gather them


@dataclass(frozen=True)
class Twins:
    """For each passage the kept one that it nearly repeats (-1: none, it is kept itself) and their similarity."""

    twin: Ints
    similarity: npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Sets:
    """The shingle sets of passages that may have a twin: shared shingles by number, rarest first, and how many more."""

    rows: Ints
    offsets: Ints
    shared: Ints
    alone: Ints


def find_near_duplicates(passages: TokenLists, jaccard: float) -> Twins:
    """Go through the passages from first to last; each is kept unless it nearly repeats one that was kept.

    Where it nearly repeats several kept ones, the first is named. Passages with fewer than `SHINGLE` tokens are
    compared as wholes.

    Args:
        passages: In the order of preference.
        jaccard: In (0, 1].
    """
    threshold = Fraction(jaccard).limit_denominator(10**6)
    sets, kept = _candidates(passages, threshold), _Kept(threshold)
    found = Twins(np.full(len(passages), -1, np.int64), np.zeros(len(passages)))
    rows, alone, offsets = sets.rows.tolist(), sets.alone.tolist(), sets.offsets.tolist()
    for place in track(range(len(rows)), "looking for near-duplicates", len(rows), "passages with shared wording"):
        shared = sets.shared[offsets[place] : offsets[place + 1]].tolist()
        twin = kept.first_similar(shared, alone[place])
        if twin is None:
            kept.add(rows[place], shared, alone[place])
        else:
            found.twin[rows[place]], found.similarity[rows[place]] = twin
    return found


class _Kept:
    """The passages kept so far, indexed by the rarest shingles of each."""

    def __init__(self, threshold: Fraction) -> None:
        self.numerator, self.denominator = threshold.numerator, threshold.denominator
        self.rows: list[int] = []
        self.sets: list[frozenset[int]] = []
        self.sizes: list[int] = []
        # shingle -> (size of a set, place of the shingle in it) -> which of the kept
        self.index: defaultdict[int, defaultdict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))

    def add(self, row: int, shared: list[int], alone: int) -> None:
        which, size = len(self.rows), len(shared) + alone
        self.rows.append(row)
        self.sets.append(frozenset(shared))
        self.sizes.append(size)
        for place, shingle in self._prefix(shared, alone):
            self.index[shingle][size, place].append(which)

    def first_similar(self, shared: list[int], alone: int) -> tuple[int, float] | None:
        """The first kept passage that is similar enough, and how similar."""
        size, members = len(shared) + alone, frozenset(shared)
        for which in sorted(self._possible(shared, alone)):
            common, both = len(members & self.sets[which]), size + self.sizes[which]
            if common * self.denominator >= (both - common) * self.numerator:
                return self.rows[which], common / (both - common)
        return None

    def _possible(self, shared: list[int], alone: int) -> set[int]:
        """Those with a shingle in common, early enough in the order of rarity that enough can follow."""
        size, found = len(shared) + alone, set[int]()
        numerator, total = self.numerator, self.numerator + self.denominator
        for place, shingle in self._prefix(shared, alone):
            for (its_size, its_place), which in self.index.get(shingle, {}).items():
                if min(size - place, its_size - its_place) * total >= (size + its_size) * numerator:
                    found.update(which)
        return found

    def _prefix(self, shared: list[int], alone: int) -> list[tuple[int, int]]:
        """(place in the order of rarity, shingle) of the rarest: one of them any similar set has. The rest is alone."""
        size = len(shared) + alone
        least = -(-size * self.numerator // self.denominator)
        return list(enumerate(shared[: max(0, size - least + 1 - alone)], start=alone))


def _candidates(passages: TokenLists, threshold: Fraction) -> _Sets:
    """The sets of the passages that share enough shingles with any others to be similar to one."""
    chunks = np.split(np.arange(len(passages)), range(PASSAGES_AT_ONCE, len(passages), PASSAGES_AT_ONCE))
    repeated = _repeated(passages, chunks)
    rows, hashes, owners, alone = [], [], [], []
    for chunk in chunks:
        every, of = shingles(passages.select(chunk), SHINGLE)
        shared = np.zeros(len(every), bool)
        shared[repeated.find(every)[0]] = True
        common = np.bincount(of[shared], minlength=len(chunk))  # repeats within a passage too: at least as many
        single = np.bincount(of[~shared], minlength=len(chunk))
        possible = common * threshold.denominator >= (common + single) * threshold.numerator
        wanted = shared & possible[of]
        some, of_some = distinct(every[wanted], of[wanted])
        rows.append(chunk[possible])
        alone.append(single[possible])
        hashes.append(some)
        owners.append(chunk[of_some])
    numbers, order = _by_rarity(np.concatenate(hashes)), np.concatenate(owners)
    lengths = np.bincount(order, minlength=len(passages))[np.concatenate(rows)]
    return _Sets(
        np.concatenate(rows), offsets_of(lengths), numbers[np.lexsort((numbers, order))], np.concatenate(alone)
    )


def _repeated(passages: TokenLists, chunks: list[Ints]) -> HashSet:
    """The hashes that occur more than once; of very many texts a share of the hashes at a time, to save memory."""
    rounds = np.uint64(1 + len(passages.ids) // SHINGLES_AT_ONCE)
    found = [np.zeros(0, np.uint64)]
    for turn in range(int(rounds)):
        parts = (shingles(passages.select(rows), SHINGLE)[0] for rows in chunks)
        hashes = np.concatenate([part[part % rounds == turn] for part in parts])
        hashes.sort()
        found.append(hashes[1:][hashes[1:] == hashes[:-1]])
    return HashSet(np.concatenate(found))


def _by_rarity(hashes: Hashes) -> Ints:
    """A number for each hash: the rarer, the smaller; equal hashes have equal numbers."""
    values, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    numbers = np.empty(len(values), np.int64)
    numbers[np.lexsort((values, counts))] = np.arange(len(values))
    return numbers[inverse]
