"""Curves: kept by value and draw, and written as a table, a figure and differences of paired draws."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.paper.blocks import markdown
from research.paper.command import paper, update_page
from research.paper.curves import blocks
from research.paper.figure import apart, curve_figure
from research.paper.keep import keep
from research.paper.results import Result, arm_of, by_key, fault, read_results
from research.paper.tables import SCALE, curves, expected, key_of, place_of
from tests.paper.kept import rights
from tests.toy_reports import toy_world
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.intervals import difference
from tlm.evaluation.score.mix import mix
from tlm.settings.presets import paper_flops, resolve, stage1_cost


def point(arm: str, at: float, draw: int, right: int, of: int = 400) -> Result:
    """A result with `right` of its test examples right."""
    values = {
        **place_of("dilution", "toy", arm, at), "arm": arm, "seed": draw, "metric": "accuracy", "cost": {},
        "made_from": {"subset/key": f"content {draw}"},
        "scores": {"test": {"accuracy": right / of}}, "mlm_loss": None,
        "examples": {"labels": ["no", "yes"], "test": rights(right, of, draw)},
    }  # fmt: skip
    return Result("x", values)


def kept(*points: Result) -> dict[str, dict[int, Result]]:
    return by_key(points)


DRAWS = [
    point(arm, at, draw, right + draw)
    for at, ours, theirs in ((0.48, 300, 298), (0.02, 320, 220))
    for arm, right in (("static-bm25", ours), ("static-random", theirs))
    for draw in range(4)
]


def test_a_table_has_a_row_for_each_model_and_a_column_for_each_value() -> None:
    (block,) = blocks("dilution", kept(*DRAWS, point("baseline", 0.02, 0, 260)))
    assert block.rows[0] == ("share of the corpus that is on topic", "0.02", "0.48")
    assert [row[0] for row in block.rows[1:]] == ["linear", "static-random", "static-bm25"]
    assert block.rows[1][1:] == ("65.0 (1)", "–")
    assert block.rows[3][1:] == ("80.4 ± 0.3 (4)", "75.4 ± 0.3 (4)")


def test_orders_are_claimed_value_by_value_where_intervals_carry_them() -> None:
    text = markdown(blocks("dilution", kept(*DRAWS)))
    assert "static-bm25 at 0.02 over static-random at 0.02 +25.0 (95 % interval +" in text
    assert "static-bm25 at 0.02 is ahead" in text
    assert "static-bm25 at 0.48 over static-random at 0.48 +0.5 (95 % interval -" in text
    assert text.count("no order is shown") == 1
    few = markdown(blocks("dilution", kept(*(one for one in DRAWS if one.seed < 2))))
    assert "is ahead" not in few
    assert few.count("fewer than three draws, so no order is claimed") == 2


def test_a_task_with_copies_of_training_texts_has_a_second_table_without_them() -> None:
    """Half of the texts are copies, and the second model has its right answers there alone."""
    copied = " ".join(["1"] * 200 + ["0"] * 200)
    runs = [point(arm, 0.48, draw, 300 + draw) for arm in ("static-bm25", "static-random") for draw in range(3)]
    for run in runs:
        run.values["examples"]["test"]["copied"] = copied
    for draw, run in enumerate(runs[3:]):
        run.values["examples"]["test"]["predicted"] = " ".join(["1"] * (200 + draw) + ["0"] * (200 - draw))
    whole, distinct = blocks("dilution", kept(*runs))
    assert whole.heading.startswith("toy: ")
    assert distinct.heading.startswith("toy (distinct texts): ")
    assert "without the 200 of the 400 test texts that are copies of training texts" in distinct.lines
    assert distinct.rows[1] == ("static-random", "0.5 ± 0.5 (3)")
    shares = [sum(map(int, run.values["examples"]["test"]["predicted"].split()[200:])) / 2 for run in runs[:3]]
    assert distinct.rows[2][1].startswith(f"{sum(shares) / 3:.1f} ± ")
    assert "static-bm25 at 0.48 is ahead" in distinct.lines[-1]
    for run in runs:
        del run.values["examples"]
    assert len(blocks("dilution", kept(*runs))) == 1, "runs kept without their predictions do not tell"


def test_models_of_other_kinds_or_values_are_not_compared() -> None:
    text = markdown(
        blocks("dilution", kept(point("static-bm25", 0.1, 0, 9), point("static-random + baseline", 0.1, 0, 9)))
    )
    assert "over" not in text
    assert "over" not in markdown(
        blocks("dilution", kept(point("static-bm25", 0.1, 0, 9), point("static-random", 0.2, 0, 9)))
    )


def test_a_line_is_fitted_over_the_logarithm_and_leads_to_the_paper() -> None:
    def run(task: str, at: float, draw: int, right: int) -> Result:
        one = point("bm25", at, draw, right)
        one.values.update(place_of("compute", task, "bm25", at))
        return one

    runs = [("scierc", 1e13, 0, 200), ("scierc", 1e13, 1, 240), ("scierc", 1e14, 0, 240), ("scierc", 1e15, 0, 260)]
    text = markdown(blocks("compute", kept(*(run(*one) for one in runs))))
    assert "fitted to the means of bm25: +5.0 points for ten times as much" in text  # 55, 60 and 65
    assert f"the line has {60 + 5 * math.log10(3.21e4):.1f} at 3.2e+18, where the paper has 80.5" in text
    assert "the paper" in curve_figure("compute", kept(*(run(*one) for one in runs)))
    assert "fitted" not in markdown(blocks("compute", kept(run("scierc", 1e13, 0, 200))))
    other = markdown(blocks("compute", kept(run("toy", 1e13, 0, 200), run("toy", 1e14, 0, 220))))
    assert "fitted" in other
    assert "the paper has" not in other


def test_the_papers_point_of_a_curve_is_that_of_its_small_scale() -> None:
    small = next(row for row in expected()["2"]["row"] if row["name"] == "TLM (small)")
    for task, (flops, score) in curves()["compute"]["paper"].items():
        tokens = stage1_cost(resolve(f"small-{task}")).padded_tokens
        assert float(f"{paper_flops(109_000_000, tokens):.2e}") == flops
        assert small["values"][task][0] == score


def test_the_linear_model_varies_with_the_labels_that_it_learned_from() -> None:
    """Five draws of labels: its interval covers them; five runs of the same labels are one model."""
    drawn, same = (
        arm_of([point("baseline", 16, draw, 200 + step * draw) for draw in range(5)], "test") for step in (9, 0)
    )
    assert drawn is not None
    assert same is not None
    assert drawn.seed_variance()[0] > 0
    assert same.seed_variance()[0] == 0


def test_verdicts_of_kept_runs_do_not_depend_on_which_test_sets_are_resampled() -> None:
    """With a thousand, seed 0 alone had static vectors of BM25's text ahead of the task's own, among 25 comparisons."""
    runs = by_key(read_results(Path("research/results")))
    ours, own = (runs[key_of("selectors", "scierc", f"static-{text}+baseline", 0.48)] for text in ("bm25", "task-only"))
    first, second = (arm_of([*one.values()], "test") for one in (ours, own))
    assert first is not None
    assert second is not None
    many = [replace(arm, resamples=40_000) for arm in (first, second)]
    assert difference(first, second, 25).sign == difference(many[0], many[1], 25).sign


def test_without_results_it_says_so() -> None:
    assert "nothing is run yet" in markdown(blocks("labels", kept(*DRAWS)))
    assert curve_figure("labels", kept(*DRAWS)) == ""


def test_the_figure_names_models_and_values() -> None:
    drawn = curve_figure("dilution", kept(*DRAWS))
    for text in ("static-bm25", "static-random", "0.02", "0.48", "share of the corpus that is on topic"):
        assert f">{text}<" in drawn
    assert drawn == curve_figure("dilution", kept(*reversed(DRAWS)))


def test_runs_are_kept_with_their_place_and_checked(tmp_path: Path) -> None:
    root, folder = str(tmp_path / "store"), str(tmp_path / "results")
    world = toy_world(tmp_path / "store")
    metrics = [baseline(world.task, root=root), static(world.task, root=root)]
    uri = report([*metrics, mix(metrics, root=root)], root=root)
    given = {"table": "labels", "command": "do it", "results": folder, "revision": "abc"}
    for draw in (0, 1):
        keep([uri], at=16, draw=draw, **given)
    results = read_results(Path(folder))
    assert len(results) == 6
    assert [fault(one, root) for one in results] == [""] * 6
    task = results[0].values["cell"]["column"]
    arms = ("baseline", "static-task-only", "baseline + static-task-only")
    assert {one.key for one in results} == {key_of("labels", task, arm, 16) for arm in arms}
    assert {one.values["cell"]["scale"] for one in results} == {SCALE}
    assert {one.seed for one in results} == {0, 1}
    assert {one.values["command"] for one in results} == {"do it"}
    scores = {Artifact.open(one).details["arm"]: Artifact.open(one).details["test"] for one in metrics}
    for one in results:
        if one.values["arm"] in scores:
            assert one.score("test") == pytest.approx(100 * scores[one.values["arm"]])
    moved = Result("labels.jsonl:1", {**results[0].values, "cell": {**results[0].values["cell"], "at": 64}})
    assert fault(moved).startswith("labels.jsonl:1 was changed after it was written")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"table": "labels", "at": 16}, "a point of the curve 'labels' needs --command"),
        ({"table": "labels", "command": "x"}, "at is 0; give the value on the axis of labels"),
        ({"table": "4", "at": 16}, r"--at and --draw are for curves \(dilution, .*, compute\), and '4' is none"),
    ],
)
def test_mistakes_are_one_sentence(given: dict[str, object], message: str, tmp_path: Path) -> None:
    metrics = baseline(toy_world(tmp_path).task, root=str(tmp_path))
    with pytest.raises(InputError, match=message):
        keep([metrics], results=str(tmp_path / "results"), **given)  # type: ignore[arg-type]
    assert not (tmp_path / "results").exists()


def test_runs_that_would_be_one_point_are_refused(tmp_path: Path) -> None:
    """Of three seeds of a report, the last alone was kept, without a word."""
    world = toy_world(tmp_path)
    metrics = [world.metrics("task-only", seed, 0.7) for seed in range(3)]
    given: dict[str, Any] = {"table": "dilution", "at": 0.02, "command": "x", "results": str(tmp_path / "results")}
    with pytest.raises(
        InputError, match=r"^3 runs of arm task-only would be one line of table dilution, .* with seed 4; give"
    ):
        keep(metrics, draw=4, **given)
    for draw, metric in enumerate(metrics):
        keep([metric, metric], draw=draw, **given)
    assert [run.seed for run in read_results(tmp_path / "results")] == [0, 1, 2]


def test_a_section_of_a_page_is_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\n<!-- python -m research paper dilution --scale curve --update page.md -->\nold\n<!-- end -->\n\nB\n"
    )
    changed = update_page(page, tmp_path / "results", kept(*DRAWS))
    assert changed == [tmp_path / "results/table-dilution/curve.svg", page]
    text = page.read_text()
    assert "| static-bm25 | 80.4 ± 0.3 (4) |" in text
    assert "](results/table-dilution/curve.svg)" in text
    assert "old" not in text
    assert text.startswith("# A\n")
    assert text.endswith("\nB\n")
    paper("dilution", results=str(tmp_path / "nothing"))
    assert "nothing is run yet" in capsys.readouterr().out


@given(st.lists(st.floats(0, 100), min_size=1, max_size=15).map(sorted), st.floats(0.1, 6))
def test_names_of_lines_stand_apart_in_order_and_within_the_axis(heights: list[float], gap: float) -> None:
    found = apart(heights, gap, 0, 100)
    assert len(found) == len(heights)
    assert found[-1] <= 100
    assert all(second - first >= gap * (1 - 1e-9) for first, second in pairwise(found))


def test_names_that_have_room_stay_at_their_lines() -> None:
    assert apart([1, 5, 9], 2, 0, 10) == [1, 5, 9]
