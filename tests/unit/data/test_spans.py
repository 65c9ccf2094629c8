"""Marked spans: marks are found where nearly all texts have them, and a text is cut there without losing a word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlm.data.marks import MOST_SPANS, find_marks, named_marks
from tlm.errors import InputError
from tlm.shallow.features import features, parts, words_of

BRACKETS = (("[[", "]]"), ("<<", ">>"))
MARKS = (*BRACKETS, ("<e1>", "</e1>"), ("[E1]", "[/E1]"))
TAGS = "pbiua"

pieces = st.text(st.sampled_from("ab Zéσ ΣİC9_.,!-' \n"), max_size=12)


def tagged(tags: str) -> str:
    return " ".join(f"<{tag}> of {tag} </{tag}>" for tag in tags)


@pytest.mark.parametrize("marks", MARKS)
def test_marks_that_every_text_has_are_found(marks: tuple[str, str]) -> None:
    opening, closing = marks
    assert find_marks([f"one {opening} two {closing} three", f"{opening}x{closing}"]) == (marks,)


@pytest.mark.parametrize("around", ["<p>{}</p>", "<html> <body>\n{}\n</body> </html>", "[[ {} ]]"])
def test_marks_around_whole_texts_are_around_no_spans(around: str) -> None:
    """A model once read them as spans, and so no word of a text without them."""
    assert find_marks([around.format(text) for text in ("one two", "three", "<< four >> five", "six")]) == ()


def test_two_kinds_of_spans_are_found_whatever_their_order() -> None:
    assert find_marks(["a [[ b ]] c << d >>", "<< a >> b [[ c ]]"]) == (("<<", ">>"), ("[[", "]]"))
    assert find_marks(["<e1>a</e1> <e2>b</e2>", "<e2>a</e2> <e1>b</e1>"]) == (("<e1>", "</e1>"), ("<e2>", "</e2>"))


def test_one_text_in_twenty_may_lack_the_marks() -> None:
    marked, plain = "one [[ two ]] three", "one two three"
    assert find_marks([marked] * 19 + [plain]) == (("[[", "]]"),)
    assert find_marks([marked] * 18 + [plain] * 2) == ()


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        ["plain words", "and more"],
        ["[[ one ]] and [[ two ]]"],  # twice
        ["[[ one ]] and ]]"],
        ["[[ and [[ one ]]"],
        ["[[ one"],
        ["one ]]"],
        ["wait ... what -- yes"],  # runs that nothing closes
        ["a [ b ] (c)"],  # single brackets
        ["a ** b ** c"],
    ],
)
def test_texts_without_marks_have_none(texts: list[str]) -> None:
    assert find_marks(texts) == ()


def test_a_text_is_cut_at_its_marks() -> None:
    found = parts("The [[ Big engine ]] drives a << wheel >> now.", BRACKETS)
    assert found.whole == ["the", "big", "engine", "drives", "a", "wheel", "now", "."]
    assert found.spans == [["big", "engine"], ["wheel"]]
    assert (found.order, found.left, found.between, found.right) == ("AB", ["the"], [["drives", "a"]], ["now", "."])
    swapped = parts("<<wheel>>[[engine]]", BRACKETS)
    assert (swapped.spans, swapped.order, swapped.between) == ([["engine"], ["wheel"]], "BA", [[]])
    assert swapped.left == swapped.right == []


def test_a_kind_that_a_text_lacks_is_empty() -> None:
    found = parts("a << b >> c", BRACKETS)
    assert (found.spans, found.order, found.between, found.left, found.right) == ([[], ["b"]], "B", [], ["a"], ["c"])
    for text in ("a b c", "a [[ b c", "a b ]] c", "a ]] b [[ c"):
        found = parts(text, BRACKETS)
        assert (found.spans, found.order, found.between, found.right) == ([[], []], "", [], [])
        assert found.left == found.whole == ["a", "b", "c"]
    assert parts("a ]] b [[ c ]] d", BRACKETS).spans == [["c"], []]


@given(
    st.permutations(range(4)).flatmap(lambda order: st.integers(0, 4).map(lambda count: order[:count])),
    st.lists(pieces, min_size=9, max_size=9),
)
def test_the_parts_of_a_text_are_the_whole_of_it(order: list[int], chunks: list[str]) -> None:
    """Without a word lost, doubled or moved, where the marks do not nest."""
    text = chunks[0]
    for number, kind in enumerate(order):
        text += f"{MARKS[kind][0]}{chunks[2 * number + 1]}{MARKS[kind][1]}{chunks[2 * number + 2]}"
    found = parts(text, MARKS)
    assert found.order == "".join("ABCD"[kind] for kind in order)
    between = [*found.between, found.right]
    assert len(between) == max(1, len(order))
    joined = found.left + [
        word for kind, after in zip(order, between, strict=False) for word in found.spans[kind] + after
    ]
    assert joined == found.whole == words_of(" ".join(chunks[: 2 * len(order) + 1]))
    assert [found.spans[kind] for kind in order] == [words_of(chunks[2 * n + 1]) for n in range(len(order))]


@given(st.lists(st.one_of(pieces, st.sampled_from([mark for pair in MARKS for mark in pair])), max_size=14))
def test_marks_in_any_disorder_do_no_harm(chunks: list[str]) -> None:
    text = " ".join(chunks)
    for marks in ((), BRACKETS, MARKS, find_marks([text])):
        found = parts(text, marks)
        assert len(found.spans) == len(marks)
        assert len(found.between) == max(0, len(found.order) - 1)
        assert sorted(set(found.order)) == sorted(found.order)
        assert not {mark for pair in marks for mark in pair} & set(found.whole)
        assert all(isinstance(name, str) for name in features(found))


def test_nested_marks_keep_what_they_hold() -> None:
    found = parts("a [[ b << c >> d ]] e", BRACKETS)
    assert found.spans == [["b", "c", "d"], ["c"]]
    assert (found.order, found.whole, found.left) == ("AB", ["a", "b", "c", "d", "e"], ["a"])


@pytest.mark.parametrize("count", [MOST_SPANS, MOST_SPANS + 1])
def test_texts_with_many_kinds_of_marks_are_cut(count: int) -> None:
    text = tagged(TAGS[:count])
    marks = find_marks([text] * 3)
    found = parts(text, marks)
    assert len(marks) <= MOST_SPANS
    assert len(found.order) == len(marks)


def test_features_name_the_spans_their_order_and_what_stands_between() -> None:
    found = features(parts("see the [[ big engine ]] that drives << one wheel >> and more", BRACKETS))
    assert len(found) == len(set(found))
    expected = """A: big|A: engine|A: big engine|A begins big|A ends engine|B: one|B: wheel|B: one wheel|B begins one
        |B ends wheel|ends engine wheel|between 0: that|between 0: drives|between 0: that drives|AB between 0: that
        |AB between 0: drives|AB between 0: that drives|AB between 0 whole: that drives|AB distance 0: 2
        |AB after 0.0: that|AB after 0.1: drives|AB before 0.0: drives|AB before 0.1: that|left 0: the|AB left 0: the
        |left 1: see|AB left 1: see|right 0: and|AB right 0: and|right 1: more|AB right 1: more"""
    assert sorted(found) == sorted(name.strip() for name in expected.split("|"))


def test_features_tell_the_order_of_the_spans_and_keep_to_the_near_words() -> None:
    forward = features(parts("[[ x ]] of << y >> l1 l2 l3 l4", BRACKETS))
    backward = features(parts("k4 k3 k2 k1 << y >> of [[ x ]]", BRACKETS))
    assert {"AB between 0: of", "AB distance 0: 1", "between 0: of"} <= set(forward)
    assert {"BA between 0: of", "BA distance 0: 1", "between 0: of"} <= set(backward)
    assert not any(name.startswith("BA") for name in forward)
    assert not any(name.startswith("AB") for name in backward)
    assert [name for name in forward if name.startswith("right")] == ["right 0: l1", "right 1: l2", "right 2: l3"]
    assert [name for name in backward if name.startswith("left")] == ["left 0: k1", "left 1: k2", "left 2: k3"]


@pytest.mark.parametrize(
    ("words", "distance"), [(0, 0), (1, 1), (3, 3), (4, 4), (7, 4), (8, 8), (19, 16), (20, 20), (99, 20)]
)
def test_long_distances_are_rounded(words: int, distance: int) -> None:
    between = " ".join(f"w{number}" for number in range(words))
    found = features(parts(f"[[ x ]] {between} << y >>", BRACKETS))
    assert [name for name in found if " distance " in name] == [f"AB distance 0: {distance}"]
    nearest = between.split()[::-1][:3]
    assert [name for name in found if " before " in name] == [
        f"AB before 0.{place}: {word}" for place, word in enumerate(nearest)
    ]
    whole = " ".join(between.split()[:8])
    assert [name for name in found if " whole: " in name] == [f"AB between 0 whole: {whole}"]


def test_a_text_without_spans_has_features_of_none() -> None:
    assert [name for name in features(parts("plain words", BRACKETS)) if name[:2] in ("A:", "B:", "A ", "B ")] == []


def test_marks_may_be_named() -> None:
    assert named_marks(["[[ ]]", "<e1>   </e1>"]) == (("[[", "]]"), ("<e1>", "</e1>"))
    assert named_marks([]) == ()
    assert parts("a ** b ** c", named_marks(["** **"])).spans == [["b"]]


@pytest.mark.parametrize("wrong", ["", "[[", "[[ ]] <<", "[[]]"])
def test_what_is_not_two_marks_is_said_in_a_sentence(wrong: str) -> None:
    with pytest.raises(InputError) as error:
        named_marks(["<< >>", wrong])
    assert str(error.value) == f"spans '{wrong}' is not two marks; expected two, such as '[[ ]]' or '<e1> </e1>'"


def test_too_many_named_marks_are_said_in_a_sentence() -> None:
    given_marks = [f"<{tag}> </{tag}>" for tag in TAGS]
    assert len(named_marks(given_marks[:MOST_SPANS])) == MOST_SPANS
    with pytest.raises(InputError, match="spans names 5 pairs of marks; expected at most 4"):
        named_marks(given_marks)
