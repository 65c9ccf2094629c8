"""The step `mix`: one model of several, weighted on dev."""

import json
import shutil
from typing import TYPE_CHECKING

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.home import home
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.errors import InputError
from tlm.evaluation.predict.predictor import MIXTURE
from tlm.evaluation.score.record import scored
from tlm.progress import say
from tlm.retrieval.subset.protected import check_trained

if TYPE_CHECKING:
    from tlm.evaluation.mixture.members import Part

VERSION = 3


def mix(metrics: list[str], *, root: str | None = None) -> str:
    """Mix models of one task: their probabilities (or numbers) are averaged with weights that are fitted on dev.

    Models of the same arm (its seeds) are averaged equally and count as one part. Each part gets a temperature and a
    weight by log-loss on a small grid; numbers get a slope and an intercept, and a weight by squared error. The fewer
    examples dev has, the nearer the weights are to equal ones.
    The dev score is cross-fitted: each group of examples is predicted with weights fitted on the others.

    Args:
        metrics: URIs of the metrics of two or more models, as evaluate, baseline and static print them.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URI of the mixture's metrics. The model itself, for `predict` and `fetch`, is named on stderr.
    """
    from tlm.evaluation.mixture.members import arm_of

    opened = [Artifact.open(uri, "metrics") for uri in metrics]
    members = list({member.manifest.key: member for member in opened}.values())
    parts = _checked_parts(members)
    task = members[0].input("task")
    check_trained(task, *members)
    root = home(root, members).root
    inputs = {f"metrics-{number:03d}": member for number, member in enumerate(members)}
    alone = len(parts) == len(members)  # one seed of each arm: a run of that seed
    settings = {"arm": arm_of(parts), "seed": max(member.details["seed"] for member in members) if alone else 0}
    model = Recipe("model", "mix", VERSION, settings, inputs)
    mixture = Artifact.open(produce(model, root, _write_model, model))
    say(f"mix: the model is {mixture.uri}")
    recipe = Recipe("metrics", "mix", VERSION, scored(task), {"model": mixture, "task": task})
    return produce(recipe, root, _write_metrics, recipe)


def _checked_parts(members: list[Artifact]) -> "list[Part]":
    """The parts that the members form. Raises InputError if they cannot be mixed."""
    from tlm.evaluation.mixture.members import parts_of
    from tlm.evaluation.mixture.weights import MOST_PARTS

    parts = parts_of(members)
    if len(members) < 2 or len(parts) > MOST_PARTS:
        raise InputError(
            f"{len(members)} models of {len(parts)} arms; expected 2 or more, of at most {MOST_PARTS} arms"
        )
    for member in members:
        if member.manifest.inputs["task"].content != members[0].manifest.inputs["task"].content:
            raise InputError(f"{members[0].uri} and {member.uri} are of different tasks; mix models of one task")
        if not {"model", "checkpoint"} & set(member.manifest.inputs):
            raise InputError(f"{member.uri} has no model; expected metrics of evaluate, baseline, static or mix")
    return parts


def _write_model(draft: Draft, recipe: Recipe) -> None:
    from tlm.data.tasks.arrays import classes_of, read_splits
    from tlm.evaluation.mixture.members import model_of, parts_of
    from tlm.evaluation.mixture.weights import fitted
    from tlm.shallow.folder import CONFIG, FAMILY

    parts = parts_of(list(recipe.inputs.values()))
    task = parts[0].members[0].input("task")
    weights = fitted([part.predictions("dev") for part in parts], read_splits(task, "dev")["dev"].gold)
    folders: list[list[str]] = []
    parameters, fixed = 0, True
    for number, part in enumerate(parts):
        folders.append([f"{number}-{place}" for place in range(len(part.members))])
        for name, member in zip(folders[-1], part.members, strict=True):
            model = model_of(member)
            assert model is not None, "checked before"
            shutil.copytree(model.path("model"), draft.folder / "model" / name)
            parameters += int(model.details["parameters"])
            fixed &= bool(model.details.get("fixed"))
    combined = weights.state()
    config = {FAMILY: MIXTURE, "labels": classes_of(task), "parts": folders, **combined}
    (draft.folder / "model" / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    chosen = {f"weight of {part.arm}": round(share, 3) for part, share in zip(parts, weights.shares, strict=True)}
    facts = {"stage": MIXTURE, "fixed": fixed, "parameters": parameters, "chosen": chosen, "cost": {}}
    draft.details = {**recipe.settings, **facts, **combined}
    draft.counts = {"models": len(recipe.inputs), "parameters": parameters}


def _write_metrics(draft: Draft, recipe: Recipe) -> None:
    from tlm.data.tasks.arrays import read_splits
    from tlm.evaluation.mixture.members import costs_of, parts_of
    from tlm.evaluation.mixture.weights import Weights, cross_fitted
    from tlm.evaluation.predict.speed import SPEED, together
    from tlm.evaluation.score.record import Prediction, write_metrics

    mixture, task = recipe.inputs["model"], recipe.inputs["task"]
    members = [mixture.input(name) for name in mixture.manifest.inputs]
    parts = parts_of(members)
    found = mixture.details
    splits = read_splits(task, "dev", "test")
    dev = cross_fitted([part.predictions("dev") for part in parts], splits["dev"].gold, splits["dev"].group)
    test = Weights.read(found).apply([part.predictions("test") for part in parts])
    predictions = [Prediction.of(splits[name], values) for name, values in (("dev", dev), ("test", test))]
    identity = {name: found[name] for name in ("arm", "seed", "stage")} | {"mlm_loss": None}
    cost, stages = costs_of(parts)
    facts = {"cost": cost, **{name: found[name] for name in ("fixed", "chosen", "parameters")}}
    write_metrics(draft, task, predictions, identity, facts)
    draft.run |= {"stages": stages, SPEED: together([member.run().get(SPEED, {}) for member in members])}
