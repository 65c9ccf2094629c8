"""RAKE against the example that its authors published (Rose et al. 2010, figures 1.1 and 1.5)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlm.retrieval.search.query import keywords

ABSTRACT = """Compatibility of systems of linear constraints over the set of natural numbers.
Criteria of compatibility of a system of linear Diophantine equations, strict inequations, and nonstrict inequations are
considered. Upper bounds for components of a minimal set of solutions and algorithms of construction of minimal
generating sets of solutions for all types of systems are given. These criteria and the corresponding algorithms for
constructing a minimal supporting set of solutions can be used in solving all the considered types of systems and
systems of mixed types."""

PUBLISHED = [
    ("minimal generating sets", 8.7), ("linear diophantine equations", 8.5), ("minimal supporting set", 7.7),
    ("minimal set", 4.7), ("linear constraints", 4.5), ("natural numbers", 4.0), ("strict inequations", 4.0),
    ("nonstrict inequations", 4.0), ("upper bounds", 4.0),
]  # fmt: skip


def test_the_published_example():
    found = keywords(ABSTRACT)
    assert [keyword for keyword, _ in found] == [keyword for keyword, _ in PUBLISHED]
    assert [score for _, score in found] == pytest.approx([score for _, score in PUBLISHED], abs=0.05)


@pytest.mark.parametrize("text", ["", "the of and", "!!! ... -- '", "It is what it is, isn't it?", "Don’t"])
def test_texts_without_keywords(text):
    assert keywords(text) == []


def test_words_stay_whole_and_phrases_end_at_punctuation():
    text = "state-of-the-art X-ray (user’s guide); user's guide, alpha beta gamma"
    assert [keyword for keyword, _ in keywords(text)] == ["alpha beta gamma", "state-of-the-art x-ray"]  # 2 of 7 words


def test_a_long_line_of_hyphens_takes_no_time():
    assert keywords("heading " + "-" * 200_000) == [("heading", 1.0)]  # in quadratic time, hours


def test_a_line_break_ends_no_phrase():
    assert keywords("deep\nlearning") == [("deep learning", 4.0)]


@given(st.text(st.sampled_from("abc the of.,' -\n"), max_size=200))
def test_scores_descend_and_keywords_differ(text):
    found = keywords(text)
    assert all(first >= second for (_, first), (_, second) in pairwise(found))
    assert len({keyword for keyword, _ in found}) == len(found)
