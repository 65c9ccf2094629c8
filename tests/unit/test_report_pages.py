"""The report's pages: nothing in them can act, they stay small, and what is gone is told in a line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.toy_reports import is_safe, reported, told_of, toy_world
from tests.toys import words
from tlm.evaluation.pages.blocks import Details, Heading, Table
from tlm.evaluation.pages.plain import markdown
from tlm.evaluation.pages.plots import short
from tlm.evaluation.pages.text import code, label_text, shared_words, signed, visible
from tlm.evaluation.report.page import MOST_CLASSES, _chosen, _classes
from tlm.evaluation.score.intervals import spread


def test_size_stays_under_a_megabyte(tmp_path: Path) -> None:
    world = toy_world(tmp_path, texts=[f"{number} " + "long " * 5000 for number in range(50)])
    uris = [world.metrics(arm, seed, 0.6) for arm in ("task-only", "random", "bm25") for seed in range(8)]
    assert len(reported(tmp_path, uris)["html"].encode()) < 600_000


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
    assert [type(block) for block in _classes(few, "class")] == [Heading, Table]
    (folded,) = _classes(many, "class")
    assert isinstance(folded, Details)
    assert folded.summary == "F1 of each class on test"


def test_the_weights_of_a_mixture_go_by_the_names_of_the_rows() -> None:
    mixed: Any = {"name": "bm25 + linear", "tried": 0, "chosen": {"weight of bm25": 0.7, "weight of baseline": 0.3}}
    assert "weight of bm25 0.7; weight of linear 0.3." in markdown(_chosen([mixed]))


@pytest.mark.parametrize(
    ("value", "shown"), [(0.04, "0.0"), (-0.04, "0.0"), (0.0, "0.0"), (0.06, "+0.1"), (-1.25, "-1.2")]
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
    assert len(visible("x" * 2000)) == 600
    assert code("a`b") == "`a'b`"
    assert code("") == "` `"
    pieces = shared_words("The Parser of trees, parsers", "a parser with trees and the")
    assert [piece for piece, shared in pieces if shared] == ["Parser", "trees"]
    assert "".join(piece for piece, _ in pieces) == "The Parser of trees, parsers"
