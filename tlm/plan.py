"""The plan of a pipeline run: settings resolved and checked before any work, arms × seeds as flat strings."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from tlm import presets
from tlm.advise import advice_for
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError, nearest
from tlm.presets.advice import Advice
from tlm.progress import say

ARMS = ("task-only", "random", "bm25")
TOGETHER = "multi-task"
AUTO = "auto"  # among overrides: what the paper's rules say of the task


class Settings(NamedTuple):
    """What the steps before training need to know: flat values, because that is what travels in a pipeline."""

    top_k: int
    query: str
    tokenizer_kind: str
    vocab_size: int


class Advised(NamedTuple):
    """Settings that are known once the task is, as flat values; `reasons` are sentences, one a line."""

    top_k: int
    query: str
    overrides: str
    reasons: str


class Run(NamedTuple):
    """One training run: all that its steps need to know, written as one flat string, like a URL's query.

    Attributes:
        arm: One of `ARMS`, or `TOGETHER`.
        seed: Its seed.
        task: URI of the task; for stage 1 of several tasks together those of all, one a line.
        tokenizer: URI of the tokenizer.
        subset: URI of the subset; "" for the task-only arm.
        preset: Named settings.
        overrides: Settings that replace the preset's, separated by spaces.
        stages: 12; 1 leaves stage 2 out: what stage 1 made is evaluated; 2 leaves stage 1 out: `start` is fine-tuned.
        start: URI of the checkpoint that its first stage begins with; "": fresh weights.
    """

    arm: str
    seed: int
    task: str
    tokenizer: str
    subset: str
    preset: str
    overrides: str
    stages: str = "12"
    start: str = ""

    def __str__(self) -> str:
        return urlencode(self._asdict())

    @classmethod
    def parse(cls, text: str) -> "Run":
        """The run written as `text`."""
        values = dict(parse_qsl(text, keep_blank_values=True, strict_parsing=True))
        return cls(**{**values, "seed": int(values["seed"])})  # type: ignore[arg-type]

    def tasks(self) -> list[str]:
        """The URIs of all its tasks."""
        return self.task.split("\n")

    def inputs(self) -> dict[str, Any]:
        """What stage 1 takes beside the task."""
        begin = {"start": self.start} if self.start else {}
        return {"tokenizer": self.tokenizer, "subset": self.subset, "seed": self.seed, **begin}

    def settings(self) -> dict[str, Any]:
        """Preset and overrides, as both stages take them."""
        return {"preset": self.preset, "overrides": self.overrides.split()}


def settings(preset: str, *, overrides: Sequence[str] = (), arms: str = "bm25", seeds: str = "0") -> Settings:
    """Resolve a preset with its overrides into flat values, and check arms and seeds, before any work.

    Raises:
        InputError: an unknown preset, setting or arm, a seed that is no number, one named twice.
    """
    resolved = presets.resolve(preset, _given(overrides))
    runs = len(_arms(arms)) * len(parse_seeds(seeds))
    say(f"settings: preset {preset}, K={resolved.retrieve.top_k}, {runs} runs (arms {arms}, seeds {seeds})")
    return Settings(
        resolved.retrieve.top_k,
        resolved.retrieve.query,
        resolved.tokenizer.kind,
        resolved.tokenizer.vocab_size,
    )


def advised(task: str, preset: str, overrides: Sequence[str] = (), corpus: str = "") -> Advised:
    """Settle `overrides`: ``auto`` among them stands for what `advice_for` says; what is given beside it holds.

    Args:
        task: URI of the task.
        preset: Named settings.
        overrides: As in `settings`.
        corpus: URI of the corpus or its index; "": its size is left out of account.
    """
    given, found = _given(overrides), Advice([], [])
    if len(given) < len(overrides):
        found = advice_for(task, presets.resolve(preset, given), corpus)
    settled = [*found.overrides, *given]
    retrieve = presets.resolve(preset, settled).retrieve
    if found.reasons:
        found.reasons.insert(0, f"Settings by the paper's rules: {' '.join(found.overrides)}.")
        say("\n".join(found.reasons))
    return Advised(retrieve.top_k, retrieve.query, " ".join(settled), "\n".join(found.reasons))


def _given(overrides: Sequence[str]) -> list[str]:
    return [override for override in overrides if override != AUTO]


def plan(
    arms: str, seeds: str, *, task: str, tokenizer: str, bm25: str, random: str, preset: str, overrides: str
) -> list[str]:
    """Arms × seeds (both comma-separated) as the strings of `Run`; `bm25` and `random` are the arms' subsets."""
    subsets = {"bm25": bm25, "random": random, "task-only": ""}
    return [
        str(Run(arm, seed, task, tokenizer, subsets[arm], preset, overrides))
        for seed in parse_seeds(seeds)
        for arm in _arms(arms)
    ]


def check_together(overrides: Sequence[str]) -> None:
    """Raise InputError for what cannot be set for tasks that train together."""
    if AUTO in overrides:
        raise InputError(f"overrides: '{AUTO}' chooses for one task, but tasks together share settings; name them")


def plan_together(
    seeds: str, *, tasks: Sequence[str], tokenizer: str, subset: str, preset: str, overrides: str
) -> list[str]:
    """Stage 1 of several tasks together, once for each seed, as strings of `Run`.

    It has as many steps as the tasks' own runs have together, and as large a share of them is warm-up.
    """
    train, count = presets.resolve(preset, overrides.split()).train, len(tasks)
    more = f"train.steps={train.steps * count} train.warmup_steps={train.warmup_steps * count}"
    own = f"{overrides} {more}".strip()
    return [
        str(Run(TOGETHER, seed, "\n".join(tasks), tokenizer, subset, preset, own, stages="1"))
        for seed in parse_seeds(seeds)
    ]


def plan_apart(
    together: Sequence[str], checkpoints: Sequence[str], *, subsets: Sequence[str], overrides: str
) -> list[str]:
    """For each task and seed two runs: alone with its own subset, and stage 2 of the checkpoint of all together.

    Args:
        together: The runs that `plan_together` gave.
        checkpoints: URIs of what they made, in any order.
        subsets: URIs of the tasks' own subsets, in the order of the tasks.
        overrides: Those of the tasks' own runs.
    """
    starts = {Artifact.open(uri, "checkpoint").details["seed"]: uri for uri in checkpoints}
    found = []
    for text in together:
        run = Run.parse(text)._replace(overrides=overrides)
        for task, subset in zip(run.tasks(), subsets, strict=True):
            found.append(run._replace(arm="bm25", task=task, subset=subset, stages="12"))
            found.append(run._replace(task=task, stages="2", start=starts[run.seed]))
    return [str(run) for run in found]


def _arms(text: str) -> list[str]:
    arms = _items(text, "arms")
    for arm in arms:
        if arm not in ARMS:
            raise InputError(f"arms: '{arm}' is no arm{nearest(arm, ARMS)}")
    return arms


def parse_seeds(text: str) -> list[int]:
    """Seeds written as '0,1,2'. Raises InputError for what is no number, or there twice."""
    seeds = _items(text, "seeds")
    for seed in seeds:
        if not seed.isdecimal():
            raise InputError(f"seeds: '{seed}' is no whole number from 0 up; give them as '0,1,2'")
    return [int(seed) for seed in seeds]


def _items(text: str, name: str) -> list[str]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items or len(set(items)) < len(items):
        raise InputError(f"{name}: '{text}' names none, or one twice; give them separated by commas")
    return items
