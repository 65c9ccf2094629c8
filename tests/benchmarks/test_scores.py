"""A benchmark calls an arm ahead only where the report does."""

from pathlib import Path

import pytest

from research.benchmarks.demo import scores
from tests.toy_reports import told_of, toy_world
from tlm.evaluation.score.baseline import baseline


@pytest.mark.parametrize(("skill", "seeds", "verdict"), [(1.0, 3, "PASS"), (0.3, 3, "short"), (1.0, 1, "short")])
def test_an_arm_is_ahead_only_with_its_interval_above_0(skill: float, seeds: int, verdict: str, tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    runs = [world.metrics("bm25", seed, skill) for seed in range(seeds)]
    told = told_of([*runs, baseline(world.task, root=str(tmp_path))])
    (found,) = scores("toy", told)
    assert found.ours > found.theirs
    assert found.verdict == verdict
    assert ("95 % interval" in found.note) == (seeds >= 3)
