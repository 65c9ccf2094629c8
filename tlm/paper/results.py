"""Kept results: a small JSON file for each finished run, checked against the cell that it belongs to."""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.digest import value_sha256
from tlm.errors import InputError
from tlm.paper.curves import curves, key_of
from tlm.paper.tables import all_tables, cells, scales

FOLDER = "docs/results"
BASELINE = "baseline"


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        path: Its file.
        values: Contents of the file: key, cell (table, scale, column, row), seed, arm, metric, scores by split and
            metric, examples (the predictions, see `tlm.paper.examples`; older files have none), mlm_loss, cost,
            settings, versions, command, revision, made_from (kind/key: content), digest.
    """

    path: Path
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


def file_name(key: str, seed: int) -> str:
    """Name of a result's file."""
    return f"{key}-seed-{seed}.json"


def digest(values: dict[str, Any]) -> str:
    """Digest of everything in the file but the digest."""
    return value_sha256({name: value for name, value in values.items() if name != "digest"})


def write_result(folder: Path, values: dict[str, Any]) -> Path:
    """Write ``table-<number>/<key>-seed-<seed>.json``; the same values give the same bytes."""
    path = folder / f"table-{values['cell']['table']}" / file_name(values["key"], values["seed"])
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**values, "digest": digest(values)}, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def read_results(folder: Path) -> list[Result]:
    """All results in `folder`, by file name. Raises InputError if a file is not JSON or not a result."""
    found = []
    for path in sorted(folder.glob("table-*/*.json")):
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            found.append(Result(path, values))
            _ = (found[-1].key, found[-1].seed, values["cell"]["table"], values["scores"], values["metric"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is no result of `tlm keep` ({error!r}); restore it or remove it") from None
    return found


def by_key(results: Iterable[Result]) -> dict[str, dict[int, Result]]:
    """Results by key and seed, whichever table's folder they are in."""
    found: dict[str, dict[int, Result]] = {}
    for result in results:
        found.setdefault(result.key, {}).setdefault(result.seed, result)
    return found


def fault(result: Result, root: str | None = None) -> str:
    """Describe in a sentence what is wrong with a result; "" if nothing is.

    Faults are a file that was changed after it was written or has another run's name, settings that are no longer those
    of the cell, and scores that differ from the run's metrics if these are still under `root`.
    """
    values = result.values
    if values.get("digest") != digest(values):
        return f"{result.path} was changed after it was written; restore it, or keep the run again"
    if result.path.name != file_name(result.key, result.seed):
        return f"{result.path} holds the result {file_name(result.key, result.seed)}; give it its own name"
    if values["cell"]["table"] in curves():
        if result.key != key_of(*(values["cell"][name] for name in ("table", "column", "row", "at"))):
            return f"{result.path} has another key than its place on the curve; keep the run again"
    elif values["arm"] != BASELINE:
        table, scale, column = (values["cell"][name] for name in ("table", "scale", "column"))
        known = cells(table, scale, [column.partition("/")[0]]) if table in all_tables() and scale in scales() else []
        cell = next((cell for cell in known if cell.key == result.key), None)
        if cell is None:
            return f"{result.path} belongs to no cell of table {table} any more; run it again"
        if different := differences(values["settings"], cell.settings()):
            return f"{result.path} was made with {', '.join(different[:3])}; run it again"
    if root is not None:
        name, content = next(item for item in values["made_from"].items() if item[0].startswith("metrics/"))
        with suppress(InputError):  # the metrics were deleted, or made elsewhere
            run = Artifact.open(f"{root.rstrip('/')}/{name}", "metrics")
            if run.content != content:
                return f"{result.path} was made from other metrics than {run.uri}; keep it again"
    return ""


def differences(recorded: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """The settings in which a run differs from its cell, as ``train.rho1=4 instead of 3``.

    Settings that only one side has are ignored: an adopted vocabulary, or a setting that is newer than the run.
    """
    names = [name for name in wanted if name in recorded and recorded[name] != wanted[name]]
    return [f"{name}={recorded[name]} instead of {wanted[name]}" for name in names]
