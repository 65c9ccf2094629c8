"""Kept results: a line of JSON for each finished run, in one file for each table, checked against its cell."""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from research.paper.tables import all_tables, cells, curves, key_of, scales, task_of
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores.store import canonical_json, value_sha256
from tlm.errors import InputError
from tlm.evaluation.score.intervals import Arm, Predictions, spread, with_interval
from tlm.evaluation.score.mix import PARTS, ReportRow
from tlm.settings.selectors import draws

FOLDER = "research/results"
BASELINE = "baseline"
RESAMPLES = 10_000  # ten times a report's, because verdicts on a page stay


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run, equal only to itself.

    Attributes:
        place: Its file and line, such as ``research/results/4.jsonl:7``.
        values: What the line holds: key, cell (table, scale, column, row), seed, arm, metric, scores by split and
            metric, examples (the predictions, see `research.paper.results`; older results have none), mlm_loss, cost,
            settings, versions, command, revision, made_from (kind/key: content), digest.
    """

    place: str
    values: dict[str, Any]

    @property
    def key(self) -> str:
        """The key of the cell."""
        return str(self.values["key"])

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.values["seed"])

    def score(self, split: str, metric: str = "") -> float | None:
        """A score in hundredths, by default in the task's own metric; None if there is none."""
        found = self.values["scores"].get(split, {}).get(metric or self.values["metric"])
        return None if found is None else 100 * float(found)


def baseline_key(task: str) -> str:
    """The key of the linear baseline of a task."""
    return f"{BASELINE}-{task}"


def digest(values: dict[str, Any]) -> str:
    """Digest of everything in a result but its digest."""
    return value_sha256({name: value for name, value in values.items() if name != "digest"})


def write_results(folder: Path, table: str, made: Sequence[dict[str, Any]]) -> Path:
    """Write results into ``<table>.jsonl``, all or none; each replaces an older one of its key and seed.

    Lines are in the order of keys and seeds, and equal results give equal bytes. Several processes may write at once.

    Raises:
        InputError: a line of the file is damaged (see `read_results`); nothing is written then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table}.jsonl"
    with _alone(folder):
        lines = {(one.key, one.seed): one.values for one in _read(path)} if path.exists() else {}
        lines |= {(one["key"], one["seed"]): {**one, "digest": digest(one)} for one in made}
        replaced(path, b"".join(canonical_json(lines[place]) + b"\n" for place in sorted(lines)))
    return path


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process writes into the folder, and let none write meanwhile."""
    lock = os.open(folder, os.O_RDONLY)  # of the folder, because the file itself is replaced
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def replaced(path: Path, data: bytes) -> bool:
    """Replace the file atomically; False if it has these bytes already."""
    if path.exists() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)
    return True


def read_results(folder: Path) -> list[Result]:
    """All results in `folder`: file by file, and in each by key and seed.

    Raises:
        InputError: a line is no result that `keep` wrote, or lines are out of order; the message names it.
    """
    return [result for path in sorted(folder.glob("*.jsonl")) for result in _read(path)]


def _read(path: Path) -> list[Result]:
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            values = json.loads(line)
            found.append(Result(f"{path}:{number}", values))
            # what is missing is an error here
            _ = (found[-1].key, found[-1].seed, values["cell"]["table"], values["scores"], values["metric"])
            if line != canonical_json(values):
                raise ValueError("not in canonical JSON")
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}:{number} is no result of `keep` ({error!r}); restore or remove it") from None
    for one, after in pairwise(found):
        if (one.key, one.seed) >= (after.key, after.seed):
            raise InputError(
                f"{after.place} is out of order: lines go by key and seed, each once, and this one has {after.key}, "
                f"seed {after.seed}, after {one.key}, seed {one.seed}; move it, or remove one of the two"
            )
    return found


def by_key(results: Iterable[Result]) -> dict[str, dict[int, Result]]:
    """Results by key and seed, seeds in ascending order, whichever table's file they are in."""
    found: dict[str, dict[int, Result]] = {}
    for result in sorted(results, key=lambda one: one.seed):
        found.setdefault(result.key, {}).setdefault(result.seed, result)
    return found


def fault(result: Result, root: str | None = None) -> str:
    """Describe in a sentence what is wrong with a result; "" if nothing is.

    Faults are a line that was changed after it was written or is in another table's file, settings that are no longer
    those of the cell, and metrics, if they are still under `root`, that differ from the metrics that it was made from.
    """
    values = result.values
    if values.get("digest") != digest(values):
        return f"{result.place} was changed after it was written; restore it, or keep the run again"
    table = values["cell"]["table"]
    if Path(result.place.rpartition(":")[0]).stem != table:
        return f"{result.place} is a result of table {table}; move it to {table}.jsonl"
    if wrong := _wrong_on_curve(result) if table in curves() else _wrong_in_table(result):
        return wrong
    return _other_metrics(result, root) if root is not None else ""


def _wrong_on_curve(result: Result) -> str:
    """What is wrong with the place of a result on a curve; "" if nothing is."""
    cell = result.values["cell"]
    if result.key == key_of(cell["table"], cell["column"], cell["row"], cell["at"]):
        return ""
    return f"{result.place} has another key than its place on the curve; keep the run again"


def _wrong_in_table(result: Result) -> str:
    """What is wrong with the cell of a result in a table; "" if nothing is. The baseline has no cell."""
    if result.values["arm"] == BASELINE:
        return ""
    table, scale, column = (result.values["cell"][name] for name in ("table", "scale", "column"))
    known = cells(table, scale, [task_of(column)]) if table in all_tables() and scale in scales() else []
    cell = next((cell for cell in known if cell.key == result.key), None)
    if cell is None:
        return f"{result.place} belongs to no cell of table {table} any more; run it again"
    if different := differences(result.values["settings"], cell.settings()):
        return f"{result.place} was made with {', '.join(different[:3])}; run it again"
    return ""


def _other_metrics(result: Result, root: str) -> str:
    """Say so if metrics of the result are still in the store `root` and differ from those it was made from."""
    for name, content in result.values["made_from"].items():
        with suppress(InputError):  # not metrics, or they were deleted, or made elsewhere
            run = Artifact.open(f"{root.rstrip('/')}/{name}", "metrics")
            if run.content != content:
                return f"{result.place} was made from other metrics than {run.uri}; keep it again"
    return ""


def differences(recorded: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """The settings in which a run differs from its cell, as ``train.rho1=4 instead of 3``.

    Settings that only one side has are ignored: an adopted vocabulary, or a setting that is newer than the run.
    """
    names = [name for name in wanted if name in recorded and recorded[name] != wanted[name]]
    return [f"{name}={recorded[name]} instead of {wanted[name]}" for name in names]


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
    return _arm(tuple(runs), split, metric, without_copies) if runs else None


@lru_cache(maxsize=512)  # tables and figures of one page ask for the same, and resampling takes the time
def _arm(runs: tuple[Result, ...], split: str, metric: str, without_copies: bool) -> Arm | None:
    if not all("examples" in run.values for run in runs):
        return None
    scored = [_scored(run, split, metric or run.values["metric"], without_copies) for run in runs]
    if not all(one.same_examples(scored[0]) for one in scored):
        return None
    together = replace(scored[0], predicted=np.concatenate([one.predicted for one in scored]))
    alike = bool((together.predicted == together.predicted[0]).all())  # else it learned from other labels in each draw
    fixed = alike and runs[0].values["arm"] == BASELINE
    return Arm((together,), fixed=fixed, draws=_draws(runs), resamples=RESAMPLES)


def _draws(runs: Sequence[Result]) -> tuple[int, ...]:
    """The draw of text that each run learned from, by number; () if none was drawn. Kept corpora are large ones."""
    text = ReportRow.of(runs[0].values["arm"], "").text
    if not any(draws(part) for part in text.split(PARTS)):
        return ()
    subsets = []
    for run in runs:
        made_from = run.values["made_from"].items()
        subsets.append({content for name, content in made_from if name.startswith("subset/")})
    return tuple(subsets.index(subset) for subset in subsets)


def summed(runs: Sequence[Result], split: str, metric: str = "", *, without_copies: bool = False) -> dict[str, Any]:
    """The `spread` of the runs' scores in hundredths; ``seeds_only`` if the interval does not cover test examples.

    Without copies, there are no scores if a run was kept without its predictions.
    """
    arm = arm_of(runs, split, metric, without_copies=without_copies)
    kept = [] if without_copies else [run.score(split, metric) for run in runs]
    result: dict[str, Any] = {**spread(kept)}
    if arm is not None:
        of_arm = in_hundredths(with_interval(arm))
        if without_copies:
            result |= of_arm
        else:  # the scores are those that were kept
            result |= {end: of_arm[end] for end in ("low", "high")}
    return result | {"seeds_only": bool(runs) and arm is None}


def in_hundredths(scores: Mapping[str, Any]) -> dict[str, Any]:
    """A `spread` of scores in hundredths."""
    numbers = {name: scores[name] for name in ("mean", "std", "low", "high")}
    in_100ths = {name: None if value is None else 100 * value for name, value in numbers.items()}
    return {"values": [100 * value for value in scores["values"]], **in_100ths}


def copies_in(runs: Sequence[Result], split: str) -> bool:
    """Whether some, but not all, texts of a split are also in train."""
    copies, texts = copies_of(runs, split)
    return 0 < copies < texts


def copies_of(runs: Sequence[Result], split: str) -> tuple[int, int]:
    """The number of examples of a split whose text is also in train, and of all; 0 of 0 without predictions."""
    most = (0, 0)
    for run in runs:
        examples = run.values.get("examples", {}).get(split, {})
        flags = examples.get("copied", "").split()
        most = max(most, (flags.count("1"), len(flags)))
    return most


def _scored(run: Result, split: str, metric: str, without_copies: bool) -> Predictions:
    examples = run.values["examples"]
    number = float if examples["labels"] is None else int
    gold, predicted = (np.array(examples[split][name].split(), dtype=number) for name in ("gold", "predicted"))
    group, copied = (np.array(examples[split][name].split(), dtype=int) for name in ("group", "copied"))
    rows = copied == 0 if without_copies else slice(None)
    return Predictions(metric, gold[rows], predicted[rows][None], np.unique(group[rows], return_inverse=True)[1])
