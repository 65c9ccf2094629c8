"""The step `import-predictions`: scores of predictions that another program made, as a row of the report."""

import json
import math
import reprlib
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.reading.files import RawFile, raw_files, some
from tlm.data.reading.readers import check, read
from tlm.data.reading.records import BadRow, Reject, name_of, value_of
from tlm.data.tasks.examples import SEVERAL, classes_of, examples, read_splits
from tlm.data.tasks.labelled import label_of, labels_of
from tlm.data.tasks.metrics import UNFITTED, above, sum_in_order
from tlm.errors import InputError, nearest, printable
from tlm.evaluation.score.scores import Prediction, scored, write_metrics
from tlm.progress import track
from tlm.settings.options import NOT_NEGATIVE

VERSION = 5
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
    example's id and the predicted label, or a probability for each label: an object in the field "probabilities" (in a
    csv as JSON), or columns named p(LABEL) as `tlm predict` writes them. For regression, the field of the label holds a
    number; for several labels a text a list (in a csv a; b), or those with a probability above 0.5 are predicted. If a
    row has both, its label is what was predicted.

    Args:
        file: The predictions: jsonl, csv, tsv or parquet.
        task: URI of the task.
        name: Name of the model in reports.
        id_field: Field with the id of the example: that of the task's id field, else <file name>:<line> of its row.
        label_field: Field with the predicted label or number.
        seed: Seed of the model; runs with the same name and different seeds are one row of a report.
        root: Store to write to, which holds the task; by default TLM_ROOT, else the store of the task.

    Raises:
        InputError: a row has an unknown or repeated id, an unknown label or no usable value, or an example is missing.
    """
    labelled, name = Artifact.open(task, "task"), printable(name.strip())
    if not name:
        raise InputError("name is empty; give the model a name for the reports")
    if name == "baseline":
        raise InputError("name 'baseline' is that of the linear model in reports; give another one")
    NOT_NEGATIVE.check("seed", seed)
    with raw_files([file]) as found:
        if len(found) != 1:
            raise InputError(f"{file} is {len(found)} files; expected one file of predictions")
        check(found[0], [id_field])
        fields = {"id_field": id_field, "label_field": label_field, "files": {"predictions": found[0].digest()}}
        settings = {"arm": name, "seed": seed, **fields, **scored(labelled)}
        recipe = Recipe("metrics", "import-predictions", VERSION, settings, {"task": labelled})
        return produce(recipe, root, _write, recipe, found[0])


def _write(draft: Draft, recipe: Recipe, file: RawFile) -> None:
    task, settings = recipe.inputs["task"], recipe.settings
    labels = classes_of(task)
    ids, splits = examples(task)["id"].to_pylist(), read_splits(task, "dev", "test")
    ids_of = {name: [ids[number] for number in split.example] for name, split in splits.items()}
    wanted = set(chain(*ids_of.values()))
    if any(count > 1 for one, count in Counter(ids).items() if one in wanted):
        raise InputError(f"ids of {task.uri} repeat, so they name no example; load the task with another id_field")
    by_id = _by_id(file, recipe, wanted, set(ids) - wanted)
    predictions = []
    for name, split in splits.items():
        if missing := [one for one in ids_of[name] if one not in by_id]:
            of = f"{len(missing)} of the {len(ids_of[name])} {name} examples, the first is '{missing[0]}'"
            raise InputError(f"{file.where} has no prediction for {of}; give a row for each")
        answers = [by_id[one] for one in ids_of[name]]
        chances, decisive = np.array([one.chances for one in answers]), np.array([one.decisive for one in answers])
        several = task.details["problem"] == SEVERAL
        predicted = above(decisive, [UNFITTED]) if several else Prediction.of(split, decisive).predicted
        predictions.append(Prediction(split, predicted, None if labels is None else chances))
    identity = {"arm": settings["arm"], "seed": settings["seed"], "stage": IMPORTED, "mlm_loss": None}
    write_metrics(draft, task, predictions, identity, {"cost": {}, "fixed": True})


class _Answer(NamedTuple):
    """A probability for each label, and the values that decide which are predicted; of a number, twice that."""

    chances: list[float]
    decisive: list[float]


def _by_id(file: RawFile, recipe: Recipe, known: set[str], ignored: set[str]) -> dict[str, _Answer]:
    """The answer for each known id."""
    id_field, label_field = (recipe.settings[name] for name in ("id_field", "label_field"))
    labels, found = classes_of(recipe.inputs["task"]), dict[str, _Answer]()
    several, ids = recipe.inputs["task"].details["problem"] == SEVERAL, known | ignored
    for row in track(read(file, _columns(file, id_field, label_field)), "reading predictions", unit="rows"):
        where = f"{file.where}:{row.line}"
        if isinstance(row, Reject):
            raise InputError(f"{where}: {row.reason}, {row.detail}; fix the row")
        try:
            name = _unguarded(name_of(row.values, id_field), ids)
            if name in ignored:
                continue
            answer = _answer(row.values, label_field, labels, several)
        except BadRow as bad:
            raise InputError(f"{where}: {', '.join(bad.args)}; fix the row") from None
        if name not in known:
            raise InputError(f"{where}: id '{name}' is not in the task{nearest(name, sorted(known))}")
        if name in found:
            raise InputError(f"{where}: id '{name}' has a prediction in an earlier row; give one for each example")
        found[name] = answer
    file.check_unchanged()
    return found


def _columns(file: RawFile, id_field: str, label_field: str) -> list[str]:
    """The columns to read; of a parquet file, nothing else is read."""
    if file.format != "parquet":
        return [id_field]
    names = dict.fromkeys(pq.read_schema(file.path).names)
    return [name for name in names if name in (id_field, label_field, PROBABILITIES) or _label_of(name) is not None]


def _label_of(column: str) -> str | None:
    """The label of a column with its probabilities, p(LABEL)."""
    return column[2:-1] if column.startswith("p(") and column.endswith(")") else None


def _answer(values: Mapping[str, Any], label_field: str, labels: list[str] | None, several: bool) -> _Answer:
    """What a row answers. The labels that it says were predicted decide by a 1 each, else its probabilities do."""
    if labels is None:
        label_of(values, label_field)  # raises BadRow beyond the limit of targets, too, whose squares are finite
        number = [_number(values, label_field)]
        return _Answer(number, number)
    given, checked = _given(values), _all_chances if several else _chances
    no_label = (None,) if several else (None, "")  # of several labels, an empty cell says that there are none
    if given and values.get(label_field) in no_label:
        chances = checked(given, labels)
        return _Answer(chances, chances)
    predicted = _listed(values, label_field) if several else (label_of(values, label_field),)
    decisive = _known(dict.fromkeys(predicted, 1.0), labels)
    return _Answer(checked(given, labels) if given else decisive, decisive)


def _listed(values: Mapping[str, Any], label_field: str) -> tuple[str, ...]:
    listed = value_of(values, label_field)
    if isinstance(listed, str):  # as `tlm predict` writes them in a csv
        listed = [one.strip() for one in listed.split(";") if one.strip()]
    if not isinstance(listed, list | tuple):
        raise BadRow("not a list", f"field '{label_field}' is {reprlib.repr(listed)}; expected a list of labels")
    return labels_of(listed, label_field)


def _all_chances(given: Mapping[str, Any], labels: list[str]) -> list[float]:
    """A probability for each of several labels."""
    chances = _known(given, labels)
    if not 0 <= min(chances) <= max(chances) <= 1:
        raise BadRow("no probabilities", f"{reprlib.repr(chances)} are not all from 0 to 1")
    return chances


def _chances(given: Mapping[str, Any], labels: list[str]) -> list[float]:
    """A probability for each label; they add up to 1."""
    chances = _known(given, labels)
    total = sum_in_order(chances)
    if min(chances) < 0 or not 0 < total < math.inf:
        raise BadRow("no probabilities", f"{reprlib.repr(chances)} are not 0 or more with a finite sum above 0")
    if len(given) < len(labels) and max(chances) < 1 - total:
        raise BadRow("too few probabilities", f"a label without one may be likelier than {some([*given])}; give all")
    return [chance / total for chance in chances]


def _given(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The probabilities by label that a row gives."""
    given = values.get(PROBABILITIES)
    if isinstance(given, str):  # of a csv, as `tlm predict --likeliest` writes it
        with suppress(ValueError):
            given = json.loads(given)
    if isinstance(given, Mapping):
        return given
    return {label: value for key, value in values.items() if (label := _label_of(key)) is not None}


def _known(given: Mapping[str, Any], labels: list[str]) -> list[float]:
    """What is given for each label of the task; 0 where nothing is. Raises BadRow: a label that it does not have."""
    own = set(labels)
    given = {_unguarded(label, own): value for label, value in given.items()}
    if (unknown := min(given.keys() - own, default=None)) is not None:
        raise BadRow("unknown label", f"'{unknown}'{nearest(unknown, labels)}")
    return [_number(given, label) if label in given else 0.0 for label in labels]


def _unguarded(name: str, known: set[str]) -> str:
    """An id or a label without the apostrophe that `tlm predict` puts before - and the like in a csv."""
    plain = name.removeprefix("'")
    return plain if name not in known and plain in known else name


def _number(values: Mapping[str, Any], field: str) -> float:
    value = value_of(values, field)
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(value, bool) and math.isfinite(number := float(value)):
            return number
    raise BadRow("not a number", f"field '{field}' is {reprlib.repr(value)}")
