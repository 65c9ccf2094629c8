"""The step `fewer-labels`: the same task with fewer labelled examples, to measure what retrieved text gains then."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.tasks.examples import classes_of, examples, one_label_each
from tlm.data.tasks.labelled import UNLABELLED, twin_key
from tlm.data.tasks.splits import SPLITS, find_leaks
from tlm.errors import InputError
from tlm.settings.options import NOT_NEGATIVE

VERSION = 2


def fewer_labels(task: str, *, per_class: int, seed: int = 0, keep_texts: bool = False, root: str | None = None) -> str:
    """Keep at most ``--per-class`` training examples of each class, and the same part of dev; test stays whole.

    A class keeps the same share of its dev examples as of its training examples, but at least one. With the same
    seed, fewer examples are a part of more.

    Args:
        task: URI of the task, with classes.
        per_class: The most training examples of a class.
        seed: Which examples stay.
        keep_texts: Keep the texts of the training examples that are left out, without their labels, as
            `load-task --unlabelled` does.
        root: Store to write to, which holds the task; by default TLM_ROOT, else the store of the task.

    Returns:
        URI of the new task. Its counts say how many examples it has.

    Raises:
        InputError: the task is a regression, or a number is out of range.
    """
    given = Artifact.open(task, "task")
    NOT_NEGATIVE.check("seed", seed)
    if per_class < 1:
        raise InputError(f"per_class is {per_class}; expected 1 or more")
    one_label_each(given, "fewer-labels")
    if classes_of(given) is None:
        raise InputError(f"{given.uri} is a regression; expected a task with classes")
    settings = {"per_class": per_class, "seed": seed, "keep_texts": keep_texts}
    recipe = Recipe("task", "fewer-labels", VERSION, settings, {"task": given})
    return produce(recipe, root, _write, given, per_class, seed, keep_texts)


def _write(draft: Draft, task: Artifact, per_class: int, seed: int, keep_texts: bool) -> None:
    given = examples(task)
    stays = _stays(given, per_class, seed)
    table = given.filter(pa.array(stays))
    twins = _twins(table)
    split, label, text = (table[name].to_pylist() for name in ("split", "label", "text"))
    leaks = find_leaks(split, label, text, twins)
    if keep_texts:
        dropped = given.filter(pa.array(~stays & (_column(given, "split") == "train")))
        table = pa.concat_tables([table, _without_labels(dropped, known=set(twins))])
    for name, rows in (("examples.parquet", table), ("leaks.parquet", leaks)):
        pq.write_table(rows, draft.folder / name, compression="zstd")
        draft.rows[name] = len(rows)
    sizes, uses = (Counter(table[name].to_pylist()) for name in ("split", "label"))
    splits = (*SPLITS, UNLABELLED) if sizes[UNLABELLED] else SPLITS
    draft.counts = {split: sizes[split] for split in splits}
    draft.counts |= {"labels": {label: uses[label] for label in task.details["labels"]}, "leaks": len(leaks)}
    draft.details = dict(task.details)


def _stays(table: pa.Table, per_class: int, seed: int) -> NDArray[np.bool_]:
    """A mask of the rows that stay, shape [n]. A row's place in the draw does not depend on `per_class`."""
    split, label = _column(table, "split"), _column(table, "label")
    stays: NDArray[np.bool_] = (split != "train") & (split != "dev")
    for number, one in enumerate(sorted(set(label[split == "train"]))):
        random = np.random.default_rng([seed, number])
        train, dev = (random.permutation(np.flatnonzero((split == name) & (label == one))) for name in ("train", "dev"))
        share = min(1.0, per_class / len(train))
        stays[train[:per_class]] = True
        stays[dev[: math.ceil(share * len(dev))]] = True
    return stays


def _without_labels(table: pa.Table, known: set[str]) -> pa.Table:
    """The rows as texts without labels, each text once, and none that is among the labelled ones."""
    first = {twin: row for row, twin in reversed(list(enumerate(_twins(table)))) if twin not in known}
    table = table.take(pa.array(sorted(first.values()), pa.int64()))
    for name, value in (("label", None), ("split", UNLABELLED)):
        column = pa.array([value] * len(table), pa.string())
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _twins(table: pa.Table) -> list[str]:
    return list(map(twin_key, table["text"].to_pylist(), table["text_pair"].to_pylist()))


def _column(table: pa.Table, name: str) -> NDArray[np.object_]:
    return np.array(table[name].to_pylist(), dtype=object)
