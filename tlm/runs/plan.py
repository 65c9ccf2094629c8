"""The plan of a pipeline run: resolve and check the settings before any work, and make a `Run` of each arm and seed."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError, nearest
from tlm.progress import say
from tlm.retrieval.select.retrieve import ARMS as RETRIEVED
from tlm.retrieval.select.retrieve import draws
from tlm.retrieval.subset.export import TASK_ONLY, Arm, seed_of
from tlm.runs.advise import advice_for
from tlm.settings import presets
from tlm.settings.options import Compute
from tlm.training.distributed.launch import ROWS

ARMS = (TASK_ONLY, *RETRIEVED)
AUTO = "auto"  # an override that stands for the paper's advice on the task


class Run(NamedTuple):
    """One training run. `str` writes it as a URL query, to be passed between the steps of a pipeline.

    Attributes:
        arm: One of `ARMS`, or `TOGETHER`.
        seed: Random seed.
        task: URI of the task; for stage 1 of several tasks together, one URI on each line.
        tokenizer: URI of the tokenizer.
        subset: URI of the subset; "" for the task-only arm.
        preset: Named settings.
        overrides: Settings that replace those of the preset, separated by spaces.
        stages: 12 for both stages; 1 for stage 1 alone, whose model is evaluated; 2 to fine-tune `start`.
        start: URI of the checkpoint that the first of these stages starts from; "" for fresh weights.
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
        """Return the run that `str` wrote as `text`."""
        values = dict(parse_qsl(text, keep_blank_values=True, strict_parsing=True))
        return cls(**{**values, "seed": int(values["seed"])})  # type: ignore[arg-type]

    def tasks(self) -> list[str]:
        """Return the URIs of all tasks of the run."""
        return self.task.split("\n")

    def inputs(self) -> dict[str, Any]:
        """Return the arguments of stage 1, besides the task and the settings."""
        begin = {"start": self.start} if self.start else {}
        return {"tokenizer": self.tokenizer, "subset": self.subset, "seed": self.seed, **begin}

    def settings(self) -> dict[str, Any]:
        """Return preset and overrides as arguments of either stage."""
        return {"preset": self.preset, "overrides": self.overrides.split()}

    def on(self, gpus: str) -> dict[str, Any]:
        """Return `settings`, and where to train, in a pod with so many GPUs."""
        return {**self.settings(), "compute": Compute(gpus=int(gpus))}


def settings(
    preset: str, *, overrides: Sequence[str] = (), arms: str = "bm25", seeds: str = "0", gpus: str = "0"
) -> tuple[int, str, str, int, str, str]:
    """Resolve a preset with its overrides, and check arms and seeds, before any work.

    Returns:
        The settings of the steps before training, as the component `preflight` names them: `retrieve.top_k`,
        `retrieve.query`, `tokenizer.kind` and `tokenizer.vocab_size`; and of the `gpus` of a training pod, how many the
        batch of stage 2 fills, and the one that other work with a model takes, as strings.

    Raises:
        InputError: an unknown preset, setting or arm, a seed that is no number, or an arm or seed given twice.
    """
    resolved = presets.resolve(preset, [override for override in overrides if override != AUTO])
    runs = len(parse_arms(arms)) * len(parse_seeds(seeds))
    say(f"settings: preset {preset}, K={resolved.retrieve.top_k}, {runs} runs (arms {arms}, seeds {seeds})")
    retrieve, tokenizer = resolved.retrieve, resolved.tokenizer
    stage2 = min(int(gpus), max(1, resolved.finetune.batch // ROWS))
    one = min(int(gpus), 1)
    return retrieve.top_k, retrieve.query, tokenizer.kind, tokenizer.vocab_size, str(stage2), str(one)


def advised(task: str, preset: str, overrides: Sequence[str] = (), corpus: str = "") -> tuple[int, str, str, str]:
    """Replace ``auto`` among the overrides by the paper's advice on the task; the other overrides take precedence.

    Args:
        task: URI of the task.
        preset: Named settings.
        overrides: Settings to change, and perhaps ``auto``.
        corpus: URI of the corpus or its index; "": its size is not considered.

    Returns:
        The settings that depend on the task, as the component `advise` names them: `retrieve.top_k`, `retrieve.query`,
        all overrides separated by spaces, and the reasons for the advice, one sentence on each line.
    """
    given, reasons = [override for override in overrides if override != AUTO], ""
    if AUTO in overrides:
        advice = advice_for(task, presets.resolve(preset, given), corpus)
        given = [*advice.overrides, *given]
        reasons = "\n".join([f"Settings by the paper's rules: {' '.join(advice.overrides)}.", *advice.reasons])
    retrieve = presets.resolve(preset, given).retrieve
    if reasons:
        say(reasons)
    return retrieve.top_k, retrieve.query, " ".join(given), reasons


def arms_of(names: str, seeds: str, task: str, like: str) -> list[str]:
    """Return an `Arm` as a string for each name, and for each seed of one that draws (both comma-separated).

    `task` and `like` are those of `Arm`.
    """
    index = Artifact.open(like, "subset").input("hits").input("index")
    passages, vectors = index.input("corpus").details["passages"], bool(index.details.get("vectors"))
    chance = {name: draws(name, passages, vectors=vectors) for name in parse_arms(names)}
    return [
        str(Arm(name, task, like, seed)) for name in chance for seed in (parse_seeds(seeds) if chance[name] else [0])
    ]


def plan(
    arms: str, seeds: str, *, task: str, tokenizer: str, subsets: Sequence[str], preset: str, overrides: str
) -> list[str]:
    """Return a `Run` as a string for each arm and seed (both comma-separated).

    `subsets` are the URIs of the arms' subsets, in any order; "" for task-only. A run with an arm that draws has the
    subset that was drawn by its seed.
    """
    opened = [Artifact.open(uri, "subset") for uri in subsets if uri]
    subset_of = {(one.details["arm"], seed_of(one)): one.uri for one in opened} | {(TASK_ONLY, 0): ""}
    return [
        str(Run(arm, seed, task, tokenizer, subset_of.get((arm, seed)) or subset_of[arm, 0], preset, overrides))
        for seed in parse_seeds(seeds)
        for arm in parse_arms(arms)
    ]


def parse_arms(text: str) -> list[str]:
    """Return the arms written as 'bm25,random'. Raises InputError for an unknown one, or one that is given twice."""
    arms = _items(text, "arms")
    for arm in arms:
        if arm not in ARMS:
            raise InputError(f"arms: '{arm}' is no arm{nearest(arm, ARMS)}")
    return arms


def parse_seeds(text: str) -> list[int]:
    """Return the seeds written as '0,1,2'. Raises InputError for one that is no number, or is given twice."""
    seeds = _items(text, "seeds")
    for seed in seeds:
        if not seed.isdecimal():
            raise InputError(f"seeds: '{seed}' is no whole number, 0 or greater; give them as '0,1,2'")
    return [int(seed) for seed in seeds]


def _items(text: str, name: str) -> list[str]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items or len(set(items)) < len(items):
        raise InputError(f"{name}: '{text}' is empty or names one twice; give them separated by commas")
    return items
