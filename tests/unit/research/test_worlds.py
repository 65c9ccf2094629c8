"""The study `worlds`: its truth is that of many drawn texts, and its kept numbers are those of its seeds."""

import json
from pathlib import Path

import numpy as np
import pytest

from research.worlds import (
    CASCADES,
    DEV,
    GAINS,
    INTERVALS,
    KEPT,
    METRIC,
    SIZES,
    Model,
    Texts,
    World,
    confused,
    uneven,
    worlds,
)
from tlm.data.tasks.metrics import score
from tlm.errors import InputError


def test_the_truth_is_the_score_of_many_texts() -> None:
    rng, shares = np.random.default_rng(0), uneven(5, 1.0)
    model = Model(np.array([1.0, 0.8, 0.5, 0.0, -0.5]), confused(rng, shares))
    texts = Texts.drawn(rng, World(shares, 400_000))
    assert score(METRIC, texts.gold, model.answers(rng, texts)[0]) == pytest.approx(model.truth(shares, 0.0), abs=0.003)
    assert model.truth(shares, 0.5) < model.truth(shares, 0.0) - 0.01


def test_a_line_for_each_world_and_the_same_each_time(tmp_path: Path) -> None:
    files = [Path(worlds(times=2, file=tmp_path / name)) for name in "ab"]
    assert files[0].read_bytes() == files[1].read_bytes()
    rows, kept = ([json.loads(line) for line in file.read_text("utf-8").splitlines()] for file in (files[0], KEPT))
    assert len(rows) == len(INTERVALS) + len(GAINS) * len(SIZES) + len(CASCADES) * len(DEV)
    assert [(row["world"], [*row]) for row in rows] == [(row["world"], [*row]) for row in kept]
    with pytest.raises(InputError, match="times is 0"):
        worlds(times=0, file=tmp_path / "none")
    with pytest.raises(InputError, match="seed is -1"):
        worlds(seed=-1, file=tmp_path / "none")


def test_what_is_kept_says_that_intervals_hold_and_that_cascades_lose_little() -> None:
    for row in map(json.loads, KEPT.read_text("utf-8").splitlines()):
        if "held" in row:
            assert row["held"] >= 0.91, row
            assert row["called different"] <= 0.075, row
        if "lost" in row:
            assert row["lost"] <= 0.019, row
