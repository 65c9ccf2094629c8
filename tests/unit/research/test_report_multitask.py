"""The report on several tasks: each alone beside all together, and every training's cost counted once."""

import json
import statistics
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from research.multitask.report import report_multitask
from tests.toys_multitask import other_task, together
from tests.toys_training import checkpoint, task
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.report.report import report
from tlm.evaluation.score.evaluate import evaluate
from tlm.settings.options import Compute
from tlm.training.stages import finetune

SEEDS = (0, 1, 2)
STEPS = ("train.steps=24", "train.warmup_steps=4")
STAGE2 = ["finetune.steps=2"]


class Runs:
    """Two tasks, alone and together, with three seeds."""

    def __init__(self, root: Path) -> None:
        self.root, self.tasks = root, [task(root), other_task(root, "regression")]
        self.shared = [together(root, self.tasks, *STEPS, seed=seed) for seed in SEEDS]
        self.alone = [[checkpoint(root, one, seed=seed) for seed in SEEDS] for one in self.tasks]
        self.models: list[Artifact] = []
        self.metrics = {
            "multi-task": [[self.scored(start, one) for start in self.shared] for one in self.tasks],
            "bm25": [
                [self.scored(start, one) for start in starts]
                for one, starts in zip(self.tasks, self.alone, strict=True)
            ],
        }

    def scored(self, start: Artifact, one: str) -> str:
        model = finetune(
            start.uri, one, preset="tiny", overrides=STAGE2, compute=Compute(device="cpu"), root=str(self.root)
        )
        self.models.append(Artifact.open(model))
        return evaluate(model, one, device="cpu", root=str(self.root))

    def all(self) -> list[str]:
        return [uri for tasks in self.metrics.values() for uris in tasks for uri in uris]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("together"))


@pytest.fixture(scope="module")
def made(runs: Runs) -> Artifact:
    return Artifact.open(report_multitask(runs.all(), root=str(runs.root)), "report")


def told_by(report: Artifact) -> dict[str, Any]:
    return json.loads(report.path("report.json").read_text())  # type: ignore[no-any-return]


def test_each_training_counts_once(runs, made):
    arms = {arm["arm"]: arm for arm in told_by(made)["arms"]}
    spent = {
        arm: [
            sum(model.details["cost"]["flops"] for model in runs.models
                if model.details["arm"] == arm and model.details["seed"] == seed)
            for seed in SEEDS
        ]
        for arm in ("multi-task", "bm25")
    }  # fmt: skip
    for seed in SEEDS:
        spent["multi-task"][seed] += runs.shared[seed].details["cost"]["flops"]
        spent["bm25"][seed] += sum(starts[seed].details["cost"]["flops"] for starts in runs.alone)
    for arm, flops in spent.items():
        assert arms[arm]["total"]["flops"]["values"] == flops
    trained = {arm: [(one["stage"], one["tasks"]) for one in arms[arm]["trainings"]] for arm in arms}
    second = [("stage 2", ["other"]), ("stage 2", ["toy"])]
    assert trained["multi-task"] == [("stage 1", ["other", "toy"]), *second]
    assert trained["bm25"] == [("stage 1", ["other"]), ("stage 1", ["toy"]), *second]
    assert arms["multi-task"]["total"]["steps"]["mean"] == arms["bm25"]["total"]["steps"]["mean"]  # equal compute


def test_scores_stand_side_by_side_and_their_mean_is_that_of_each_seed(runs, made):
    told = told_by(made)
    assert [one["name"] for one in told["tasks"]] == ["other", "toy"]
    for place, arm in enumerate(told["arms"]):
        scores = [[Artifact.open(uri).details["test"] for uri in uris] for uris in runs.metrics[arm["arm"]]]
        for name, values in zip(("toy", "other"), scores, strict=True):
            (one,) = [one for one in told["tasks"] if one["name"] == name]
            assert sorted(one["groups"][place]["test"]["values"]) == sorted(values)
        assert arm["mean"]["values"] == pytest.approx([statistics.mean(pair) for pair in zip(*scores, strict=True)])
        assert arm["mean"]["low"] <= arm["mean"]["mean"] <= arm["mean"]["high"]
    page, plain = (made.path(f"report.{form}").read_text() for form in ("html", "md"))
    for name in ("multi-task", "bm25", "other", "toy", "Pearson correlation", "macro-F1", "mean of the tasks"):
        assert name in page
        assert name in plain
    assert page.count("<picture>") == 2  # with a drawing for phones
    assert "<script" not in page
    assert "future work" in page


def test_a_task_s_own_report_says_that_its_stage_1_was_shared(runs, made):
    own = told_by(made.input("report-001"))
    (group,) = [group for group in own["groups"] if group["arm"] == "multi-task"]
    assert group["together"] == ["toy", "other"]
    assert group["stages"]["stage 1"]["flops"]["values"] == [one.details["cost"]["flops"] for one in runs.shared]
    (stage,) = [one for one in own["bill"]["spent"] if (one["arm"], one["part"]) == ("multi-task", "stage 1")]
    assert stage["about"].endswith("; one training for toy, other")
    assert stage["flops"] == group["stages"]["stage 1"]["flops"]["mean"]
    assert not any(group["together"] for group in own["groups"] if group["arm"] == "bm25")


def test_a_task_s_curve_has_its_own_batches_alone(runs, made):
    pages = [told_by(made.input(f"report-{number:03d}")) for number in (0, 1)]
    curve = pq.read_table(runs.shared[0].path("curve.parquet")).to_pydict()
    for page, name in zip(pages, ("other", "toy"), strict=True):
        (panel,) = [one for one in page["curves"] if one["title"].startswith("Stage 1, task batches: ")
                    and "masked" not in one["title"]]  # fmt: skip
        (line,) = [line for line in panel["lines"] if line["group"] == "multi-task"]
        steps = [step for step, whose in zip(curve["step"], curve["task"], strict=True) if whose == name]
        assert [step for step, _ in line["points"]] == steps
        (external,) = [one for one in page["curves"] if "external" in one["title"]]
        assert {line["group"] for line in external["lines"]} == {"multi-task", "bm25"}


def test_an_order_is_claimed_only_where_intervals_carry_it(runs, made):
    first = told_by(made)["findings"][0]
    assert first.startswith("On average over 2 tasks, one encoder for all (multi-task) reaches ")
    over_tasks, *of_tasks = told_by(made)["differences"]
    assert [one["task"] for one in (over_tasks, *of_tasks)] == ["", "other", "toy"]
    assert over_tasks["mean"] == pytest.approx(statistics.mean(one["mean"] for one in of_tasks))
    apart = over_tasks["low"] > 0 or over_tasks["high"] < 0
    assert ("no order is claimed: " in first) != apart
    few = [uris[0] for tasks in runs.metrics.values() for uris in tasks]
    short = told_by(Artifact.open(report_multitask(few, root=str(runs.root))))
    assert "fewer than 3 seeds give no interval, so no order is claimed" in short["findings"][0]


def test_a_page_explains_only_what_its_drawings_have(runs, made):
    few = [uris[0] for tasks in runs.metrics.values() for uris in tasks]
    one, three = Artifact.open(report_multitask(few, root=str(runs.root)), "report"), made
    shown = [page.path("report.html").read_text() for page in (one, three)]
    assert ["Band: 95 % interval." in page for page in shown] == [False, True]
    assert ["Hollow dots: fewer than 3 seeds" in page for page in shown] == [True, False]


def test_an_arm_that_one_task_lacks_is_named(runs):
    given = [uri for uri in runs.all() if uri not in runs.metrics["bm25"][0]]
    told = told_by(Artifact.open(report_multitask(given, root=str(runs.root))))
    assert [arm["arm"] for arm in told["arms"]] == ["multi-task"]
    left = "bm25 is left out of this page, because there are no runs of it on 1 of the 2 tasks, toy for one."
    assert told["findings"][-1] == left


def test_what_cannot_stand_side_by_side_is_one_sentence(runs):
    root = str(runs.root)
    with pytest.raises(InputError, match="metrics of 1 tasks; expected two or more"):
        report_multitask(runs.metrics["bm25"][0], root=root)
    with pytest.raises(InputError, match="have no arm in common"):
        report_multitask([runs.metrics["bm25"][0][0], runs.metrics["multi-task"][1][0]], root=root)
    with pytest.raises(InputError, match="no seed of bm25 in common; give metrics of the same seeds for all"):
        report_multitask([runs.metrics["bm25"][0][0], runs.metrics["bm25"][1][1]], root=root)
    few = {"preset": "tiny", "overrides": ["finetune.steps=3"], "compute": Compute("cpu")}
    other = finetune(runs.alone[0][0].uri, runs.tasks[0], **few, root=root)
    more = evaluate(other, runs.tasks[0], device="cpu", root=root)
    with pytest.raises(InputError, match="the runs of bm25 on toy differ in their settings"):
        report_multitask([*runs.all(), more], root=root)
    assert Artifact.open(report(runs.metrics["bm25"][0], root=root)).details["task"] == "toy"
