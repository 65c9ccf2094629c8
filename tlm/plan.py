"""The plan of a pipeline run: settings resolved and checked before any work, arms × seeds as flat strings."""

from collections.abc import Sequence
from typing import NamedTuple

from tlm import presets
from tlm.errors import InputError, nearest
from tlm.progress import say

ARMS = ("task-only", "random", "bm25")


class Plan(NamedTuple):
    """What the steps of a run need to know: flat values, because that is what travels in a Kubeflow pipeline."""

    top_k: int
    query: str
    tokenizer_kind: str
    vocab_size: int
    runs: list[str]


class Run(NamedTuple):
    """One training run of the plan: an arm and a seed, written ``bm25:0``."""

    arm: str
    seed: int

    def __str__(self) -> str:
        return f"{self.arm}:{self.seed}"

    @classmethod
    def parse(cls, text: str) -> "Run":
        """The run written as `text`."""
        arm, _, seed = text.partition(":")
        return cls(arm, int(seed))

    def subset(self, bm25: str, random: str) -> str:
        """Of the two subsets' URIs the one this run's arm trains on; "" for the task alone."""
        return {"bm25": bm25, "random": random, "task-only": ""}[self.arm]


def plan(preset: str, *, overrides: Sequence[str] = (), arms: str = "bm25", seeds: str = "0") -> Plan:
    """Resolve a preset with its overrides, and arms × seeds (comma-separated), into flat values.

    Raises:
        InputError: an unknown preset, setting or arm, a seed that is no number, one named twice.
    """
    resolved = presets.resolve(preset, overrides)
    runs = [str(Run(arm, seed)) for seed in _seeds(seeds) for arm in _arms(arms)]
    say(f"plan: preset {preset}, K={resolved.retrieve.top_k}, {len(runs)} runs: {', '.join(runs)}")
    return Plan(
        resolved.retrieve.top_k,
        resolved.retrieve.query,
        resolved.tokenizer.kind,
        resolved.tokenizer.vocab_size,
        runs,
    )


def _arms(text: str) -> list[str]:
    arms = _items(text, "arms")
    for arm in arms:
        if arm not in ARMS:
            raise InputError(f"arms: '{arm}' is no arm{nearest(arm, ARMS)}")
    return arms


def _seeds(text: str) -> list[int]:
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
