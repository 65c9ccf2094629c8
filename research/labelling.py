"""What `label-next`, `label-errors` and `label-names` gain, simulated on tasks whose labels are known."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import classes_of, one_label_each, read_splits
from tlm.data.tasks.metrics import Floats, Split, held_out, score
from tlm.errors import InputError
from tlm.evaluation.labelling import (
    MOST_CLUSTERED,
    chosen,
    course,
    doubts_of,
    features_of,
    features_to_learn,
    margins,
    quick_features,
    spread,
    wrong,
)
from tlm.evaluation.predict.models import located
from tlm.evaluation.predict.predictor import labels_of, open_predictor
from tlm.settings.options import POSITIVE

STRENGTH, BALANCED = 10.0, True
Rows = Sequence[int] | NDArray[np.int64]
Way = Callable[[Floats, int, Floats, int], Rows]  # (features, how many, probabilities, seed) -> rows


def _random(features: Floats, count: int, chances: Floats, seed: int) -> Rows:
    return np.random.default_rng([seed, len(features)]).permutation(len(features))[:count]


def _unsure(features: Floats, count: int, chances: Floats, seed: int) -> Rows:
    return np.argsort(margins(chances), kind="stable")[:count]


def _spread(features: Floats, count: int, chances: Floats, seed: int) -> Rows:
    """`label-next` without equal parts for the predicted classes."""
    unsure = margins(chances)
    return spread(features, np.argsort(unsure, kind="stable")[: MOST_CLUSTERED * count], count, unsure)


WAYS: dict[str, Way] = {
    "random": _random,
    "unsure": _unsure,
    "unsure, spread": _spread,
    "label-next": lambda features, count, chances, seed: chosen(features, count, doubts_of(chances)),
}


def labels_saved(task: str, *, step: int = 100, most: int = 1500, seeds: int = 5) -> None:
    """Print macro-F1 on dev by number of labels, for each way to choose the next ones; all begin with random ones.

    Args:
        task: URI of the task; its distinct training texts are the pool.
        step: Labels to begin with, and labels a round.
        most: Labels at the end.
        seeds: How many draws of the first labels.
    """
    from tlm.shallow.models import one_thread

    for name, value in (("seeds", seeds), ("step", step)):
        POSITIVE.check(name, value)
    train, dev, labels = _splits(task, "labels-saved")
    rounds = range(step, min(most, len(train.texts)) + 1, step)
    if not rounds:
        raise InputError(f"step is {step}; expected 1 to {min(most, len(train.texts))}, the labels at the end")
    of_train, of_dev = _frequencies(train, dev)
    features = features_of(train.texts, train.pairs)
    curves: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    with one_thread():
        for way, seed in product(WAYS, range(seeds)):
            labelled, scores = np.random.default_rng(seed).permutation(len(train.texts))[:step], list[float]()
            for size in rounds:
                left = np.setdiff1d(np.arange(len(train.texts)), labelled)
                of_left, on_dev = _answers(of_train, train, labelled, len(labels), of_train[left], of_dev)
                scores.append(_macro_f1(dev, on_dev))
                if size != rounds[-1]:
                    labelled = np.concatenate([labelled, left[WAYS[way](features[left], step, of_left, seed)]])
            curves[way].append(scores)
        typical = np.array(chosen(features, step))
        (on_dev,) = _answers(of_train, train, typical, len(labels), of_dev)
    print(f"{step} typical texts, without a model", f"{100 * _macro_f1(dev, on_dev):.1f}")
    print("labels", *rounds, sep="\t")
    for way, by_seed in curves.items():
        print(way, *(_shown(values) for values in zip(*by_seed, strict=True)), sep="\t")
    means = {way: np.mean(by_seed, axis=0) for way, by_seed in curves.items()}
    for way in [*WAYS][1:]:
        print(f"labels at which '{way}' has random's F1", *_saved(means["random"], means[way], rounds), sep="\t")


def _macro_f1(split: Split, chances: Floats) -> float:
    return score("macro_f1", split.gold, chances.argmax(axis=1))


def _answers(matrix: Any, train: Split, rows: NDArray[Any], classes: int, *wanted: Any) -> list[Floats]:
    """Probabilities of a linear model of these training rows; words and their weights are those of these rows, too.

    The settings are fixed, so that no labels are spent on choosing them.
    """
    from tlm.shallow.linear import Linear

    counts = np.asarray((matrix[rows] > 0).sum(axis=0)).ravel()
    seen = np.flatnonzero(counts)
    idf = np.log((1 + len(rows)) / (1 + counts[seen])) + 1
    model = Linear.fit(_weighted(matrix[rows], seen, idf), train.gold[rows], classes, STRENGTH, BALANCED)
    return [model.predict(_weighted(frequencies, seen, idf)) for frequencies in wanted]


def _weighted(matrix: Any, seen: NDArray[Any], idf: Floats) -> Any:
    from sklearn.preprocessing import normalize

    return normalize(matrix[:, seen].multiply(idf).tocsr())


def _saved(random: Floats, other: Floats, rounds: Sequence[int]) -> Iterator[str]:
    """For each round, the labels at which `other` first has the F1 of `random`, interpolated."""
    best = np.maximum.accumulate(other)
    for value in np.maximum.accumulate(random):
        before = np.nextafter(value, -np.inf)  # of equal F1s, `interp` would take the last
        yield f"{np.interp(before, best, rounds):.0f}" if value <= best[-1] else "–"


def labels_found(task: str, *, share: float = 0.05, seeds: int = 5, first: int = 0, to: str = "any") -> None:
    """Print how many of the labels that were changed at random `label-errors` finds, and how many others it lists.

    Below, what other orders of all texts find, and their difference to `label-errors`, in lists as long as there are
    changed labels and as long as its own: by confident learning, by the probability of the label out of fold, and by a
    data map's variability.

    Args:
        task: URI of the task.
        share: Share of the training labels to change.
        seeds: How many draws.
        first: Number of the first draw.
        to: What labels are changed to: any, all others alike; frequent, by their frequency; likely, by the
            probabilities of a linear model out of fold.
    """
    from tlm.shallow.models import one_thread

    POSITIVE.check("seeds", seeds)
    train, _, labels = _splits(task, "labels-found", distinct=False)
    if not 1 <= round(share * len(train.gold)) <= len(train.gold):
        raise InputError(f"share is {share}; expected a share of 1 to {len(train.gold)} of the training labels")
    likely = _likely(to, train, len(labels))
    features = features_to_learn(_texts(train))
    results, shares_found = [], dict[str, list[list[float]]]()
    for seed in range(first, first + seeds):
        changed, gold = noisy(train.gold, len(labels), share, seed, likely)
        with one_thread():
            chances, epochs = out_of_fold(train, gold, len(labels)), [*course(features, gold, len(labels), seed)]
        listed, _ = wrong(np.mean(epochs, axis=0), gold)
        right = np.isin(listed, changed).sum()
        results.append((right / max(1, len(listed)), right / len(changed), len(listed)))
        print(seed, *(f"{value:.3f}" for value in results[-1]), sep="\t", flush=True)
        for name, order in _orders(epochs, chances, gold).items():
            lengths = len(changed), len(listed)
            shares = [np.isin(order[:length], changed).sum() / len(changed) for length in lengths]
            shares_found.setdefault(name, []).append(shares)
    for name, values in zip(("precision", "recall", "listed"), zip(*results, strict=True), strict=True):
        print(f"{name}: {fmean(values):.3f}" + (f" ± {stdev(values):.3f}" if seeds > 1 else ""))
    print("order", f"found in {len(changed)}", "difference", "in as many as label-errors lists", "difference", sep="\t")
    of_label_errors = np.array(shares_found["label-errors"])
    for name, by_seed in shares_found.items():
        columns = []
        for shares, others in zip(np.transpose(by_seed), of_label_errors.T, strict=True):
            columns += [_shown(shares), _shown(shares - others)]
        print(name, *columns, sep="\t")


def _likely(to: str, train: Split, classes: int) -> NDArray[Any] | None:
    """How likely a label of each training text is changed to each class; None: to all alike."""
    if to == "any":
        return None
    if to == "frequent":
        return np.tile(np.bincount(train.gold, minlength=classes), (len(train.gold), 1))
    if to == "likely":
        return out_of_fold(train, train.gold, classes)
    raise InputError(f"to is '{to}'; expected any, frequent or likely")


def _orders(epochs: list[Floats], chances: Floats, gold: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """All texts, the most doubtful labels first, in several orders.

    Args:
        epochs: Probabilities after each epoch, each of shape [n, classes].
        chances: Probabilities out of fold, shape [n, classes].
        gold: The labels given, shape [n].
    """
    rows = np.arange(len(gold))
    of_label = [epoch[rows, gold] for epoch in epochs]
    return {
        "label-errors": np.mean(of_label, axis=0).argsort(kind="stable"),
        "confident learning": confident(chances, gold)[0],
        "p(label) out of fold": chances[rows, gold].argsort(kind="stable"),
        "high variability": np.std(of_label, axis=0).argsort()[::-1],
    }


def confident(chances: Floats, gold: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find wrong labels by confident learning (Northcutt et al., JAIR 2021): what is off the diagonal of its joint.

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


def noisy(
    gold: NDArray[np.int64], classes: int, share: float, seed: int, likely: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Change a share of the labels: the rows that are changed, and all labels afterwards.

    Args:
        gold: The labels, shape [n].
        classes: How many classes there are.
        share: Share of the labels to change.
        seed: Of the draw.
        likely: How likely each class is drawn, shape [n, classes]; None: all alike.
    """
    random = np.random.default_rng(seed)
    rows, gold = random.permutation(len(gold))[: round(share * len(gold))], gold.copy()
    if likely is None:
        gold[rows] = (gold[rows] + random.integers(1, classes, len(rows))) % classes
        return rows, gold
    others = np.where(np.arange(classes) == gold[rows, np.newaxis], 0.0, likely[rows])
    gold[rows] = [random.choice(classes, p=own / own.sum()) for own in others]
    return rows, gold


def few_labels(task: str, *, model: str = "", seeds: int = 10) -> None:
    """Print macro-F1 on dev of a model, of the majority class, and of linear models of few labels.

    Args:
        task: URI of the task.
        model: URI of the model, as `label-names` makes it.
        seeds: How many draws of the labels.
    """
    from tlm.shallow.models import one_thread

    POSITIVE.check("seeds", seeds)
    train, dev, labels = _splits(task, "few-labels")
    if model:
        folder = located(model)[0]
        names, several = labels_of(folder)
        if several or names is None or not set(names) <= set(labels):
            raise InputError(f"{model} answers with {names or 'numbers'}; expected one of the task's {labels}")
        chances = open_predictor(folder, "cpu")[0].predict(dev.texts, dev.pairs)
        places = np.array([labels.index(name) for name in names])
        print("model", _shown([score("macro_f1", dev.gold, places[chances.argmax(axis=1)])]), sep="\t")
    majority = np.full(len(dev.gold), np.bincount(train.gold).argmax())
    print("majority", _shown([score("macro_f1", dev.gold, majority)]), sep="\t")
    of_train, of_dev = _frequencies(train, dev)
    with one_thread():
        for size in (10, 20, 50, 100):
            scores = []
            for seed in range(seeds):
                rows = np.random.default_rng(seed).permutation(len(train.texts))[:size]
                (on_dev,) = _answers(of_train, train, rows, len(labels), of_dev)
                scores.append(_macro_f1(dev, on_dev))
            print(size, _shown(scores), sep="\t")


def out_of_fold(train: Split, gold: NDArray[np.int64], classes: int) -> Floats:
    """Probabilities of training examples, shape [n, classes]: each by a linear model of the labels of other groups."""
    from tlm.shallow.linear import Linear

    texts, found = np.array(_texts(train), dtype=object), np.zeros((len(gold), classes))
    features = quick_features(texts.tolist())
    for others, own in held_out(train.group):
        seen = features.fit_transform(texts[others].tolist())
        model = Linear.fit(seen, gold[others], classes, STRENGTH, BALANCED)
        found[own] = model.predict(features.transform(texts[own].tolist()))
    return found


def _splits(task: str, command: str, *, distinct: bool = True) -> tuple[Split, Split, list[str]]:
    """Train, with each text once if `distinct`; dev; and the classes, which `command` needs."""
    given = Artifact.open(task, "task")
    one_label_each(given, command)
    labels = classes_of(given)
    if labels is None:
        raise InputError(f"{task} is a regression; {command} needs a task with classes")
    splits = read_splits(given, "train", "dev")
    train = splits["train"]
    if not distinct:
        return train, splits["dev"], labels
    rows = np.sort(np.unique(np.array(_texts(train), dtype=object), return_index=True)[1])
    texts, pairs = [train.texts[row] for row in rows], train.pairs and [train.pairs[row] for row in rows]
    arrays = {name: getattr(train, name)[rows] for name in ("example", "gold", "group", "copied")}
    return replace(train, texts=texts, pairs=pairs, **arrays), splits["dev"], labels


def _frequencies(train: Split, dev: Split) -> tuple[Any, Any]:
    """Damped frequencies of the features of train and dev, before they are weighted."""
    features = quick_features(_texts(train))
    for vectorizer in features.vectorizers.values():
        vectorizer.set_params(norm=None, use_idf=False, min_df=1)
    return features.fit_transform(_texts(train)), features.transform(_texts(dev))


def _texts(split: Split) -> list[str]:
    from tlm.shallow.features import joined

    return joined(split.texts, split.pairs)


def _shown(scores: Sequence[float]) -> str:
    return f"{100 * fmean(scores):.1f}" + (f" ± {100 * stdev(scores):.1f}" if len(scores) > 1 else "")
