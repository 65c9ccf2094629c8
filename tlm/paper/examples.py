"""What kept runs predicted, example by example: what intervals over test examples are made from."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tlm.evaluation.report.runs import spread, with_interval
from tlm.evaluation.score.intervals import Arm, Scored
from tlm.paper.results import BASELINE, Result

SPLITS = ("dev", "test")


def packed(predictions: pa.Table, labels: list[str] | None) -> dict[str, Any]:
    """The predictions of a run for its result file: by split gold, predicted, group and copied, each in one line.

    Classes are ordinals into ``labels``. Of ``copied`` there is 1 where train has the same text.
    """
    found: dict[str, Any] = {"labels": labels}
    for split in SPLITS:
        rows = predictions.filter(pc.equal(predictions["split"], split))
        columns = {name: rows[name].to_pylist() for name in ("gold", "predicted", "group", "copied")}
        if labels is not None:
            place = {label: index for index, label in enumerate(labels)}
            columns |= {name: [place[label] for label in columns[name]] for name in ("gold", "predicted")}
        columns["copied"] = [int(copied) for copied in columns["copied"]]
        found[split] = {name: " ".join(map(str, values)) for name, values in columns.items()}
    return found


def arm_of(runs: Sequence[Result], split: str, metric: str = "", *, without_copies: bool = False) -> Arm | None:
    """The predictions of some runs for a split, by the task's own metric unless one is named.

    None if there is no run, if one was kept without its predictions, or if they were scored on different examples.
    """
    if not runs or not all("examples" in run.values for run in runs):
        return None
    scored = [_scored(run, split, metric or run.values["metric"], without_copies) for run in runs]
    if not all(one.same_examples(scored[0]) for one in scored):
        return None
    predicted = np.concatenate([one.predicted for one in scored])
    fixed = runs[0].values["arm"] == BASELINE
    return Arm((Scored(scored[0].metric, scored[0].gold, predicted, scored[0].group),), fixed)


def summed(runs: Sequence[Result], split: str, metric: str = "") -> dict[str, Any]:
    """The `spread` of the runs' scores in hundredths; ``seeds_only`` where the interval knows no test examples."""
    found, arm = spread(run.score(split, metric) for run in runs), arm_of(runs, split, metric)
    if arm is not None:
        whole = in_hundredths(with_interval(arm))
        found |= {end: whole[end] for end in ("low", "high")}
    return found | {"seeds_only": bool(runs) and arm is None}


def in_hundredths(found: dict[str, Any]) -> dict[str, Any]:
    """A `spread` of scores in hundredths."""
    values = [100 * value for value in found["values"]]
    return {name: None if value is None else 100 * value for name, value in found.items() if name != "values"} | {
        "values": values
    }


def copies_in(runs: Sequence[Result], split: str) -> bool:
    """Whether some, but not all, texts of a split stood in train too."""
    return any({"0", "1"} <= set(run.values.get("examples", {}).get(split, {}).get("copied", "")) for run in runs)


def _scored(run: Result, split: str, metric: str, without_copies: bool) -> Scored:
    examples = run.values["examples"]
    number = float if examples["labels"] is None else int
    columns: dict[str, NDArray[Any]] = {
        name: np.array(examples[split][name].split(), dtype=number if name in ("gold", "predicted") else int)
        for name in ("gold", "predicted", "group", "copied")
    }
    rows = columns["copied"] == 0 if without_copies else slice(None)
    group = np.unique(columns["group"][rows], return_inverse=True)[1]
    return Scored(metric, columns["gold"][rows], columns["predicted"][rows][None], group)
