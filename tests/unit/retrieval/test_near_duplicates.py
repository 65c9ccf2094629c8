"""Near-duplicates against a reference that compares all pairs of sets."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm.data.overlap import Vocabulary
from tlm.data.text import tokens
from tlm.retrieval.subset.duplicates import SHINGLE, find_near_duplicates


def shingle_set(text: str) -> set[tuple[str, ...]]:
    words = tokens(text)
    return {tuple(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1)} or {tuple(words)}


def reference(texts: list[str], jaccard: str) -> list[int]:
    """For each text the first kept one that it nearly repeats, or -1."""
    sets, kept, twins = [shingle_set(text) for text in texts], [], []
    for row, own in enumerate(sets):
        similar = (k for k in kept if Fraction(len(own & sets[k]), len(own | sets[k])) >= Fraction(jaccard))
        twins.append(next(similar, -1))
        if twins[-1] < 0:
            kept.append(row)
    return twins


def found(texts: list[str], jaccard: float) -> list[int]:
    return find_near_duplicates(Vocabulary().encode(texts), jaccard)[0].tolist()


@st.composite
def families(draw: st.DrawFn) -> list[str]:
    """Texts of 0 to 40 words, and copies of them in which some words were changed, cut off or put in front."""
    word = st.sampled_from([f"w{i}" for i in range(25)])
    texts = []
    for base in draw(st.lists(st.lists(word, max_size=40), min_size=1, max_size=4)):
        for _ in range(draw(st.integers(1, 5))):
            copy = list(base)
            for place in draw(st.lists(st.integers(0, 39), max_size=3)):
                copy[place : place + 1] = draw(st.lists(word, max_size=2))
            texts.append(" ".join(copy))
    return draw(st.permutations(texts))


@settings(max_examples=300, deadline=None)
@given(families(), st.sampled_from(["0.1", "0.5", "0.6", "0.8", "0.9", "1.0"]))
def test_same_as_comparing_all_pairs(texts, jaccard):
    assert found(texts, float(jaccard)) == reference(texts, jaccard)


def test_the_first_stays_and_similarity_is_told():
    text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    texts = Vocabulary().encode([text, "something else entirely, of other words", text + " x"])
    originals, similarities = find_near_duplicates(texts, 0.8)
    assert originals.tolist() == [-1, -1, 0]
    assert similarities[2] == 12 / 13


def test_exactly_at_the_threshold_is_removed():
    # 8 and 10 shingles, of which 8 are the same
    words = [f"w{i}" for i in range(14)]
    assert found([" ".join(words[:12]), " ".join(words)], 0.8) == [-1, 0]
    assert found([" ".join(words[:12]), " ".join(words)], 0.81) == [-1, -1]


def test_of_several_originals_the_first_is_named():
    """Rows 1 and 8: a set of these, as Python keeps it, begins with 8."""
    first, second = (" ".join(f"{half}{place}" for place in range(20)) for half in "ab")
    others = [" ".join(f"o{row}-{place}" for place in range(6)) for row in range(7)]
    texts = [others[0], first, *others[1:], second, f"{first} {second}"]
    assert found(texts + texts[:8], 0.3)[8:] == [-1, 1, *range(8)]


def test_case_and_punctuation_do_not_matter():
    assert found(["We propose a [[ new ]] model.", "we propose a new model"], 1.0) == [-1, 0]


def test_chunks_make_no_difference(monkeypatch):
    from tlm.retrieval.subset import duplicates

    rng = np.random.default_rng(1)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 6, rng.integers(0, 12))) for _ in range(200)]
    at_once = found(texts, 0.5)
    monkeypatch.setattr(duplicates, "PASSAGES_AT_ONCE", 7)
    monkeypatch.setattr(duplicates, "SHINGLES_AT_ONCE", 100)
    assert found(texts, 0.5) == at_once
    assert max(at_once) > 0
