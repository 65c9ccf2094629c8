"""What `label-next`, `label-errors` and `label-names` gain, simulated on tasks whose labels are known."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import read_splits
from tlm.data.tasks.metrics import Split, score
from tlm.evaluation.labelling.label_errors import wrong
from tlm.evaluation.labelling.label_next import MOST_CLUSTERED, chosen, features_of, margins, quotas, spread
from tlm.shallow.features import TextFeatures
from tlm.shallow.linear import Linear
from tlm.shallow.models import one_thread
from tlm.shallow.tfidf import OF_SPANS, SHAPES, tune

STRENGTH, BALANCED = 10.0, True  # fixed: no labels are spent on choosing
Floats = NDArray[np.float64]
Way = Callable[[Floats, int, Floats, int], Sequence[int]]  # (features, how many, probabilities, seed) -> rows


def _random(features: Floats, count: int, chances: Floats, seed: int) -> Sequence[int]:
    return np.random.default_rng([seed, len(features)]).permutation(len(features))[:count].tolist()


def _unsure(features: Floats, count: int, chances: Floats, seed: int) -> Sequence[int]:
    return np.argsort(margins(chances), kind="stable")[:count].tolist()


def _unsure_and_spread(features: Floats, count: int, chances: Floats, seed: int) -> Sequence[int]:
    unsure = margins(chances)
    return spread(features, np.argsort(unsure, kind="stable")[: MOST_CLUSTERED * count], count, unsure)


def _unsure_and_balanced(features: Floats, count: int, chances: Floats, seed: int) -> Sequence[int]:
    unsure, first, rows = margins(chances), chances.argmax(axis=1), list[int]()
    for label, quota in enumerate(quotas(np.bincount(first, minlength=chances.shape[1]), count)):
        own = np.flatnonzero(first == label)
        rows += own[np.argsort(unsure[own], kind="stable")[:quota]].tolist()
    return rows


WAYS: dict[str, Way] = {
    "random": _random,
    "unsure": _unsure,
    "unsure, spread": _unsure_and_spread,
    "unsure, balanced": _unsure_and_balanced,
    "label-next": lambda features, count, chances, seed: chosen(features, count, chances),
}


def labels_saved(task: str, *, step: int = 100, most: int = 1500, seeds: int = 5) -> None:
    """Print macro-F1 on dev by number of labels, for each way to choose the next ones; all begin with random ones.

    Args:
        task: URI of the task; its distinct training texts are the pool.
        step: Labels to begin with, and labels a round.
        most: Labels at the end.
        seeds: How many draws of the first labels.
    """
    train, dev, labels = _splits(task)
    matrix, of_dev = _matrices(train, dev)
    features = features_of(train.texts, None)
    rounds = range(step, min(most, len(train.texts)) + 1, step)
    curves: dict[str, list[list[float]]] = {way: [] for way in ("typical first", *WAYS)}
    with one_thread():
        typical = chosen(features, step)
        for seed in range(seeds):
            first = np.random.default_rng(seed).permutation(len(train.texts))[:step].tolist()
            for way in WAYS:
                own, scores = list(first), list[float]()
                for size in rounds:
                    model = Linear.fit(matrix[own], train.gold[own], len(labels), STRENGTH, BALANCED)
                    scores.append(_macro_f1(dev, model.predict(of_dev)))
                    left = np.setdiff1d(np.arange(len(train.texts)), own)
                    if size != rounds[-1]:
                        found = WAYS[way](features[left], step, model.predict(matrix[left]), seed)
                        own += left[found].tolist()
                curves[way].append(scores)
        model = Linear.fit(matrix[typical], train.gold[typical], len(labels), STRENGTH, BALANCED)
        curves["typical first"].append([_macro_f1(dev, model.predict(of_dev))])
    print("labels", *rounds, sep="\t")
    for way, scores in curves.items():
        print(way, *(_shown(values) for values in zip(*scores, strict=True)), sep="\t")
    means = {way: np.mean(scores, axis=0) for way, scores in curves.items()}
    for way in [*WAYS][1:]:
        print(f"labels at which '{way}' reaches random's F1", *_saved(means["random"], means[way], rounds), sep="\t")


def _saved(random: Floats, other: Floats, rounds: Sequence[int]) -> Iterator[str]:
    """For each round, the labels at which `other` first has the F1 of `random`, interpolated."""
    best = np.maximum.accumulate(other)
    for value in np.maximum.accumulate(random):
        yield f"{np.interp(value, best, rounds):.0f}" if value <= best[-1] else "–"


def labels_found(task: str, *, share: float = 0.05, seeds: int = 5) -> None:
    """Print how many of the labels that were changed at random `label-errors` finds, and how many it lists in vain.

    Args:
        task: URI of the task.
        share: Share of the training labels to change.
        seeds: How many draws.
    """
    train, dev, labels = _splits(task, distinct=False)
    rows = []
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        flipped = random.permutation(len(train.gold))[: round(share * len(train.gold))]
        gold = train.gold.copy()
        gold[flipped] = (gold[flipped] + random.integers(1, len(labels), len(flipped))) % len(labels)
        noisy = replace(train, gold=gold)
        with one_thread():
            found, _ = wrong(tune(noisy, dev, "macro_f1", labels).held_out(noisy), gold)
        right = np.isin(found, flipped)
        rows.append((right.mean(), right.sum() / len(flipped), right[: len(flipped)].mean(), len(found)))
        print(seed, *(f"{value:.3f}" for value in rows[-1]), sep="\t", flush=True)
    names = ("precision", "recall", f"precision of the first {round(share * len(train.gold))}", "listed")
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        print(f"{name}: {fmean(values):.3f} ± {stdev(values):.3f}")


def few_labels(task: str, *, seeds: int = 10) -> None:
    """Print macro-F1 on dev of the majority class, and of linear models of few labels, to compare `label-names` with.

    Args:
        task: URI of the task.
        seeds: How many draws of the labels.
    """
    train, dev, labels = _splits(task)
    majority = np.eye(len(labels))[[np.bincount(train.gold).argmax()] * len(dev.gold)]
    print("majority", f"{100 * _macro_f1(dev, majority):.1f}", sep="\t")
    matrix, of_dev = _matrices(train, dev)
    with one_thread():
        for size in (10, 20, 50, 100):
            scores = []
            for seed in range(seeds):
                rows = np.random.default_rng(seed).permutation(len(train.texts))[:size]
                model = Linear.fit(matrix[rows], train.gold[rows], len(labels), STRENGTH, BALANCED)
                scores.append(_macro_f1(dev, model.predict(of_dev)))
            print(size, _shown(scores), sep="\t")


def _splits(task: str, *, distinct: bool = True) -> tuple[Split, Split, list[str]]:
    """Train, with each text once if `distinct`; dev; and the classes."""
    given = Artifact.open(task, "task")
    splits = read_splits(given, "train", "dev")
    train, labels = splits["train"], list(given.details["labels"])
    rows = (
        np.unique(np.array(train.texts, dtype=object), return_index=True)[1] if distinct else np.arange(len(train.gold))
    )
    rows = np.sort(rows)
    texts = [train.texts[row] for row in rows]
    arrays = {name: getattr(train, name)[rows] for name in ("example", "gold", "group", "copied")}
    return replace(train, texts=texts, **arrays), splits["dev"], labels


def _matrices(train: Split, dev: Split) -> tuple[Any, Any]:
    """Features of train and dev, with words and weights of all of train's texts: a pool is known without labels."""
    from tlm.data.marks import find_marks

    marks = find_marks(train.texts)
    features = TextFeatures(OF_SPANS[0] if marks else SHAPES[0], marks).fit(train.texts)
    return features.transform(train.texts), features.transform(dev.texts)


def _macro_f1(split: Split, chances: Floats) -> float:
    return score("macro_f1", split.gold, chances.argmax(axis=1))


def _shown(scores: Sequence[float]) -> str:
    return f"{100 * fmean(scores):.1f}" + (f" ± {100 * stdev(scores):.1f}" if len(scores) > 1 else "")
