"""The predictions of kept runs, from which intervals over test examples are computed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tlm.evaluation.mixture.kinds import PARTS, Row
from tlm.evaluation.report.runs import spread, with_interval
from tlm.evaluation.score.intervals import Arm, Scored
from tlm.paper.results import BASELINE, Result
from tlm.retrieval.select.selectors import draws

SPLITS = ("dev", "test")


def packed(predictions: pa.Table, labels: list[str] | None) -> dict[str, Any]:
    """The predictions of a run for its result: gold, predicted, group and copied by split, each in one line.

    Classes are indexes into ``labels``; ``copied`` is 1 for an example whose text is also in train.
    """
    found: dict[str, Any] = {"labels": labels}
    for split in SPLITS:
        rows = predictions.filter(pc.equal(predictions["split"], split))
        columns = {name: rows[name].to_pylist() for name in ("gold", "predicted", "group", "copied")}
        if labels is not None:
            columns |= {name: [labels.index(label) for label in columns[name]] for name in ("gold", "predicted")}
        columns["copied"] = [int(copied) for copied in columns["copied"]]
        found[split] = {name: " ".join(map(str, values)) for name, values in columns.items()}
    return found


def arm_of(runs: Sequence[Result], split: str, metric: str = "", *, without_copies: bool = False) -> Arm | None:
    """The predictions of some runs for a split, by default with the task's own metric.

    None if there is no run, one was kept without its predictions, or they were scored on different examples.
    """
    if not runs or not all("examples" in run.values for run in runs):
        return None
    scored = [_scored(run, split, metric or run.values["metric"], without_copies) for run in runs]
    if not all(one.same_examples(scored[0]) for one in scored):
        return None
    together = replace(scored[0], predicted=np.concatenate([one.predicted for one in scored]))
    return Arm((together,), fixed=runs[0].values["arm"] == BASELINE, draws=_draws(runs))


def _draws(runs: Sequence[Result]) -> tuple[int, ...]:
    """The draw of text that each run learned from, by number; () if none was drawn. Kept corpora are large ones."""
    if not any(draws(text) for text in Row.of(runs[0].values["arm"], "").text.split(PARTS)):
        return ()
    made_from = [run.values["made_from"].items() for run in runs]
    subsets = [{content for name, content in one if name.startswith("subset/")} for one in made_from]
    return tuple(subsets.index(one) for one in subsets)


def summed(runs: Sequence[Result], split: str, metric: str = "", *, without_copies: bool = False) -> dict[str, Any]:
    """The `spread` of the runs' scores in hundredths; ``seeds_only`` if the interval does not cover test examples.

    Without copies, there are no scores if a run was kept without its predictions.
    """
    arm = arm_of(runs, split, metric, without_copies=without_copies)
    found = spread(() if without_copies else (run.score(split, metric) for run in runs))
    if arm is not None:
        whole = in_hundredths(with_interval(arm))
        found |= whole if without_copies else {end: whole[end] for end in ("low", "high")}
    return found | {"seeds_only": bool(runs) and arm is None}


def in_hundredths(found: dict[str, Any]) -> dict[str, Any]:
    """A `spread` of scores in hundredths."""
    ends = {name: found[name] and 100 * found[name] for name in ("mean", "std", "low", "high")}
    return {"values": [100 * value for value in found["values"]], **ends}


def copies_in(runs: Sequence[Result], split: str) -> bool:
    """Whether some, but not all, texts of a split are also in train."""
    copies, texts = copies_of(runs, split)
    return 0 < copies < texts


def copies_of(runs: Sequence[Result], split: str) -> tuple[int, int]:
    """How many examples of a split have a text that is also in train, of how many; 0 of 0 without predictions."""
    found = [
        flags for run in runs if (flags := run.values.get("examples", {}).get(split, {}).get("copied", "").split())
    ]
    return max(((flags.count("1"), len(flags)) for flags in found), default=(0, 0))


def _scored(run: Result, split: str, metric: str, without_copies: bool) -> Scored:
    examples = run.values["examples"]
    number = float if examples["labels"] is None else int
    gold, predicted = (np.array(examples[split][name].split(), dtype=number) for name in ("gold", "predicted"))
    group, copied = (np.array(examples[split][name].split(), dtype=int) for name in ("group", "copied"))
    rows = copied == 0 if without_copies else slice(None)
    return Scored(metric, gold[rows], predicted[rows][None], np.unique(group[rows], return_inverse=True)[1])
