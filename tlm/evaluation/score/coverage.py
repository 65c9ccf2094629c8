"""Coverage: how many texts a model answers with at least some probability, and how often these answers are right."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact

SHARES = (0.5, 0.6, 0.7, 0.8, 0.9)  # of the texts of dev; all texts are answered from the probability 0 on
DIGITS = 4  # of a threshold, so that one can type it
MOST_POINTS = 100  # of a curve
LEAST_SHARE = 0.1  # of a curve: the accuracy of fewer texts is mostly luck

Answers = tuple[NDArray[np.float64], NDArray[np.bool_]]  # the probability of each answer, and whether it is right


def coverage(metrics: Artifact) -> dict[str, Any] | None:
    """Thresholds that answer `SHARES` of dev, and what they give on dev and on test; the curves of both splits.

    Args:
        metrics: Of a model for single labels.

    Returns:
        ``rows``, each with ``at_least`` and, for dev and test, ``share`` and ``accuracy`` of the answered texts (None
        if there are none); ``curves``, lists of [share, accuracy] by split. None if dev or test has no texts, or if
        all answers have the same probability.
    """
    table = pq.ParquetFile(metrics.path("predictions.parquet")).read(["split", "gold", "predicted", "probabilities"])
    splits = {name: _answers(table.filter(pc.equal(table["split"], name))) for name in ("dev", "test")}
    chances = np.sort(splits["dev"][0])[::-1]
    if not len(chances) or not len(splits["test"][0]):
        return None
    found = [chances[math.ceil(share * len(chances)) - 1] for share in SHARES]
    thresholds = dict.fromkeys(math.floor(value * 10**DIGITS) / 10**DIGITS for value in found)
    rows = [{"at_least": at, **{name: _at(at, *one) for name, one in splits.items()}} for at in (*thresholds, 0.0)]
    curves = {name: _curve(*one) for name, one in splits.items()}
    return {"rows": rows, "curves": curves} if len(np.unique(chances)) > 1 else None


def _answers(rows: pa.Table) -> Answers:
    chances = [max(row) for row in rows["probabilities"].to_pylist()]
    return np.array(chances, np.float64), np.array(rows["gold"].to_pylist()) == np.array(rows["predicted"].to_pylist())


def _at(at_least: float, chances: NDArray[np.float64], right: NDArray[np.bool_]) -> dict[str, float | None]:
    answered = chances >= at_least
    accuracy = float(right[answered].mean()) if answered.any() else None
    return {"share": float(answered.mean()), "accuracy": accuracy}


def _curve(chances: NDArray[np.float64], right: NDArray[np.bool_]) -> list[list[float]]:
    """Share and accuracy of the surest texts, for each probability at which the share grows; thinned."""
    order = np.argsort(-chances, kind="stable")
    counts = np.arange(1, len(order) + 1)
    points = np.stack([counts / len(order), np.cumsum(right[order]) / counts], axis=1)
    last = np.append(np.diff(chances[order]) != 0, True)  # of equal probabilities
    kept = points[last & (points[:, 0] >= LEAST_SHARE)]
    places = np.unique(np.linspace(0, len(kept) - 1, MOST_POINTS).astype(int))
    return [[round(float(value), 4) for value in point] for point in kept[places]]
