"""The static model: its features are those of a computation word by word, and older folders predict as they did."""

import json
from pathlib import Path

import numpy as np
import pytest

from components.data import mix
from tests.toys import Row, make_task
from tlm.errors import InputError, NothingLeft
from tlm.evaluation.score.baseline import baseline, select, static
from tlm.retrieval.subset.export import TASK_ONLY, Selection
from tlm.shallow.linear import Dense, Linear
from tlm.shallow.static import StaticModel, Vectors, represent

MARKS = (("<<", ">>"), ("[[", "]]"))
WORDS = [*"abcdefgh"]
TEXTS = ["a << b c >> d e f [[ g h ]] a", "[[ x h ]] d << c >>", "<< a b >> [[ c ]] d", "a [[ b ]] c", "a b", ""]


def some_vectors() -> Vectors:
    random = np.random.default_rng(0)
    return Vectors(WORDS, random.normal(size=(8, 3)).astype(np.float32), random.random(8).astype(np.float32))


def mean(words: str) -> np.ndarray:
    found = some_vectors()
    total = np.zeros(3)
    for word in words.split():
        if word in WORDS:
            total += np.float64(found.weights[WORDS.index(word)]) * found.vectors[WORDS.index(word)]
    return total / np.linalg.norm(total) if total.any() else total


@pytest.mark.parametrize(
    ("text", "parts", "places", "scalars"),
    [
        (TEXTS[0], ("a b c d e f g h a", "d e f", "b c", "g h"), ("d", "e", "f", "e", "c", "h"), (1, 0.3, 0)),
        (TEXTS[1], ("x h d c", "d", "c", "x h"), ("d", "", "d", "", "c", "h"), (0, 0.1, 1)),
        (TEXTS[2], ("a b c d", "", "a b", "c"), ("", "", "", "", "b", "c"), (1, 0, 1)),
        (TEXTS[3], ("a b c", "", "", "b"), ("", "", "", "", "", "b"), (1, 0, 1)),
        (TEXTS[4], ("a b", "", "", ""), ("",) * 6, (0, 0, 1)),
        (TEXTS[5], ("", "", "", ""), ("",) * 6, (0, 0, 1)),
    ],
)
def test_features_of_marked_texts(
    text: str, parts: tuple[str, ...], places: tuple[str, ...], scalars: tuple[float, ...]
) -> None:
    """Whole, between, both spans; between again if the spans are in order; scalars; single words; product of spans."""
    whole, between, first, second = map(mean, parts)
    wholes = [whole, between, first, second, between * scalars[0], scalars]
    expected = np.concatenate([*wholes, *map(mean, places), first * second])
    found = represent(some_vectors(), MARKS, ["a << b >> c [[ d ]]", text], None)
    assert np.allclose(found[1], expected, atol=1e-6)


def test_features_of_one_kind_of_span() -> None:
    found = represent(some_vectors(), MARKS[:1], ["a << b c >> d"], None)[0]
    expected = [mean("a b c d"), mean(""), mean("b c"), mean(""), [0, 0, 1], *[mean("")] * 4, mean("c")]
    assert np.allclose(found, np.concatenate(expected), atol=1e-6)


def test_features_of_unmarked_texts_and_pairs() -> None:
    first, second = mean("a b"), mean("c d")
    assert np.allclose(represent(some_vectors(), (), ["a b"], None)[0], first, atol=1e-6)
    pair = np.concatenate([first, second, first * second, np.abs(first - second)])
    assert np.allclose(represent(some_vectors(), (), ["a b"], ["c d"])[0], pair, atol=1e-6)


def test_a_folder_of_an_older_version_is_refused(tmp_path: Path) -> None:
    features = represent(some_vectors(), MARKS, TEXTS, None)
    random = np.random.default_rng(1)
    weights = Linear(random.normal(size=(3, features.shape[1])), np.zeros(3), 3, softmax=True)
    dense = Dense(features.mean(axis=0), np.ones(features.shape[1]), weights, {})
    model = StaticModel(["x", "y", "z"], MARKS, dense, False, some_vectors())
    model.write(tmp_path / "model")
    assert StaticModel.read(tmp_path / "model").predict(TEXTS).tobytes() == model.predict(TEXTS).tobytes()
    config = tmp_path / "model" / "config.json"
    values = json.loads(config.read_text("utf-8"))
    assert values.pop("edges") is True  # the mark of this version
    config.write_text(json.dumps(values), "utf-8")
    with pytest.raises(InputError, match="holds a static model of an older version; make it again with `tlm static`"):
        StaticModel.read(tmp_path / "model")


def test_texts_whose_words_never_repeat_have_no_static_model_and_the_others_go_on(tmp_path: Path) -> None:
    """Names, say: the linear model has their letters, and a run is to end with a report on it."""
    splits = ["train"] * 40 + ["dev"] * 10 + ["test"] * 10
    names: list[Row] = [
        (f"{chr(97 + n // 26)}{chr(97 + n % 26)}{'ung' if n % 2 else 'chen'}", None, "ab"[n % 2], split)
        for n, split in enumerate(splits)
    ]
    root = str(tmp_path)
    task = make_task(tmp_path, names, "macro_f1", ["a", "b"])
    with pytest.raises(NothingLeft, match="no word occurs often enough"):
        static(task, root=root)
    assert select(str(Selection(TASK_ONLY, task, "")), root=root) == ("", "")
    assert mix.python_func(baseline(task, root=root), ["", ""], [], root) == []
