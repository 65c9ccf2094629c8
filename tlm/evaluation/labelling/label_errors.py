"""The command `label-errors`: labels that look wrong, by confident learning (Northcutt et al., JAIR 2021)."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import classes_of, examples, one_label_each
from tlm.data.tasks.metrics import Floats
from tlm.errors import InputError
from tlm.evaluation.pages.blocks import Block, Column, Quote, Row, Span, Table, Text
from tlm.evaluation.pages.plain import terminal
from tlm.evaluation.pages.text import visible, whole_text
from tlm.evaluation.predict.rows import check_new, write_new
from tlm.evaluation.score.baseline import given

WIDTH = 160  # characters shown of a text
COLUMNS: tuple[Column | str, ...] = (
    *(Column(name, "left") for name in ("id", "label", "likely")),
    "sure",
    Column("text", "words"),
)


def label_errors(task: str, *, to: str = "", top: int = 20, spans: Sequence[str] = ()) -> str:
    """List the labels of train and dev that look wrong, the surest first.

    A linear model answers each text without having learned from it or its group: those of train in five folds, those
    of dev by a model of all of train. A label looks wrong if another one is likelier, and at least as likely as it is
    on average for texts that have it. Test is not looked at: who corrects it where a model disagrees favours models.

    Args:
        task: URI of the task, with one label a text.
        to: New file for all of them, .csv or .jsonl; none by default.
        top: How many to show.
        spans: Marks around the spans that a text is asked about, as in `baseline`.
    """
    opened = Artifact.open(task, "task")
    one_label_each(opened, "label-errors")
    labels = classes_of(opened)
    if labels is None:
        raise InputError(f"{task} is a regression; label-errors needs a task with classes")
    if to:
        check_new(to)
    from tlm.shallow.models import one_thread
    from tlm.shallow.tfidf import tune

    fitted_to, marks = given(opened, spans)
    train, dev = fitted_to.train, fitted_to.dev
    with one_thread():
        model = tune(fitted_to, marks)
        chances = np.concatenate([model.held_out(train), model.predict(dev.texts, dev.pairs)])
    gold, ordinals = np.concatenate([train.gold, dev.gold]), np.concatenate([train.example, dev.example])
    found, likely = wrong(chances, gold)
    rows = []
    for row, best, one in zip(found, likely, examples(opened).take(ordinals[found]).to_pylist(), strict=True):
        facts = {name: one[name] for name in ("split", "id", "label")} | {"likely": labels[best]}
        sure = {"p(likely)": round(chances[row, best], 4), "p(label)": round(chances[row, gold[row]], 4)}
        rows.append({**facts, **sure, "text": whole_text(one)})
    if to:
        write_new(to, rows, ["split", "id", "label", "likely", "p(likely)", "p(label)", "text"])
    shown: list[Block] = [Text(f"{len(rows):,} of {len(gold):,} labels look wrong; check them before you change them.")]
    shown += [Table(COLUMNS, list(map(_cells, rows[:top])))] if rows[:top] else []
    return terminal(shown, styled=sys.stdout.isatty()).strip("\n")


def _cells(row: dict[str, Any]) -> Row:
    names = (Span(visible(row[name], 60)) for name in ("id", "label", "likely"))
    return *names, f"{row['p(likely)']:.2f}", Quote.of(visible(row["text"], WIDTH))


def wrong(chances: Floats, gold: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the labels that look wrong: what is off the diagonal of the confident joint (equations 1 and 2 there).

    Args:
        chances: Probabilities by models that did not learn from the example, shape [n, classes].
        gold: The labels given, shape [n].

    Returns:
        The rows, by how far the best probability is ahead of the given label's; and their likely labels.
    """
    rows, classes = np.arange(len(gold)), chances.shape[1]
    least = np.array(
        [chances[gold == label, label].mean() if (gold == label).any() else 2.0 for label in range(classes)]
    )
    above = np.where(chances >= least, chances, -1.0)
    likely = above.argmax(axis=1)
    ahead = chances.max(axis=1) - chances[rows, gold]
    found = np.flatnonzero((above.max(axis=1) >= 0) & (likely != gold) & (ahead > 0))
    found = found[np.argsort(-ahead[found], kind="stable")]
    return found, likely[found]
