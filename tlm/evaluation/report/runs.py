"""Runs and groups of runs: what the seeds of one arm have in common, as mean, standard deviation and interval."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.pages.text import visible
from tlm.evaluation.report.cost import Cost, Prices, total
from tlm.evaluation.report.lineage import Lineage, flat, plain
from tlm.evaluation.score.intervals import CONFIDENCE, LEAST_SEEDS, Arm, Scored, interval, t_quantile
from tlm.evaluation.score.metrics import METRIC_NAMES
from tlm.settings import SECTIONS

ARMS = ("baseline", "task-only", "random", "bm25")
COLUMNS = ["split", "gold", "predicted", "group", "copied"]  # of predictions.parquet, what intervals need
BASELINE = "tf-idf + linear"


@dataclass(frozen=True)
class Run:
    """One metrics artifact, with the artifacts that it came from as far as they are still there."""

    artifact: Artifact
    values: dict[str, Any]
    model: Artifact | None
    checkpoint: Artifact | None
    subset: Artifact | None

    @classmethod
    def read(cls, artifact: Artifact, lineage: Lineage) -> "Run":
        """Read metrics.json and walk to the model, the checkpoint and the subset."""
        values = json.loads(artifact.path("metrics.json").read_text(encoding="utf-8"))
        model = lineage.follow(artifact, "model")
        checkpoint = lineage.follow(model, "checkpoint") or lineage.follow(artifact, "checkpoint")
        return cls(artifact, values, model, checkpoint, lineage.follow(checkpoint, "subset_tokens", "data"))

    @cached_property
    def predictions(self) -> pa.Table:
        """What was predicted: split, gold, predicted, group, copied. Raises InputError: an older version wrote it."""
        file = pq.ParquetFile(self.artifact.path("predictions.parquet"))
        if not set(COLUMNS) <= set(file.schema_arrow.names):
            raise InputError(f"{self.artifact.uri} is of an older version; run its step (evaluate or baseline) again")
        return file.read(COLUMNS)

    def costs(self) -> dict[str, Cost]:
        """What each stage of training cost."""
        return {stage: Cost.told(counted, self.told(stage)) for stage, counted in self.values["cost"].items()}

    def told(self, stage: str) -> dict[str, Any]:
        """The facts of the stage's own run: device, threads, seconds, joules, as far as they are known."""
        found: dict[str, Any] = self.artifact.run().get("stages", {}).get(stage, {})
        return found

    def vocabulary(self) -> str:
        """Content of the tokenizer that the model reads with; "" where there is none or it is gone."""
        tokens = Lineage().follow(self.model or self.checkpoint, "task_tokens")
        tokenizer = tokens.manifest.inputs.get("tokenizer") if tokens is not None else None
        return tokenizer.content if tokenizer else ""

    def variant(self) -> dict[str, str]:
        """The settings behind this run that tell it from others of its arm; seeds are not among them."""
        hits, start = Lineage().follow(self.subset, "hits"), Lineage().follow(self.checkpoint, "start")
        ancestors = [
            artifact for artifact in (hits, self.subset, start, self.checkpoint, self.model, self.artifact) if artifact
        ]
        settings = [pair for artifact in ancestors for pair in flat(artifact.manifest.settings)]
        told = ((name, value) for name, value in settings if not name.startswith("files."))  # a model's name tells more
        return {name: plain(value) for name, value in told if name.split(".")[-1] != "seed"}


@dataclass
class Group:
    """The runs of one arm that differ in nothing but their seed."""

    name: str
    arm: str
    stage: str
    runs: list[Run] = field(default_factory=list)
    _resampled: dict[tuple[str, bool], Arm] = field(default_factory=dict, repr=False, compare=False)

    @property
    def seeds(self) -> list[int]:
        """Of the runs, in their order."""
        return [run.values["seed"] for run in self.runs]

    def on(self, split: str, *, without_copies: bool = False) -> Arm:
        """What its runs predicted for a split, or for those of its examples whose texts train does not have.

        Resampling takes a while, so the same object is given each time.
        """
        key = split, without_copies
        if key not in self._resampled:
            self._resampled[key] = self._predicted(split, without_copies)
        return self._resampled[key]

    def _predicted(self, split: str, without_copies: bool) -> Arm:
        values = self.runs[0].values
        tables = [_rows(run.predictions, split, without_copies) for run in self.runs]
        gold = _values(tables[0]["gold"], values["labels"])
        predicted = np.stack([_values(table["predicted"], values["labels"]) for table in tables])
        group = np.unique(tables[0]["group"].to_numpy(), return_inverse=True)[1]
        return Arm((Scored(values["metric"], gold, predicted, group),), fixed=self.arm == "baseline")

    def summary(self, prices: Prices) -> dict[str, Any]:
        """Everything that the report says about the group, as plain values."""
        costs = [run.costs() for run in self.runs]
        first = self.runs[0].values
        names = [name for name in METRIC_NAMES if name in first["splits"]["test"]]
        return {
            "name": self.name,
            "arm": self.arm,
            "stage": self.stage,
            "seeds": self.seeds,
            "parameters": first.get("parameters"),
            "vocabulary": self.runs[0].vocabulary(),
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
        """The scores as `evaluate` wrote them; the interval is from the predictions."""
        found = with_interval(self.on(split))
        return spread(run.values[split] for run in self.runs) | {end: found[end] for end in ("low", "high")}

    def _without_copies(self, split: str, names: list[str]) -> dict[str, Any]:
        """How many examples are left, their score with its interval, and the other scores."""
        found = [run.values["without_copies"][split] for run in self.runs]
        scores = {name: spread(one[name] for one in found) for name in names}
        return {"n": found[0]["n"], "score": with_interval(self.on(split, without_copies=True)), "scores": scores}

    def _together(self) -> dict[str, list[str]]:
        """Whose tasks stage 1 was for, where it was for several."""
        checkpoint = self.runs[0].checkpoint
        tasks = checkpoint.details.get("tasks", []) if checkpoint is not None else []
        return {"together": [visible(task["name"], 80) for task in tasks]} if len(tasks) > 1 else {}

    def _facts(self, stage: str) -> dict[str, str]:
        told = [run.told(stage) for run in self.runs]
        return {
            name: ", ".join(sorted({str(one[name]) for one in told if name in one}))
            for name in ("preset", "overrides", "device", "processes", "threads", "precision")
        }


def spreads(costs: list[Cost], prices: Prices) -> dict[str, Any]:
    """The `spread` of each part of some costs, and of the money that they are by `prices`."""
    found = {part.name: spread(getattr(cost, part.name) for cost in costs) for part in fields(Cost)}
    return found | {"money": spread(cost.money(prices) for cost in costs)}


def spread(values: Iterable[float | None]) -> dict[str, Any]:
    """Values, mean, standard deviation (from 2 on), 95 % t-interval of the mean over seeds (from `LEAST_SEEDS` on)."""
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
    """The `spread` of an arm's scores over its seeds; the interval covers seeds and test examples."""
    _, low, high = interval(arm)
    return spread(arm.scores) | {"low": low, "high": None if high is None else min(high, 1.0)}  # no score exceeds 1


def grouped(runs: list[Run]) -> list[Group]:
    """Groups in the order of `ARMS`; two of one arm get the settings in which they differ into their names."""
    groups: dict[tuple[Any, ...], Group] = {}
    variants: dict[tuple[str, str], list[dict[str, str]]] = {}
    for run in sorted(runs, key=_order):
        arm, stage, variant = run.values["arm"], run.values["stage"], run.variant()
        key = (arm, stage, tuple(sorted(variant.items())))
        if key not in groups:
            groups[key] = Group("", arm, stage)
            variants.setdefault((arm, stage), []).append(variant)
        groups[key].runs.append(run)
    for (arm, stage, variant), group in groups.items():
        group.name = _named(arm, stage, dict(variant), variants[arm, stage])
    return list(groups.values())


def _rows(predictions: pa.Table, split: str, without_copies: bool) -> pa.Table:
    rows = predictions.filter(pc.equal(predictions["split"], split))
    return rows.filter(pc.invert(rows["copied"])) if without_copies else rows


def _values(column: pa.ChunkedArray, labels: list[str] | None) -> Any:
    """Class ordinals, or floats where there are no labels; shape [n]."""
    return column.to_numpy() if labels is None else pc.index_in(column, pa.array(labels, pa.string())).to_numpy()


def _named(arm: str, stage: str, mine: dict[str, str], others: list[dict[str, str]]) -> str:
    name = {"baseline": BASELINE}.get(arm, arm)
    if stage == "stage 1":
        name += ", stage 1 only"
    names = sorted({key for variant in others for key in variant if _differs(key, others)})
    told = [f"{key.rpartition('.')[2]}={mine[key]}" for key in names if key in mine]
    return f"{name} ({', '.join(told)})" if told else name


def _differs(setting: str, variants: list[dict[str, str]]) -> bool:
    values = {variant.get(setting) for variant in variants}
    if setting.partition(".")[0] in SECTIONS:
        values.discard(None)  # it has no effect there, because of another setting that differs
    return len(values) > 1


def _order(run: Run) -> tuple[Any, ...]:
    arm = run.values["arm"]
    place = ARMS.index(arm) if arm in ARMS else len(ARMS)
    variant = [(name, _natural(value)) for name, value in sorted(run.variant().items())]
    return place, arm, run.values["stage"], variant, run.values["seed"], run.artifact.manifest.key


def _natural(value: str) -> tuple[float, str]:
    """Numbers by size, before words."""
    try:
        return float(value), ""
    except ValueError:
        return float("inf"), value
