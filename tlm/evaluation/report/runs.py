"""Runs and their cost, and groups of runs that differ in their seed only: mean, standard deviation, interval."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact, follow, share_inputs
from tlm.artifacts.spending import AT_LEAST, JOULES
from tlm.artifacts.stores.store import value_sha256
from tlm.data.tasks.examples import values_of
from tlm.errors import InputError
from tlm.evaluation.pages.blocks import OWN_ROLES
from tlm.evaluation.pages.text import visible
from tlm.evaluation.report.lineage import flat, plain
from tlm.evaluation.score.intervals import Arm, Predictions, Score, Spread, spread, with_interval
from tlm.evaluation.score.mix import ReportRow
from tlm.evaluation.score.scores import METRIC_NAMES
from tlm.settings.options import Prices
from tlm.settings.sections import SECTIONS
from tlm.settings.selectors import draws

HOUR, KILOWATT_HOUR = 3600.0, 3.6e6
TRAINED = ("tokenizer", "checkpoint", "model")
FILES, DIGITS = ("files", "existing"), 12  # settings that name files by digests; and digits of a digest on a page


@dataclass(frozen=True)
class Spent:
    """Cost of one training stage or of several; None for what was not measured.

    Attributes:
        steps: Optimizer steps.
        tokens: Tokens without padding.
        flops: Operations of our training step on the tokens without padding.
        paper_flops: 6 · parameters · tokens, with every text padded to the full length (the paper, section 4.1).
        seconds: Wall-clock time of all attempts; an interrupted one counts up to its last snapshot.
        gpu_seconds: Wall-clock time multiplied by the number of GPUs.
        cpu_seconds: What all threads computed, for work without a GPU.
        joules: Energy of CPUs and GPUs over all attempts and machines; None if GPUs worked and did not report theirs.
    """

    steps: float | None = None
    tokens: float | None = None
    flops: float | None = None
    paper_flops: float | None = None
    seconds: float | None = None
    gpu_seconds: float | None = None
    cpu_seconds: float | None = None
    joules: float | None = None

    @classmethod
    def of_stage(cls, counted: dict[str, Any], run: dict[str, Any]) -> "Spent":
        """The cost of a stage from the counts in its manifest (tokens, flops, …) and the facts in its run.json."""
        amounts = {name: counted.get(name) for name in ("steps", "tokens", "flops", "paper_flops")}
        times = {name: run.get(name) for name in ("seconds", "gpu_seconds", "cpu_seconds")}
        energy = [run[name] for name in JOULES if run.get(name) is not None]
        at_least = any(name + AT_LEAST in run for name in JOULES)
        on_gpu = run.get("device", "cpu") != "cpu" or "gpu_seconds" in run or "gpu_seconds" + AT_LEAST in run
        gpus_unknown = on_gpu and "gpu_joules" not in run
        return cls(**amounts, **times, joules=sum(energy) if energy and not (at_least or gpus_unknown) else None)

    def money(self, prices: Prices) -> float | None:
        """The cost at `prices`; None if something with a price was not measured, or nothing used has a price."""
        if self.gpu_seconds is None and self.cpu_seconds is None:
            return None
        if prices.kilowatt_hour and self.joules is None:
            return None
        time = (prices.gpu_hour * (self.gpu_seconds or 0) + prices.cpu_hour * (self.cpu_seconds or 0)) / HOUR
        energy = prices.kilowatt_hour * (self.joules or 0) / KILOWATT_HOUR
        return (time + energy) or None

    def grams(self, prices: Prices) -> float | None:
        """Grams of CO2 equivalents; None if the energy was not measured, or no grid intensity is given."""
        if self.joules is None or not prices.grams_per_kwh:
            return None
        return prices.grams_per_kwh * self.joules / KILOWATT_HOUR

    def times(self, factor: float) -> "Spent":
        """So many times as much."""
        return Spent(**{name: None if value is None else factor * value for name, value in vars(self).items()})

    def amounts(self, prices: Prices) -> dict[str, float | None]:
        """All of it by name, with its money at `prices` and its CO2 equivalents in grams."""
        return {**vars(self), "money": self.money(prices), "grams": self.grams(prices)}


def total(costs: Iterable[Spent]) -> Spent:
    """Sum the costs of several stages, steps or runs. A part is known if each of the costs knows it.

    FLOPs are of those costs that have any. GPU and CPU time are known if each cost has one of the two.
    """
    summands = list(costs)
    timed = all(cost.cpu_seconds is not None or cost.gpu_seconds is not None for cost in summands)
    of_some = ("flops", "cpu_seconds", "gpu_seconds") if timed else ("flops",)  # need not be known of each cost

    def added(name: str) -> float | None:
        values = [getattr(cost, name) for cost in summands]
        known = [value for value in values if value is not None]
        return float(sum(known)) if known and (len(known) == len(values) or name in of_some) else None

    return Spent(**{name: added(name) for name in vars(Spent())})


def repeats(runs: int, draws: int, *, alike: bool) -> str:
    """Name the repeats of an arm: ``5 draws``, ``3 seeds``, ``3 seeds and draws``, ``3 seeds of one draw``.

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


def _by_chance(subset: Artifact) -> bool:
    """Whether another seed would have given another subset; where that cannot be found out any more, it would."""
    hits, index = follow(subset, "hits"), follow(subset, "hits", "index")
    corpus = follow(subset, "corpus") or follow(index, "corpus")
    passages = corpus.details["passages"] if corpus is not None else float("inf")
    index_of_vectors = index is not None and bool(index.details.get("vectors"))
    found_by_vectors = hits is not None and bool(hits.manifest.settings.get("embedder"))
    return draws(subset.details["arm"], passages, vectors=index_of_vectors or found_by_vectors)


COLUMNS = ["split", "gold", "predicted", "group", "copied"]  # the part of predictions.parquet that intervals need


@dataclass(frozen=True)
class ScoredModel:
    """A metrics artifact with the artifacts that it was made from; None for one that is gone.

    Attributes:
        artifact: The metrics.
        model: Model of stage 2.
        checkpoint: Checkpoint of stage 1.
        subset: Passages that stage 1, or a static model, was trained on.
        members: The members of a mixture that are not gone; () of any other model.
    """

    artifact: Artifact
    model: Artifact | None
    checkpoint: Artifact | None
    subset: Artifact | None
    members: tuple["ScoredModel", ...]

    @classmethod
    def read(cls, artifact: Artifact) -> "ScoredModel":
        """Find the model, the checkpoint, the subset and the members of these metrics."""
        model = follow(artifact, "model")
        checkpoint = follow(model, "checkpoint") or follow(artifact, "checkpoint")
        subset = follow(checkpoint, "subset_tokens", "data") or follow(model, "subset")
        names = [name for name in (model.manifest.inputs if model else ()) if name.startswith("metrics-")]
        members = tuple(cls.read(found) for name in names if (found := follow(model, name)) is not None)
        return cls(artifact, model, checkpoint, subset, members)

    @cached_property
    def values(self) -> dict[str, Any]:
        """Contents of metrics.json, which is large with many classes; reports do not look into those of members."""
        return dict(self.artifact.json("metrics.json"))

    @cached_property
    def drawn(self) -> frozenset[str]:
        """The contents of the subsets that it, or the members of a mixture, learned from and that were drawn."""
        own = [self.subset.content] if self.subset is not None and _by_chance(self.subset) else []
        return frozenset(own).union(*(member.drawn for member in self.members))

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

    def costs(self) -> dict[str, Spent]:
        """The cost of each stage of training."""
        counts = self.values["cost"]
        return {stage: Spent.of_stage(counted, self.stage_facts(stage)) for stage, counted in counts.items()}

    def stage_facts(self, stage: str) -> dict[str, Any]:
        """The recorded facts of a stage's own run: device, threads, seconds, joules and so on."""
        return dict(self.artifact.run().get("stages", {}).get(stage, {}))

    def vocabulary(self) -> str:
        """Content hash of the model's tokenizer; "" if there is none or it is gone."""
        tokens = follow(self.model or self.checkpoint, "task_tokens")
        tokenizer = tokens.manifest.inputs.get("tokenizer") if tokens is not None else None
        return tokenizer.content if tokenizer else ""

    def settings(self) -> dict[str, str]:
        """The settings of this run and of the steps before it, without seeds, and the versions of training steps.

        Also digests of what may be another one under the same settings: corpora and published files.
        """
        last = self.model or self.checkpoint
        hits, start = follow(self.subset, "hits"), follow(self.checkpoint, "start")
        steps = (hits, self.subset, follow(last, "task_tokens", "tokenizer"), start, self.checkpoint, self.model)
        manifests = [step.manifest for step in steps if step is not None]
        found = {f"version of {made.step}": str(made.version) for made in manifests if made.kind in TRAINED}
        files = [(made, name) for made in manifests for name in FILES if name in made.settings]
        found |= {f"{name} of {made.step}": value_sha256(made.settings[name])[:DIGITS] for made, name in files}
        behind = last.lineage() if last is not None and not self.members else ()  # `variant` has those of members
        if corpora := {one.content[:DIGITS] for one in behind if one.manifest.kind == "corpus"}:
            found["corpus"] = ", ".join(sorted(corpora))
        if (taught := follow(self.model, "subset_tokens", "data")) is not None:  # of a student
            found["answers for"] = str(taught.details["arm"])
        for made in (*manifests, self.artifact.manifest):
            for name, value in flat(made.settings):
                if name.split(".")[-1] != "seed" and name.split(".")[0] not in FILES:
                    found[name] = plain(value)
        return found

    def variant(self) -> dict[str, str]:
        """The settings that distinguish runs of one arm: `settings`, and those of a mixture's members."""
        found: dict[str, str] = {}
        for member in self.members:
            for name, value in member.variant().items():
                # a member that is a mixture has put the arms of its own members before their settings
                found[name if ": " in name else f"{member.artifact.details['arm']}: {name}"] = value
        return found | self.settings()


Costs = dict[str, Spread]  # by the parts of `Spent`, and money and grams


class WithoutCopies(TypedDict):
    """Scores on the examples whose text is not also in train, and their number."""

    n: int
    score: Score
    scores: dict[str, Spread]


class Summary(TypedDict):
    """The contents of a report about a `Group`."""

    name: str
    arm: str
    stage: str
    kind: str
    text: str
    role: str
    seeds: list[int]
    draws: int
    repeats: str
    fixed: bool
    parameters: int | None
    vocabulary: str
    models: list[str]
    mixes: list[str]
    taught_by: list[str]
    chosen: dict[str, Any] | None
    tried: int | None
    together: list[str]
    dev: Score
    test: Score
    mlm_loss: Spread
    examples: dict[str, int]
    without_copies: dict[str, WithoutCopies]
    scores: dict[str, Spread]
    cost: Costs
    stages: dict[str, dict[str, Any]]  # the costs of each, and where it ran


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
    row: ReportRow
    runs: list[ScoredModel] = field(default_factory=list)
    _predictions: dict[tuple[str, bool], Arm] = field(default_factory=dict, repr=False, compare=False)

    @property
    def seeds(self) -> list[int]:
        """The seed of each run."""
        return [run.values["seed"] for run in self.runs]

    @property
    def draws(self) -> tuple[int, ...]:
        """The draw of text that each run learned from, by number; () if no text was drawn."""
        distinct = list(dict.fromkeys(run.drawn for run in self.runs))
        return tuple(distinct.index(run.drawn) for run in self.runs) if any(distinct) else ()

    @property
    def best_on_dev(self) -> int:
        """The place in `runs` of the run that is the best on dev."""
        return int(np.argmax([run.values["dev"] for run in self.runs]))

    def on(self, split: str, *, without_copies: bool = False) -> Arm:
        """Predictions for a split, or for those of its examples whose text is not also in train.

        The same object every time, because it keeps the resampled scores, which take a while.
        """
        key = split, without_copies
        if key not in self._predictions:
            chosen = pc.field("split") == split
            if without_copies:
                chosen = chosen & ~pc.field("copied")
            self._predictions[key] = self._arm([run.predictions.filter(chosen) for run in self.runs])
        return self._predictions[key]

    def of_test(self, rows: NDArray[np.bool_]) -> Score:
        """The score on some examples of test."""
        of_test = pc.field("split") == "test"
        return with_interval(self._arm([run.predictions.filter(of_test).filter(pa.array(rows)) for run in self.runs]))

    def _arm(self, tables: Sequence[pa.Table]) -> Arm:
        """The predictions of each run for the same examples."""
        metric, labels = self.runs[0].values["metric"], self.runs[0].values["labels"]
        gold = values_of(tables[0]["gold"], labels)
        predicted = np.stack([values_of(table["predicted"], labels) for table in tables])
        group = np.unique(tables[0]["group"].to_numpy(), return_inverse=True)[1]
        same_answers = bool((predicted == predicted[0]).all())
        fixed = same_answers and not self.draws and all(run.trained_alike for run in self.runs)
        return Arm((Predictions(metric, gold, predicted, group),), fixed=fixed, draws=self.draws)

    def summary(self, prices: Prices) -> Summary:
        """What a report says about this group."""
        costs, distinct_draws = [run.costs() for run in self.runs], len(set(self.draws))
        models = [run.model for run in self.runs if run.model is not None]
        of_members = [member.artifact.manifest.inputs for run in self.runs for member in run.members]
        first = self.runs[0].values
        names = [name for name in METRIC_NAMES if name in first["splits"]["test"]]
        return {
            "name": self.name,
            "arm": self.arm,
            "stage": self.stage,
            "kind": self.row.kind,
            "text": self.row.text,
            "role": "",  # the report gives each group its colour
            "seeds": self.seeds,
            "draws": distinct_draws,
            "repeats": repeats(len(self.runs), distinct_draws, alike=all(run.trained_alike for run in self.runs)),
            "fixed": self.on("test").fixed,
            "parameters": first.get("parameters"),
            "vocabulary": self.runs[0].vocabulary(),
            "models": [model.manifest.key for model in models],
            "mixes": [inputs["model"].key for inputs in of_members if "model" in inputs],
            "taught_by": [one.manifest.inputs["teacher"].key for one in models if "teacher" in one.manifest.inputs],
            "chosen": first.get("chosen"),
            "tried": first.get("tried"),
            "together": self._together(),
            # the scores as `evaluate` wrote them, with the interval from the predictions
            "dev": with_interval(self.on("dev"), [run.values["dev"] for run in self.runs]),
            "test": with_interval(self.on("test"), [run.values["test"] for run in self.runs]),
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

    def _without_copies(self, split: str, names: list[str]) -> WithoutCopies:
        """The number of examples left, their score with its interval, and the other scores."""
        found = [run.values["without_copies"][split] for run in self.runs]
        scores = {name: spread(one[name] for one in found) for name in names}
        return {"n": found[0]["n"], "score": with_interval(self.on(split, without_copies=True)), "scores": scores}

    def _together(self) -> list[str]:
        """The tasks of stage 1, if it was trained for several."""
        checkpoint = self.runs[0].checkpoint
        tasks = checkpoint.details.get("tasks", []) if checkpoint is not None else []
        return [visible(task["name"], 80) for task in tasks] if len(tasks) > 1 else []

    def _facts(self, stage: str) -> dict[str, str]:
        recorded = [run.stage_facts(stage) for run in self.runs]
        return {
            name: ", ".join(sorted({str(one[name]) for one in recorded if name in one}))
            for name in ("preset", "overrides", "device", "processes", "threads", "precision")
        }


def spreads(costs: list[Spent], prices: Prices) -> Costs:
    """The `spread` of each of the amounts of some costs."""
    values = [cost.amounts(prices) for cost in costs]
    return {name: spread(one[name] for one in values) for name in Spent().amounts(prices)}


def grouped(metrics: Sequence[Artifact]) -> list[Group]:
    """Read runs from their metrics, and group them by arm, stage and settings, in the order of `KINDS`, `OWN_ROLES`.

    Groups of one arm are named by the settings in which they differ.
    """
    share_inputs(metrics)
    groups: dict[tuple[Any, ...], Group] = {}
    for run in sorted(map(ScoredModel.read, metrics), key=_order):
        arm, stage = run.values["arm"], run.values["stage"]
        # Two mixtures of the same models may contain them in other ways, which the names of their costs tell.
        key = (arm, stage, tuple(sorted(run.variant().items())), tuple(run.values["cost"]))
        groups.setdefault(key, Group("", arm, stage, ReportRow.of(arm, stage))).runs.append(run)
    taken: set[str] = set()
    for (arm, stage, variant, _), group in groups.items():
        variants = [dict(settings) for of, at, settings, _ in groups if (of, at) == (arm, stage)]
        group.name = _named(group.row.name, stage, dict(variant), variants)
        while group.name in taken:  # an imported row, which comes after ours, may have any name
            group.name += f" ({stage})"
        taken.add(group.name)
    return list(groups.values())


def _named(name: str, stage: str, variant: dict[str, str], variants: list[dict[str, str]]) -> str:
    """The name of a group with those of its settings that are not the same in all groups of its arm and stage."""
    if stage == "stage 1":
        name += ", stage 1 only"
    differing = sorted({setting for other in variants for setting in other if _differs(setting, variants)})
    shown = [f"{setting.rpartition('.')[2]}={variant[setting]}" for setting in differing if setting in variant]
    return f"{name} ({', '.join(shown)})" if shown else name


def _differs(setting: str, variants: list[dict[str, str]]) -> bool:
    values = {variant.get(setting) for variant in variants}
    if setting.partition(".")[0] in SECTIONS:
        values.discard(None)  # the setting has no effect there, because of another setting that differs
    return len(values) > 1


def _order(run: ScoredModel) -> tuple[Any, ...]:
    arm, stage = run.values["arm"], run.values["stage"]
    row = ReportRow.of(arm, stage)
    place = OWN_ROLES.index(row.text) if row.text in OWN_ROLES else len(OWN_ROLES)
    variant = [(name, _natural(value)) for name, value in sorted(run.variant().items())]
    return row.place, place, arm, stage, variant, run.values["seed"], run.artifact.manifest.key


def _natural(value: str) -> tuple[float, str]:
    """A sort key: numbers by size, before words."""
    try:
        return float(value), ""
    except ValueError:
        return float("inf"), value
