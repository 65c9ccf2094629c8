"""Runs, and groups of runs that differ in their seed only, with mean, standard deviation and interval."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import values_of
from tlm.errors import InputError
from tlm.evaluation.pages.text import visible
from tlm.evaluation.report.cost import Cost, total
from tlm.evaluation.report.lineage import Lineage, flat, plain
from tlm.evaluation.score.intervals import CONFIDENCE, LEAST_SEEDS, Arm, Scored, interval, t_quantile
from tlm.evaluation.score.kinds import Row
from tlm.evaluation.score.scores import METRIC_NAMES
from tlm.retrieval.select.retrieve import draws
from tlm.settings.options import Prices
from tlm.settings.sections import SECTIONS


def drawn(metrics: Artifact, lineage: Lineage) -> frozenset[str]:
    """The contents of the subsets that were drawn, of those that a model or the members of a mixture learned from."""
    return frozenset(subset.content for subset in _subsets(metrics, lineage) if _by_chance(subset, lineage))


def learned_from(model: Artifact | None, checkpoint: Artifact | None, lineage: Lineage) -> Artifact | None:
    """The subset that stage 1, or a static model, was trained on; None if there is none, or it is gone."""
    return lineage.follow(checkpoint, "subset_tokens", "data") or lineage.follow(model, "subset")


def repeats(runs: int, draws: int, *, alike: bool) -> str:
    """What the models of an arm differ in: ``5 draws``, ``3 seeds``, ``3 seeds and draws``, ``3 seeds of one draw``.

    Args:
        runs: How many there are.
        draws: How many texts were drawn for them; 0 if none was.
        alike: Whether training gives the same with every seed, so that only the draws differ.
    """
    seeds = f"{runs} seeds" if runs > 1 else "one seed"
    drawn = f"{draws} draws" if draws > 1 else "one draw"
    if draws and alike:
        return drawn
    if draws == runs:
        return f"{seeds} and draw{'s' if draws > 1 else ''}"
    return f"{seeds} of {drawn}" if draws else seeds


def _subsets(metrics: Artifact, lineage: Lineage) -> Iterator[Artifact]:
    model = lineage.follow(metrics, "model")
    checkpoint = lineage.follow(model, "checkpoint") or lineage.follow(metrics, "checkpoint")
    if found := learned_from(model, checkpoint, lineage):
        yield found
    for name in model.manifest.inputs if model is not None else ():
        if name.startswith("metrics-") and (member := lineage.follow(model, name)):  # of a mixture
            yield from _subsets(member, lineage)


def _by_chance(subset: Artifact, lineage: Lineage) -> bool:
    """Whether another seed would have given another subset; where that cannot be found out any more, it would."""
    hits, corpus = lineage.follow(subset, "hits"), lineage.follow(subset, "corpus")
    index = lineage.follow(hits, "index")
    corpus = corpus or lineage.follow(index, "corpus")
    if corpus is None:
        return draws(subset.details["arm"])
    vectors = bool(index is not None and index.details.get("vectors"))
    vectors |= bool(hits is not None and hits.manifest.settings.get("embedder"))
    return draws(subset.details["arm"], corpus.details["passages"], vectors=vectors)


ARMS = ("baseline", "task-only", "random", "bm25")  # in the order of rows of one kind, with a colour of their own
COLUMNS = ["split", "gold", "predicted", "group", "copied"]  # the part of predictions.parquet that intervals need


@dataclass(frozen=True)
class Run:
    """One metrics artifact with the artifacts that it was made from; None for those that are gone.

    Attributes:
        artifact: The metrics.
        values: Contents of metrics.json.
        model: Model of stage 2.
        checkpoint: Checkpoint of stage 1.
        subset: Passages that stage 1, or a static model, was trained on.
        drawn: The contents of the subsets that it, or the members of a mixture, learned from and that were drawn.
    """

    artifact: Artifact
    values: dict[str, Any]
    model: Artifact | None
    checkpoint: Artifact | None
    subset: Artifact | None
    drawn: frozenset[str]

    @classmethod
    def read(cls, artifact: Artifact, lineage: Lineage) -> "Run":
        """Read metrics.json and find the model, the checkpoint and the subset."""
        values = json.loads(artifact.path("metrics.json").read_text(encoding="utf-8"))
        model = lineage.follow(artifact, "model")
        checkpoint = lineage.follow(model, "checkpoint") or lineage.follow(artifact, "checkpoint")
        subset = learned_from(model, checkpoint, lineage)
        return cls(artifact, values, model, checkpoint, subset, drawn(artifact, lineage))

    @cached_property
    def predictions(self) -> pa.Table:
        """The predictions, with `COLUMNS`. Raises InputError if an older version wrote them."""
        file = pq.ParquetFile(self.artifact.path("predictions.parquet"))
        if not set(COLUMNS) <= set(file.schema_arrow.names):
            raise InputError(f"{self.artifact.uri} is of an older version; run its step (evaluate or baseline) again")
        return file.read(COLUMNS)

    @property
    def trained_alike(self) -> bool:
        """Whether training gives the same with every seed; the baselines of older versions do not tell."""
        return bool(self.values.get("fixed", self.values["arm"] == "baseline"))

    @property
    def taught_by(self) -> str:
        """The key of the model that taught this one; "" if none did."""
        teacher = self.model.manifest.inputs.get("teacher") if self.model is not None else None
        return teacher.key if teacher is not None else ""

    def costs(self) -> dict[str, Cost]:
        """The cost of each stage of training."""
        return {
            stage: Cost.of_stage(counted, self.stage_facts(stage)) for stage, counted in self.values["cost"].items()
        }

    def stage_facts(self, stage: str) -> dict[str, Any]:
        """The recorded facts of a stage's own run: device, threads, seconds, joules and so on."""
        found: dict[str, Any] = self.artifact.run().get("stages", {}).get(stage, {})
        return found

    def vocabulary(self) -> str:
        """Content hash of the model's tokenizer; "" if there is none or it is gone."""
        tokens = Lineage().follow(self.model or self.checkpoint, "task_tokens")
        tokenizer = tokens.manifest.inputs.get("tokenizer") if tokens is not None else None
        return tokenizer.content if tokenizer else ""

    def variant(self) -> dict[str, str]:
        """The settings of this run and of the steps before it, without seeds: they distinguish runs of one arm."""
        hits, start = Lineage().follow(self.subset, "hits"), Lineage().follow(self.checkpoint, "start")
        steps = [one for one in (hits, self.subset, start, self.checkpoint, self.model, self.artifact) if one]
        return {
            name: plain(value)
            for step in steps
            for name, value in flat(step.manifest.settings)
            if name.split(".")[-1] != "seed" and not name.startswith("files.")  # of a published model
        }


@dataclass
class Group:
    """The runs of one arm that differ in their seed only.

    Attributes:
        name: Arm, with the settings that distinguish it from other groups of the same arm.
        arm: Name of the arm.
        stage: The last stage of training.
        row: The kind of model, and what it learned from.
        runs: The runs, in the order of their seeds.
    """

    name: str
    arm: str
    stage: str
    row: Row
    runs: list[Run] = field(default_factory=list)
    _predictions: dict[tuple[str, bool], Arm] = field(default_factory=dict, repr=False, compare=False)

    @property
    def seeds(self) -> list[int]:
        """The seed of each run."""
        return [run.values["seed"] for run in self.runs]

    @property
    def draws(self) -> tuple[int, ...]:
        """The draw of text that each run learned from, by number; () if no text was drawn."""
        found = list(dict.fromkeys(run.drawn for run in self.runs))
        return tuple(found.index(run.drawn) for run in self.runs) if any(found) else ()

    def on(self, split: str, *, without_copies: bool = False) -> Arm:
        """Predictions for a split, or for those of its examples whose text is not also in train.

        The same object every time, because it keeps the resampled scores, which take a while.
        """
        key = split, without_copies
        if key not in self._predictions:
            self._predictions[key] = self._read(split, without_copies)
        return self._predictions[key]

    def _read(self, split: str, without_copies: bool) -> Arm:
        metric, labels = self.runs[0].values["metric"], self.runs[0].values["labels"]
        tables = []
        for run in self.runs:
            rows = run.predictions.filter(pc.equal(run.predictions["split"], split))
            tables.append(rows.filter(pc.invert(rows["copied"])) if without_copies else rows)
        gold = values_of(tables[0]["gold"], labels)
        predicted = np.stack([values_of(table["predicted"], labels) for table in tables])
        group = np.unique(tables[0]["group"].to_numpy(), return_inverse=True)[1]
        fixed = not self.draws and all(run.trained_alike for run in self.runs)
        fixed &= bool((predicted == predicted[0]).all())
        return Arm((Scored(metric, gold, predicted, group),), fixed=fixed, draws=self.draws)

    def summary(self, prices: Prices) -> dict[str, Any]:
        """All that the report says about the group, as plain values."""
        costs = [run.costs() for run in self.runs]
        first = self.runs[0].values
        names = [name for name in METRIC_NAMES if name in first["splits"]["test"]]
        return {
            "name": self.name,
            "arm": self.arm,
            "stage": self.stage,
            "kind": self.row.kind,
            "text": self.row.text,
            "seeds": self.seeds,
            "draws": len(set(self.draws)),
            "repeats": repeats(len(self.runs), len(set(self.draws)), alike=all(run.trained_alike for run in self.runs)),
            "fixed": self.on("test").fixed,
            "parameters": first.get("parameters"),
            "vocabulary": self.runs[0].vocabulary(),
            "models": [run.model.manifest.key for run in self.runs if run.model is not None],
            "taught_by": [run.taught_by for run in self.runs if run.taught_by],
            "chosen": first.get("chosen"),
            "tried": first.get("tried"),
            **self._together(),
            **{split: self._scores(split) for split in ("dev", "test")},
            "mlm_loss": spread(run.values["mlm_loss"] for run in self.runs),
            "examples": {split: first["splits"][split]["n"] for split in ("dev", "test")},
            "without_copies": {split: self._without_copies(split, names) for split in first["without_copies"]},
            "scores": {name: spread(run.values["splits"]["test"][name] for run in self.runs) for name in names},
            "cost": spreads([total(stages.values()) for stages in costs], prices),
            "stages": {
                stage: spreads([stages[stage] for stages in costs], prices) | self._facts(stage)
                for stage in first["cost"]
            },
        }

    def _scores(self, split: str) -> dict[str, Any]:
        """The scores as `evaluate` wrote them, with the interval from the predictions."""
        found = with_interval(self.on(split))
        return spread(run.values[split] for run in self.runs) | {end: found[end] for end in ("low", "high")}

    def _without_copies(self, split: str, names: list[str]) -> dict[str, Any]:
        """The number of examples left, their score with its interval, and the other scores."""
        found = [run.values["without_copies"][split] for run in self.runs]
        scores = {name: spread(one[name] for one in found) for name in names}
        return {"n": found[0]["n"], "score": with_interval(self.on(split, without_copies=True)), "scores": scores}

    def _together(self) -> dict[str, list[str]]:
        """The tasks of stage 1, if it was trained for several."""
        checkpoint = self.runs[0].checkpoint
        tasks = checkpoint.details.get("tasks", []) if checkpoint is not None else []
        return {"together": [visible(task["name"], 80) for task in tasks]} if len(tasks) > 1 else {}

    def _facts(self, stage: str) -> dict[str, str]:
        recorded = [run.stage_facts(stage) for run in self.runs]
        return {
            name: ", ".join(sorted({str(one[name]) for one in recorded if name in one}))
            for name in ("preset", "overrides", "device", "processes", "threads", "precision")
        }


def spreads(costs: list[Cost], prices: Prices) -> dict[str, Any]:
    """The `spread` of each part of some costs, of their money at `prices` and of their CO2 equivalents in grams."""
    found = {part.name: spread(getattr(cost, part.name) for cost in costs) for part in fields(Cost)}
    for name, of in (("money", Cost.money), ("grams", Cost.grams)):
        found[name] = spread(of(cost, prices) for cost in costs)
    return found


def spread(values: Iterable[float | None]) -> dict[str, Any]:
    """Values, mean, standard deviation (from 2 values on), 95 % t-interval of the mean (from `LEAST_SEEDS` on)."""
    found = [float(value) for value in values if value is not None]
    result: dict[str, Any] = {"values": found, "mean": None, "std": None, "low": None, "high": None}
    if found:
        result["mean"] = float(np.mean(found))
    if len(found) > 1:
        result["std"] = float(np.std(found, ddof=1))
    if len(found) >= LEAST_SEEDS:
        half = t_quantile(CONFIDENCE, len(found) - 1) * result["std"] / len(found) ** 0.5
        result.update(low=result["mean"] - half, high=result["mean"] + half)
    return result


def with_interval(arm: Arm) -> dict[str, Any]:
    """The `spread` of an arm's scores over its seeds, with the interval over seeds and test examples."""
    _, low, high = interval(arm)
    return spread(arm.scores) | {"low": low, "high": None if high is None else min(high, 1.0)}  # no score exceeds 1


def grouped(runs: list[Run]) -> list[Group]:
    """Group runs by arm, stage and settings, in the order of `KINDS`, then of `ARMS`.

    Groups of one arm are named by the settings in which they differ.
    """
    groups: dict[tuple[Any, ...], Group] = {}
    variants: dict[tuple[str, str], list[dict[str, str]]] = {}
    for run in sorted(runs, key=_order):
        arm, stage, variant = run.values["arm"], run.values["stage"], run.variant()
        key = (arm, stage, tuple(sorted(variant.items())))
        if key not in groups:
            groups[key] = Group("", arm, stage, Row.of(arm, stage))
            variants.setdefault((arm, stage), []).append(variant)
        groups[key].runs.append(run)
    for (arm, stage, variant), group in groups.items():
        group.name = _named(group.row.name, stage, dict(variant), variants[arm, stage])
    return list(groups.values())


def _named(name: str, stage: str, mine: dict[str, str], others: list[dict[str, str]]) -> str:
    if stage == "stage 1":
        name += ", stage 1 only"
    names = sorted({key for variant in others for key in variant if _differs(key, others)})
    settings = [f"{key.rpartition('.')[2]}={mine[key]}" for key in names if key in mine]
    return f"{name} ({', '.join(settings)})" if settings else name


def _differs(setting: str, variants: list[dict[str, str]]) -> bool:
    values = {variant.get(setting) for variant in variants}
    if setting.partition(".")[0] in SECTIONS:
        values.discard(None)  # the setting has no effect there, because of another setting that differs
    return len(values) > 1


def _order(run: Run) -> tuple[Any, ...]:
    arm, stage = run.values["arm"], run.values["stage"]
    row = Row.of(arm, stage)
    place = ARMS.index(row.text) if row.text in ARMS else len(ARMS)
    variant = [(name, _natural(value)) for name, value in sorted(run.variant().items())]
    return row.place, place, arm, stage, variant, run.values["seed"], run.artifact.manifest.key


def _natural(value: str) -> tuple[float, str]:
    """A sort key: numbers by size, before words."""
    try:
        return float(value), ""
    except ValueError:
        return float("inf"), value
