"""The plan of a pipeline run: settings resolved and checked before any work, arms × seeds as flat strings."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from tlm import presets
from tlm.errors import InputError, nearest
from tlm.progress import say

ARMS = ("task-only", "random", "bm25")


class Settings(NamedTuple):
    """What the steps before training need to know: flat values, because that is what travels in a pipeline."""

    top_k: int
    query: str
    tokenizer_kind: str
    vocab_size: int


class Run(NamedTuple):
    """One training run: all that its steps need to know, written as one flat string, like a URL's query.

    Attributes:
        arm: One of `ARMS`.
        seed: Its seed.
        task: URI of the task.
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

    def inputs(self) -> dict[str, Any]:
        """What stage 1 takes beside the task."""
        return {"tokenizer": self.tokenizer, "subset": self.subset, "seed": self.seed}

    def settings(self) -> dict[str, Any]:
        """Preset and overrides, as both stages take them."""
        return {"preset": self.preset, "overrides": self.overrides.split()}


def settings(preset: str, *, overrides: Sequence[str] = (), arms: str = "bm25", seeds: str = "0") -> Settings:
    """Resolve a preset with its overrides into flat values, and check arms and seeds, before any work.

    Raises:
        InputError: an unknown preset, setting or arm, a seed that is no number, one named twice.
    """
    resolved = presets.resolve(preset, overrides)
    runs = len(_arms(arms)) * len(parse_seeds(seeds))
    say(f"settings: preset {preset}, K={resolved.retrieve.top_k}, {runs} runs (arms {arms}, seeds {seeds})")
    return Settings(
        resolved.retrieve.top_k,
        resolved.retrieve.query,
        resolved.tokenizer.kind,
        resolved.tokenizer.vocab_size,
    )


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
