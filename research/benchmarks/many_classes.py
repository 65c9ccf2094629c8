"""The cost of the linear model with many classes, on made-up texts whose vocabulary follows Zipf's law."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from research.benchmarks.measure import Cost, Stopwatch, child, cost_of
from research.benchmarks.row import Result, Row, limit
from research.benchmarks.training_data import folder

SIZES, QUICK = ((77, 10_000), (150, 8_000), (1_000, 10_000)), ((40, 400),)  # classes, training texts
BOUND = SIZES[1]
MOST_SECONDS, MOST_MIB = 120, 2048
HELD_OUT = 5  # training texts for each of dev, and for each of test
WORDS, COMMON, FLATTENED = 20_000, 100, 2.7  # of the language; most frequent ones, which no class owns; Mandelbrot's
OWN, SHARE, MEAN = 60, 0.2, 12  # words that a class favours; how often it takes one of them; words of a text
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


def run(quick: bool) -> list[Result]:
    """Each size in a process of its own."""
    with tempfile.TemporaryDirectory(dir=folder()) as place:
        return [result for size in (QUICK if quick else SIZES) for result in measure(*size, Path(place))]


def measure(classes: int, texts: int, place: Path) -> list[Result]:
    """The cost of the step, its model's score on test, and the number of settings that it compared."""
    from tlm.artifacts.artifact import Artifact
    from tlm.data.tasks.task import load_task
    from tlm.evaluation.score.baseline import baseline

    write(classes, texts, place / f"{classes}")
    task = load_task(f"{place}/{classes}", root=f"{place}/store")
    cost = cost_of(child(fit, task))
    metrics = Artifact.open(baseline(task))  # found
    tried = metrics.input("model").details["tried"]
    score = metrics.json("metrics.json")["splits"]["test"]
    seconds, memory = (MOST_SECONDS, MOST_MIB) if (classes, texts) == BOUND else (None, None)
    label = f"{classes:,} classes, {texts:,} texts"
    return [
        limit(f"{label}: time", cost.cpu, "CPU s", seconds),
        limit(f"{label}: peak memory", cost.memory / 2**20, "MiB", memory),
        limit(f"{label}: macro-F1 on test", 100 * score["macro_f1"], ""),
        limit(f"{label}: top-5 accuracy on test", 100 * score["top5"], ""),
        limit(f"{label}: settings compared", tried, ""),
    ]


def fit(task: str) -> Cost:
    """The step itself."""
    from tlm.evaluation.score.baseline import baseline

    with Stopwatch() as watch:
        baseline(task)
    return watch.cost()


def write(classes: int, texts: int, place: Path) -> None:
    """The files of a task; the same for the same sizes."""
    place.mkdir(parents=True)
    rng = np.random.default_rng(classes)
    own = rng.integers(COMMON, WORDS, (classes, OWN))
    for split, count in (("train", texts), ("dev", texts // HELD_OUT), ("test", texts // HELD_OUT)):
        with (place / f"{split}.jsonl").open("w") as lines:
            rows = enumerate(made_up(own, count, rng))
            lines.writelines(json.dumps({"text": text, "label": f"{row % classes:04}"}) + "\n" for row, text in rows)


def made_up(own: NDArray[np.int64], count: int, rng: np.random.Generator) -> Iterator[str]:
    """So many texts of the classes in turn, a row of `own` words each: the words of the language, and some of them."""
    common, favoured = (1 / (np.arange(size) + FLATTENED) for size in (WORDS, OWN))
    for row, length in enumerate(1 + rng.poisson(MEAN - 1, count)):
        words = rng.choice(WORDS, length, p=common / common.sum())
        favourites = own[row % len(own), rng.choice(OWN, length, p=favoured / favoured.sum())]
        yield " ".join(map(spelled, np.where(rng.random(length) < SHARE, favourites, words).tolist()))


def spelled(rank: int) -> str:
    """The word of this rank: frequent words are short."""
    rest, last = divmod(rank, len(SYLLABLES))
    return (spelled(rest - 1) if rest else "") + SYLLABLES[last]


ROW = Row(
    name="many_classes",
    stage="the linear model with many classes",
    against="bounds",
    target=f"150 classes and 8,000 texts within {MOST_SECONDS / 60:g} CPU minutes and {MOST_MIB / 1024:g} GiB",
    what="`tlm baseline` as a whole, once for each size: features, regularisation and class weights are chosen on dev, "
    f"and test is read. Texts are made up, {MEAN} words on average: a language of {WORDS:,} words whose frequencies "
    f"follow Zipf's law, frequent ones short. A class favours {OWN} of them and takes {SHARE:.0%} of its words from "
    "these. Dev and test have a fifth as many texts each. Scores are for comparison between versions only.",
    run=run,
    packages=("scikit-learn", "numpy", "scipy"),
)
