"""Words in all scripts: English stays as it is, vowel signs stay in their words, and no script is at a disadvantage.

The texts of a task are written in another script by giving each word a name of its own there. What learns from words
must then give the same scores, or nearly the same ones where spaces are left out.
"""

import re
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.searchable import COOKING, KITCHEN_AND_ROAD
from tests.unit.shallow.test_shallow import LABELS as OF_ROWS
from tests.unit.shallow.test_shallow import foreseen, rows_of, split_of
from tlm.evaluation.pages.text import shared_words, visible
from tlm.retrieval.search.analyzer import terms_of_text
from tlm.retrieval.search.query import choose, keywords
from tlm.retrieval.selectors import counts, fitted, log_importance, log_odds, log_ratios, word_shares
from tlm.shallow.features import words_of
from tlm.shallow.linear import Given
from tlm.shallow.static import learn
from tlm.shallow.tfidf import tune

SYLLABLES = {
    "Devanagari": ("कखगघचछजझटठ", ["", "ा", "ि", "ी", "ु", "ं", "्"]),
    "Bengali": ("কখগঘচছজঝটঠ", ["", "া", "ি", "ী", "ু", "ং", "্"]),
    "Tamil": ("கஙசஞடணதநபம", ["", "ா", "ி", "ீ", "ு", "ூ", "்"]),
    "vowelled Arabic": ("بتثجحخدذرز", ["َ", "ُ", "ِ", "ْ", "ً", "َّ", ""]),
    "Thai": ("กขคงจชซญดต", ["", "ะ", "า", "ิ", "ี", "ุ", "่"]),
    "Han": ("天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳云腾致雨露结为霜金生丽水玉出昆冈", [""]),
}
SPACED = ("Devanagari", "Bengali", "Tamil", "vowelled Arabic")
UNSPACED = ("Thai", "Han")
LABELS = ["sea", "sky"]
SPLITS = ("train", "dev", "test")
PASSAGES = ["waves hide kraken octopus deep water", "clouds carry griffin pegasus high above"] * 30

Write = Callable[[str], str]


def writer(script: str, *, spaces: bool = True) -> Write:
    """Gives each word a name in a script, three syllables long; the same word always has the same name."""
    syllables = ["".join(pair) for pair in product(*SYLLABLES[script])]
    size = len(syllables)
    names: dict[str, str] = {}

    def name(word: str) -> str:
        number = len(names)
        places = (number, 7 * number + 3, 11 * number + number // size)
        return names.setdefault(word, "".join(syllables[place % size] for place in places))

    def write(text: str) -> str:
        written = re.sub(r"\w+", lambda found: names.get(found[0].lower()) or name(found[0].lower()), text)
        return written if spaces else written.replace(" ", "")

    return write


def as_is(text: str) -> str:
    return text


@given(st.text(st.sampled_from("abZ é’“”—.,_09ßΣσΩ-'\n½²")))
def test_words_of_plain_texts_are_runs_of_letters_and_of_punctuation(text: str) -> None:
    """As they were when the kept scores were measured."""
    assert words_of(text) == re.findall(r"\w+|[^\w\s]+", text.lower())
    letters = re.findall(r"[^\W_]+", text.lower())
    assert counts([text], 1 << 18).sum() == max(0, 2 * len(letters) - 1)  # and the pairs


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("हिन्दी भाषा।", ["हिन्दी", "भाषा", "।"]),
        ("বাংলা ভাষা", ["বাংলা", "ভাষা"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("وَالْعَرَبِيَّةُ لُغَةٌ", ["وَالْعَرَبِيَّةُ", "لُغَةٌ"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),  # a joiner inside a word
        ("自然语言。", ["自", "然", "语", "言", "。"]),
        ("ひらカナ", ["ひ", "ら", "カ", "ナ"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("用GPU训练", ["用", "gpu", "训", "练"]),
        ("ភាសា", ["ភា", "សា"]),
        ("မြန်မာ", ["မြ", "န်", "မာ"]),
        ("I ❤️ x̄", ["i", "❤️", "x̄"]),
    ],
)
def test_words_keep_their_marks_and_unspaced_scripts_are_letters(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize("script", SPACED)
def test_the_search_engines_words_have_their_marks_as_well(script: str) -> None:
    text = writer(script)(" ".join(KITCHEN_AND_ROAD))
    assert terms_of_text(text) == words_of(text)


def probabilities(write: Write) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a static model's and a linear model's answers to the test texts, and the gold classes."""
    rows = [(write(text), None, label, split) for text, _, label, split in foreseen()]
    train, dev, test = (split_of([row for row in rows if row[3] == name], LABELS, name) for name in SPLITS)
    known = Given(train, dev, "macro_f1", LABELS)
    static, linear = learn(map(write, PASSAGES), (), known), tune(known)
    assert not linear.features.shape.chars, "letters of other scripts are others"
    return static.predict(test.texts), linear.predict(test.texts), test.gold


@pytest.mark.parametrize("script", SPACED)
def test_models_are_the_same_in_every_script_with_spaces(script: str) -> None:
    english, other = probabilities(as_is), probabilities(writer(script))
    for mine, theirs in zip(english[:2], other[:2], strict=True):
        assert np.allclose(mine, theirs, atol=1e-6)
    assert (english[0].argmax(axis=1) == english[2]).mean() > 0.95


@pytest.mark.parametrize("script", UNSPACED)
@pytest.mark.parametrize("spaces", [True, False])
def test_vectors_are_learned_in_scripts_without_spaces(script: str, spaces: bool) -> None:
    """The words that tell the classes apart are found in the middle of a clause."""
    write = writer(script, spaces=spaces)
    rows = [(write(text), None, label, split) for text, _, label, split in rows_of("plain")]
    train, dev, test = (split_of([row for row in rows if row[3] == name], OF_ROWS, name) for name in SPLITS)
    answers = learn((), (), Given(train, dev, "macro_f1", OF_ROWS)).predict(test.texts)
    assert (answers.argmax(axis=1) == test.gold).mean() > 0.8


@pytest.mark.parametrize("script", SPACED)
def test_selectors_score_the_same_in_every_script_with_spaces(script: str) -> None:
    def scores(write: Write) -> np.ndarray:
        task, corpus = [write(text) for text in COOKING], [write(text) for text in KITCHEN_AND_ROAD]
        return np.array(
            [
                log_importance(log_ratios(word_shares(task), word_shares(corpus)), corpus),
                log_odds(fitted(task, corpus), corpus),
            ]
        )

    assert np.allclose(scores(as_is), scores(writer(script)), atol=1e-3)


@pytest.mark.parametrize("script", UNSPACED)
def test_selectors_tell_texts_apart_where_there_are_no_spaces(script: str) -> None:
    write = writer(script, spaces=False)
    task, corpus = [write(text) for text in COOKING], [write(text) for text in KITCHEN_AND_ROAD]
    on_topic = np.array(["drive" not in text and "park" not in text for text in KITCHEN_AND_ROAD])
    importance = log_importance(log_ratios(word_shares(task), word_shares(corpus)), corpus)
    for scores in (importance, log_odds(fitted(task, corpus), corpus)):
        assert scores[on_topic].mean() > scores[~on_topic].mean()


TEXT = "minimal generating sets, linear diophantine equations; minimal supporting sets (upper bounds), sets, equations."


@pytest.mark.parametrize("script", SPACED)
def test_keywords_are_the_same_in_every_script_with_spaces(script: str) -> None:
    write = writer(script)
    assert keywords(write(TEXT)) == [(write(phrase), score) for phrase, score in keywords(TEXT)]


@pytest.mark.parametrize("script", UNSPACED)
@pytest.mark.parametrize("spaces", [True, False])
def test_keywords_are_phrases_of_the_text_in_scripts_without_spaces(script: str, spaces: bool) -> None:
    """As they stand in it, because a search engine may take a run without spaces as one word."""
    text = writer(script, spaces=spaces)(TEXT)
    phrases = re.split(r"[,;().]\s*", text)
    found = keywords(text)
    assert {phrase for phrase, _ in found} <= {phrase.strip() for phrase in phrases}
    assert found[0][1] > found[-1][1]


def test_long_texts_without_spaces_are_long() -> None:
    assert choose(["玄黄" * 60]) == "rake"
    assert choose(["玄黄" * 40]) == "full"


@pytest.mark.parametrize("script", SPACED)
def test_pages_mark_shared_words_with_their_marks(script: str) -> None:
    write = writer(script)
    passage, question = write("stir alpha parser"), write("parser of trees")
    marked = [piece for piece, shared in shared_words(passage, question, least=2) if shared]
    assert marked == [write("parser")]


@pytest.mark.parametrize("script", UNSPACED)
def test_pages_mark_shared_pairs_of_letters_in_scripts_without_spaces(script: str) -> None:
    write = writer(script, spaces=False)
    passage, question = write("stir alpha parser"), write("parser of trees")
    assert shared_words(passage, question)[-1] == (write("parser"), True)
    assert shared_words(passage, write("griffin")) == [(passage, False)]


def test_zero_width_spaces_between_words_are_shown_as_they_are() -> None:
    assert visible("ភាសា\u200bខ្មែរ") == "ភាសា\u200bខ្មែរ"
    assert visible("pay\u200bpal ក\u200b\u200bខ") == "pay⟨U+200B⟩pal ក\u200b⟨U+200B⟩ខ"
