"""Pages with marked sections: the committed one is what the kept results give, and prose is never touched."""

import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from research.paper import page
from research.paper import page as arms
from research.paper.command import paper, update_page
from research.paper.figure import figure
from research.paper.results import FOLDER, Result, by_key, read_results
from research.paper.tables import cells
from tlm.errors import InputError

HOME = Path(__file__).parents[2]
PAGE = """# Results
Prose.

<!-- python -m research paper arms --scale pocket --update research/page.md -->
old text
<!-- end -->

More prose with | bars | and <!-- a comment -->.
<!-- python -m research paper 4 --scale pocket --update research/page.md -->
<!-- end -->
The end, without a newline"""


def result(table: str, scale: str, task: str, row: str, seed: int, score: float) -> Result:
    cell = next(one for one in cells(table, scale, [task]) if one.row == row)
    values: dict[str, Any] = {
        "key": cell.key, "cell": {"table": table, "scale": scale, "column": task, "row": row}, "seed": seed,
        "metric": "macro_f1", "arm": cell.arm, "mlm_loss": 3.0 + seed, "cost": {"stage 1": {"flops": 1e12 + seed}},
        "scores": {split: {"macro_f1": score / 100} for split in ("dev", "test")},
    }  # fmt: skip
    return Result("", values)


ROWS = {"task data only": [50.0, 52.0, 57.0], "top 50": [54.0, 55.0], "top 5000": [60.0, 61.0, 65.0]}
KEPT = by_key(
    result("4", "pocket", "scierc", row, seed, score) for row, found in ROWS.items() for seed, score in enumerate(found)
)


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    path = tmp_path / "research" / "page.md"
    path.parent.mkdir()
    path.write_text(PAGE)
    return path


# ---- the page of this repository


def test_the_committed_results_page_is_what_the_kept_results_give(tmp_path, capsys):
    """Else: `python -m research paper --update research/RESULTS.md`."""
    folder = tmp_path / "research"
    shutil.copytree(HOME / FOLDER, folder / "results")
    shutil.copyfile(HOME / "research" / "RESULTS.md", folder / "RESULTS.md")
    paper(update=str(folder / "RESULTS.md"), results=str(folder / "results"))
    assert "nothing changes" in capsys.readouterr().err


def test_every_table_with_a_kept_run_has_a_section():
    text = (HOME / "research" / "RESULTS.md").read_text()
    places = {(run.values["cell"]["table"], run.values["cell"]["scale"]) for run in read_results(HOME / FOLDER)}
    wanted = {
        f"<!-- python -m research paper {table} --scale {scale} " for table, scale in places if scale != "baseline"
    }
    assert {marker for marker in wanted if marker not in text} == set()


# ---- any page


def outside(text: str) -> list[str]:
    """What stands outside the sections."""
    return re.split(r"(?<=-->)\n(?:(?!<!-- (?:tlm|end)).)*?(?=<!-- end -->)", text, flags=re.DOTALL)


def test_sections_are_rewritten_and_nothing_else(sheet, tmp_path):
    changed = update_page(sheet, tmp_path / "research" / "results", KEPT)
    text = sheet.read_text()
    assert changed == [tmp_path / "research/results/table-4/pocket.svg", sheet]
    assert outside(text) == outside(PAGE)
    assert "old text" not in text
    assert "| top 5000 | 62.0 ± 2.6 (3) |" in text
    assert "](results/table-4/pocket.svg)" in text
    assert sorted(path.name for path in sheet.parent.iterdir()) == ["page.md", "results"]
    assert update_page(sheet, tmp_path / "research" / "results", KEPT) == []
    assert sheet.read_text() == text


def test_one_table_is_rewritten_alone(sheet, tmp_path):
    update_page(sheet, tmp_path / "research" / "results", KEPT, "4", "pocket")
    text = sheet.read_text()
    assert "old text" in text
    assert "### Table 4" in text


def test_what_cannot_be_rewritten_is_one_sentence_and_changes_nothing(sheet, tmp_path):
    results = tmp_path / "research" / "results"
    with pytest.raises(
        InputError, match=r"page\.md has no section <!-- python -m research paper 5 --scale pocket --update .*; put it"
    ):
        update_page(sheet, results, KEPT, "5", "pocket")
    with pytest.raises(InputError, match=r"none\.md cannot be read"):
        update_page(tmp_path / "none.md", results, KEPT)
    with pytest.raises(InputError, match=r"--update has 4 alone; give a table and its --scale"):
        paper("4", update=str(sheet))
    sheet.write_text(PAGE.replace("old text\n<!-- end -->", "old text"))
    with pytest.raises(
        InputError, match=r"the section <!-- python -m research paper arms .* --> has no end; put <!-- end --> below it"
    ):
        update_page(sheet, results, KEPT)
    sheet.write_text(PAGE.replace("4 --scale pocket", "4 --scale medium"))
    before = sheet.read_bytes()
    with pytest.raises(InputError, match="table 4 cannot be had at scale medium"):
        update_page(sheet, results, KEPT)
    assert sheet.read_bytes() == before
    assert not results.exists()


def test_the_overview_has_a_section_too(sheet, tmp_path):
    sheet.write_text("<!-- python -m research paper --update research/page.md -->\n<!-- end -->\n")
    update_page(sheet, tmp_path, KEPT)
    assert "| 4 | K, the passages retrieved for an example | 12 not run | pocket: 2 seeds only |" in sheet.read_text()


# ---- the table of the arms


def test_the_arms_are_summed_up_over_their_seeds():
    scores = [50.0, 52.0, 57.0]
    kept = by_key(result("arms", "pocket", "scierc", "task only", seed, score) for seed, score in enumerate(scores))
    (block,) = arms.arms_blocks("arms", "pocket", kept)
    half = stats.t.ppf(0.975, 2) * np.std(scores, ddof=1) / 3**0.5
    assert block.rows[1:] == [
        (
            "task only",
            "53.0 ± 3.6 (3)",
            "53.0 ± 3.6 (3)",
            f"{53 - half:.1f} – {53 + half:.1f} (seeds only)",
            "4.00 ± 1.00 (3)",
            "1·10¹²",
        )
    ]
    assert arms.arms_blocks("arms", "demo", kept)[0].lines == ["nothing is run yet"]


def test_another_task_has_a_table_where_a_run_was_kept_for_it():
    kept = by_key(result("arms", "pocket", "acl-arc", "BM25's text", seed, 50.0) for seed in range(2))
    assert [block.heading for block in arms.arms_blocks("arms", "pocket", kept)] == ["ACL-ARC: the arms (pocket)"]
    assert arms.arms_blocks("hour", "pocket", kept)[0].lines == ["nothing is run yet"]


def test_the_arms_are_cells_of_the_paper_s_tables_too():
    """A run is kept once and counts in both."""
    shared = {cell.row: cell.key for cell in cells("arms", "pocket", ["scierc"])}
    assert shared["task only"] in {cell.key for cell in cells("4", "pocket", ["scierc"])}
    assert shared["random text"] in {cell.key for cell in cells("3", "pocket", ["scierc"])}
    assert shared["BM25's text, stage 1 alone"] in {cell.key for cell in cells("7", "pocket", ["scierc"])}


# ---- the picture


def drawn(table: str) -> str:
    return figure(table, page.outcomes_at(table, "pocket", KEPT), KEPT)


def test_the_line_of_a_picture_goes_through_the_means():
    svg = drawn("4")
    ElementTree.fromstring(svg)
    paths = re.findall(r'<path d="(M [^"]*)" clip-path="[^"]*" style="fill: none; stroke: var\(--(bm25|random)\);', svg)
    points = {role: re.findall(r"[ML] (\S+) (\S+)", path) for path, role in paths if path.count("L") > 1}
    printed = [cell.published[0] for cell in cells("4", "pocket", ["scierc"])]
    assert (printed[0], printed[-1]) == (51.23, 86.07)
    for role, means in {"bm25": [53, 54.5, 62], "random": printed}.items():
        x, y = np.array(points[role], float).T
        assert np.allclose(np.diff(x), np.diff(x)[0], atol=1e-3)
        slope, offset = np.polyfit(means, y, 1)
        assert slope < 0  # downwards is more in SVG
        assert np.allclose(slope * np.array(means) + offset, y, atol=0.05)


def test_a_picture_names_both_scales_values_and_brings_its_own_ground():
    svg = drawn("4")
    ticks = re.findall(r'id="xtick_\d+">.*?<text[^>]*>([^<]*)</text>', svg, re.DOTALL)
    assert ticks == ["none", "1", "50", "none", "50", "500", "5000"]
    assert ">SciERC, the paper</text>" in svg
    assert 'fill="var(--card)"' in svg
    assert "prefers-color-scheme:dark" in svg
    assert drawn("4") == svg


def test_only_tables_that_vary_one_setting_have_a_picture():
    assert drawn("3") == drawn("7") == ""
    assert drawn("5") == ""  # one of its rows was run: no line to draw
