"""Blocks as HTML, Markdown and on a terminal: every text is shown as it is, and nothing in it can act."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from research.studies import listed
from tests.toy_reports import HOSTILE
from tlm.evaluation.pages.blocks import (
    COLOURS,
    Block,
    Card,
    Column,
    Details,
    Drawn,
    Figure,
    Heading,
    Items,
    Line,
    Quote,
    Row,
    Span,
    Table,
    Text,
    inlines,
    opening,
    roles,
)
from tlm.evaluation.pages.plain import markdown, terminal
from tlm.evaluation.pages.render import STYLES, html, write_pages
from tlm.evaluation.pages.text import BIDI_AND_CONTROLS, spelled, visible

TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(), st.text("\\|`<>&\"'*_[]#-+=.1 \nab", max_size=20))
KINDS = st.sampled_from(["name", "bold", "code", "label", "small"])
INLINES = st.one_of(
    TEXTS,
    st.builds(Span, TEXTS, KINDS, st.sampled_from(["", "bm25"])),
    st.builds(lambda text: Quote(((text, False), (text, True))), TEXTS),
)
LINES = st.one_of(INLINES, st.lists(INLINES, min_size=1, max_size=3).map(tuple))
ACTIVE = {"script", "iframe", "a", "b", "link", "base", "form", "svg", "object", "embed"}


class Read(HTMLParser):
    """What a browser would make of a page: its text, its tags, and whether each is closed in its turn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.tags, self.values, self.open = "", [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.values += [value for _, value in attrs]
        if tag not in ("meta", "img", "source"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def shown(text: str) -> str:
    """A text with its invisible characters spelled out."""
    return BIDI_AND_CONTROLS.sub(spelled, text)


def every(line: Line, text: str) -> list[Block]:
    """A block of each kind with these words."""
    table = Table(["", Column(line), Column(line, "words")], [(line, line, text), (line,)], line, frozenset([0]))
    return [
        *opening(text, line, line, [text, text], text),
        Heading(line, 3),
        Items((line, line)),
        table,
        Table(["a", "b"], [(line, "1"), (line, "2")]),
        Table(["", text, "b"], [(text, "1", "0"), ("b", "2", "3")], shares=[[1, 0], [0.4, 0.6]], role="bm25"),
        Drawn((Figure(text, "<svg/>"), Figure(text, "<svg/>", narrow="<svg/>", says=text), Text(line, "legend"))),
        Card(((*inlines(line), ": ", Quote.of(text)), line)),
        Details(text, (table,)),
    ]


@settings(max_examples=150, deadline=None)
@given(LINES, TEXTS)
def test_any_text_comes_out_of_a_browser_as_it_went_in(line, text):
    page = Read(html(text, every(line, text)))
    assert not page.open
    assert not ACTIVE & set(page.tags)
    assert page.tags.count("figure") == page.tags.count("img") == 2
    for piece in [text] if not isinstance(line, tuple) else [text, *line]:
        words = piece if isinstance(piece, str) else piece.text
        assert page.text.count(shown(words)) >= 2
    assert f"{shown(text)}: the numbers are in the tables, or in the JSON file of this page" in page.values
    assert f"{shown(text)}: {shown(text)}" in page.values  # what a figure says
    assert page.tags.count("picture") == page.tags.count("source") == 1
    assert page.tags.count("main") == 1
    named = [value for value in page.values if value.startswith("Table: ")]
    assert len(named) == page.values.count("0") == page.tags.count("table"), "a keyboard can scroll each table"


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(LINES, LINES, TEXTS), min_size=1, max_size=4), LINES)
def test_a_markdown_table_has_equal_cells_in_each_row(rows, name):
    made = markdown([Table(["", Column(name, "words"), "number"], [*rows, (name,)])])
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in made.strip().split("\n")} == {4}
    tokens = MarkdownIt("commonmark").enable("table").parse(made)
    kinds = [token.type for token in tokens]
    assert kinds.count("tr_open") == len(rows) + 2
    assert kinds.count("td_open") + kinds.count("th_open") == 3 * (len(rows) + 2)


@settings(max_examples=150, deadline=None)
@given(LINES, TEXTS)
def test_no_text_acts_in_markdown(line, text):
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown(every(line, text)))
    kinds = {token.type for token in [*tokens, *(child for token in tokens for child in token.children or [])]}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "fence", "code_block", "hr", "em_open"}
    assert sum(token.type == "heading_open" for token in tokens) == 2


@settings(max_examples=100, deadline=None)
@given(LINES, TEXTS)
def test_a_terminal_gets_no_codes_out_of_texts(line, text):
    plain = terminal(every(line, text), styled=False)
    assert not BIDI_AND_CONTROLS.search(plain)
    styled = terminal([Text(line)], styled=True)
    assert not BIDI_AND_CONTROLS.search(re.sub(r"\x1b\[[0-9;]*m", "", styled))


def test_html_names_rows_and_columns_and_marks_what_stands_out() -> None:
    rows: list[Row] = [("Once",), (Span("bm25", "name", "bm25"), "1"), ("random", "2")]
    page = html("t", [Table(["arm", "n"], rows, "note", frozenset([1]))])
    assert '<th scope="rowgroup" colspan="2">Once</th>' in page
    assert '<th scope="col" class="left">arm</th><th scope="col">n</th>' in page
    dot = '<span class="chip" style="--tone: var(--bm25)"></span>'
    assert f'<tr class="strong"><th scope="row"><bdi>{dot}bm25</bdi></th><td>1</td></tr>' in page
    assert '<p class="small">note</p>' in page


def test_rows_that_begin_alike_keep_their_names() -> None:
    rows: list[Row] = [("a", "1"), ("a", "2"), ("b", "3")]
    page = html("t", [Table(["x", "y"], rows)])
    assert page.count('<th scope="row">a</th>') == 2
    assert markdown([Table(["x", "y"], rows)]) == "| x | y |\n|---|--:|\n| a | 1 |\n| a | 2 |\n| b | 3 |\n"


def test_markdown_marks_the_rows_that_stand_out() -> None:
    made = markdown([Table(["x", "y"], [("a", "1"), ("b", "2")], strong=frozenset([1]))])
    assert made.endswith("| a | 1 |\n| **b** | **2** |\n")
    assert markdown([Table(["x", "y"], [("a|b", Span("c|d"))])]).endswith("| a\\|b | `c\\|d` |\n")


def test_numbers_of_a_confusion_matrix_are_shaded_by_their_shares() -> None:
    page = html(
        "t", [Table(["", "a", "b"], [("a", "4", "0"), ("b", "2", "3")], shares=[[1, 0], [0.4, 0.6]], role="bm25")]
    )
    assert re.findall(r'<td(?: class="(.*?)")? style="--share: (.*?)">(\d)', page) == [
        ("right", "1.000", "4"), ("zero", "0.000", "0"), ("", "0.400", "2"), ("right", "0.600", "3")
    ]  # fmt: skip


def test_a_page_opens_with_one_finding_and_lists_the_others() -> None:
    assert opening("k", "t", "f", ["one"]) == [Heading("t", 1, "k"), Text("f", "facts"), Text("one", "lede")]
    told = [Text("one", "lede"), Text("w", "warning"), Items(("two",), "findings"), Text("n", "note")]
    assert opening("k", "t", "f", ["one", "two"], "n", ["w"])[2:] == told


def test_each_row_of_a_plot_has_a_colour_until_there_are_no_more() -> None:
    spare = [f"other-{number}" for number in range(5)]
    assert roles(["bm25", "random", "bm25", *"abcde"]) == ["bm25", "random", *spare, "other-0"]


def test_a_role_that_is_no_colour_is_an_error() -> None:
    with pytest.raises(ValueError, match="red; color: blue is no role"):
        html("t", [Text(Span("x", "name", "red; color: blue"))])


def test_a_number_that_json_does_not_have_is_an_error(tmp_path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_pages(tmp_path, "report", "t", [], {"score": float("nan")})


def test_markdown_leaves_figures_out_and_opens_details() -> None:
    drawn = Drawn((Heading("Pictures"), Figure("c", "<svg/>")))
    made = markdown([Heading("T", 1, "Report"), drawn, Details("More", (Text("inside"),)), Items(("- a", "1. b"))])
    assert made == "# Report: T\n\n**More**\n\ninside\n\n- \\- a\n- 1\\. b\n"
    assert "Pictures" in html("t", [drawn])


def test_spaces_around_names_stay() -> None:
    line = ("of ", Span("a|b"), " and ", Quote((("c", True), ("d", False))), ".")
    assert markdown([Text(line)]) == "of `a|b` and `cd`.\n"
    assert markdown([Text(Span("x" * 200))]) == f"`{'x' * 79}…`\n"
    assert terminal([Text(line)], styled=False) == "of a|b and cd."
    assert "\x1b[4mc\x1b[0md" in terminal([Text(line)], styled=True)
    assert listed(["a", ("b", "c")]) == ("a", ", ", "b", "c")
    assert visible("a  b") == "a b"


def test_text_is_as_dark_as_people_with_weak_eyes_need() -> None:
    css = STYLES.read_text(encoding="utf-8")
    assert "opacity" not in css
    (share,) = re.findall(r"var\(--tone\) calc\(var\(--share\) \* (\d+)%\)", css)
    papers = re.findall(r"--paper: (#\w+); --raised: (#\w+)", css)
    for mode, (paper, raised) in zip((1, 2), papers, strict=True):
        tones = {role: colours[mode] for role, colours in COLOURS.items()}
        assert min(contrast(tones["muted"], under) for under in (paper, raised)) >= 4.5
        for role in tones.keys() - {"ink", "muted", "rule"}:
            assert contrast(tones["ink"], mixed(tones[role], paper, int(share) / 100)) >= 4.5, (role, mode)
            assert contrast(tones[role], paper) >= 3


def channels(colour: str) -> list[int]:
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]


def mixed(colour: str, under: str, share: float) -> str:
    pairs = zip(channels(colour), channels(under), strict=True)
    return "#" + "".join(f"{round(share * own + (1 - share) * other):02x}" for own, other in pairs)


def contrast(first: str, second: str) -> float:
    """The contrast of two colours as WCAG 2.2 computes it."""
    light = []
    for colour in (first, second):
        parts = [one / 255 for one in channels(colour)]
        linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
        light.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)
    return max(light) / min(light)


def test_dots_keep_their_colours_where_a_reader_chose_those_of_the_page() -> None:
    (rule,) = re.findall(r"^\.chip { (.*) }$", html("t", []), re.MULTILINE)
    assert "forced-color-adjust: none" in rule  # or the curves have no key


def test_texts_from_outside_have_no_language_and_a_direction_of_their_own() -> None:
    assert '<span class="theirs" lang="" dir="auto">שלום</span>' in html("t", [Text(Quote.of("שלום"))])
    names = Text((Span("ספר"), " 8, ", Span("סיפור"), " 7"))
    assert "<p><bdi>ספר</bdi> 8, <bdi>סיפור</bdi> 7</p>" in html("t", [names])


def test_a_narrow_terminal_loses_nothing_of_a_table_and_shows_folded_ones(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    rows: list[Row] = [("train.jsonl:27", "some words", "27")]
    assert terminal([Text("words " * 20)], styled=False).count("\n") == 0  # a file has whole lines
    assert max(map(len, terminal([Text("words " * 20)], styled=True).splitlines())) <= 20
    told = terminal([Details("More", (Table(["id", Column("text", "words"), "n"], rows),))], styled=False)
    names = "".join(line[:14].strip() for line in told.splitlines())
    assert "train.jsonl:27" in names
    assert all(one in told for one in ("some", "words", "27"))


def test_numbers_of_a_narrow_terminal_stay_whole_with_the_names_of_their_rows(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows: list[Row] = [(name, "76.4 ± 4.7", "71.2 – 80.1", "10 seeds") for name in ("bm25", "linear + task-only")]
    told = terminal([Table(["Model", "test", "95 % interval, test", "seeds"], rows)], styled=False).splitlines()
    assert max(map(len, told)) <= 40
    assert [sum(cell in line for line in told) for cell in rows[0][1:]] == [2, 2, 2]
    assert sum(line.startswith("linear + task-only ") for line in told) > 1  # in each part


def test_numbers_stay_whole_below_a_long_heading_of_rows_and_names_beside_a_long_class(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows: list[Row] = [("a heading longer than the table is wide",), ("m", "123.456 ± 12.345", "123.456 ± 12.345")]
    assert terminal([Table(["", "a", "b"], rows)], styled=False).count("123.456 ± 12.345") == 2
    assert "bm25  " in terminal([Table(["Model", "c" * 60], [("bm25", "1")])], styled=False)


def test_a_terminal_marks_the_answer(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = terminal(
        [*opening("", "t", "", ["Use it."]), Table(["", "n"], [("a", "1")], "", frozenset([0]))], styled=True
    )
    assert "\x1b[1mUse it.\x1b[0m" in told
    assert "\x1b[1ma\x1b[0m" in told


def test_plain_words_have_no_codes_on_a_terminal_either(monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    page = [Heading("a"), Table(["b", "c"], [("d", "1")], "", frozenset([0]))]
    assert "\x1b" in terminal(page)
    assert "\x1b" not in terminal(page, styled=False)


def test_a_notebook_shows_a_page_once_and_no_empty_outputs(monkeypatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *given: pytest.fail("an output of its own"))
    assert "words" in terminal([Text("words")])
