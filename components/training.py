"""Components of the train image (with torch): stage 1, stage 2 and evaluation; text that a model chooses."""

from typing import NamedTuple

from kfp.dsl import ClassificationMetrics, Metrics, Model, Output

from components.base import TRAIN_IMAGE, component


@component(TRAIN_IMAGE)
def train(run: str, gpus: str, root: str, cost: Output[Metrics]) -> str:
    """Stage 1: train an encoder jointly on the task and the arm's subset; a run without stage 1 passes its start on."""
    from tlm.evaluation.pages.ui import log_counts
    from tlm.plan.runs import Run
    from tlm.training.stage1 import train

    arm = Run.parse(run)
    uri = train(arm.task, **arm.inputs(), **arm.on(gpus), root=root) if "1" in arm.stages else arm.start
    return log_counts(uri, cost)


@component(TRAIN_IMAGE)
def rerank(report: str, seeds: str, preset: str, overrides: str, gpus: str, root: str) -> NamedTuple(  # type: ignore[valid-type]
    "Reranked",
    [("Output", list[str]), ("baseline", str), ("models", list[str])],  # kfp.local loops over Output alone
):
    """Choose text by influence on BM25's first model of a report; list the runs on it, and what they compare with."""
    from tlm.plan.reranked import plan_reranked

    device = "auto" if int(gpus) else "cpu"
    return plan_reranked(report, seeds, preset=preset, overrides=overrides, device=device, root=root)


@component(TRAIN_IMAGE)
def finetune(checkpoint: str, run: str, gpus: str, root: str, cost: Output[Metrics], model: Output[Model]) -> str:
    """Stage 2: fine-tune on the task alone with a new head, best on dev; a run without stage 2 is passed on."""
    from tlm.evaluation.pages.ui import log_counts
    from tlm.plan.runs import Run
    from tlm.training.stage2 import finetune

    arm = Run.parse(run)
    uri = finetune(checkpoint, arm.task, seed=arm.seed, **arm.on(gpus), root=root) if "2" in arm.stages else checkpoint
    return log_counts(uri, cost, model)


@component(TRAIN_IMAGE)
def evaluate(
    model: str,
    run: str,
    gpus: str,
    root: str,
    metrics: Output[Metrics],
    confusion_matrix: Output[ClassificationMetrics],
) -> str:
    """Score the model on dev and test, once each."""
    from tlm.evaluation.pages.ui import log_scores
    from tlm.evaluation.score.evaluate import evaluate
    from tlm.plan.runs import Run

    uri = evaluate(model, Run.parse(run).task, device="auto" if int(gpus) else "cpu", root=root)
    log_scores(uri, metrics, confusion_matrix)
    return uri
