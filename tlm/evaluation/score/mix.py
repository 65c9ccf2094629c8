"""The step `mix`: one model of several, weighted on dev, or a cascade of two."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.tasks.examples import SEVERAL, classes_of, read_splits
from tlm.data.tasks.metrics import Floats, Split, score
from tlm.errors import InputError
from tlm.evaluation.predict import predictor
from tlm.evaluation.predict.models import model_of
from tlm.evaluation.predict.predictor import MIXTURE, Cascade, Weights
from tlm.evaluation.score.baseline import ARM, EMBEDDINGS, NAMES, STATIC
from tlm.evaluation.score.evaluate import SPEED, numbered, rate, together
from tlm.evaluation.score.imported import IMPORTED
from tlm.evaluation.score.scores import Prediction, predictions_of, scored, write_metrics
from tlm.progress import say
from tlm.retrieval.subset.export import PUBLISHED, further_text
from tlm.retrieval.subset.protected import check_trained
from tlm.settings.options import Range
from tlm.shallow.folder import CONFIG, FAMILY

LINEAR, ENCODER, STUDENT = "linear", "encoder", "student"
BOTH = f"{STATIC} + {LINEAR}"
WITH_NETWORK = [f"{network} + {rest}" for network in (EMBEDDINGS, ENCODER, PUBLISHED) for rest in (LINEAR, BOTH)]
# in the order of a report's rows; kinds of mixtures that a user made stand before what was imported
KINDS = (LINEAR, EMBEDDINGS, STATIC, STUDENT, ENCODER, PUBLISHED, BOTH, *WITH_NETWORK)
NETWORKS = (EMBEDDINGS, STUDENT, ENCODER, PUBLISHED)
PARTS = " + "  # between the arms of a mixture
ELSE = ", else "  # between those of a cascade


class ReportRow(NamedTuple):
    """A row of a report, as the name of its arm describes it.

    Attributes:
        name: Its name on pages.
        kind: One of `KINDS`, another mixture of these, or "imported".
        text: The arm whose text it learned from, such as bm25; "" if it learned from the task's labels alone.
    """

    name: str
    kind: str
    text: str

    @classmethod
    def of(cls, arm: str, stage: str) -> "ReportRow":
        """Describe an arm, or a mixture such as ``bm25 + static-bm25 + baseline``."""
        if stage == IMPORTED:
            return cls(arm, IMPORTED, "")
        if ELSE in arm:
            parts = [cls.of(one, stage) for one in arm.split(ELSE)]
            return cls(ELSE.join(part.name for part in parts), ELSE.join(part.kind for part in parts), _texts(parts))
        parts = [_part(one) for one in arm.split(PARTS)]
        trained = {part.text for part in parts if part.kind.startswith((ENCODER, PUBLISHED))}
        names = [STATIC if part.kind == STATIC and part.text in trained else part.name for part in parts]
        # whatever the order in which they were mixed
        kinds = sorted([part.kind for part in parts], key=lambda one: (one.startswith(LINEAR), one.startswith(STATIC)))
        return cls(PARTS.join(names), PARTS.join(kinds), _texts(parts))

    @property
    def place(self) -> int:
        """The place of rows of this kind in a report."""
        if self.kind == IMPORTED:
            return len(KINDS) + 1
        return KINDS.index(self.kind) if self.kind in KINDS else len(KINDS)


def mixed(kind: str) -> bool:
    """Whether a row of this kind is of a mixture or a cascade."""
    return PARTS in kind or ELSE in kind


def _part(arm: str) -> ReportRow:
    """Describe one part of a mixture; ``× 5`` stands for five seeds of it."""
    model, times, seeds = arm.partition(" × ")
    if model == ARM:
        return ReportRow(LINEAR + times + seeds, LINEAR + times + seeds, "")
    if model in (STUDENT, NAMES):
        return ReportRow(arm, arm, "")
    texts = {STATIC: model.removeprefix(f"{STATIC}-"), EMBEDDINGS: "", PUBLISHED: further_text(model)}
    kind = model.partition("-")[0]
    if kind not in texts:
        return ReportRow(arm, ENCODER + times + seeds, model)
    return ReportRow(arm, kind + times + seeds, texts[kind])


def _texts(parts: list[ReportRow]) -> str:
    """The arms whose text these parts learned from, each once."""
    return PARTS.join(dict.fromkeys(part.text for part in parts if part.text))


@dataclass(frozen=True)
class Part:
    """The models of one arm, which are averaged equally.

    Attributes:
        arm: Name of the arm.
        members: The metrics of its models.
    """

    arm: str
    members: list[Artifact]

    def predictions(self, split: str) -> Floats:
        """Mean prediction for the examples of a split: probabilities [n, classes], or numbers [n, 1]."""
        return np.mean([_predictions(member, split) for member in self.members], axis=0)  # type: ignore[no-any-return]

    @property
    def temperature(self) -> float:
        """The mean temperature of its models' probabilities."""
        settings = [member.json("metrics.json").get("chosen") or {} for member in self.members]
        return float(np.mean([chosen.get("temperature", 1.0) for chosen in settings]))


def parts_of(metrics: list[Artifact]) -> list[Part]:
    """The parts of a mixture, in the order in which their arms come first."""
    arms: dict[str, list[Artifact]] = {}
    for one in metrics:
        alone = " (stage 1)" if one.details.get("stage") == "stage 1" else ""  # a part of its own
        arms.setdefault(f"{one.details['arm']}{alone}", []).append(one)
    return [Part(arm, members) for arm, members in arms.items()]


def arm_of(parts: list[Part], between: str = PARTS) -> str:
    """The name of a mixture, such as ``bm25 × 5 + baseline``, or of a cascade."""
    return between.join(f"{part.arm} × {len(part.members)}" if len(part.members) > 1 else part.arm for part in parts)


def costs_of(parts: list[Part]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The counts of each stage of each member, and the facts of its run, by arm, seed and stage.

    Members of one arm and seed are numbered where they differ; a stage that they share counts once.
    """
    counted: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    key_of: dict[str, str] = {}  # of the checkpoint or model that a name stands for
    for part in parts:
        for member in part.members:
            values = member.json("metrics.json")
            seed = f" {values['seed']}" if len(part.members) > 1 else ""
            runs = member.run().get("stages", {})
            for stage, cost in values["cost"].items():
                key, names = _key(member, stage), numbered(f"{part.arm}{seed}, {stage}")
                # the first name that is free, or that stands for this very checkpoint already
                name = next(name for name in names if key_of.get(name, key) == key)
                key_of[name] = key
                counted[name], facts[name] = cost, runs.get(stage, {})
    return counted, facts


def _key(metrics: Artifact, stage: str) -> str:
    """The key of the checkpoint or model that a stage made."""
    model = model_of(metrics)
    assert model is not None, "imported predictions have no stages"
    start = model.manifest.inputs.get("checkpoint")
    return start.key if start is not None and stage == "stage 1" else model.manifest.key


def _predictions(metrics: Artifact, split: str) -> Floats:
    rows = predictions_of(metrics, split)
    if pa.types.is_floating(rows["predicted"].type):
        return rows["predicted"].to_numpy()[:, np.newaxis]  # type: ignore[no-any-return]
    classes = len(metrics.input("task").details["labels"])
    return pc.list_flatten(rows["probabilities"]).to_numpy().reshape(-1, classes)  # type: ignore[no-any-return]


VERSION, VERSION_OF_CASCADES = 5, 6


def mix(metrics: list[str], *, first: bool = False, tolerance: float = 0.005, root: str | None = None) -> str:
    """Mix models of one task: their probabilities (or numbers) are averaged with weights that are fitted on dev.

    Models of the same arm (its seeds) are averaged equally and count as one part. Each part gets a temperature and a
    weight by log-loss on a small grid; numbers get a slope and an intercept, and a weight by squared error. The fewer
    examples dev has, the nearer the weights are to equal ones. The mixture then gets a temperature of its own; where a
    text may have several labels, each gets a threshold instead. The dev score is cross-fitted: each group of examples
    is predicted with weights fitted on the others.

    With --first they become a cascade of two arms: the first one answers where its probability is high enough, and
    passes all other texts on. That threshold is fitted in place of weights.

    Args:
        metrics: URIs of the metrics of two or more models, of four arms at most, as evaluate, baseline and static print
            them.
        first: Make a cascade: the first model, a fast one, answers where it is sure, the second elsewhere.
        tolerance: Of a cascade: how much its dev score may be below that of the better model; 0.005 is half a point.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URI of the mixture's metrics. The model itself, for `predict` and `download`, is named on stderr.
    """
    opened = [Artifact.open(uri, "metrics") for uri in metrics]
    members = list({member.manifest.key: member for member in opened}.values())
    parts = _checked_parts(members)
    task = members[0].input("task")
    check_trained(task, *members)
    root = home(root, members).root
    inputs = {f"metrics-{number:03d}": member for number, member in enumerate(members)}
    alone = len(parts) == len(members)  # one seed of each arm: a run of that seed
    arm = arm_of(parts, ELSE if first else PARTS)
    settings = {"arm": arm, "seed": max(member.details["seed"] for member in members) if alone else 0}
    version = VERSION_OF_CASCADES if first else VERSION
    if first:
        _check_cascade(parts, task, tolerance)
        settings["tolerance"] = tolerance
    model = Recipe("model", "mix", version, settings, inputs)
    mixture = Artifact.open(produce(model, root, _write_model, model))
    say(f"mix: the model of {arm} is {mixture.uri}")
    recipe = Recipe("metrics", "mix", version, scored(task), {"model": mixture, "task": task})
    return produce(recipe, root, _write_metrics, recipe)


def _checked_parts(members: list[Artifact]) -> list[Part]:
    """The parts that the members form. Raises InputError if they cannot be mixed."""
    parts = parts_of(members)
    if len(members) < 2 or len(parts) > predictor.MOST_PARTS:
        given = f"models: {len(members)}, arms: {len(parts)}"
        raise InputError(f"{given}; expected 2 or more models, of at most {predictor.MOST_PARTS} arms")
    for member in members:
        if member.manifest.inputs["task"].content != members[0].manifest.inputs["task"].content:
            raise InputError(f"{members[0].uri} and {member.uri} are of different tasks; mix models of one task")
        if not {"model", "checkpoint"} & set(member.manifest.inputs):
            raise InputError(f"{member.uri} has no model; expected metrics of evaluate, baseline, static or mix")
    return parts


def _check_cascade(parts: list[Part], task: Artifact, tolerance: float) -> None:
    """Raise InputError if these parts cannot be a cascade."""
    Range("a score from 0 to 1", 0, 1).check("tolerance", tolerance)
    if len(parts) != 2:
        raise InputError(f"models of {len(parts)} arms; a cascade has two: mix others first, and name the mixture")
    if (problem := task.details["problem"]) in ("regression", SEVERAL):
        raise InputError(f"the task has the problem '{problem}'; a cascade needs one label a text: mix without --first")


def _fit(parts: list[Part], task: Artifact, settings: Mapping[str, Any]) -> predictor.Fit:
    """What fits the weights of a mixture with these settings, or the threshold of a cascade."""
    if "tolerance" not in settings:
        return partial(predictor.fitted, own=[part.temperature for part in parts])
    return partial(predictor.fitted_cascade, metric=task.details["metric"], tolerance=settings["tolerance"])


def _write_model(draft: Draft, recipe: Recipe) -> None:
    parts = parts_of(list(recipe.inputs.values()))
    task = parts[0].members[0].input("task")
    dev = [part.predictions("dev") for part in parts]
    weights = _fit(parts, task, recipe.settings)(dev, read_splits(task, "dev")["dev"].gold)
    folders = [[f"{number}-{place}" for place in range(len(part.members))] for number, part in enumerate(parts)]
    models = [model for part in parts for member in part.members if (model := model_of(member))]  # each has one
    for name, model in zip(chain(*folders), models, strict=True):
        shutil.copytree(model.path("model"), draft.folder / "model" / name)
    parameters = sum(int(model.details["parameters"]) for model in models)
    fixed = all(model.details.get("fixed") for model in models)
    state = weights.state()
    config = {FAMILY: MIXTURE, "labels": classes_of(task), "parts": folders, **state}
    (draft.folder / "model" / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    facts = {"stage": MIXTURE, "fixed": fixed, "parameters": parameters, "chosen": _chosen(weights, parts, dev)}
    draft.details = {**recipe.settings, **facts, "cost": {}, **state}
    draft.counts = {"models": len(recipe.inputs), "parameters": parameters}


def _chosen(weights: Weights | Cascade, parts: list[Part], dev: list[Floats]) -> dict[str, float]:
    """What was fitted, as reports show it."""
    names = [ReportRow.of(arm_of([part]), "").name for part in parts]
    if isinstance(weights, Cascade):
        return {
            f"probability from which {names[0]} answers": round(weights.at_least, 4),
            f"share of dev passed on to {names[1]}": round(weights.share(dev[0]), 3),
        }
    chosen = {f"weight of {name}": round(share, 3) for name, share in zip(names, weights.shares, strict=True)}
    return chosen if weights.temperature == 1 else {**chosen, "temperature": weights.temperature}


def _write_metrics(draft: Draft, recipe: Recipe) -> None:
    mixture, task = recipe.inputs["model"], recipe.inputs["task"]
    parts = parts_of([mixture.input(name) for name in mixture.manifest.inputs])
    details, splits = mixture.details, read_splits(task, "dev", "test")
    values = {name: [part.predictions(name) for part in parts] for name in splits}
    weights, fit = predictor.combined(details), _fit(parts, task, mixture.manifest.settings)
    dev = predictor.cross_fitted(values["dev"], splits["dev"].gold, splits["dev"].group, fit)
    combined = {"dev": dev, "test": weights.apply(values["test"])}
    predictions = [Prediction.of(split, combined[name], details.get("thresholds")) for name, split in splits.items()]
    identity = {name: details[name] for name in ("arm", "seed", "stage")} | {"mlm_loss": None}
    cost, stages = costs_of(parts)
    facts = {"cost": cost, **{name: details[name] for name in ("fixed", "chosen", "parameters")}}
    shares = [1.0] * len(parts)  # of the texts that each part is asked about
    if isinstance(weights, Cascade):
        shares[1] = weights.share(np.concatenate([of_parts[0] for of_parts in values.values()]))
        facts |= {"passed": shares[1], "beside": _alone(parts, splits, values, task.details["metric"])}
    write_metrics(draft, task, predictions, identity, facts)
    speeds = [[member.run().get(SPEED, {}) for member in part.members] for part in parts]
    asked = [share for share, part in zip(shares, parts, strict=True) for _ in part.members]
    speed = together([*chain(*speeds)], asked)
    draft.run |= {"stages": stages, SPEED: speed}
    if isinstance(weights, Cascade):
        draft.run["beside"] = rates = {part.arm: rate(together(own)) for part, own in zip(parts, speeds, strict=True)}
        _say_scores(facts["beside"] | {details["arm"]: draft.details}, rates | {details["arm"]: rate(speed)})


def _say_scores(by_arm: Mapping[str, Mapping[str, float]], rates: Mapping[str, float | None]) -> None:
    """Say the scores and the speed of the parts of a cascade, and its own."""
    for arm, scores in by_arm.items():
        speed = "–" if (rate := rates[arm]) is None else f"{rate:,.0f}"
        say(f"mix: {arm}: dev {scores['dev']:.3f}, test {scores['test']:.3f}, texts a CPU second: {speed}")


def _alone(
    parts: list[Part], splits: Mapping[str, Split], values: Mapping[str, list[Floats]], metric: str
) -> dict[str, dict[str, float]]:
    """The scores of each part alone, by split."""
    return {
        part.arm: {name: score(metric, splits[name].gold, values[name][place].argmax(axis=1)) for name in splits}
        for place, part in enumerate(parts)
    }


def mixtures(baseline: str, metrics: list[str], *, root: str | None = None) -> list[str]:
    """Mix each model with the linear model, and each network also with the static model of its text.

    Where the text was drawn, that is the static model of the network's own draw, which has its seed. Published models
    without retrieved text, and embeddings, are mixed with the static model of BM25's text.

    Args:
        baseline: URI of the linear model's metrics.
        metrics: URIs of the metrics of all other models. A run that ended after stage 1 is not mixed.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        URIs of the mixtures' metrics.
    """
    opened = {uri: Artifact.open(uri, "metrics").details for uri in metrics}
    static = {(one["arm"], one["seed"]): uri for uri, one in opened.items() if one["stage"] == STATIC}
    planned = []
    for uri, details in opened.items():
        if details["stage"] != "stage 1":
            planned.append([uri, baseline])
            row = ReportRow.of(details["arm"], details["stage"])
            arm, seed = f"{STATIC}-{row.text or 'bm25'}", details["seed"]
            own = static.get((arm, seed)) or static.get((arm, 0))
            if own and row.kind in NETWORKS:
                planned.append([uri, own, baseline])
    return [mix(members, root=root) for members in planned]
