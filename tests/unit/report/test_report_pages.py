"""The report's pages: nothing in them can act, they stay small, and what is gone is told in a line."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.toy_reports import is_safe, reported, told_of, toy_world
from tests.toys import words
from tlm.errors import InputError, printable
from tlm.evaluation.pages.blocks import SPARE_ROLES, Details, Drawn, Figure, Heading, Span, Table, Text
from tlm.evaluation.pages.plain import markdown
from tlm.evaluation.pages.plots import coverage, dots, lines, short
from tlm.evaluation.pages.render import html
from tlm.evaluation.pages.text import code, label_text, power, prose, shared_words, signed, visible
from tlm.evaluation.report import checks
from tlm.evaluation.report.findings import ENCODERS, MOST_SAID
from tlm.evaluation.report.lineage import dropped_section
from tlm.evaluation.report.page import MOST_CLASSES, _classes, _differences, _falls
from tlm.evaluation.report.page import coverage as coverage_section
from tlm.evaluation.score.intervals import spread


def test_size_stays_under_a_megabyte(tmp_path: Path) -> None:
    world = toy_world(tmp_path, texts=[f"{number} " + "long " * 5000 for number in range(50)])
    uris = [world.metrics(arm, seed, 0.6) for arm in ("task-only", "random", "bm25") for seed in range(8)]
    assert len(reported(tmp_path, uris)["html"].encode()) < 600_000


def test_warnings_stand_above_the_results_and_notes_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "FEW_COPIES", 1.0)
    world = toy_world(tmp_path, copies=[41])
    page = reported(tmp_path, [world.metrics(arm, 0, 0.6) for arm in ("bm25", "random")])["md"]
    parts = "**Warning:** dev has 10 examples", "## Results", "**Note:** 1 of the"
    assert sorted(map(page.index, parts)) == [*map(page.index, parts)]
    assert page.count("dev has 10 examples") == 1


def test_a_plot_tells_rows_apart_and_says_where_an_interval_is_unknown(tmp_path: Path) -> None:
    summary = {"role": "bm25", "arm": "bm25", "test": spread([0.5, 0.6])}
    name = "published-all-MiniLM-L6-v2-{} + static + linear"
    drawn = dots([summary | {"name": name.format(text)} for text in ("bm25", "random")], "F1")
    assert all(name.format(text) in drawn for text in ("bm25", "random"))
    assert 'width="532.8pt"' in drawn  # as wide as the page
    assert (
        "Hollow dots: fewer than 3 seeds or draws"
        in reported(tmp_path, [toy_world(tmp_path).metrics("bm25", 0, 0.6)])["html"]
    )


def test_a_plot_has_each_name_beside_its_dots_and_the_best_one_bold() -> None:
    rows = [{"name": f"{arm} $a$", "role": arm, "arm": arm, "test": spread([0.5, 0.6])} for arm in ("bm25", "random")]
    drawn = dots(rows, "F1", best="random $a$")
    assert drawn == dots(rows, "F1", best="random $a$")
    names = re.findall(r'<text style="(.*?)" x="\S+" y="(\S+)"[^>]*>(bm25|random) \$a\$<', drawn)
    assert {name: "font-weight" in style for style, _, name in names} == {"bm25": False, "random": True}
    found = re.findall(r'<use [^>]*y="(\S+)" style="[^"]*var\(--(bm25|random)\)', drawn)
    places = {role: float(y) for y, role in found}
    assert all(abs(float(y) - places[name]) < 10 for _, y, name in names)
    assert places["bm25"] < places["random"]  # the first is at the top


def test_on_a_phone_names_stand_above_their_dots_and_the_baseline_does_not_cross_them() -> None:
    names = {"baseline": "linear", "bm25": "linear + static-bm25"}
    rows = [{"name": name, "role": arm, "arm": arm, "test": spread([0.5, 0.6])} for arm, name in names.items()]
    drawn = dots(rows, "F1", narrow=True)
    assert 'width="266.4pt"' in drawn  # 355 pixels: at this size, letters are as large as they are drawn
    found = [float(y) for y in re.findall(r'<use [^>]*y="(\S+)" style="[^"]*var\(--(?:bm25|baseline)\)', drawn)]
    heights = {text: float(y) for y, text in re.findall(r'<text[^>]* y="(\S+)"[^>]*>(linear[^<]*)<', drawn)}
    assert heights["linear"] < min(found) < heights["linear + static-bm25"] < max(found)
    dashed = re.findall(r'd="M \S+ (\S+)\s+L \S+ (\S+)\s*"[^>]*stroke-dasharray', drawn)
    assert len(dashed) == 2
    letters = [(y - 9, y) for y in heights.values()]
    assert not any(float(end) < low and high < float(start) for start, end in dashed for high, low in letters)


def test_a_figure_says_what_it_shows_and_explains_only_what_it_has(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    one = reported(tmp_path, [world.metrics("bm25", 0, 0.6)])["html"]
    assert re.search(r'<source media="[^"]*" srcset="data:image/svg\+xml;base64,', one)
    assert re.search(r'alt="Test score, a dot for each seed or draw: bm25 \d\d\.\d"', one)
    assert re.search(r'alt="Stage 2: cross-entropy: bm25 from 1\.\d+ to 0\.\d+"', one)
    assert re.search(r"threshold of the table: on test, \d+\.\d % answered, \d+\.\d % of these right; ", one)
    assert not any(word in one for word in ("Dashed", "Band:"))
    heads = [one.index(f">{name}</th>") for name in ("dev", "test", "95 % interval, test", "seeds")]
    assert heads == sorted(heads)  # a phone shows the first ones
    assert "Hollow dots" not in reported(tmp_path, [world.metrics("bm25", seed, 0.6) for seed in range(3)])["html"]


def test_a_figure_says_small_losses_and_no_accuracy_where_nothing_is_answered() -> None:
    assert _falls([{"group": "bm25", "points": [[0, 0.0031], [9, 0.00012]]}]) == "bm25 from 0.0031 to 0.00012"
    nothing, some = {"share": 0.0, "accuracy": None}, {"share": 0.8, "accuracy": 0.7}
    found: Any = [{"at_least": least, "dev": some, "test": test} for least, test in ((0.9, nothing), (0.5, some))]
    given: Any = {"best": {"name": "bm25", "role": "bm25"}, "coverage": found}
    drawn = next(block for block in coverage_section(given) if isinstance(block, Drawn))
    assert [figure.says for figure in drawn.blocks if isinstance(figure, Figure)] == [
        "on test, 80.0 % answered, 70.0 % of these right"
    ]


def test_a_curve_has_the_colour_of_its_group_and_coverage_leaves_out_what_answers_nothing() -> None:
    groups = [{"name": "one", "role": "bm25"}, {"name": "two", "role": "random"}]
    drawn = lines({"lines": [{"group": "two", "points": [(0, 1.0), (1, 0.5)]}]}, groups)
    assert "stroke: var(--random)" in drawn
    assert "var(--bm25);" not in drawn.partition("<defs>")[2]
    assert "stroke-dasharray" not in drawn
    some, none = {"share": 0.5, "accuracy": 0.9}, {"share": 0.0, "accuracy": None}
    drawn = coverage([{"dev": some, "test": some}, {"dev": some, "test": none}], "bm25")
    assert len(re.findall(r"<use [^>]*var\(--(?:muted|bm25)\)[^>]*/>", drawn)) == 3 + 2  # and those of the legend


def test_curves_without_a_colour_of_their_own_differ_in_dashes_too_as_their_key_does() -> None:
    groups = [{"name": role, "role": role} for role in SPARE_ROLES]
    drawn = lines({"lines": [{"group": role, "points": [(0, 1.0), (1, 0.5)]} for role in SPARE_ROLES]}, groups)
    assert len(set(re.findall(r"stroke-dasharray: ([^;]*);", drawn))) == len(SPARE_ROLES)
    chips = html("t", [Text(tuple(Span("a", "name", role) for role in SPARE_ROLES), "legend curves")])
    assert len(set(re.findall(r"--on: (.*?)\"", chips))) == len(SPARE_ROLES)


def test_each_row_that_was_left_out_is_counted_once(tmp_path: Path) -> None:
    step = {"kind": "subset", "arm": "random", "missing": "",
            "counts": {"candidates": 40, "kept": 20, "surplus": 15, "overlaps test": 5},
            "reasons": [{"reason": "overlaps test", "count": 5, "samples": []}]}  # fmt: skip
    nothing = {"kind": "hits", "arm": "random", "missing": "", "counts": {"hits": 40, "like": 20}, "reasons": []}
    shown = markdown(list(dropped_section([nothing, step])))
    assert "- Export, random: read 40, kept 20.\n" in f"{shown}\n"
    assert "| Export, random | `overlaps test` | 5 |\n| Export, random | surplus | 15 |" in shown
    assert "nothing" not in shown
    assert "Left out by" not in markdown(list(dropped_section([nothing])))


def remove(kind: str) -> Callable[[Path], None]:
    def act(root: Path) -> None:
        for manifest in (root / kind).glob("*/manifest.json"):
            manifest.unlink()

    return act


@pytest.mark.parametrize("kind", ["corpus", "task", "index", "hits", "subset", "tokens", "checkpoint", "model"])
def test_an_ancestor_that_is_gone_is_told_in_one_line(kind: str, tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    uris = [world.metrics("bm25", seed, 0.6) for seed in (0, 1)]
    remove(kind)(tmp_path)
    told = told_of(uris)
    assert told["gone"].startswith(f"Deleted or changed: {kind}")
    if kind not in ("task", "checkpoint"):  # the bill has no row of it, and all others
        parts = [one["part"] for one in told["bill"]["spent"]]
        assert (parts.count("training"), kind in parts) == (1, False)


def test_a_report_without_any_ancestor_is_whole_and_names_no_folder(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    uris = [world.metrics("bm25", seed, 0.6) for seed in (0, 1)]
    for kind in ("task", "model"):
        remove(kind)(tmp_path)
    files = reported(tmp_path, uris)
    is_safe(files["html"])
    for form in ("html", "md"):
        assert "Deleted or changed: task" in files[form]
    assert str(tmp_path) not in "".join(files.values())


def test_a_damaged_file_is_told_in_its_section(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    uri = world.metrics("bm25", 0, 0.6)
    for path in (tmp_path / "subset").glob("*/passages-*"):
        path.write_bytes(b"damaged")
    files = reported(tmp_path, [uri])
    assert "is damaged or missing" in files["html"]
    assert str(tmp_path) not in "".join(files.values())


def test_many_classes_are_folded(tmp_path: Path) -> None:
    counts = {label: {"label": label, "support": 1, "f1": [spread([0.5])]} for label in words(MOST_CLASSES + 1, 0)}
    few, many = ({"groups": ["linear"], "rows": [*counts.values()][:most]} for most in (MOST_CLASSES, None))
    assert [type(block) for block in _classes(few)] == [Heading, Table]
    (folded,) = _classes(many)
    assert isinstance(folded, Details)
    assert folded.summary == "F1 of each class on test"


def test_many_comparisons_are_folded() -> None:
    one: Any = {"first": "a", "second": "b", "ahead": "", "chance": 0.5, "mean": 0.0, "low": None, "high": None}
    one["question"] = ENCODERS
    assert [type(block) for block in _differences([one] * MOST_SAID)] == [Heading, Table]
    _, folded = _differences([one] * (MOST_SAID + 1))
    assert isinstance(folded, Details)
    assert folded.summary == "All 21 comparisons"


@pytest.mark.parametrize(
    ("value", "shown"), [(0.04, "0.0"), (0.05, "+0.1"), (-0.04, "0.0"), (0.0, "0.0"), (0.06, "+0.1"), (-1.25, "-1.2")]
)
def test_a_difference_that_rounds_to_nothing_has_no_sign(value: float, shown: str) -> None:
    assert signed(value) == shown


@pytest.mark.parametrize(
    ("label", "shown"), [("pet", "pet"), (["pet", "farm"], "pet; farm"), ([], ""), (1.5, "1.5"), (None, "")]
)
def test_labels_of_an_example_as_text(label: Any, shown: str) -> None:
    assert label_text(label) == shown


def test_shortened_names_of_arms_still_differ() -> None:
    names = [f"published-all-MiniLM-L6-v2-bm25{more}" for more in (" + static + linear", " + linear")]
    assert [len(short(name)) for name in names] == [34, 34]
    assert short(names[0]) != short(names[1])
    assert short("linear") == "linear"


def test_inert_text() -> None:
    assert visible(" a\n b\u202ec ") == "a b⟨U+202E⟩c"
    assert len(visible("x" * 2000)) == len(visible("x" * 601)) == 600
    assert visible("x" * 600) == "x" * 600
    assert (power(999_400), power(1e6), power(1.25e13)) == ("999,000", "1·10⁶", "1.2·10¹³")
    assert visible("no\u200bspace, \U000e0100\u3164\u00ad") == "no⟨U+200B⟩space, ⟨U+E0100⟩⟨U+3164⟩⟨U+00AD⟩"
    assert visible("👩\u200d🔬 ❤\ufe0f क\u094d\u200dष") == "👩\u200d🔬 ❤\ufe0f क\u094d\u200dष"  # what texts need
    assert printable("a\u202e\U000e0100\u3164\u034f") == "a\\u202e\\U000e0100\\u3164\\u034f"
    assert str(InputError("file a\x1b[2J.csv")) == "file a\\x1b[2J.csv"
    assert code("a`b") == "`a'b`"
    assert code("") == "` `"
    assert prose("to a@b.de") == "to `a@b.de`"
    pieces = shared_words("The Parser of trees with oaks, parsers", "a parser with oaks and the trees")
    assert [piece for piece, shared in pieces if shared] == ["Parser", "trees", "oaks"]
    assert "".join(piece for piece, _ in pieces) == "The Parser of trees with oaks, parsers"
