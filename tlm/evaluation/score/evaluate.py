"""The step `evaluate`: scores of a trained model on dev and test, each read once, its speed and its size."""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from tlm.artifacts.artifact import Artifact, follow
from tlm.artifacts.produce import Draft, Recipe, finished, produce
from tlm.artifacts.spending import JOULES, Spending, peak_memory
from tlm.data.tasks.examples import SEVERAL, classes_of, read_splits, twins_of
from tlm.data.tasks.labelled import UNLABELLED
from tlm.data.tasks.metrics import UNFITTED, Floats, Split
from tlm.data.tasks.splits import SPLITS
from tlm.errors import InputError
from tlm.evaluation.pages.text import visible
from tlm.evaluation.predict.models import check_pairs, of_pairs
from tlm.evaluation.predict.models import trained as trained_by
from tlm.evaluation.predict.predictor import Predictor, labels_of, open_predictor
from tlm.evaluation.score.scores import Prediction, scored, write_metrics
from tlm.progress import hidden, say
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
    if not members:
        return stages_of(trained)
    stages: dict[str, Artifact] = {}
    for member in members:
        model = next(member.input(name) for name in ("model", "checkpoint") if name in member.manifest.inputs)
        for name, stage in _with_members(model).items():
            names = numbered(f"{member.details['arm']}, {name}")
            stages[next(free for free in names if free not in stages)] = stage
    return stages


def numbered(name: str) -> Iterator[str]:
    """A name, and the same with each number from 2 on, for what would have the same name."""
    yield name
    yield from (f"{name} ({number})" for number in count(2))


VERSION = 4


def evaluate(model: str, task: str, *, device: str = "auto", root: str | None = None) -> str:
    """Score a model (or a stage-1 checkpoint) on the dev and test examples of a task.

    Writes every score, the predictions with probabilities, the masked-language-model loss on test texts, and the cost
    of both stages of training.

    Args:
        model: URI of a model, of metrics or a report (the model that it recommends), or of a checkpoint for the scores
            without stage 2.
        task: URI of the task.
        device: Where to compute: auto, cpu, cuda or cuda:N, mps.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Raises:
        InputError: the task has other classes, or dev or test texts that the model learned from.
    """
    trained, examples = trained_by(model), Artifact.open(task, "task")
    check_unseen(trained, examples)
    kind, stages = trained.manifest.kind, stages_of(trained)
    if "stage 1" in stages:
        stages["stage 1"].input("task_tokens").input("tokenizer")  # needed for the loss: fail now if it is gone
    settings = scored(examples)
    if examples.details["problem"] == SEVERAL:  # keys tell these scores from earlier ones, by thresholds fitted to dev
        if kind == "checkpoint":
            settings["threshold"] = UNFITTED
        elif _is_dev_new(trained, examples):
            settings["new_dev"] = True
    recipe = Recipe("metrics", "evaluate", VERSION, settings, inputs={kind: trained, "task": examples})
    with own_cards(device, int(finished(recipe, root) is None)):
        return produce(recipe, root, _write, recipe, stages, device, root)


def _is_dev_new(trained: Artifact, task: Artifact) -> bool:
    """Whether a model of several labels has not seen most of dev: its thresholds were fitted to other texts."""
    dev, fitted_to = (twins_of(read_splits(one, "dev").values()) for one in (task, trained.nearest("task") or task))
    return 2 * len(dev & fitted_to) < len(dev)


def _write(draft: Draft, recipe: Recipe, stages: dict[str, Artifact], device: str, root: str | None) -> None:
    trained, task = recipe.inputs.values()
    check_classes(trained, task)
    predictor, place = open_predictor(trained.path("model"), device)
    splits, new = read_splits(task, "dev", "test"), "new_dev" in recipe.settings
    values, speed = measured(predictor, place, splits)
    predictions = [Prediction.of(split, values[name], predictor.thresholds, new=new) for name, split in splits.items()]
    details, start = trained.details, stages.get("stage 1")
    identity = {"arm": details["arm"], "seed": details["seed"], "stage": list(stages)[-1], "mlm_loss": None}
    if start is not None:
        from tlm.training.classification import masked_lm_loss

        identity["mlm_loss"] = masked_lm_loss(start, task, "test", device, root)
    facts = {"cost": {stage: artifact.details["cost"] for stage, artifact in stages.items()}}
    facts |= {name: details[name] for name in ("fixed", "parameters", "chosen", "tried") if name in details}
    write_metrics(draft, task, predictions, identity, facts)
    draft.run |= {"device": place, SPEED: speed | {"bytes": sum(entry.size for entry in trained.entries("model/*"))}}
    draft.run["stages"] = {stage: artifact.run() for stage, artifact in stages.items()}


def check_classes(trained: Artifact, task: Artifact) -> None:
    """Raise InputError unless `trained` predicts the classes of `task`, of pairs if these are pairs."""
    if trained.manifest.kind == "checkpoint" and len(trained.details.get("tasks", [])) > 1:
        raise InputError(f"{trained.uri} is one encoder for several tasks; run finetune, and evaluate its model")
    check_pairs(of_pairs(trained.path("model"), trained), task.details["pair"], "--pair-field of load-task")
    given, expected = labels_of(trained.path("model")), (classes_of(task), task.details["problem"] == SEVERAL)
    if given != expected:
        raise InputError(
            f"{trained.uri} gives {_answers(*given)} but {task.uri} has {_answers(*expected)}; evaluate on the task "
            "that it was trained on, or on one that load-task made with --classes-of that task"
        )


def _answers(names: list[str] | None, several: bool) -> str:
    if names is None:
        return "a number"
    return f"{'several of ' if several else ''}the {len(names)} classes {visible(', '.join(names), 200)}"


LEARNERS = ("model", "checkpoint")  # kinds of artifacts that learn from a task; metrics are only scored on theirs
MOST_LEARNED, FEW_LEARNED = 0.01, 3  # of dev and test texts: so many short ones may repeat by chance


def check_unseen(trained: Artifact, task: Artifact) -> None:
    """Raise InputError if `trained` was trained on another task, which has dev or test texts of `task` in train.

    A few are a warning. Texts that `task` itself has in train, too, are no reason: scores are also given without them.
    """
    learners = [one for one in trained.lineage("metrics", *LEARNERS) if one.manifest.kind in LEARNERS]
    inputs = [follow(one, name) for one in learners for name in one.manifest.inputs]
    learned = {one.content: one for one in inputs if one is not None and one.manifest.kind == "task"}
    if task.content in learned or not learned:
        return
    texts = {name: twins_of([split]) for name, split in read_splits(task, *SPLITS).items()}
    held_out = (texts["dev"] | texts["test"]) - texts["train"]
    for other in learned.values():
        if seen := sorted(held_out & twins_of(read_splits(other, "train", UNLABELLED).values())):
            what = f"{trained.uri} learned from {len(seen):,} of the {len(held_out):,} dev and test texts of {task.uri}"
            what = f"{what}, such as '{visible(seen[0], 60)}', which {other.uri} has in train"
            if len(seen) > max(FEW_LEARNED, MOST_LEARNED * len(held_out)):
                raise InputError(f"{what}; take a task whose dev and test texts are new to it")
            say(f"warning: {what}")


SPEED = "speed"  # key of run.json
# Speed and size of a model are facts for run.json, because they differ from run to run.
MOST_ALONE = 100  # texts that are predicted one at a time
MOST_SECONDS = 5.0  # after which no more of them are
WORKERS = ("cpu_seconds", "gpu_seconds")  # each model has one of the two
SUMMED = ("seconds", *WORKERS, *JOULES, "bytes")  # over the members of a mixture


def measured(
    predictor: Predictor, device: str, splits: Mapping[str, Split]
) -> tuple[dict[str, Floats], dict[str, Any]]:
    """Predict each split, and measure it.

    Returns:
        The predictions, by split. For run.json: texts, seconds and joules of all of them, the milliseconds of single
        texts of dev, and the peak memory of this process.
    """
    alone = one_at_a_time(predictor, splits["dev"])
    with Spending() as spending:
        # as in training: time of a CPU core, or of the GPU if there is one
        spending.workers = {"cpu_seconds" if device == "cpu" else "gpu_seconds": 1}
        values = {name: predictor.predict(one.texts, one.pairs, f"evaluating {name}") for name, one in splits.items()}
        spent = spending.total()
    facts: dict[str, Any] = {name: round(value, 6) for name, (value, unmeasured) in spent.items() if not unmeasured}
    facts |= {"texts": sum(len(split.texts) for split in splits.values()), "peak_memory": peak_memory()}
    if alone:
        median, slow = (round(float(value), 4) for value in np.percentile(alone, [50, 99]))
        facts["alone"] = {"texts": len(alone), "median_ms": median, "p99_ms": slow}
    return values, facts


def one_at_a_time(predictor: Predictor, split: Split) -> list[float]:
    """The milliseconds of each text alone. The first call is not timed, because libraries set up in it."""
    calls = [([text], None if split.pairs is None else [split.pairs[row]]) for row, text in enumerate(split.texts)]
    end, took = time.perf_counter() + MOST_SECONDS, list[float]()
    with hidden():
        for texts, pairs in [*calls[:1], *calls[:MOST_ALONE]]:
            started = time.perf_counter()
            if started > end:
                break
            predictor.predict(texts, pairs)
            took.append(1000 * (time.perf_counter() - started))
    return took[1:]


def rate(speed: Mapping[str, Any]) -> float | None:
    """Texts a CPU second; None if it was not measured, or if models need a GPU, too."""
    return speed["texts"] / speed["cpu_seconds"] if speed.get("cpu_seconds") and "gpu_seconds" not in speed else None


def together(speeds: Sequence[Mapping[str, Any]], shares: Sequence[float] = ()) -> dict[str, Any]:
    """Add up what these models take for the same texts, which is what a mixture of them takes.

    The time of a single text is the sum of the medians, which is near the median of the sum; so are percentiles. Memory
    cannot be added up. {} if a model was not measured. `shares` are those of the texts that each model of a cascade is
    asked about.
    """
    if not all(speeds) or len({speed["texts"] for speed in speeds}) != 1:
        return {}
    found = {"texts": speeds[0]["texts"]}
    for name in SUMMED:
        asked = shares if shares and name != "bytes" else [1] * len(speeds)
        total = sum(share * speed.get(name, 0) for share, speed in zip(asked, speeds, strict=True))
        known = total > 0 if name in WORKERS else all(name in speed for speed in speeds)
        if known:
            found[name] = total
    if set(shares) <= {1} and all("alone" in speed for speed in speeds):
        alone = [speed["alone"] for speed in speeds]
        found["alone"] = {name: round(sum(one[name] for one in alone), 4) for name in ("median_ms", "p99_ms")}
    return found
