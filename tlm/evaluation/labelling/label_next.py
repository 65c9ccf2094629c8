"""The command `label-next`: the texts to label next are unsure, of every class, and differ from each other.

A model is unsure where its two best probabilities are close ("breaking ties", Scheffer et al. 2001). Of each predicted
class, the least sure texts are clustered, and each cluster gives its least sure text, much as in Zhdanov (arXiv
1901.05954).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.marks import find_marks
from tlm.data.reading.files import RawFile, raw_files
from tlm.data.reading.readers import check, read_all
from tlm.data.reading.records import Record, Rejects, name_of, text_of
from tlm.data.tasks.examples import examples
from tlm.data.tasks.metrics import Floats
from tlm.errors import InputError
from tlm.evaluation.predict.predict import is_folder, model_folder
from tlm.evaluation.predict.predictor import labels_of, open_predictor
from tlm.evaluation.predict.rows import check_new, write_new
from tlm.evaluation.report.lineage import Lineage
from tlm.progress import say
from tlm.settings.options import Fields

MOST_CLUSTERED = 10  # unsure texts for each text that is chosen

Key = tuple[str, str | None]


def label_next(
    pool: str,
    model: str = "",
    *,
    to: str = "to-label.csv",
    count: int = 50,
    fields: Fields = Fields(),
    max_rejected: int = 10,
    device: str = "auto",
) -> None:
    """Choose the texts of a pool to label next, and write them into a file in which a person fills in the labels.

    With a model, they are texts whose two best probabilities are close, as many of each predicted class as there are,
    and no two of them much alike. Without one, they are typical texts of all parts of the pool. Texts of the task that
    the model was trained on are left out.

    Args:
        pool: Files or folder with texts without labels; also on s3://. A label in them is not read.
        model: URI of a model, checkpoint or metrics, or a model folder (which does not know its texts). None: there
            are no labels yet.
        to: New file to write, .csv or .jsonl: the fields of the examples, the label empty, and with a model
            `predicted` and `margin`, the difference of the two probabilities. The least sure text comes first. A csv
            has an apostrophe before what a spreadsheet would read as a formula.
        count: How many texts.
        fields: The fields of the examples.
        max_rejected: Unusable rows to leave out before the command stops; 0.1 % of all rows are always allowed.
        device: Where to compute: auto, cpu, cuda or cuda:N, mps.
    """
    if count < 1:
        raise InputError(f"count is {count}; expected 1 or more")
    check_new(to)
    folder = model_folder(model) if model else None
    labels, several = labels_of(folder) if folder else ([], False)
    if labels is None or several:
        raise InputError(f"{model} answers with numbers or several labels a text; label-next needs one label a text")
    rows = _rows(pool, fields, max_rejected, _texts_of(model) if model and not is_folder(model) else set())
    texts, second = [row[fields.text_field] for row in rows], fields.pair_field
    pairs = [row[second] for row in rows] if second else None
    chances = open_predictor(folder, device)[0].predict(texts, pairs) if folder else None
    found = chosen(features_of(texts, pairs), min(count, len(rows)), chances)
    kept = [rows[row] for row in found]
    if chances is not None:
        best, unsure = chances[found].argmax(axis=1), margins(chances[found])
        for row, label, margin in zip(kept, best.tolist(), unsure.tolist(), strict=True):
            row |= {"predicted": labels[label], "margin": round(margin, 4)}
    write_new(to, kept, list(kept[0]))
    say(f"label-next: {len(kept)} of {len(rows):,} texts written to {to}; fill in '{fields.label_field}'")


def chosen(features: Floats, count: int, chances: Floats | None = None) -> list[int]:
    """The rows to label, the least sure first.

    Args:
        features: Of each text, shape [n, features]: texts that are much alike are near each other.
        count: How many, at most n.
        chances: Probabilities, shape [n, classes]; None: every cluster gives the text nearest to its centre.
    """
    if chances is None:
        return spread(features, np.arange(len(features)), count)
    unsure, first, rows = margins(chances), chances.argmax(axis=1), list[int]()
    classes = sorted((np.flatnonzero(first == label) for label in range(chances.shape[1])), key=len)
    for place, own in enumerate(classes):  # what a small class cannot give, larger ones do
        quota = min(len(own), (count - len(rows)) // (len(classes) - place))
        least = own[np.argsort(unsure[own], kind="stable")][: MOST_CLUSTERED * quota]
        rows += spread(features, least, quota, unsure) if quota else []
    return sorted(rows, key=lambda row: (unsure[row], row))


def margins(chances: Floats) -> Floats:
    """The difference between the two best probabilities, shape [n], of probabilities of shape [n, classes]."""
    best = np.sort(chances, axis=1)
    return best[:, -1] - best[:, -2]  # type: ignore[no-any-return]


def spread(features: Floats, rows: NDArray[np.int64], count: int, order: Floats | None = None) -> list[int]:
    """Of each of `count` clusters of `rows`, the first by `order`, in this order.

    By default, the one nearest to the centre.
    """
    from sklearn.cluster import KMeans

    points = features[rows]
    distinct = min(count, len(np.unique(points, axis=0)))
    means = KMeans(distinct, n_init=1, random_state=0).fit(points)
    distances = np.linalg.norm(points - means.cluster_centers_[means.labels_], axis=1)
    ranked = np.argsort(distances if order is None else order[rows], kind="stable")
    firsts = np.sort(np.unique(means.labels_[ranked], return_index=True)[1])
    others = np.setdiff1d(np.arange(len(ranked)), firsts)[: count - len(firsts)]  # of equal texts, clusters are too few
    return rows[ranked[np.concatenate([firsts, others])]].tolist()  # type: ignore[no-any-return]


def features_of(texts: Sequence[str], pairs: Sequence[str] | None) -> Floats:
    """Static vectors of texts or pairs, learned from these texts themselves; shape [n, features]."""
    from tlm.shallow.static import represent, vectors_of

    marks = () if pairs else find_marks(texts)
    return represent(vectors_of((), [*texts, *(pairs or ())], marks), marks, texts, pairs)


def _rows(pool: str, fields: Fields, max_rejected: int, known: set[Key]) -> list[dict[str, Any]]:
    """The rows of a pool, each text once, without known texts."""
    wanted = [name for name in fields.wanted if name != fields.label_field]
    rejects = Rejects(max_rejected)
    with raw_files([pool]) as files:
        for file in files:
            check(file, wanted)
        found = list(read_all(files, wanted, rejects, partial(_row, fields)))
        rejects.check()
    first = dict[Key, dict[str, Any]]()
    for row in found:
        first.setdefault((row[fields.text_field], row.get(fields.pair_field)), row)
    rows = [row for key, row in first.items() if key not in known]
    if not rows:
        raise InputError(f"{pool} has no text that the model's task does not have; give more texts")
    say(f"label-next: {len(found):,} texts read, {len(found) - len(rows):,} of them repeated or in the model's task")
    return rows


def _row(fields: Fields, file: RawFile, row: Record) -> dict[str, Any]:
    found = {name: text_of(row.values, name) for name in fields.of_texts} | {fields.label_field: ""}
    return found | {name: name_of(row.values, name) for name in (fields.id_field, fields.group_field) if name}


def _texts_of(model: str) -> set[Key]:
    """The texts of the task that a model was trained on, each with its second one or None."""
    (task,) = Lineage().nearest(Artifact.open(model), "task")
    columns = [examples(task)[name].to_pylist() for name in ("text", "text_pair")] if task else [[], []]
    return set(zip(*columns, strict=True))
