"""The step `import-predictions`: scores of predictions that another program made, as a row of the report."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.home import home
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.reading.files import RawFile, raw_files
from tlm.data.reading.readers import check, read
from tlm.data.reading.records import BadRow, Reject, name_of, value_of
from tlm.errors import InputError, nearest, refuse_negative
from tlm.evaluation.score.record import scored

VERSION = 1
IMPORTED = "imported"
PROBABILITIES = "probabilities"


def import_predictions(
    file: str,
    task: str,
    *,
    name: str,
    id_field: str = "id",
    label_field: str = "label",
    seed: int = 0,
    root: str | None = None,
) -> str:
    """Score the predictions of any other model (a language model, AutoML), so that reports compare with it.

    The file has a row for each dev and test example, in any order; rows for train examples are ignored. A row has the
    example's id and the predicted label, or a probability for each label: an object in the field "probabilities", or
    columns named p(LABEL) as `tlm predict` writes them. For regression, the field of the label holds a number.

    Args:
        file: The predictions: jsonl, csv, tsv or parquet.
        task: URI of the task.
        name: Name of the model in reports.
        id_field: Field with the id of the example: that of the task's id field, else <file name>:<line> of its row.
        label_field: Field with the predicted label or number.
        seed: Seed of the model; runs of one name that differ in it are put together.
        root: Store to write to, which holds the task; by default TLM_ROOT, else the store of the task.

    Raises:
        InputError: a row has an unknown or repeated id, an unknown label or no usable value, or an example is missing.
    """
    examples = Artifact.open(task, "task")
    root = home(root, [examples]).root
    if not name.strip():
        raise InputError("name is empty; give the model a name for the reports")
    refuse_negative(seed=seed)
    with raw_files([file]) as found:
        if len(found) != 1:
            raise InputError(f"{file} is {len(found)} files; expected one file of predictions")
        check(found[0], [id_field])
        fields = {"id_field": id_field, "label_field": label_field, "file": found[0].digest()}
        settings = {"arm": name.strip(), "seed": seed, **fields, **scored(examples)}
        recipe = Recipe("metrics", "import-predictions", VERSION, settings, {"task": examples})
        return produce(recipe, root, lambda draft: _write(draft, recipe, found[0]))


def _write(draft: Draft, recipe: Recipe, file: RawFile) -> None:
    from tlm.data.tasks.arrays import read_splits
    from tlm.data.tasks.task import examples
    from tlm.evaluation.score.record import Prediction, write_metrics

    task, settings = recipe.inputs["task"], recipe.settings
    labels = task.details["labels"] if task.details["problem"] == "classification" else None
    ids = examples(task)["id"].to_pylist()
    predicted = _by_id(file, settings["id_field"], settings["label_field"], set(ids), labels)
    predictions = []
    for split in read_splits(task, "dev", "test").values():
        wanted = [ids[number] for number in split.example]
        if len(set(wanted)) < len(wanted):
            raise InputError(f"ids of {task.uri} repeat, so they name no example; load the task with another id_field")
        missing = [one for one in wanted if one not in predicted]
        if missing:
            raise InputError(
                f"{file.where} has no prediction for {len(missing)} of the {len(wanted)} {split.name} examples, the "
                f"first is '{missing[0]}'; give a row for each"
            )
        predictions.append(Prediction.of(split, np.stack([predicted[one] for one in wanted])))
    identity = {"arm": settings["arm"], "seed": settings["seed"], "stage": IMPORTED, "mlm_loss": None}
    write_metrics(draft, task, predictions, identity, {"cost": {}})


def _by_id(
    file: RawFile, id_field: str, label_field: str, known: set[str], labels: list[str] | None
) -> dict[str, NDArray[np.float64]]:
    """The prediction for each id: probabilities, shape [classes], or a number, shape [1]."""
    found: dict[str, NDArray[np.float64]] = {}
    for row in read(file, [id_field]):
        where = f"{file.where}:{row.line}"
        if isinstance(row, Reject):
            raise InputError(f"{where}: {row.reason}, {row.detail}; fix the row")
        try:
            name = name_of(row.values, id_field)
            values = [_number(row.values, label_field)] if labels is None else _chances(row.values, label_field, labels)
        except BadRow as bad:
            raise InputError(f"{where}: {bad.reason}, {bad.detail}; fix the row") from None
        if name not in known:
            raise InputError(f"{where}: id '{name}' is not in the task{nearest(name, sorted(known))}")
        if name in found:
            raise InputError(f"{where}: id '{name}' has a prediction in an earlier row; give one for each example")
        found[name] = np.array(values, np.float64)
    return found


def _chances(values: Mapping[str, Any], label_field: str, labels: list[str]) -> list[float]:
    """A probability for each label; 1 for the predicted one if only that is given."""
    given = values.get(PROBABILITIES)
    if not isinstance(given, Mapping):
        given = {key[2:-1]: value for key, value in values.items() if key.startswith("p(") and key.endswith(")")}
    if not given:
        given = {name_of(values, label_field): 1.0}
    unknown = [label for label in given if label not in labels]
    if unknown:
        raise BadRow("unknown label", f"'{unknown[0]}' is not one of {', '.join(labels)}")
    chances = [_number(given, label) if label in given else 0.0 for label in labels]
    if min(chances) < 0 or sum(chances) <= 0:
        raise BadRow("no probabilities", f"{chances} are not 0 or more with a sum above 0")
    return [chance / sum(chances) for chance in chances]


def _number(values: Mapping[str, Any], field: str) -> float:
    value = value_of(values, field)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise BadRow("not a number", f"field '{field}' is {value!r}")
    return number
