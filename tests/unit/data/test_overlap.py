"""Decontamination against a reference that counts the n-grams of every pair of texts."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm.data import overlap
from tlm.data.overlap import OverlapFinder, Overlaps, Vocabulary, near_copies
from tlm.data.text import tokens
from tlm.settings.options import MIN_TOKENS

SENTENCE = (
    "We show that [[ domain adaptation ]] of a small model improves << relation extraction >> on unseen sentences ."
)


def grams(words: list[str], n: int) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


def share_of(one: str, other: str, n: int) -> Fraction:
    """The share of the one's n-grams (if it is shorter than n: of the one gram that it is) that the other has."""
    words = tokens(one)
    n = min(n, len(words))
    if n < MIN_TOKENS:
        return Fraction(0)
    wanted = grams(words, n)
    return Fraction(len(wanted & grams(tokens(other), n)), len(wanted))


def reference(passage: str, texts: list[str], n: int, text_share: str, passage_share: str) -> tuple[int, float, bool]:
    """The first text that the passage overlaps, by which share, and whether it is the share of the passage."""
    for number, text in enumerate(texts):
        shares = [(share_of(text, passage, n), text_share, False), (share_of(passage, text, n), passage_share, True)]
        for share, least, of_passage in shares:
            if share > 0 and share >= Fraction(least):
                return number, float(share), of_passage
    return -1, 0, False


def find(
    passages: list[str], texts: list[str], n: int = 8, text_share: float = 0.3, passage_share: float = 0.5
) -> Overlaps:
    vocabulary = Vocabulary()
    words = vocabulary.encode(passages)
    return OverlapFinder(vocabulary.encode(texts), n, text_share, passage_share).find(words)


words = st.lists(st.sampled_from("abcde"), max_size=24).map(" ".join)


@st.composite
def passages_and_texts(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Random words, and pieces of each other: what stands word for word in both."""
    texts = draw(st.lists(words, max_size=6))
    cuts = st.tuples(st.sampled_from(texts or [""]), st.integers(0, 20), st.integers(0, 20), words)
    pieces = cuts.map(lambda cut: " ".join([*cut[0].split()[cut[1] : cut[1] + cut[2]], *cut[3].split()[:6]]))
    return draw(st.lists(words | pieces, max_size=8)), texts


shares = st.sampled_from(["0.3", "0.5", "0.75", "1"])


@settings(max_examples=500, deadline=None)
@given(both=passages_and_texts(), n=st.integers(3, 6), text_share=shares, passage_share=shares)
def test_same_as_counting_all_pairs(both, n, text_share, passage_share):
    passages, texts = both
    result = find(passages, texts, n, float(text_share), float(passage_share))
    found = zip(result.text.tolist(), result.share.tolist(), result.of_passage.tolist(), strict=True)
    assert list(found) == [reference(passage, texts, n, text_share, passage_share) for passage in passages]


def test_entity_markers_and_case_do_not_hide_a_sentence():
    plain = SENTENCE.translate(str.maketrans("", "", "[]<>"))
    result = find(
        [f"Intro. {plain.upper()} More follows.", "Nothing of the kind is said here, in other words."], [SENTENCE]
    )
    assert result.text.tolist() == [0, -1]
    assert result.share[0] == 1


MARKS = [("[[ ", " ]]", "<< ", " >>"), ("<e1>", "</e1>", "<e2>", "</e2>"), ("[E1] ", " [/E1]", "[E2] ", " [/E2]")]


def marked(words: list[str], marks: tuple[str, str, str, str], first: int, second: int) -> str:
    """The words with marks around one and another."""
    found = list(words)
    found[first] = marks[0] + found[first] + marks[1]
    found[second] = marks[2] + found[second] + marks[3]
    return " ".join(found)


@pytest.mark.parametrize("marks", MARKS, ids=lambda marks: marks[0].strip())
@pytest.mark.parametrize("length", [5, 9, 14])
def test_no_marks_around_spans_hide_a_sentence(marks, length):
    """Marked or plain, in the text, in the passage, or in both: the shares are those of the words."""
    words = [f"w{i}" for i in range(length)]
    text, other, plain = marked(words, marks, 1, 3), marked(words, marks, 2, 4), " ".join(words)
    for one in (text, plain):
        result = find([f"Before. {plain} After.", f"Before. {text}", f"Before. {other} {other}"], [one])
        assert result.text.tolist() == [0, 0, 0]
        assert result.share.tolist() == [1, 1, 1]


@pytest.mark.parametrize("marks", MARKS, ids=lambda marks: marks[0].strip())
def test_marks_within_words_do_not_hide_a_sentence(marks):
    """Suffixes stand outside of the span in many languages: <e1>서울</e1>은."""
    words, tight = [f"서울{i}은" for i in range(9)], [mark.strip() for mark in marks]

    def within(first: int, second: int) -> str:
        found = list(words)
        for place, (opening, closing) in ((first, tight[:2]), (second, tight[2:])):
            found[place] = f"{opening}{words[place][:-1]}{closing}{words[place][-1]}"
        return " ".join(found)

    result = find([" ".join(words), within(1, 3)], [within(2, 4)])
    assert result.share.tolist() == [1, 1]


def test_invisible_characters_do_not_hide_a_sentence():
    words = [f"word{i}" for i in range(12)]
    hidden = [
        f"{word[:2]}{mark}{word[2:]}"
        for word, mark in zip(words, "\u00ad\u200b\u200c\u200d\u2060\ufeff" * 2, strict=True)
    ]
    assert find([" ".join(hidden), " ".join(words)], [" ".join(words)]).share.tolist() == [1, 1]
    assert find([" ".join(words)], [" ".join(hidden)]).share.tolist() == [1]


def test_the_pieces_of_a_long_text_are_found_and_a_quoted_sentence_is_not():
    text = [f"w{i}" for i in range(2000)]
    pieces = [" ".join(text[start : start + 99]) for start in range(0, 2000, 99)]  # the last has 20 words
    quoting = " ".join([*(f"a{i}" for i in range(75)), *text[200:225]])
    two_texts = " ".join([*text[:40], *(f"b{i}" for i in range(40))])  # most of it is in a text, but not in one
    result = find([*pieces, quoting, two_texts], [" ".join(text), " ".join(f"b{i}" for i in range(2000))])
    assert result.text.tolist() == [0] * len(pieces) + [-1, -1]
    assert result.of_passage.tolist() == [True] * len(pieces) + [False, False]
    assert (result.share[: len(pieces)] == 1).all()


@pytest.mark.parametrize(
    ("passage", "removed"),
    [("w3 w4 w5 w6 w7", True), ("w3, W4, w5", True), ("w3 w4", False), ("w3 w4 w5 w7", False), ("x w3 w4 w5", False)],
)
def test_a_passage_shorter_than_an_n_gram_goes_if_it_stands_whole_in_a_text(passage, removed):
    result = find([passage, "another"], [" ".join(f"w{i}" for i in range(200))])
    assert result.text.tolist() == [0 if removed else -1, -1]
    assert result.of_passage.tolist() == [removed, False]


@pytest.mark.parametrize(
    ("text", "removed"), [("yes", False), ("very good", False), ("not very good", True), ("", False)]
)
def test_short_texts_are_found_whole_if_they_have_three_words(text, removed):
    result = find(["it was, yes, not very good at all", "it was not very, good"], [text])
    assert (result.text >= 0).tolist() == [removed, removed]


def test_the_first_of_several_texts_is_named():
    longer = "one two three four five six seven eight nine"
    assert find([longer], ["four five six", longer, "one two three"]).text.tolist() == [0]
    assert find([longer], [longer, "four five six"]).text.tolist() == [0]


def test_chunks_make_no_difference(monkeypatch):
    passages = [f"{'x ' * i} not very good at all" for i in range(20)] + ["clean"] * 3
    at_once = find(passages, ["so long", "not very good"]).text.tolist()
    monkeypatch.setattr(overlap, "PASSAGES_AT_ONCE", 3)
    assert find(passages, ["so long", "not very good"]).text.tolist() == at_once == [1] * 20 + [-1] * 3


def test_words_that_all_texts_share_take_no_memory_for_each_pair():
    """A disclaimer of 30 words, sometimes cut, in 1,000 passages and 2,000 texts; some are hardly more than that."""
    notice = [f"n{i}" for i in range(30)]

    def shared(name: str, number: int) -> str:
        own = [f"{name}{number}w{i}" for i in range((number % 5) * 20 + 3)]
        return " ".join([*own, *notice[: 30 - number % 3]])

    passages = [shared("p", number) for number in range(1000)]
    texts = [shared("t", number) for number in range(2000)]
    tracemalloc.start()
    result = find(passages, texts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6, "the texts and their n-grams; an entry for each of two million pairs would add 16 MB or more"
    for number in range(0, 1000, 37):
        found = result.text[number], result.share[number], result.of_passage[number]
        assert found == reference(passages[number], texts, 8, "0.3", "0.5")


@pytest.mark.parametrize("words", [5, 40], ids=["short passages", "short texts"])
def test_short_texts_that_are_all_the_same_take_no_memory_for_each_pair(words):
    passages = ["all rights are reserved here"] * 1000 if words == 5 else ["all rights are reserved here " * 8] * 1000
    texts = ["all rights are reserved here " * 8] * 1000 if words == 5 else ["all rights are reserved here"] * 1000
    tracemalloc.start()
    result = find(passages, texts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.text.tolist() == [0] * 1000
    assert peak < 8e6, "an entry for each of a million pairs would take that"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab ", max_size=40), max_size=8), st.lists(st.text("ab ", max_size=40), max_size=8))
def test_near_copies_are_those_of_a_count_by_hand(texts: list[str], others: list[str]) -> None:
    """Also where memory holds few texts, and where a text is empty, short or all of one word."""
    found = [grams(tokens(text), 3) for text in texts]
    known = [runs for other in others if len(runs := grams(tokens(other), 3)) >= 6]
    expected = [len(runs) >= 6 and any(max(12, len(runs)) <= 2 * len(runs & one) for one in known) for runs in found]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap, "AT_ONCE", 3)
        patch.setattr(overlap, "ROWS", 2)
        assert near_copies(texts, others).tolist() == expected


def test_what_is_a_near_copy() -> None:
    """A changed word makes no other text; another question of the same form, or a piece of a long text, is one."""
    mail = "Dear Ms Jones , your parcel has been sent today and will come to you tomorrow before noon"
    other = mail.replace("Jones", "Smith").replace("tomorrow", "on Monday")
    assert near_copies([other, mail.upper(), f"PS: {mail}"], [mail]).tolist() == [True, True, True]
    assert near_copies(["What is the capital of France ?"], ["What is the capital of Peru ?"]).tolist() == [False]
    long = f"{mail} . {SENTENCE}  Nothing else was in the letter that she opened in the kitchen"
    assert near_copies([mail, long], [long, mail]).tolist() == [True, True]
    assert near_copies([mail], [long]).tolist() == [True]
    assert near_copies([long], [mail]).tolist() == [False]
    assert near_copies([mail], []).tolist() == [False]
    happy = "I bought this phone and I am very happy with it", "For three weeks now, I am very happy with it at home"
    assert near_copies(happy[:1], happy[1:]).tolist() == [False]
    assert near_copies(["@user " * 20 + "nice"], ["@user " * 30]).tolist() == [False]


def test_a_disclaimer_makes_no_near_copies() -> None:
    """A run that one in twenty of the others has, or 20 of few, is no sign of a copy; the texts' own words are."""
    texts = [" ".join(f"w{(97 * n + 31 * m * m) % 5003}" for m in range(15)) for n in range(400)]
    with_note = [f"{text} {SENTENCE} {SENTENCE.replace('small', 'large')}" for text in texts]
    changed = with_note[200].split()[:-1]
    assert near_copies([*with_note[:200], " ".join(changed[1:])], with_note[200:]).tolist() == [False] * 200 + [True]
    for many, expected in ((20, True), (21, False)):
        assert near_copies([SENTENCE], [SENTENCE] * many + texts[:100]).tolist() == [expected]
    assert near_copies([SENTENCE], [SENTENCE] * 21 + [*texts, *texts]).tolist() == [True]


def test_a_short_text_without_spaces_is_no_near_copy() -> None:
    """Eight characters are four words; a longer text without one of its characters is a near copy."""
    short, long = "感觉比较适合家庭出游。", "早餐不错，丰盛，食品质量高，比较适合家庭，情侣用餐或出游"
    assert near_copies([short, long[:9] + long[10:]], [long]).tolist() == [False, True]


def test_marks_and_a_disclaimer_hide_no_near_copy_without_spaces() -> None:
    """Marks of Burmese are no words; the letters of a disclaimer are not asked for runs of the text's own."""
    numbers = np.random.default_rng(0)
    burmese = "".join(f"{chr(0x1000 + n)}{chr(0x102D)}{chr(0x103A)}" for n in numbers.integers(0, 33, 60).tolist())
    assert near_copies([burmese[:60] + burmese[63:]], [burmese]).tolist() == [True]
    own = ["".join(map(chr, row)) for row in numbers.integers(0x4E00, 0x9000, (30, 30)).tolist()]
    note = "".join(map(chr, numbers.integers(0x4E00, 0x9000, 150).tolist()))
    assert near_copies([own[5][1:] + note], [text + note for text in own]).tolist() == [True]


def test_a_pair_is_a_near_copy_of_one_other_pair() -> None:
    """Not one whose two texts are in two others."""
    first, second = SENTENCE, "Nothing else was in the letter that she opened in the kitchen at noon"
    changed = [f"{text} now" for text in (first, second)]
    new = ["The parcel came to the wrong house on the other side of the street"] * 2
    for others, expected in (((first, new[0]), (second, new[1])), True), (((first, new[0]), (new[1], second)), False):
        assert near_copies(changed[:1], others[0], (changed[1:], others[1])).tolist() == [expected]
