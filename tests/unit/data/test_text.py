"""Texts: what is the same, what is a token, where passages begin and end."""

import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm.data.passages import _PERHAPS_UNSPACED, _UNSPACED, split
from tlm.data.text import _INVISIBLE, MANY_MARKS, compared, fold, normalise, tokens

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
WORDS = st.text(st.sampled_from("ab我のกé́- 1"), min_size=1)


@given(TEXTS)
def test_a_normalised_text_is_nfc_without_controls_or_runs_of_white_space(text):
    clean = normalise(text)
    assert unicodedata.is_normalized("NFC", clean)
    assert not any(unicodedata.category(character) == "Cc" for character in clean)
    assert clean == " ".join(clean.split())
    assert normalise(clean) == clean


@given(TEXTS)
def test_normalising_changes_nothing_but_form_controls_and_white_space(text):
    def rest(text):
        kept = (c for c in unicodedata.normalize("NFC", text) if unicodedata.category(c) != "Cc" and not c.isspace())
        return unicodedata.normalize("NFD", "".join(kept))

    assert rest(normalise(text)) == rest(text)


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("  a\t\n b ", "a b"), ("a\0b", "a b"), ("a\x85b\x9fc\u2028d\u00a0e", "a b c d e"), ("cafe\u0301", "café"),
        ("soft\u00adhyphen", "soft\u00adhyphen"), ("\0\r\n", ""),
    ],
)  # fmt: skip
def test_normalise_by_example(raw, clean):
    assert normalise(raw) == clean


# No deadline: the reference, `unicodedata`, takes time quadratic in the marks. That ours does not is held by the case
# "a letter with half a million accents" in tests/faults/cases/text.py, over which the reference sits for minutes.
@settings(deadline=None)
@given(
    st.lists(st.sampled_from("aé가ᄀ\u1161क\u0301\u0327\u0344\u05b0\u0e48\u0f71\u0f73\u20dd\U0001d165"), min_size=1),
    st.data(),
)
def test_long_runs_of_marks_are_in_the_order_that_unicode_gives_them(letters, data):
    marks = st.sampled_from([letter for letter in letters if unicodedata.category(letter)[0] == "M"] or ["\u0301"])
    run = "".join(data.draw(st.lists(marks, min_size=1, max_size=8))) * MANY_MARKS
    text = "".join(letters) + run + "".join(letters) + run[: MANY_MARKS - 1]
    assert normalise(text) == unicodedata.normalize("NFC", text)


def test_fold_equals_texts_by_case_form_and_white_space():
    assert fold("Straße  CAFE\u0301") == fold("STRASSE café\n")
    assert fold("a-b") != fold("a b")


@given(TEXTS)
def test_folding_is_the_same_for_normalised_text(text):
    assert fold(normalise(text)) == fold(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The [[ Parser ]] uses << n-grams_2 >>.", ["the", "parser", "uses", "n", "grams", "2"]),
        ("Naïve CAFE\u0301s", ["naïve", "cafés"]),
        ("我们用BERT模型。", ["我", "们", "用", "bert", "模", "型"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("?!…", []),
        ("✔\ufe0fok ❤\ufe0f . \u0301x", ["ok", "x"]),  # marks of what is no letter
    ],
)
def test_tokens_are_letters_and_digits(text, expected):
    assert tokens(text) == expected


@given(TEXTS)
def test_tokens_do_not_see_punctuation_or_markers(text):
    assert tokens(f"<< {text} >>") == tokens(f"[[{text}]].") == tokens(text)


def test_the_quick_look_for_unspaced_scripts_overlooks_none():
    letters = (chr(code) for code in range(sys.maxunicode + 1))
    assert [letter for letter in letters if _UNSPACED.match(letter) and not _PERHAPS_UNSPACED.match(letter)] == []


@given(st.integers(1, 400), st.integers(1, 60))
def test_without_overlap_every_word_is_in_exactly_one_passage(count, words):
    text = " ".join(f"w{number}" for number in range(count))
    passages = split(text, words)
    assert " ".join(passages) == text
    lengths = [len(passage.split()) for passage in passages]
    assert set(lengths[:-1]) <= {words}
    if len(lengths) > 1:
        assert max(1, words // 10) <= lengths[-1] < words + max(1, words // 10)


@given(st.integers(1, 300), st.integers(1, 40), st.data())
def test_with_overlap_each_passage_begins_with_the_end_of_the_one_before(count, words, data):
    overlap = data.draw(st.integers(0, words - 1))
    numbers = [f"w{number}" for number in range(count)]
    passages = [passage.split() for passage in split(" ".join(numbers), words, overlap)]
    position = 0
    for passage in passages:
        assert passage == numbers[position : position + len(passage)]
        position += words - overlap
    assert passages[-1][-1] == numbers[-1]
    assert all(len(passage) == words for passage in passages[:-1])


@given(st.lists(WORDS), st.integers(1, 20))
def test_text_of_any_script_is_kept_whole(parts, words):
    text = normalise(" ".join(parts))
    passages = split(text, words)
    assert "".join(passages).replace(" ", "") == text.replace(" ", "")
    assert all(passage == normalise(passage) for passage in passages)


def test_letters_of_scripts_without_spaces_count_as_words():
    assert split("我" * 250, 100) == ["我" * 100, "我" * 100, "我" * 50]
    assert split("我们用BERT模型", 4) == ["我们用BERT", "模型"]
    assert split("word " * 3 + "การ", 3) == ["word word word", "การ"]


def test_marks_stay_with_their_letters():
    passages = split("ที่" * 30, 10)
    assert passages == ["ที่" * 10] * 3


def test_a_run_without_spaces_is_cut_after_fifty_characters():
    assert [len(passage) for passage in split("x" * 10_000, 100)] == [5000, 5000]
    assert split("x" * 50 + " y", 100) == ["x" * 50 + " y"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The <e1>company</e1> makes <e2>chairs</e2>.", "the company makes chairs"),
        ("The [E1] company [/E1] makes [E2]chairs[/E2].", "the company makes chairs"),
        ("The [[ company ]] makes << chairs >>.", "the company makes chairs"),
        ("<PER>Ann</PER> met <PER>Bob</PER>", "ann met bob"),
        ("see [A], [B] and <x>", "see a b and x"),  # not around anything
        ("</e1> before <e1>", "e1 before e1"),
        ("soft\u00adhyphen, zero\u200bwidth, a\ufeffb\u200d", "softhyphen zerowidth ab"),
        ("葛\U000e0100 1\ufe0f", "葛 1"),
        ("می\u200cخواهم", "میخواهم"),
    ],
)
def test_texts_are_compared_without_marks_around_spans_and_invisible_characters(text, words):
    assert " ".join(tokens(compared(text))) == words
    assert compared(compared(text)) == compared(text)


@pytest.mark.parametrize(
    "text",
    [
        '<e1 id="1">tide</e1> rises', "<S:DRUG> tide </S:DRUG> rises", "[OBJ:GENE]tide[/OBJ:GENE] rises",
        "[E1]tide[E1/] rises", "<e1>tide<e1/> rises", "<e1>ti</e1>de rises", "ti[[de]] rises",
    ],
)  # fmt: skip
def test_marks_of_all_forms_leave_the_words(text):
    assert tokens(compared(text)) == ["tide", "rises"]


def test_marks_between_words_leave_them_apart():
    assert tokens(compared("<td>1</td><td>2</td>")) == ["1", "2"]


@given(TEXTS)
def test_a_text_without_marks_and_invisible_characters_is_compared_as_it_is(text):
    plain = "".join(c for c in text if not _INVISIBLE.match(c) and c not in "<[")
    assert compared(plain) == plain


def test_a_text_of_nothing_but_marks_is_read_in_one_pass():
    """A million of them; looking for each one anew would take hours."""
    names = [f"<a{number}>b</a{number}>" for number in range(50_000)]
    assert tokens(compared("".join(names))) == ["b"] * 50_000
