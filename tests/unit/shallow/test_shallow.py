"""Shallow models: how they are chosen, fitted, kept and served, from arrays to the steps `baseline` and `static`."""

import json
import os
import subprocess
import sys
import tracemalloc
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier

from tests.places import check_places
from tests.toys import Row, make, make_task, save, words
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.cli.upkeep import download
from tlm.data.tasks.metrics import Split, score
from tlm.errors import InputError
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.report.page import READING
from tlm.evaluation.score import baseline as steps
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.evaluate import evaluate
from tlm.evaluation.score.mix import ENCODER, ReportRow
from tlm.evaluation.score.mix import KINDS as ROWS
from tlm.shallow import linear, tfidf
from tlm.shallow.features import Terms
from tlm.shallow.linear import FOLDS, Given, Linear, Search, views_of
from tlm.shallow.static import StaticModel, learn
from tlm.shallow.tfidf import Tfidf, tune

SPLITS = ["train"] * 60 + ["dev"] * 15 + ["test"] * 15
LABELS = ["cause", "part", "wärme"]
KINDS = ("plain", "pairs", "marked", "numbers")
STEPS = {"baseline": baseline, "static": static}


def test_every_shallow_model_is_everywhere() -> None:
    """What the names of arms do not tell is taken for a neural network."""
    kinds = {step: ReportRow.of(f"{step}-bm25" if step == steps.STATIC else step, step).kind for step in steps.VERSIONS}
    own, told = {*kinds.values()} - {ENCODER}, " ".join(READING)
    places = {  # the names that each lacks
        "_part, tlm/evaluation/score/mix.py": {step for step, kind in kinds.items() if kind == ENCODER},
        "KINDS, tlm/evaluation/score/mix.py": {*kinds.values()} - {*ROWS},
        "READING, tlm/evaluation/report/page.py": {kind for kind in own if kind not in told},
        "STEPS, tests/unit/shallow/test_shallow.py": steps.VERSIONS.keys() - STEPS.keys() - {steps.EMBEDDINGS},
    }
    check_places({place: (names, set()) for place, names in places.items()})


def rows_of(kind: str) -> list[Row]:
    """Examples that can be learned: by a word, by the second text, by the order of marked spans, or as a number."""
    golds = [LABELS[number * number % 3] if number % 5 else LABELS[2] for number in range(90)]
    if kind == "numbers":
        return [
            (text, None, float(text.count("alpha") - text.count("beta")), split)
            for text, split in zip(words(90, 4), SPLITS, strict=True)
        ]
    signs = dict(zip(LABELS, ("because of", "inside", "Hitze ist"), strict=True))
    rows: list[Row] = []
    for text, gold, split in zip(words(90, 5), golds, SPLITS, strict=True):
        if kind == "pairs":
            rows.append((text, f"{signs[gold]} {text[::-1]}", gold, split))
        elif kind == "marked":
            rows.append((f"{text} [[ alpha one ]] {signs[gold]} << beta >> {text}", None, gold, split))
        else:
            rows.append((f"{text} {signs[gold]}", None, gold, split))
    return rows


def task_of(root: Path, kind: str) -> str:
    number = kind == "numbers"
    return make_task(root, rows_of(kind), "pearson" if number else "macro_f1", None if number else LABELS, kind)


def split_of(rows: list[Row], labels: list[str] | None, name: str = "train") -> Split:
    texts, pairs, golds, _ = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    gold = np.array(golds, np.float64) if labels is None else np.array([labels.index(one) for one in golds], np.int64)
    count = np.arange(len(rows))
    return Split(name, count, texts, pairs if any(pairs) else None, gold, count, np.zeros(len(rows), bool))


def fitted(step: str, kind: str) -> Tfidf | StaticModel:
    rows, labels = rows_of(kind), None if kind == "numbers" else LABELS
    metric = "pearson" if labels is None else "macro_f1"
    known = Given(split_of(rows[:60], labels), split_of(rows[60:75], labels, "dev"), metric, labels)
    return tune(known) if step == "baseline" else learn((), (), known)


def subset_of(root: Path, texts: list[str], arm: str = "bm25") -> str:
    """A subset of these passages, in two shards."""
    half = len(texts) // 2

    def write(draft: Draft) -> None:
        for shard, part in enumerate((range(half), range(half, len(texts)))):
            columns = {"doc": list(part), "text": [texts[doc] for doc in part]}
            save(draft, f"passages-{shard:05d}.parquet", columns)
        draft.details.update(arm=arm, passages=len(texts))

    return make("subset", root, write, {"texts": texts})


def model_of(metrics: str) -> Artifact:
    return Artifact.open(metrics).input("model")


@given(
    st.lists(
        st.lists(st.sampled_from(["aa", "bb", "cc", "dd", "ee", "ff", "gg", "hh"]), min_size=1, max_size=40),
        min_size=2,
        max_size=9,
    ),
    st.sampled_from([1, 2]),
    st.sampled_from([None, 5]),
)
def test_terms_are_learned_and_counted_in_one_pass_to_the_same_bytes(
    texts: list[list[str]], least: int, most: int | None
) -> None:
    lines = [*map(" ".join, texts), "aa bb", "aa bb"]
    options = {"sublinear_tf": True, "min_df": least, "max_features": most, "ngram_range": (1, 3)}
    plain, ours = TfidfVectorizer(**options), Terms(**options)
    expected, found = plain.fit(lines).transform(lines), ours.fit_transform(lines)
    for part in ("data", "indices", "indptr"):
        assert getattr(found, part).tobytes() == getattr(expected, part).tobytes()
    assert ours.get_feature_names_out().tolist() == plain.get_feature_names_out().tolist()
    assert ours.idf_.tobytes() == plain.idf_.tobytes()


def random_features(classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    gold = random.integers(0, classes, 80)
    return random.normal(size=(80, 6)) + np.eye(6)[gold], gold


# Choosing


def classes_by_words(classes: int, examples: int) -> tuple[Split, Split, list[str]]:
    """Train and dev, in whose texts two words tell the class."""
    labels = [f"class {number}" for number in range(classes)]
    texts = words(examples, 6)
    rows: list[Row] = [
        (f"{text} w{place % classes} v{place % classes % 7}", None, labels[place % classes], "train")
        for place, text in enumerate(texts)
    ]
    held_out = len(rows) // 5
    return split_of(rows[held_out:], labels), split_of(rows[:held_out], labels, "dev"), labels


@pytest.mark.parametrize(
    ("classes", "most_work", "much_work", "tried"),
    [(4, 1, 1, 28), (5, tfidf.MOST_WORK, tfidf.MUCH_WORK, 5), (5, 1, tfidf.MUCH_WORK, 4), (5, 1, 1, 2)],
)
def test_with_many_classes_less_is_fitted(
    classes: int, most_work: int, much_work: int, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """150 classes with 8,000 texts once took 322 CPU seconds: each class takes a fit in each setting and fold."""
    train, dev, labels = classes_by_words(classes, classes * 12)
    done = []
    fit = LogisticRegression.fit
    monkeypatch.setattr(LogisticRegression, "fit", lambda *given, **more: done.append(1) or fit(*given, **more))
    monkeypatch.setattr(tfidf, "MANY", 4)
    monkeypatch.setattr(tfidf, "MOST_WORK", most_work)
    monkeypatch.setattr(tfidf, "MUCH_WORK", much_work)
    found = tune(Given(train, dev, "macro_f1", labels))
    assert found.tried == tried
    assert len(done) <= (tried * 4 + 1) * classes  # of three folds, for dev, and the final ones
    assert score("macro_f1", dev.gold, found.predict(dev.texts).argmax(axis=1)) > 0.9


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30))
def test_folds_never_divide_a_group(groups: list[int]) -> None:
    group, dev = np.array(groups), split_of(rows_of("plain")[60:64], LABELS)
    rows = (rows_of("plain") * 2)[: len(groups)]
    train = split_of(rows, LABELS)
    train = Split(train.name, train.example, train.texts, None, train.gold, group, train.copied)
    *folded, on_dev = views_of(train, dev)
    count = len(groups)
    assert [(seen.tolist(), unseen.tolist()) for seen, unseen in on_dev] == [
        (list(range(count)), list(range(count, count + 4)))
    ]
    assert len(folded) == (len(set(groups)) >= FOLDS)
    for folds in folded:
        assert len(folds) == FOLDS
        assert sorted(np.concatenate([unseen for _, unseen in folds])) == list(range(count))
        for seen, unseen in folds:
            assert sorted([*seen, *unseen]) == list(range(count))
            assert not set(group[seen]) & set(group[unseen])


def test_a_large_task_is_judged_on_dev(monkeypatch: pytest.MonkeyPatch) -> None:
    train, dev = (split_of(rows_of("plain")[:size], LABELS) for size in (10, 4))
    for most, folds in ((10, [FOLDS, 1]), (9, [1])):
        monkeypatch.setattr(linear, "MOST_FOLDED", most)
        assert [len(view) for view in views_of(train, dev)] == folds


def test_among_equal_settings_the_first_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    features, gold = random_features(2)
    examples = split_of([("x", None, LABELS[one], "dev") for one in gold], LABELS)
    search = Search(Given(split_of([], LABELS), examples, "accuracy", LABELS[:2]))
    scores = iter([0.5, 0.5, 0.4, 0.5, 0.6, 0.6])
    monkeypatch.setattr(linear, "dev_score", lambda *_: next(scores))
    for name, strengths, best in (("a", (3.0, 1.0), ("a", 3.0, False, 0.5)), ("b", (0.1,), ("b", 0.1, False, 0.6))):
        search.consider(name, [(features, features)], strengths)
        found = search.best
        assert found is not None
        assert (found.features, found.strength, found.balanced, found.score) == best
    assert search.tried == 6


@pytest.mark.parametrize(("turned", "expected"), [(0, 1), (1, 0.5)])
def test_each_prediction_is_judged_by_its_own_example_and_dev_counts_for_half(turned: int, expected: float) -> None:
    _, gold = random_features(3)
    right = np.eye(3)[gold]
    train = split_of([("x", None, LABELS[one], "train") for one in gold], LABELS)
    search = Search(Given(train, train, "accuracy", LABELS))
    both = np.concatenate([right, np.roll(right, turned, axis=1)])
    search.consider("right", [(both[seen], both[unseen]) for seen, unseen in search.folds], (10.0,))
    assert search.best is not None
    assert search.best.score == expected


# The linear model


@pytest.mark.parametrize("balanced", [False, True])
def test_sparse_classes_are_those_of_one_against_rest(balanced: bool) -> None:
    features, gold = random_features(3)
    matrix, weights = sparse.csr_matrix(features), "balanced" if balanced else None
    model = LogisticRegression(C=3.0, solver="liblinear", class_weight=weights, max_iter=1000, random_state=0)
    expected = OneVsRestClassifier(model).fit(matrix, gold).predict_proba(matrix)
    found = Linear.fit(matrix, gold, 3, 3.0, balanced).predict(matrix)
    assert np.abs(found - expected).max() < 1e-9
    assert np.allclose(found.sum(axis=1), 1)


@pytest.mark.parametrize("dense", [False, True])
def test_two_classes_are_one_model(dense: bool) -> None:
    features, gold = random_features(2)
    matrix = features if dense else sparse.csr_matrix(features)
    model = LogisticRegression(C=3.0, solver="liblinear", max_iter=1000, random_state=0, tol=1e-8).fit(matrix, gold)
    mine = Linear.fit(matrix, gold, 2, 3.0, False)
    assert mine.weights.shape == (1, 6)
    assert np.abs(mine.predict(matrix) - model.predict_proba(matrix)).max() < 1e-3


@pytest.mark.parametrize("balanced", [False, True])
def test_dense_classes_are_a_softmax(balanced: bool) -> None:
    features, gold = random_features(3)
    weights = "balanced" if balanced else None
    model = LogisticRegression(C=0.03, class_weight=weights, max_iter=1000, random_state=0).fit(features, gold)
    found = Linear.fit(features, gold, 3, 0.03, balanced).predict(features)
    assert np.abs(found - model.predict_proba(features)).max() < 1e-9


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("present", [(1,), (0,), (0, 2), (0, 1, 3), (1, 2, 3)])
def test_a_class_without_examples_gets_no_probability(dense: bool, present: tuple[int, ...]) -> None:
    features, place = random_features(len(present))
    gold = np.array(present)[place]
    matrix = features if dense else sparse.csr_matrix(features)
    found = Linear.fit(matrix, gold, 4, 1.0, True).predict(matrix)
    absent = [label for label in range(4) if label not in present]
    assert (found[:, absent] == 0).all()
    assert np.allclose(found.sum(axis=1), 1)
    assert (found.argmax(axis=1) == gold).mean() > 0.6
    if len(present) > 2:
        without = Linear.fit(matrix, place, len(present), 1.0, True).predict(matrix)
        assert np.abs(found[:, list(present)] - without).max() < 1e-9


@pytest.mark.parametrize("only", [0, 1])
def test_two_classes_of_which_one_has_all_examples(only: int) -> None:
    features, _ = random_features(2)
    found = Linear.fit(features, np.full(80, only), 2, 1.0, False).predict(features)
    assert (found == np.eye(2)[only]).all()


def test_predicting_many_classes_holds_two_arrays_of_them_at_most() -> None:
    rng = np.random.default_rng(0)
    model, features = Linear(rng.normal(size=(300, 5)), np.zeros(300), 300), rng.normal(size=(5000, 5))
    tracemalloc.start()
    try:
        size = model.predict(features).nbytes
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * size


def test_a_search_says_which_class_it_is_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tlm.progress.LOG_EVERY_SECONDS", 0.0)
    monkeypatch.setattr("tlm.shallow.linear.SHOWN_EVERY", 10)
    fitted("baseline", "plain")
    said = capsys.readouterr().err
    assert "linear model: 0 settings tried in 0 s, class 1 of 3" in said
    assert "class 3 of 3" in said
    assert "0 settings tried in 0 s, text 10 of " in said
    assert "(mean of dev and cross-validation) with word n-grams 1-2, character n-grams " in said


def test_numbers_are_those_of_ridge() -> None:
    features, _ = random_features(3)
    gold = features @ np.arange(6) + 7
    expected = Ridge(alpha=5.0).fit(features, gold).predict(features)
    dense = Linear.fit(features, gold, 0, 2.0, False).predict(features)
    assert dense.shape == (80, 1)
    assert np.abs(dense[:, 0] - expected).max() < 1e-9
    loose = Linear.fit(sparse.csr_matrix(features), gold, 0, 2.0, False).predict(sparse.csr_matrix(features))
    assert np.abs(loose[:, 0] - expected).max() < 1e-2


# Folders


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", STEPS)
def test_a_model_that_was_written_predicts_the_same(step: str, kind: str, tmp_path: Path) -> None:
    model, again = fitted(step, kind), fitted(step, kind)
    model.write(tmp_path / "a")
    again.write(tmp_path / "b")
    restored = type(model).read(tmp_path / "a")
    restored.write(tmp_path / "c")
    first, second, third = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("a", "b", "c")
    )
    assert first == second == third
    texts = [*[row[0] for row in rows_of(kind)], "unseen Übermut", "alpha << beta", "]] x [[ y"]
    pairs = ["beta inside"] * len(texts) if kind == "pairs" else None
    found = restored.predict(texts, pairs)
    assert found.tobytes() == model.predict(texts, pairs).tobytes()
    assert len(np.unique(found, axis=0)) > 1
    assert restored.labels == (None if kind == "numbers" else LABELS)


def test_predicting_a_text_does_not_copy_the_weights(tmp_path: Path) -> None:
    model = fitted("baseline", "plain")
    names = [f"class {number}" for number in range(5000)]
    weights = np.zeros((len(names), model.linear.weights.shape[1]))
    many = replace(model, labels=names, linear=Linear(weights, np.zeros(len(names)), len(names)))
    many.write(tmp_path / "many")
    restored = Tfidf.read(tmp_path / "many")
    restored.predict(["a text"])  # sets up its vocabulary
    tracemalloc.start()
    try:
        restored.predict(["a text"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < weights.nbytes / 2


@pytest.mark.parametrize("step", STEPS)
def test_a_folder_holds_data_only(step: str, tmp_path: Path) -> None:
    fitted(step, "marked").write(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").rglob("*")) == [
        "config.json", "vocabulary.json", "weights.safetensors",
    ]  # fmt: skip
    config, vocabulary = (json.loads((tmp_path / "model" / f"{name}.json").read_text("utf-8")) for name in
                          ("config", "vocabulary"))  # fmt: skip
    assert config["labels"] == LABELS
    assert all(isinstance(word, str) for words_ in vocabulary.values() for word in words_)
    assert all(array.dtype.kind == "f" for array in load_file(tmp_path / "model" / "weights.safetensors").values())


# The steps


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", STEPS)
def test_predict_gives_what_the_step_scored(step: str, kind: str, store: Path) -> None:
    metrics = STEPS[step](task_of(store, kind), root=str(store))
    found = Artifact.open(metrics)
    assert found.details["test"] > 0.5  # a guess of the largest class has macro-F1 below 0.25
    assert found.details["stage"] == step
    table = pq.read_table(found.path("predictions.parquet"))
    asked = [row[0] if row[1] is None else (row[0], row[1]) for row in rows_of(kind)[60:]]
    for uri in (metrics, model_of(metrics).uri):
        answers = list(predict(uri, asked))
        if kind == "numbers":
            assert np.allclose([row["value"] for row in answers], table["predicted"].to_pylist(), rtol=0, atol=1e-12)
            continue
        assert [row["label"] for row in answers] == table["predicted"].to_pylist()
        chances = [[row["probabilities"][label] for label in LABELS] for row in answers]
        assert np.allclose(chances, table["probabilities"].to_pylist(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("step", STEPS)
def test_evaluate_finds_the_scores_that_the_step_made(step: str, store: Path) -> None:
    task = task_of(store, "plain")
    metrics = STEPS[step](task, root=str(store))
    assert evaluate(model_of(metrics).uri, task, root=str(store)) == metrics
    other = task_of(store, "numbers")
    with pytest.raises(InputError, match=r"gives the 3 classes cause, part, wärme but .* has a number"):
        evaluate(model_of(metrics).uri, other, root=str(store))


@pytest.mark.parametrize("missing", ["vocabulary.json", "weights.safetensors"])
@pytest.mark.parametrize("step", STEPS)
def test_a_folder_that_lacks_a_file_is_said_in_a_sentence(step: str, missing: str, store: Path, tmp_path: Path) -> None:
    model = model_of(STEPS[step](task_of(store, "plain"), root=str(store))).uri
    folder = Path(download(model, str(tmp_path / "fetched")))
    (folder / missing).unlink()
    with pytest.raises(InputError, match=missing):
        list(predict(str(folder), ["alpha"]))


@pytest.mark.parametrize("text", ['{"tlm_family": "oracle", "labels": ["a"]}', '["tlm_family"]', "{broken"])
def test_a_config_that_no_model_has_is_said_in_a_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError):
        list(predict(str(tmp_path), ["alpha"]))


def test_rows_that_are_bad_are_answered_with_an_error(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = baseline(task_of(store, "plain"), root=str(store))
    assert "baseline: the model of baseline is " in capsys.readouterr().err
    assert [list(row) for row in predict(metrics, [" ", ""])] == [["row", "error"]] * 2
    found = list(predict(metrics, ["alpha inside", " ", "beta inside"]))
    assert ["error" in row for row in found] == [False, True, False]
    assert found[0]["label"] == "part"


@pytest.mark.parametrize(
    ("kind", "asked"), [("pairs", "alpha"), ("plain", ("alpha", "inside"))], ids=["no second text", "a second text"]
)
@pytest.mark.parametrize("step", STEPS)
def test_texts_that_do_not_fit_the_task_are_no_crash(step: str, kind: str, asked: Any, store: Path) -> None:
    """As an encoder does: it answers, or says in a sentence what is expected."""
    metrics = STEPS[step](task_of(store, kind), root=str(store))
    try:
        answers = list(predict(metrics, [asked]))
    except InputError:
        return
    assert answers[0]["label"] in LABELS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", STEPS)
def test_two_stores_get_the_same_content(step: str, kind: str, tmp_path: Path) -> None:
    found = [STEPS[step](task_of(tmp_path / name, kind), root=str(tmp_path / name)) for name in "ab"]
    first, second = (Artifact.open(uri) for uri in found)
    assert first.content == second.content
    assert model_of(found[0]).content == model_of(found[1]).content


def foreseen() -> list[Row]:
    """The words of the test texts are not in train; retrieved passages say which of those they are like."""
    known, unknown = {"sea": "kraken", "sky": "griffin"}, {"sea": "octopus", "sky": "pegasus"}
    return [
        (f"the {(known if split == 'train' else unknown)[label]} is {text}", None, label, split)
        for text, label, split in zip(words(90, 6), ["sea", "sky", "sky"] * 30, SPLITS, strict=True)
    ]


def test_vectors_of_a_subset_tell_what_train_does_not(tmp_path: Path) -> None:
    task = make_task(tmp_path, foreseen(), "macro_f1", ["sea", "sky"])
    passages = ["waves hide kraken octopus deep water", "clouds carry griffin pegasus high above"] * 30
    subset = subset_of(tmp_path, [f"{text} {number}" for number, text in enumerate(passages)])
    alone = Artifact.open(static(task, root=str(tmp_path)))
    helped = Artifact.open(static(task, subset=subset, root=str(tmp_path)))
    assert (alone.details["arm"], helped.details["arm"]) == ("static-task-only", "static-bm25")
    assert alone.details["test"] < 0.7 < 0.95 < helped.details["test"]
    model = model_of(helped.uri)
    assert sorted(model.manifest.inputs) == ["subset", "task"]
    assert {"octopus", "pegasus"} <= set(json.loads(model.path("model/vocabulary.json").read_text("utf-8"))["words"])


@pytest.mark.parametrize("step", STEPS)
def test_marked_spans_tell_one_question_from_another(step: str, tmp_path: Path) -> None:
    """The words of all texts are the same; only which of them is marked first differs."""
    texts = words(90, 7)
    rows: list[Row] = [
        (f"{text} {first} one {close} of {second} two {end}", None, label, split)
        for text, split, (first, close, second, end, label) in zip(
            texts, SPLITS, [("[[", "]]", "<<", ">>", "whole"), ("<<", ">>", "[[", "]]", "part")] * 45, strict=True
        )
    ]
    found = Artifact.open(STEPS[step](make_task(tmp_path, rows, "macro_f1", ["part", "whole"]), root=str(tmp_path)))
    assert found.details["test"] == 1


@pytest.mark.parametrize("step", STEPS)
def test_spans_that_are_named_are_another_recipe(step: str, tmp_path: Path) -> None:
    task = task_of(tmp_path, "marked")
    found, models = [], {}
    for spans in ((), ["<< >>", "[[ ]]"], ["[[ ]]", "<< >>"], ["[[ ]]"]):
        found.append(STEPS[step](task, spans=spans, root=str(tmp_path)))
        for folder in set((tmp_path / "model").iterdir()) - set(models):
            models[folder] = Artifact.open(str(folder), "model")
    assert [model.manifest.settings.get("spans") for model in models.values()] == [
        None, ["<< >>", "[[ ]]"], ["[[ ]]", "<< >>"], ["[[ ]]"],
    ]  # fmt: skip
    marks = [json.loads(model.path("model/config.json").read_text("utf-8"))["marks"] for model in models.values()]
    first, second = ["<<", ">>"], ["[[", "]]"]
    assert marks == [[first, second], [first, second], [second, first], [second]]
    assert len({model.content for model in models.values()}) == 3  # the same marks, whoever found them
    assert found[0] == found[1]
    assert len(set(found)) == 3


@pytest.mark.parametrize("wrong", [["[["], ["[[ ]]", ""], "[[ ]]", [f"<{tag}> </{tag}>" for tag in "abcde"]])
@pytest.mark.parametrize("step", STEPS)
def test_wrong_spans_are_said_in_a_sentence(step: str, wrong: Any, tmp_path: Path) -> None:
    task = task_of(tmp_path, "plain")
    with pytest.raises(InputError, match=r"^spans "):
        STEPS[step](task, spans=wrong, root=str(tmp_path))
    assert not (tmp_path / "model").exists()


def test_spans_of_pairs_are_refused_where_nothing_reads_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has pairs of texts, where static knows no spans; leave --spans out"):
        static(task_of(tmp_path, "pairs"), spans=["[[ ]]"], root=str(tmp_path))


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_cannot_be_fitted_says_so(step: str, tmp_path: Path) -> None:
    nothing = make_task(tmp_path, [("x", None, "a", "dev"), ("y", None, "b", "test")], "accuracy", ["a", "b"])
    with pytest.raises(InputError, match="no training examples"):
        STEPS[step](nothing, root=str(tmp_path))


def test_static_without_a_frequent_word_says_so(tmp_path: Path) -> None:
    rows: list[Row] = [(f"w{number}", None, "ab"[number % 2], split) for number, split in enumerate(SPLITS)]
    task = make_task(tmp_path, rows, "accuracy", ["a", "b"])
    with pytest.raises(InputError, match="no word occurs often enough"):
        static(task, root=str(tmp_path))


def test_features_of_spans_are_tried_first_where_texts_are_marked() -> None:
    assert fitted("baseline", "marked").chosen["span features"] == "yes"
    assert fitted("baseline", "plain").chosen["span features"] == "none"


@pytest.mark.parametrize("step", STEPS)
def test_it_fits_without_a_warning(step: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(step, "marked")


def test_nothing_of_this_imports_torch(tmp_path: Path) -> None:
    task, texts = task_of(tmp_path, "marked"), [row[0] for row in rows_of("marked")[:3]]
    program = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        assert name.split(".")[0] not in ("torch", "transformers"), name
sys.meta_path.insert(0, Refuse())
from tlm.evaluation.score import baseline as steps
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.predict.predict import predict
for step in (baseline, static):
    metrics = step({task!r}, root={str(tmp_path)!r})
    print([row["label"] for row in predict(metrics, {texts!r})])
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    expected = str([row[2] for row in rows_of("marked")[:3]])
    assert found.stdout.splitlines() == [expected, expected]


@pytest.mark.parametrize("step", STEPS)
def test_a_model_is_learned_in_one_thread(step: str, tmp_path: Path) -> None:
    """In a fresh process: libraries that are loaded after a limit was set do not keep to it."""
    task = task_of(tmp_path, "plain")
    program = f"""
import threadpoolctl
from tlm.evaluation.score import baseline as steps
fitted = steps._fitted
def watched(recipe):
    found = fitted(recipe)
    print(sorted({{library["num_threads"] for library in threadpoolctl.threadpool_info()}}))
    return found
steps._fitted = watched
steps.{step}({task!r}, root={str(tmp_path)!r})
"""
    threads = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **threads})
    assert found.stdout.splitlines()[:1] == ["[1]"], found.stderr


@pytest.mark.parametrize(("passages", "least", "most"), [(4, 4, 4), (8, 8, 8), (9, 8, 8), (100, 8, 8)])
def test_of_a_large_subset_evenly_spaced_passages_are_read(
    passages: int, least: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "MOST_PASSAGES", 8)
    texts = [f"passage {number}" for number in range(passages)]
    read = list(steps._read(Artifact.open(subset_of(tmp_path, texts))))
    assert least <= len(read) <= most
    places = [texts.index(text) for text in read]
    gaps = {later - earlier for earlier, later in pairwise(places)}
    assert max(gaps) - 1 <= min(gaps) == passages // len(read), "not the first ones"
