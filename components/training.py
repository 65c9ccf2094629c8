"""Components of the train image (with torch): stage 1, stage 2 and evaluation; text that a model chooses."""

from kfp.dsl import ClassificationMetrics, Metrics, Model, Output

from components.base import TRAIN_IMAGE, component


@component(TRAIN_IMAGE)
def train(run: str, gpus: str, root: str, cost: Output[Metrics]) -> str:
    """Stage 1: train a network jointly on the task and the arm's subset; a run without stage 1 passes its start on."""
    from tlm.evaluation.report.kfp import log_counts
    from tlm.runs.plan import PlannedRun
    from tlm.training.stages import train

    arm = PlannedRun.parse(run).loaded(root)
    uri = train(arm.task, **arm.inputs(), **arm.on(gpus), root=root) if "1" in arm.stages else arm.start
    return log_counts(uri, cost)


@component(TRAIN_IMAGE)
def finetune(checkpoint: str, run: str, gpus: str, root: str, cost: Output[Metrics], model: Output[Model]) -> str:
    """Stage 2: fine-tune on the task alone with a new head, best on dev; a run without stage 2 is passed on."""
    from tlm.evaluation.report.kfp import log_counts
    from tlm.runs.plan import PlannedRun
    from tlm.training.stages import finetune

    arm = PlannedRun.parse(run)
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
    """Score the model on dev and test, once each; in a run without training, a linear model of embeddings."""
    from tlm.evaluation.report.kfp import log_scores
    from tlm.runs.plan import PlannedRun

    return log_scores(PlannedRun.parse(run).scored(model, gpus, root), metrics, confusion_matrix)


@component(TRAIN_IMAGE)
def predict(
    model: str,
    source: str,
    to: str,
    text_field: str,
    pair_field: str,
    keep: str,
    at_least: float,
    likeliest: int,
    gpus: str,
) -> str:
    """Label the texts of files with a trained model, except files that have been labelled."""
    from tlm.evaluation.predict.files import predict_command
    from tlm.runs.pods import check_lasting

    check_lasting("predict_to", to)
    kept = [one.strip() for one in keep.split(",") if one.strip()]
    how = {"keep": kept, "at_least": at_least, "likeliest": likeliest, "device": "auto" if int(gpus) else "cpu"}
    predict_command(model, source=source, to=to and f"{to}/", text_field=text_field, pair_field=pair_field, **how)
    return to


@component(TRAIN_IMAGE)
def embed(task: str, published: str, root: str) -> list[str]:
    """Train and score a linear model of the embeddings of each published model."""
    from tlm.evaluation.score.baseline import baseline
    from tlm.runs.plan import parse_models

    return [baseline(task, features=model, root=root) for model in parse_models(published)]


@component(TRAIN_IMAGE)
def train_on_nodes(
    run: str,
    nodes: int,
    gpus: str,
    gpu_type: str,
    cpu: str,
    memory: str,
    node_selector: dict[str, str],
    tolerations: list[dict[str, str]],
    root: str,
) -> str:
    """Stage 1 on several nodes: start a TrainJob, show its log, and wait for its checkpoint."""
    from tlm.runs.plan import PlannedRun
    from tlm.runs.trainjob import train_on_nodes
    from tlm.settings.options import Pods

    arm, pods = PlannedRun.parse(run).loaded(root), Pods(cpu, gpu_type, gpus, memory, node_selector, tolerations)
    return train_on_nodes(arm, nodes=nodes, pods=pods, root=root) if "1" in arm.stages else arm.start
