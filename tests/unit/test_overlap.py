"""Decontamination against a reference that counts the n-grams of every pair of texts."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm.data.text import tokens
from tlm.retrieval.ngrams import Vocabulary
from tlm.retrieval.overlap import MIN_TOKENS, Overlaps, find_overlaps

SENTENCE = (
    "We show that [[ domain adaptation ]] of a small model improves << relation extraction >> on unseen sentences ."
)


def grams(words: list[str], n: int) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


def share_of(passage: str, text: str, n: int) -> Fraction:
    """The share of the text's n-grams (or of the one that it is as a whole) that occur in the passage."""
    words = tokens(text)
    n = min(n, len(words))
    if n < MIN_TOKENS:
        return Fraction(0)
    wanted = grams(words, n)
    return Fraction(len(wanted & grams(tokens(passage), n)), len(wanted))


def find(passages: list[str], texts: list[str], n: int = 8, share: float = 0.3) -> Overlaps:
    vocabulary = Vocabulary()
    return find_overlaps(vocabulary.encode(passages), vocabulary.encode(texts), n, share)


words = st.lists(st.sampled_from("abcde"), max_size=14).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(words, max_size=8), st.lists(words, max_size=6), st.integers(3, 6), st.sampled_from(["0.3", "0.5", "1"])
)
def test_same_as_counting_all_pairs(passages, texts, n, share):
    result = find(passages, texts, n, float(share))
    for passage, text, degree in zip(passages, result.text.tolist(), result.share.tolist(), strict=True):
        shares = [share_of(passage, other, n) for other in texts]
        expected = next((i for i, value in enumerate(shares) if value > 0 and value >= Fraction(share)), -1)
        assert text == expected
        assert degree == (float(shares[text]) if text >= 0 else 0)


def test_entity_markers_and_case_do_not_hide_a_sentence():
    plain = SENTENCE.translate(str.maketrans("", "", "[]<>"))
    result = find(
        [f"Intro. {plain.upper()} More follows.", "Nothing of the kind is said here, in other words."], [SENTENCE]
    )
    assert result.text.tolist() == [0, -1]
    assert result.share[0] == 1


def test_both_halves_of_a_sentence_cut_by_a_passage_boundary_are_found():
    sentence = [f"w{i}" for i in range(30)]
    halves = [
        " ".join([*(f"a{i}" for i in range(30)), *sentence[:15]]),
        " ".join([*sentence[15:], "and", "other", "text"]),
    ]
    assert find(halves, [" ".join(sentence)]).text.tolist() == [0, 0]
    assert find(halves, [" ".join(sentence)], share=0.5).text.tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("text", "removed"), [("yes", False), ("very good", False), ("not very good", True), ("", False)]
)
def test_short_texts_are_found_whole_if_they_have_three_words(text, removed):
    result = find(["it was, yes, not very good at all", "it was not very, good"], [text])
    assert (result.text >= 0).tolist() == [removed, removed]


def test_a_short_text_in_pieces_is_not_found():
    assert find(["good, but not very", "very not good"], ["not very good"]).text.tolist() == [-1, -1]


def test_the_first_of_several_texts_is_named():
    longer = "one two three four five six seven eight nine"
    assert find([longer], ["four five six", longer, "one two three"]).text.tolist() == [0]
    assert find([longer], [longer, "four five six"]).text.tolist() == [0]


def test_chunks_make_no_difference(monkeypatch):
    import tlm.retrieval.overlap as module

    passages = [f"{'x ' * i} not very good at all" for i in range(20)] + ["clean"] * 3
    at_once = find(passages, ["so long", "not very good"]).text.tolist()
    monkeypatch.setattr(module, "PASSAGES_AT_ONCE", 3)
    assert find(passages, ["so long", "not very good"]).text.tolist() == at_once == [1] * 20 + [-1] * 3


def test_nothing_to_protect():
    assert find(["some text of some words"], []).text.tolist() == [-1]
    assert find([], ["some text of some words"]).text.tolist() == []
