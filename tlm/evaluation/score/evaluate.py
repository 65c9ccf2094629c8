"""The step `evaluate`: scores of a trained model on dev and test, each read once."""

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, finished, produce
from tlm.data.tasks.examples import SEVERAL, classes_of, read_splits
from tlm.errors import InputError
from tlm.evaluation.predict.predictor import labels_of, open_predictor
from tlm.evaluation.predict.speed import SPEED, Timed, flops_of
from tlm.evaluation.score.scores import Prediction, scored, write_metrics
from tlm.training.distributed.launch import own_cards


def stages_of(trained: Artifact) -> dict[str, Artifact]:
    """The artifact of each stage by name, in order; the last stage is that of `trained` itself.

    Before a student's own stages stand those of its teacher, each once; one that both share is the student's.
    """
    if "converted" in trained.manifest.inputs:
        return stages_of(trained.input("converted"))
    if trained.manifest.kind == "checkpoint":
        return {"stage 1": trained}
    if "stage" in trained.details:
        return {str(trained.details["stage"]): trained}
    start = trained.input("checkpoint")
    if "teacher" not in trained.manifest.inputs:
        return {"stage 1": start, "stage 2": trained}
    taught: dict[str, Artifact] = {}
    for name, stage in _with_members(trained.input("teacher")).items():
        if stage.manifest.key not in {one.manifest.key for one in (start, *taught.values())}:
            taught[f"teacher, {name}"] = stage
    return {**taught, "stage 1": start, "distillation": trained}


def _with_members(trained: Artifact) -> dict[str, Artifact]:
    """The stages of a model; of a mixture, those of each member, with its arm in front. Equal names are numbered.

    Names have no seeds, so that those of a report's group are the same for all of its runs.
    """
    if "converted" in trained.manifest.inputs:
        return _with_members(trained.input("converted"))
    members = [trained.input(name) for name in trained.manifest.inputs if name.startswith("metrics-")]
    found = {} if members else stages_of(trained)
    for member in members:
        model = next(member.input(name) for name in ("model", "checkpoint") if name in member.manifest.inputs)
        for name, stage in _with_members(model).items():
            named, number = f"{member.details['arm']}, {name}", 1
            while (key := named if number == 1 else f"{named} ({number})") in found:
                number += 1
            found[key] = stage
    return found


VERSION = 4


def evaluate(model: str, task: str, *, device: str = "auto", root: str | None = None) -> str:
    """Score a model (or a stage-1 checkpoint) on the dev and test examples of a task.

    Writes every score, the predictions with probabilities, the masked-language-model loss on test texts, and the cost
    of both stages of training.

    Args:
        model: URI of the model, or of a checkpoint for the scores without stage 2.
        task: URI of the task.
        device: Where to compute: auto, cpu, cuda or cuda:N, mps.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    trained, examples = Artifact.open(model, "checkpoint", "model"), Artifact.open(task, "task")
    kind = trained.manifest.kind
    stages = stages_of(trained)
    if "stage 1" in stages:
        stages["stage 1"].input("task_tokens").input("tokenizer")  # needed for the loss: fail now if it is gone
    recipe = Recipe("metrics", "evaluate", VERSION, scored(examples), inputs={kind: trained, "task": examples})
    with own_cards(device, int(finished(recipe, root) is None)):
        return produce(recipe, root, _write, trained, stages, examples, device, root)


def _write(
    draft: Draft, trained: Artifact, stages: dict[str, Artifact], task: Artifact, device: str, root: str | None
) -> None:
    check_classes(trained, task)
    predictor, place = open_predictor(trained.path("model"), device)
    timed, splits = Timed(predictor, place), read_splits(task, "dev", "test")
    timed.one_at_a_time(splits["dev"])
    predictions = [
        Prediction.of(split, timed.predict(split.texts, split.pairs, f"evaluating {name}"), predictor.thresholds)
        for name, split in splits.items()
    ]
    size = sum(entry.size for entry in trained.entries("model/*"))
    speed = timed.facts() | {"bytes": size, "flops": flops_of(predictor, trained, splits.values())}
    details, start = trained.details, stages.get("stage 1")
    identity = {"arm": details["arm"], "seed": details["seed"], "stage": list(stages)[-1], "mlm_loss": None}
    if start is not None:
        from tlm.training.classification import masked_lm_loss

        identity["mlm_loss"] = masked_lm_loss(start, task, "test", device, root)
    facts = {"cost": {stage: artifact.details["cost"] for stage, artifact in stages.items()}}
    facts |= {name: details[name] for name in ("fixed", "parameters", "chosen", "tried") if name in details}
    write_metrics(draft, task, predictions, identity, facts)
    draft.run |= {"device": place, SPEED: {name: value for name, value in speed.items() if value is not None}}
    draft.run["stages"] = {stage: artifact.run() for stage, artifact in stages.items()}


def check_classes(trained: Artifact, task: Artifact) -> None:
    """Raise InputError unless `trained` predicts the classes of `task`."""
    if trained.manifest.kind == "checkpoint" and len(trained.details.get("tasks", [])) > 1:
        raise InputError(
            f"{trained.uri} is one encoder for several tasks; run finetune for this one, evaluate its model"
        )
    given, expected = labels_of(trained.path("model")), (classes_of(task), task.details["problem"] == SEVERAL)
    if given != expected:
        ours, theirs = (
            "a number" if names is None else f"{'several of ' * several}the {len(names)} classes {', '.join(names)}"
            for names, several in (given, expected)
        )
        raise InputError(
            f"{trained.uri} gives {ours} but {task.uri} has {theirs}; evaluate on the task that it was trained on"
        )
