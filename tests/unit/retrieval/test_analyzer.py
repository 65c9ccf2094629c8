"""The analyzer against what Lucene's grammar says; against the real server see servers/test_elastic.py."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm.retrieval.search import analyzer
from tlm.retrieval.search.analyzer import terms_of_text

# every class of the grammar, so that random text of these runs through all of its rules
CLASSES = "aB9 _.,:;'’\"-#Éß‿·٠אッいๆกំັั漢한\u0301\u00ad\u200d\u20e3\ufe0e\ufe0fℹ😀🏽🇩\U000e0067\U000e007f\U0001d400"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("The QUICK brown-fox", ["the", "quick", "brown", "fox"]),
        ("don't stop: can’t, won't' 'quoted'", ["don't", "stop", "can’t", "won't", "quoted"]),
        ("3.14 1,000;5 a.b 1.a a:b 1:2", ["3.14", "1,000;5", "a.b", "1", "a", "a:b", "1", "2"]),
        ("snake_case __init__ ___ _1_", ["snake_case", "__init__", "_1_"]),
        ("user@example.com http://x.org/a_b", ["user", "example.com", "http", "x.org", "a_b"]),
        ("İstanbul ΣΊΣΥΦΟΣ Straße", ["istanbul", "σίσυφοσ", "straße"]),
        ("cafe\u0301 na\u00efve", ["cafe\u0301", "naïve"]),
        ("漢字かなカタカナ", ["漢", "字", "か", "な", "カタカナ"]),
        ("한국어 text", ["한국어", "text"]),
        ("ภาษาไทย ok", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย", "ok"]),
        ("ก ខ្មែរ\u200bភាសា, ພາສາ", ["ก", "ខ្មែ", "មែរ", "ភាសា", "ພາ", "າສ", "ສາ"]),
        ("צה\"ל ג'", ['צה"ל', "ג'"]),
        ("👍🏽👩‍👩‍👧 🇩🇪🇫🇷 1️⃣ ©", ["👍🏽", "👩‍👩‍👧", "🇩🇪", "🇫🇷", "1️⃣", "©"]),
        ("\U0001e900\U0001e901", ["\U0001e922\U0001e923"]),  # Adlam, lower-cased beyond the BMP
        ("\U0001df00 \U00011f04", []),  # letters younger than Unicode 12.1
    ],
)
def test_known_texts(text, expected):
    assert terms_of_text(text) == expected


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("x" * 255, [255]),
        ("x" * 600, [255, 255, 90]),
        ("é" * 256 + " y", [255, 1, 1]),
        ("x" * 254 + "'" + "y", [254, 1]),  # the apostrophe's other side is out of sight
        ("\U0001d400" * 200, [127, 73]),  # two UTF-16 units each, never halved
        ("_" * 300 + "a", [255]),  # the scanner moves on until the letter comes into sight
    ],
)
def test_tokens_are_cut_at_255_units(text, lengths):
    assert [len(term) for term in terms_of_text(text)] == lengths


TEXT = st.text(st.sampled_from(CLASSES), max_size=40) | st.text(max_size=40)


@given(st.text(st.sampled_from(CLASSES.replace("ℹ", "")), max_size=60))
def test_terms_joined_by_spaces_are_the_same_terms(text):
    """What makes a cut query and its parts mean the same to every engine."""
    assert terms_of_text(" ".join(terms_of_text(text))) == terms_of_text(text)


@given(st.text(st.characters(codec="ascii"), max_size=80))
def test_ascii_words_hold_only_letters_digits_and_what_joins_them(text):
    for term in terms_of_text(text):
        assert re.fullmatch(r"[a-z0-9_]+([.:,;'][a-z0-9_]+)*", term)
        assert re.search(r"[a-z0-9]", term)


def test_long_runs_of_underscores_are_passed_over():
    assert terms_of_text("_" * 1_000_000) == []
    assert terms_of_text("_" * 100_000 + "é") == ["_" * 254 + "é"]


@settings(deadline=None)
@given(st.lists(TEXT | st.text(st.sampled_from("aB9_.':,; é٠"), max_size=40) | st.just("é" + "x" * 300), max_size=9))
def test_many_texts_at_once_have_the_terms_that_each_has_alone(texts):
    found = analyzer.terms(texts)
    alone = [terms_of_text(text) for text in texts]
    assert found.lengths.tolist() == [len(one) for one in alone]
    in_turn = [term for one in alone for term in one]
    assert [found.distinct[token] for token in found.tokens] == in_turn
    assert found.distinct == list(dict.fromkeys(in_turn))
    assert list(found.by_text()) == list(analyzer.terms_of_each(texts)) == alone


def test_letters_of_one_two_and_three_bytes_stay_in_their_words():
    texts = ["a\u07ca\u0800b", "é\u0800 ߊ b"]
    assert list(analyzer.terms(texts).by_text()) == [["a\u07ca\u0800b"], ["é\u0800", "ߊ", "b"]]


def test_terms_of_each_text_are_found_in_portions():
    """Of texts that are many, or long, no more than a portion is held."""
    for text, most in (("a b", analyzer.TEXTS_TOGETHER), ("long " * 50_000, 3)):
        read = []
        assert next(analyzer.terms_of_each(read.append(1) or text for _ in range(2000)))[-1] == text.split()[-1]
        assert len(read) == most
