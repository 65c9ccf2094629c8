"""Components of the train image (torch): stage 1, stage 2, evaluation, and the yardstick."""

from kfp import dsl

from components.base import TRAIN_IMAGE, component


@component(TRAIN_IMAGE)
def train(run: str, gpus: str, root: str, cost: dsl.Output[dsl.Metrics]) -> str:
    """Stage 1: train an encoder on the task and the arm's subset at once; a run of stage 2 alone has its start."""
    from tlm.evaluation.pages.ui import log_counts
    from tlm.plan import Run
    from tlm.training.stage1 import train

    arm, how = Run.parse(run), {"gpus": int(gpus), "root": root}
    uri = train(arm.task, **arm.inputs(), **arm.settings(), **how) if "1" in arm.stages else arm.start
    return log_counts(uri, cost)


@component(TRAIN_IMAGE)
def finetune(
    checkpoint: str, run: str, gpus: str, root: str, cost: dsl.Output[dsl.Metrics], model: dsl.Output[dsl.Model]
) -> str:
    """Stage 2: fine-tune on the task alone, head reset, best on dev; a run of one stage stays as it is."""
    from tlm.evaluation.pages.ui import log_counts
    from tlm.plan import Run
    from tlm.training.stage2 import finetune

    arm, how = Run.parse(run), {"gpus": int(gpus), "root": root}
    uri = finetune(checkpoint, arm.task, seed=arm.seed, **arm.settings(), **how) if "2" in arm.stages else checkpoint
    return log_counts(uri, cost, model)


@component(TRAIN_IMAGE)
def evaluate(
    model: str,
    run: str,
    root: str,
    metrics: dsl.Output[dsl.Metrics],
    confusion_matrix: dsl.Output[dsl.ClassificationMetrics],
) -> str:
    """Score the model on dev and test, once each."""
    from tlm.evaluation.pages.ui import log_scores
    from tlm.evaluation.score.evaluate import evaluate
    from tlm.plan import Run

    uri = evaluate(model, Run.parse(run).task, root=root)
    log_scores(uri, metrics, confusion_matrix)
    return uri


@component(TRAIN_IMAGE)
def baseline(task: str, root: str, metrics: dsl.Output[dsl.Metrics]) -> str:
    """Tf-idf and logistic regression, tuned on dev: the yardstick."""
    from tlm.evaluation.pages.ui import log_scores
    from tlm.evaluation.score.baseline import baseline

    uri = baseline(task, root=root)
    log_scores(uri, metrics)
    return uri
