"""For people who label their own data: a first model of label names, what to label next, labels that look wrong.

The texts to label next are unsure, of every class, and differ from each other. A model is unsure where its two best
probabilities are close ("breaking ties", Scheffer et al. 2001). Of each predicted class, the least sure texts are
clustered, and each cluster gives its least sure text, much as in Zhdanov (arXiv 1901.05954). Labels that look wrong
have a low confidence in a data map (Swayamdipta et al., EMNLP 2020): a model learns them late or never.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.marks import Marks, find_marks, marks_of, named_marks
from tlm.data.passages import rows_at
from tlm.data.reading.files import RawFile, raw_files
from tlm.data.reading.readers import check, read_all
from tlm.data.reading.records import Record, Rejects, name_of, text_of
from tlm.data.tasks.examples import classes_of, examples, one_label_each, read_splits, twins_of
from tlm.data.tasks.labelled import text_and_pair, twin_key
from tlm.data.tasks.metrics import Floats
from tlm.data.tasks.splits import SPLITS
from tlm.data.text import normalise
from tlm.errors import InputError
from tlm.evaluation.pages.blocks import Block, Items, Line, Quote, Span, Text
from tlm.evaluation.pages.plain import terminal
from tlm.evaluation.pages.text import visible, whole_text
from tlm.evaluation.predict.models import check_pairs, located, of_pairs
from tlm.evaluation.predict.predictor import labels_of, open_predictor
from tlm.evaluation.predict.written import check_new, write_new
from tlm.evaluation.score.baseline import NAMES
from tlm.progress import Meter, hidden, say, track
from tlm.retrieval.search.index import open_engine
from tlm.settings.options import NOT_NEGATIVE, POSITIVE, Fields, Range
from tlm.settings.sections import MOST_HITS

if TYPE_CHECKING:
    from tlm.shallow.features import TextFeatures

VERSION = 1
EPOCHS, STRENGTH = 10, 10.0  # of the model that learns labels
SHARPNESS = 10.0  # of the probabilities: cosines of texts and classes are mostly less than 0.3 apart


def label_names(index: str, names: str, *, top_k: int = 1000, root: str | None = None) -> str:
    """Make a model of label names, without a labelled text: it answers with the class whose passages are nearest.

    The description of each class retrieves passages. Static word vectors are learned from all of them, and a class is
    the mean of its passages. The model is a static one, for `predict`, `serve`, `evaluate` and `label-next`.

    Args:
        index: URI of the index.
        names: File with the fields `label` and `text` (jsonl, csv, tsv, parquet): a description of a class, or words
            that its texts have. Several rows of a label are joined.
        top_k: Number of passages to retrieve for each class.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    source = Artifact.open(index, "index")
    Range(f"1 to {MOST_HITS} passages per class", 1, MOST_HITS).check("top_k", top_k)
    about = _described(names)
    recipe = Recipe("model", "label-names", VERSION, {"names": about, "top_k": top_k}, {"index": source})
    return produce(recipe, root, _write, source, about, top_k)


def _described(names: str) -> dict[str, str]:
    """The description of each class. Raises InputError: fewer than two classes, or a row that cannot be used."""
    found, rejects, wanted = dict[str, str](), Rejects(0), ("label", "text")
    with raw_files([names]) as files:
        for file in files:
            check(file, wanted)
        for label, text in read_all(files, wanted, rejects, lambda _, row: [text_of(row.values, x) for x in wanted]):
            found[label] = f"{found[label]} {text}" if label in found else text
    rejects.check()
    if len(found) < 2:
        raise InputError(f"{names} has {len(found)} label; expected two or more, in rows with a label and a text each")
    return dict(sorted(found.items()))


def _write(draft: Draft, index: Artifact, about: dict[str, str], top_k: int) -> None:
    from tlm.shallow.features import words_of
    from tlm.shallow.linear import Dense, Linear
    from tlm.shallow.models import one_thread
    from tlm.shallow.static import StaticModel, vectors_of

    hits = [docs.tolist() for docs, _ in open_engine(index).search(list(about.values()), top_k)]
    rows = rows_at(index.input("corpus"), "passages-*.parquet", {doc for docs in hits for doc in docs})
    for label, docs in zip(about, hits, strict=True):
        if not docs:
            raise InputError(f"no passage has a word of the description of '{label}'; describe it in other words")
    with one_thread():
        vectors = vectors_of((row["text"] for row in rows.values()), (), ())
        means = [vectors.means([words_of(rows[doc]["text"]) for doc in docs]).mean(axis=0) for docs in hits]
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    if not norms.all():
        raise InputError(f"passages of '{[*about][norms.argmin()]}' have no frequent word; describe it in other words")
    weights = SHARPNESS * np.stack(means) / norms
    linear = Linear(weights, np.zeros(len(about)), len(about), softmax=True)
    width, settings = weights.shape[1], {"top_k": top_k}
    dense = Dense(np.zeros(width), np.ones(width), linear, settings)
    StaticModel(list(about), (), dense, False, vectors).write(draft.folder / "model")
    draft.details = {"arm": NAMES, "seed": 0, "stage": NAMES, "fixed": True, "parameters": weights.size}
    draft.details |= {"cost": {}, "chosen": settings, "tried": 0}
    draft.counts = {"labels": len(about), "passages": len(rows)}


MOST_CLUSTERED = 10  # unsure texts for each text that is chosen
PORTION = 1000  # texts


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
        model: URI of a model, checkpoint, metrics or report, or a model folder (which does not know its texts). Leave
            it out if there are no labels yet.
        to: New file to write, .csv or .jsonl: the fields of the examples, the label empty, and with a model
            `predicted` and `margin`, the difference of the two probabilities. The least sure text comes first. A csv
            has an apostrophe before what a spreadsheet would read as a formula.
        count: Number of texts to choose.
        fields: The fields of the examples.
        max_rejected: Unusable rows to set aside before the command stops; 0.1 % of all rows are always allowed.
        device: Where to compute: auto (cuda if there is one, else cpu; never mps), cpu, cuda, cuda:N or mps.
    """
    POSITIVE.check("count", count)
    check_new(to)
    folder, labels, known = _opened(model, fields) if model else (None, [], set())
    rows = _rows(pool, fields, max_rejected, known)
    texts, second = zip(*(text_and_pair(row, fields) for row in rows), strict=True)
    pairs = second if fields.pair_field else None
    predict = open_predictor(folder, device)[0].predict if folder else None
    doubts = _in_portions(lambda *own: doubts_of(predict(*own)), texts, pairs, "predicting") if predict else None
    places = chosen(features_of(texts, pairs), min(count, len(rows)), doubts)
    kept = [rows[place] for place in places]
    if doubts is not None:
        for row, (label, margin) in zip(kept, doubts[places].tolist(), strict=True):
            row |= {"predicted": labels[int(label)], "margin": round(margin, 4)}
    write_new(to, kept, list(kept[0]))
    say(f"label-next: {len(kept)} of {len(rows):,} texts written to {to}; fill in '{fields.label_field}'")


def _opened(model: str, fields: Fields) -> tuple[Path, list[str], set[str]]:
    """The folder of a model, its labels, and the twin keys of its task's texts.

    Raises InputError if it does not give one label a text, or reads pairs where there are none, or the other way round.
    """
    folder, artifact = located(model)
    labels, several = labels_of(folder)
    if labels is None or several:
        raise InputError(f"{model} answers with numbers or several labels a text; label-next needs one label a text")
    check_pairs(of_pairs(folder, artifact), bool(fields.pair_field), "--pair-field")
    task = artifact.nearest("task") if artifact else None
    return folder, labels, twins_of(read_splits(task, *SPLITS).values()) if task else set()


def chosen(features: Floats, count: int, doubts: Floats | None = None) -> list[int]:
    """The rows to label, the least sure first.

    Args:
        features: Of each text, shape [n, features]: texts that are much alike are near each other.
        count: How many, at most n.
        doubts: By `doubts_of`; None: every cluster gives the text nearest to its centre.
    """
    if doubts is None:
        return spread(features, np.arange(len(features)), count)
    (first, unsure), rows = doubts.T, list[int]()
    classes = sorted((np.flatnonzero(first == label) for label in np.unique(first)), key=len)
    for number, members in enumerate(classes):  # what a small class cannot give, larger ones do
        quota = min(len(members), (count - len(rows)) // (len(classes) - number))
        least_sure = members[np.argsort(unsure[members], kind="stable")][: MOST_CLUSTERED * quota]
        rows += spread(features, least_sure, quota, unsure) if quota else []
    return sorted(rows, key=lambda row: (unsure[row], row))


def doubts_of(chances: Floats) -> Floats:
    """The likeliest class of each text and its margin, shape [n, 2]: all that is kept of a large pool's probabilities.

    Args:
        chances: Probabilities, shape [n, classes].
    """
    return np.column_stack([chances.argmax(axis=1), margins(chances)])


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
    vectors = vectors_of((), [*texts, *(pairs or ())], marks)
    return _in_portions(partial(represent, vectors, marks), texts, pairs, "comparing the texts")


def _in_portions(found: Callable[..., Floats], texts: Sequence[str], pairs: Sequence[str] | None, label: str) -> Floats:
    """What is found for each text or pair, 1,000 at a time: memory holds the words of these alone. Shows progress."""
    rows = list[Floats]()
    with closing(Meter(label, len(texts), "texts")) as meter:
        for start in range(0, len(texts), PORTION):
            own = slice(start, start + PORTION)
            with hidden():
                rows.append(found(texts[own], pairs and pairs[own]))
            meter.advance(len(rows[-1]))
    return np.concatenate(rows)


def _rows(pool: str, fields: Fields, max_rejected: int, known: set[str]) -> list[dict[str, Any]]:
    """The rows of a pool, each text once, without known texts (their twin keys)."""
    wanted = [name for name in fields.wanted if name != fields.label_field]
    rejects = Rejects(max_rejected)
    with raw_files([pool]) as files:
        for file in files:
            check(file, wanted, fields.text_field)
        found = list(read_all(files, wanted, rejects, partial(_row, fields)))
        rejects.check()
    by_key = dict[str, dict[str, Any]]()
    for row in found:
        by_key.setdefault(twin_key(*text_and_pair(row, fields)), row)
    rows = [row for key, row in by_key.items() if key not in known]
    if not rows:
        raise InputError(f"all texts of {pool} are labelled in the model's task already; give other texts")
    if len(rejects):
        where = "{file}:{line} ({reason})".format(**rejects.table().slice(0, 1).to_pylist()[0])
        say(f"label-next: {len(rejects):,} rows cannot be used, the first one at {where}")
    left = len(found) - len(rows)
    say(f"label-next: {len(found):,} texts read, {left:,} of them repeated or labelled in the model's task; choosing")
    return rows


def _row(fields: Fields, file: RawFile, row: Record) -> dict[str, Any]:
    text_and_pair(row.values, fields)  # raises BadRow
    found = {name: normalise(row.values.get(name) or "") for name in fields.of_texts} | {fields.label_field: ""}
    return found | {name: name_of(row.values, name) for name in (fields.id_field, fields.group_field) if name}


WIDTH = 240  # characters shown of a text


def label_errors(task: str, *, to: str = "", top: int = 20, spans: Sequence[str] = ()) -> str:
    """List the labels of train and dev that look wrong, the hardest to learn first.

    A linear model learns all of them, epoch by epoch. A label's confidence is the mean of the probabilities that it has
    after each epoch: a right label is learned soon, also from texts like it. It looks wrong if its confidence is below
    a half, and less than twice that of another label for the text. Test is not looked at: to correct it only where a
    model disagrees would favour models.

    Args:
        task: URI of the task, with one label a text.
        to: New file for all doubted labels, .csv or .jsonl; none by default.
        top: Number of labels to print.
        spans: Marks around the spans that a text is asked about, as in `baseline`; may be repeated.
    """
    opened = Artifact.open(task, "task")
    one_label_each(opened, "label-errors")
    labels = classes_of(opened)
    if labels is None:
        raise InputError(f"{task} is a regression; label-errors needs a task with classes")
    if to:
        check_new(to)
    NOT_NEGATIVE.check("top", top)
    gold, ordinals, means = learned(opened, named_marks(spans) if spans else None)
    found, likely = wrong(means, gold)
    rows = []
    for place, best, one in zip(found, likely, examples(opened).take(ordinals[found]).to_pylist(), strict=True):
        row = {name: one[name] for name in ("split", "id", "label")} | {"likely": labels[best]}
        row |= {"p(likely)": round(means[place, best], 4), "p(label)": round(means[place, gold[place]], 4)}
        rows.append(row | {"text": whole_text(one)})
    if to:
        write_new(to, rows, ["split", "id", "label", "likely", "p(likely)", "p(label)", "text"])
    advice = "; check them before you change them" if rows else ""
    shown: list[Block] = [Text(f"{len(rows):,} of {len(gold):,} labels look wrong{advice}.")]
    if unknown := sum(opened.counts.get(split, 0) for split in ("train", "dev")) - len(gold):
        shown.append(Text(f"{unknown:,} more texts share no word with another text, so their labels were not judged."))
    if rows and opened.details["pair"]:
        shown.append(Text("The model reads both texts as one, and often errs where a label says how they differ."))
    shown += [Items(tuple(map(_line, rows[:top])))] if rows[:top] else []
    return terminal(shown)


def _line(row: dict[str, Any]) -> Line:
    label, likely = (visible(row[name], 60) for name in ("label", "likely"))
    said = f": {label} ({row['p(label)']:.2f}), or {likely} ({row['p(likely)']:.2f})? "
    return Span(visible(row["id"], 60), "bold"), said, Quote.of(visible(row["text"], WIDTH))


def learned(task: Artifact, marks: Marks | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """The labels of train and dev, their rows in the task, and the mean probabilities over the epochs of `course`.

    Texts without a feature are left out: the model gives all of them the shares of the classes, which say nothing about
    their labels. Raises InputError if there is nothing to learn, or the task is damaged.
    """
    from tlm.shallow.features import joined

    train, dev = read_splits(task, "train", "dev").values()
    gold, ordinals = np.concatenate([train.gold, dev.gold]), np.concatenate([train.example, dev.example])
    features = features_to_learn([*joined(train.texts, train.pairs), *joined(dev.texts, dev.pairs)], marks)
    means = np.zeros((len(gold), len(task.details["labels"])))
    for chances in track(course(features, gold, means.shape[1]), "learning the labels", EPOCHS, "epochs"):
        means += chances / EPOCHS
    known = features.getnnz(axis=1) > 0
    return gold[known], ordinals[known], means[known]


def features_to_learn(texts: Sequence[str], marks: Marks | None = None) -> Any:
    """The features of texts from which `course` learns their labels, a sparse matrix.

    Raises InputError if no word is in two texts.
    """
    try:
        return quick_features(texts, marks).fit_transform([*texts])
    except ValueError:  # scikit-learn's "no terms remain"
        raise InputError("no word is in two texts, so there is nothing to learn labels from") from None


def quick_features(texts: Sequence[str], marks: Marks | None = None) -> "TextFeatures":
    """The cheapest features for texts, not yet fitted: of their spans where they have marks, else of their words."""
    from tlm.shallow.features import TextFeatures
    from tlm.shallow.tfidf import CHEAPEST, OF_SPANS

    marks = marks_of(texts, marks)
    return TextFeatures(OF_SPANS[0] if marks else CHEAPEST, marks)


def course(features: Any, gold: NDArray[np.int64], classes: int, seed: int = 0) -> Iterator[Floats]:
    """Yield the probabilities, shape [n, classes], of a linear model that learns the labels, after each of its epochs.

    Classes have no weights: with them, labels that were changed to rare classes are learned as fast as the right ones.

    Args:
        features: Of the texts, as `features_to_learn` makes them.
        gold: The labels, shape [n].
        classes: How many classes there are.
        seed: Of the order of the texts in each epoch.

    Raises:
        InputError: all labels are the same.
    """
    from sklearn.linear_model import SGDClassifier

    options = {"alpha": 1 / (STRENGTH * len(gold)), "learning_rate": "constant", "eta0": 1.0}
    model = SGDClassifier(loss="log_loss", random_state=np.random.RandomState(seed), **options)
    known = np.unique(gold)
    if len(known) < 2:
        raise InputError("all texts of train and dev have the same label, so no label can look wrong")
    for _ in range(EPOCHS):
        found = np.zeros((len(gold), classes))
        found[:, known] = model.partial_fit(features, gold, known).predict_proba(features)
        yield found


def wrong(means: Floats, gold: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the labels that look wrong: with a confidence below a half, and less than twice that of another label.

    Where there are few texts for many classes, no label gets a half; there, the second condition decides.

    Args:
        means: Mean probabilities over the epochs of `course`, shape [n, classes].
        gold: The labels given, shape [n].

    Returns:
        The rows, the least confident first; and the likeliest other label of each.
    """
    rows, others = np.arange(len(gold)), means.copy()
    others[rows, gold] = -1.0
    confidence = means[rows, gold]
    order = np.argsort(confidence, kind="stable")
    found = order[confidence[order] < np.minimum(0.5, 2 * others[order].max(axis=1))]
    return found, others[found].argmax(axis=1)
