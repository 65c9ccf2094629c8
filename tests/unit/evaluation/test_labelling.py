"""Labelling: what to label next, labels that look wrong, and a first model of label names."""

import csv
import json
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.labelling import (
    BALANCED,
    STRENGTH,
    _saved,
    confident,
    few_labels,
    labels_found,
    labels_saved,
    out_of_fold,
)
from research.labelling import noisy as with_noise
from tests.conftest import missing
from tests.searchable import KITCHEN_AND_ROAD, corpus_of
from tests.tiny import refused
from tests.toys import Row, make_task
from tests.toys_several import several
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import examples, read_splits
from tlm.data.tasks.metrics import held_out
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.evaluation.labelling import (
    EPOCHS,
    chosen,
    course,
    doubts_of,
    label_errors,
    label_names,
    label_next,
    quick_features,
    wrong,
)
from tlm.evaluation.predict.models import located
from tlm.evaluation.predict.predict import predict
from tlm.evaluation.score.baseline import baseline
from tlm.retrieval.search.index import build_index
from tlm.settings.options import Fields
from tlm.shallow.features import words_of
from tlm.shallow.linear import Linear
from tlm.shallow.static import UNMARKED, word_vectors

KITCHEN, ROAD = KITCHEN_AND_ROAD[:8], KITCHEN_AND_ROAD[8:]
TEXTS = [(text, label) for texts, label in ((KITCHEN, "kitchen"), (ROAD, "road")) for text in texts]
PASSAGES = [
    f"{verb} the {thing} with {other}"
    for verbs, things, others in (("stir bake", "soup bread", "salt herbs"), ("drive park", "car van", "oil fuel"))
    for verb in verbs.split()
    for thing in things.split()
    for other in others.split()
] * 5
SPLITS = {"train": 6, "dev": 2, "test": 2}
ROWS: list[Row] = [
    (f"{text} {split} {number}", None, label, split)
    for split, times in SPLITS.items()
    for number in range(times)
    for text, label in TEXTS
]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 999), st.integers(2, 5), st.integers(1, 30))
def test_where_all_texts_are_alike_the_least_sure_of_each_class_come_first(seed: int, classes: int, count: int) -> None:
    """The reference is small-text's `BreakingTies`, here of each class: the lowest differences of the two best."""
    chances = np.random.default_rng(seed).dirichlet(np.ones(classes), 60)
    ties, first = [np.diff(np.sort(row))[-1] for row in chances], chances.argmax(axis=1)
    found = chosen(np.zeros((60, 3)), count, doubts_of(chances))
    assert found == sorted(found, key=lambda row: ties[row])
    parts = {label: [row for row in found if first[row] == label] for label in range(classes)}
    for label, own in parts.items():
        members = sorted(np.flatnonzero(first == label).tolist(), key=lambda row: ties[row])
        assert own == members[: len(own)]
        assert own == members or len(own) >= max(map(len, parts.values())) - 1
    assert len(found) == count


@pytest.mark.parametrize("known", [False, True])
def test_near_duplicates_do_not_fill_the_list(known: bool) -> None:
    """Eight clumps of eight points: each gives one text, with a model its least sure one."""
    features = np.repeat(np.eye(8), 8, axis=0) + np.random.default_rng(0).normal(0, 1e-3, (64, 8))
    chances = np.full((64, 2), 0.5) + np.outer(0.1 + np.arange(64) % 8 / 100, [1, -1]) if known else None
    found = chosen(features, 8, None if chances is None else doubts_of(chances))
    assert sorted(row // 8 for row in found) == list(range(8))
    if known:
        assert {row % 8 for row in found} == {0}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Path]:
    """URIs of a task and of the metrics of its linear model, and a pool of texts, some repeated, one of the task."""
    root = tmp_path_factory.mktemp("made")
    task = make_task(root / "root", ROWS, "macro_f1", ["kitchen", "road"])
    new = [f"{a}, {b}" for a, b in zip(KITCHEN, ROAD, strict=True)] + ["=stir", "drive a car"]
    lines = [
        json.dumps({"text": text, "name": f"n{number}"})
        for number, text in enumerate([ROWS[0][0], ROWS[0][0].upper(), *new, *new])
    ]
    (root / "pool.jsonl").write_text("\n".join(lines))
    return task, baseline(task, root=str(root / "root")), root / "pool.jsonl"


def test_rows_of_the_pool_that_cannot_be_used_are_named(
    made: tuple[str, str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = tmp_path / "odd.jsonl"
    pool.write_text('{"text": ""}\n' + made[2].read_text() + "\n{broken\n", encoding="utf-8")
    label_next(str(pool), to=str(tmp_path / "odd.csv"), count=2)
    assert "label-next: 2 rows cannot be used, the first one at odd.jsonl:1 (empty)" in capsys.readouterr().err


def test_the_file_can_be_filled_in_and_loaded(made: tuple[str, str, Path], tmp_path: Path) -> None:
    _, model, pool = made
    label_next(str(pool), model, to=str(tmp_path / "next.csv"), count=9, fields=Fields(id_field="name"))
    with (tmp_path / "next.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == ["text", "label", "name", "predicted", "margin"]
    assert len(rows) == 9
    assert not {ROWS[0][0], ROWS[0][0].upper()} & {row["text"] for row in rows}
    answers = {row["text"]: row["probabilities"].values() for row in predict(model, [row["text"] for row in rows])}
    for row in rows:
        low, high = sorted(answers[row["text"]])
        assert float(row["margin"]) == pytest.approx(high - low, abs=1e-4)
        assert row["label"] == ""
        row["label"] = row["predicted"]
    assert [float(row["margin"]) for row in rows] == sorted(float(row["margin"]) for row in rows)
    with (tmp_path / "next.csv").open("w", newline="") as file:
        csv.DictWriter(file, rows[0]).writerows([dict(zip(rows[0], rows[0], strict=True)), *rows])
    filled = load_task(str(tmp_path / "next.csv"), root=str(tmp_path), dev_share=0.2, test_share=0.2)
    assert set(examples(Artifact.open(filled))["label"].to_pylist()) == {"kitchen", "road"}


def test_texts_that_a_task_has_without_labels_are_offered(tmp_path: Path) -> None:
    """They are the pool, which the training of encoders and vectors may use meanwhile."""
    (tmp_path / "task.jsonl").write_text("".join(json.dumps({"text": r[0], "label": r[2]}) + "\n" for r in ROWS))
    (tmp_path / "pool.jsonl").write_text("".join(f'{{"text": "a new text {n}"}}\n' for n in range(9)))
    task = load_task(str(tmp_path / "task.jsonl"), unlabelled=str(tmp_path / "pool.jsonl"), root=str(tmp_path))
    model = baseline(task, root=str(tmp_path))
    label_next(str(tmp_path / "pool.jsonl"), model, to=str(tmp_path / "next.jsonl"), count=9)
    assert len((tmp_path / "next.jsonl").read_text().splitlines()) == 9


def test_a_located_may_be_written_with_a_slash_at_its_end(made: tuple[str, str, Path], tmp_path: Path) -> None:
    folder = located(made[1])[0]
    for name, end in (("plain", ""), ("slash", "/")):
        label_next(str(made[2]), f"{folder}{end}", to=str(tmp_path / f"{name}.csv"), count=5)
    assert (tmp_path / "slash.csv").read_text() == (tmp_path / "plain.csv").read_text()


def test_without_a_model_typical_texts_come_first(made: tuple[str, str, Path], tmp_path: Path) -> None:
    label_next(str(made[2]), to=str(tmp_path / "first.jsonl"), count=99)
    rows = [json.loads(line) for line in (tmp_path / "first.jsonl").read_text().splitlines()]
    assert len(rows) == 11
    assert all(row.keys() == {"text", "label"} for row in rows)
    assert len({row["text"] for row in rows}) == 11


def test_a_large_pool_is_read_in_portions_that_show_progress(
    made: tuple[str, str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, model, pool = made
    label_next(str(pool), model, to=str(tmp_path / "whole.jsonl"), count=5)
    monkeypatch.setattr("tlm.evaluation.labelling.PORTION", 3)
    monkeypatch.setattr("tlm.progress.LOG_EVERY_SECONDS", 0.0)
    label_next(str(pool), model, to=str(tmp_path / "portions.jsonl"), count=5)
    assert (tmp_path / "portions.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()
    said = capsys.readouterr().err
    for work in ("predicting", "comparing the texts"):
        assert f"{work}: 10 of 10 texts (100%)" in said
    assert "learning word vectors: 10 texts" in said


def test_of_a_large_pool_no_probability_of_every_class_is_kept(
    made: tuple[str, str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = list[tuple[int, ...]]()
    monkeypatch.setattr(
        "tlm.evaluation.labelling.chosen",
        lambda features, count, known: kept.append(known.shape) or chosen(features, count, known),
    )
    label_next(str(made[2]), made[1], to=str(tmp_path / "next.jsonl"), count=5)
    assert kept == [(10, 2)]


def test_what_label_next_cannot_do_is_said_before_any_work(made: tuple[str, str, Path], tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("text,label\na,filled in\n")
    for to, count, sentence in (("old.csv", 1, "exists"), ("a.txt", 1, "not called .csv"), ("a.csv", 0, "expected 1")):
        with pytest.raises(InputError, match=sentence):
            label_next("no such pool.csv", to=str(tmp_path / to), count=count)
    numbers = make_task(
        tmp_path / "root", [(row[0], None, float(len(row[0])), row[3]) for row in ROWS], "pearson", None
    )
    with pytest.raises(InputError, match="answers with numbers"):
        label_next(str(made[2]), baseline(numbers, root=str(tmp_path / "root")), to=str(tmp_path / "a.csv"))
    (tmp_path / "known.jsonl").write_text(json.dumps({"text": ROWS[0][0]}))
    with pytest.raises(
        InputError, match=r"all texts of .*known\.jsonl are labelled in the model's task already; give other"
    ):
        label_next(str(tmp_path / "known.jsonl"), made[1], to=str(tmp_path / "a.csv"))


def off_diagonal(chances: np.ndarray, gold: np.ndarray) -> set[int]:
    """Confident learning as its paper writes it, one example at a time."""
    classes = range(chances.shape[1])
    least = {j: np.mean([p[j] for p, label in zip(chances, gold, strict=True) if label == j] or [9]) for j in classes}
    found = set()
    for row, (p, label) in enumerate(zip(chances, gold, strict=True)):
        confident = [j for j in classes if p[j] >= least[j]]
        best = max(confident, key=lambda j: p[j], default=label)
        if best != label and p.argmax() != label:
            found.add(row)
    return found


def noisy(seed: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that point to labels, of which a tenth is drawn anew."""
    random = np.random.default_rng(seed)
    gold = random.integers(0, classes, 200)
    scores = np.exp(random.normal(0, 1.2, (200, classes)) + 1.5 * np.eye(classes)[gold])
    gold[:20] = random.integers(0, classes, 20)
    return scores / scores.sum(axis=1, keepdims=True), gold


@given(st.integers(0, 999), st.integers(2, 6))
def test_confident_learning_is_as_its_paper_writes_it(seed: int, classes: int) -> None:
    chances, gold = noisy(seed, classes)
    found, likely = confident(chances, gold)
    assert set(found.tolist()) == off_diagonal(chances, gold)
    assert all(likely != gold[found])
    ahead = chances[found].max(axis=1) - chances[found, gold[found]]
    assert ahead.tolist() == sorted(ahead, reverse=True)


@pytest.mark.parametrize("classes", [2, 3, 5, 8])
def test_confident_learning_and_its_order_are_those_of_cleanlab(classes: int) -> None:
    if not find_spec("cleanlab"):
        missing("cleanlab is not installed: pip install -r research/benchmarks/requirements.txt")
    cleanlab = import_module("cleanlab.filter")
    chances, gold = noisy(classes, classes)
    rank = {"filter_by": "confident_learning", "return_indices_ranked_by": "normalized_margin", "n_jobs": 1}
    assert confident(chances, gold)[0].tolist() == cleanlab.find_label_issues(gold, chances, **rank).tolist()


@given(st.integers(0, 999), st.integers(2, 6))
def test_wrong_labels_have_less_than_half_of_the_probability_and_not_twice_that_of_another(
    seed: int, classes: int
) -> None:
    means, gold = noisy(seed, classes)
    found, likely = wrong(means, gold)
    confidence = means[np.arange(200), gold]
    rivals = [max(means[row, one] for one in range(classes) if one != gold[row]) for row in range(200)]
    assert {*found.tolist()} == {
        row for row in range(200) if confidence[row] < 0.5 and confidence[row] < 2 * rivals[row]
    }
    assert confidence[found].tolist() == sorted(confidence[found])
    for row, best in zip(found, likely, strict=True):
        assert best == max((one for one in range(classes) if one != gold[row]), key=lambda one: means[row, one])


def test_a_text_is_answered_without_its_group(made: tuple[str, str, Path]) -> None:
    train = read_splits(Artifact.open(made[0]), "train")["train"]
    train = replace(train, group=np.arange(len(train.texts)) % 16)
    found = out_of_fold(train, train.gold, 2)
    others, own = next(held_out(train.group))
    assert not set(train.group[others]) & set(train.group[own])
    features = quick_features(train.texts)
    seen = features.fit_transform([train.texts[row] for row in others])
    fit = Linear.fit(seen, train.gold[others], 2, STRENGTH, BALANCED)
    assert np.array_equal(fit.predict(features.transform([train.texts[row] for row in own])), found[own])


def test_changed_labels_are_listed_with_the_likely_ones_and_test_is_left_alone(tmp_path: Path) -> None:
    changed = {5, 40, 90, 100, 130}  # of train, but for 100 (dev) and 130 (test)
    rows = [
        (text, pair, {"kitchen": "road", "road": "kitchen"}[label] if number in changed else label, split)
        for number, (text, pair, label, split) in enumerate(ROWS)
    ]
    task = make_task(tmp_path, rows, "macro_f1", ["kitchen", "road"])
    assert refused(label_errors, task, top=-1) == "top is -1; expected 0 or more"
    shown = label_errors(task, to=str(tmp_path / "wrong.csv"), top=2)
    with (tmp_path / "wrong.csv").open(encoding="utf-8-sig", newline="") as file:
        found = list(csv.DictReader(file))
    listed = [int(row["id"][1:]) for row in found]
    assert set(listed) == changed - {130}
    given = [(rows[number][2], ROWS[number][2]) for number in listed]
    assert [(row["label"], row["likely"]) for row in found] == given
    assert shown.startswith(f"{len(found)} of 128 labels look wrong")
    assert [number for number in listed if f"e{number}: " in shown] == listed[:2]


def test_of_pairs_it_is_said_that_the_model_reads_both_texts_as_one(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0).integers(2, size=len(ROWS))
    rows: list[Row] = [(text, text, "ny"[label], split) for (text, *_, split), label in zip(ROWS, drawn, strict=True)]
    task = make_task(tmp_path, rows, "macro_f1", ["n", "y"])
    assert "labels look wrong; check them before you change them.\nThe model reads both texts" in label_errors(task)


def test_labels_of_texts_that_share_no_word_with_another_are_not_judged(tmp_path: Path) -> None:
    rows: list[Row] = [(f"{word} {number}", None, word, "train") for number in range(20) for word in ("car", "pan")]
    rows += [(f"alone{number}", None, ("car", "pan")[number % 2], "train") for number in range(30)]
    rows += [(text, None, label, split) for text, _, label, _ in rows[:2] for split in ("dev", "test")]
    assert label_errors(make_task(tmp_path, rows, "macro_f1", ["car", "pan"])) == (
        "0 of 42 labels look wrong.\n30 more texts share no word with another text, so their labels were not judged."
    )


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """URI of an index on cooking and driving, and a file of label names."""
    folder = tmp_path_factory.mktemp("named")
    root = str(folder / "root")
    (folder / "names.csv").write_text("label,text\nroad,car to drive\nkitchen,soup to stir\nroad,park\n")
    return build_index(corpus_of([*PASSAGES, "kites above clouds"], root), root=root), folder / "names.csv"


def test_a_model_of_label_names_answers_with_the_nearest_mean_of_passages(
    named: tuple[str, Path], tmp_path: Path
) -> None:
    index, names = named
    model = label_names(index, str(names), top_k=1000)
    of_class = {"kitchen": {"soup", "stir"}, "road": {"car", "drive", "park"}}
    found = {label: [one for one in PASSAGES if words & {*one.split()}] for label, words in of_class.items()}
    vectors = word_vectors([one for one in PASSAGES if any(one in own for own in found.values())], how=UNMARKED)
    means = {label: vectors.means([words_of(one) for one in own]).mean(axis=0) for label, own in found.items()}
    texts = ["bake soup with salt", "park the car with oil", "stir herbs", "bake it in a van full of fuel"]
    answers = list(predict(model, texts))
    for text, answer in zip(texts, answers, strict=True):
        (point,) = vectors.means([words_of(text)])
        near = {label: point @ mean / np.linalg.norm(mean) for label, mean in means.items()}
        assert answer["label"] == max(near, key=near.__getitem__)
        assert sum(answer["probabilities"].values()) == pytest.approx(1)
    (tmp_path / "pool.csv").write_text("text\n" + "\n".join(texts))
    label_next(str(tmp_path / "pool.csv"), model, to=str(tmp_path / "next.jsonl"), count=2)
    rows = [json.loads(line) for line in (tmp_path / "next.jsonl").read_text().splitlines()]
    assert {(row["text"], row["predicted"]) for row in rows} < {(row["text"], row["label"]) for row in answers}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("road,car", "has 1 label"),
        ("road,car\nsky,kite", "no passage has a word of the description of 'sky'"),
        ("road,car\nsky,kites", "passages of 'sky' have no frequent word; describe it in other words$"),
        ("clouds,clouds\nsky,kites", "passages of 'clouds' have no frequent word"),
        ("road,car\nsky,", "names.csv:3: empty, .*; fix them$"),
    ],
)
def test_names_that_make_no_model_are_refused(
    named: tuple[str, Path], tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "names.csv").write_text(f"label,text\n{text}\n")
    with pytest.raises(InputError, match=sentence):
        label_names(named[0], str(tmp_path / "names.csv"))


@given(st.integers(0, 999), st.booleans())
def test_changed_labels_are_other_ones_and_only_possible_ones(seed: int, known: bool) -> None:
    gold = np.arange(60) % 4
    likely = np.tile([5, 3, 2, 0], (60, 1)) if known else None
    rows, changed = with_noise(gold, 4, 0.2, seed, likely)
    assert len({*rows.tolist()}) == 12
    assert np.flatnonzero(changed != gold).tolist() == sorted(rows)
    assert known <= (3 not in changed[rows])


def test_labels_that_were_changed_have_the_lowest_confidence() -> None:
    gold = np.arange(60) % 3
    features = np.eye(3)[gold] + np.random.default_rng(0).normal(0, 0.1, (60, 3))
    rows, changed = with_noise(gold, 3, 0.1, 0)
    epochs = [*course(features, changed, 4)]
    assert len(epochs) == EPOCHS
    assert np.allclose(np.sum(epochs, axis=2), 1)
    assert not np.any(np.array(epochs)[:, :, 3])  # no text has this class
    confidence = np.mean(epochs, axis=0)[np.arange(60), changed]
    assert {*confidence.argsort()[:6]} == {*rows}
    assert np.array_equal(epochs, [*course(features, changed, 4)])
    with pytest.raises(InputError, match="have the same label"):
        next(course(features, np.zeros(60, np.int64), 4))


def test_the_study_says_what_is_found_where_nothing_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    none = np.zeros(0, np.int64)
    monkeypatch.setattr("research.labelling.wrong", lambda means, gold: (none, none))
    task = make_task(tmp_path, ROWS, "macro_f1", ["kitchen", "road"])
    for seeds, shown in ((2, "0.000 ± 0.000"), (1, "0.000")):
        labels_found(task, seeds=seeds)
        assert f"precision: {shown}\nrecall: {shown}\nlisted: {shown}\n" in capsys.readouterr().out
    with pytest.raises(InputError, match="seeds is 0; expected 1 or more"):
        labels_found(task, seeds=0)
    with pytest.raises(InputError, match=r"share is 0; expected a share of 1 to \d+ of the training labels"):
        labels_found(task, share=0)


@pytest.mark.parametrize("to", ["any", "frequent", "likely"])
def test_the_study_reads_the_second_texts_of_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str) -> None:
    """All first texts are the same, so that without the second ones nothing could be found or learned."""
    pairs: list[Row] = [("what is it about?", text, label, split) for text, _, label, split in ROWS]
    task = make_task(tmp_path, pairs, "macro_f1", ["kitchen", "road"])
    labels_found(task, seeds=2, to=to)
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    shown = {line[0]: line[1:] for line in lines if len(line) == 5}
    assert shown["label-errors"][0] == shown["p(label) out of fold"][0] == "100.0 ± 0.0"
    few_labels(task, model=baseline(task, root=str(tmp_path)), seeds=1)
    scores = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert scores["model"] == "100.0"
    assert float(scores["50"]) > 90


def test_the_study_refuses_tasks_without_classes_and_rounds_that_are_none(tmp_path: Path) -> None:
    numbers: list[Row] = [(text, None, float(place), split) for place, (text, _, _, split) in enumerate(ROWS)]
    regression = make_task(tmp_path, numbers, "pearson", None)
    for command, name in ((labels_saved, "labels-saved"), (labels_found, "labels-found"), (few_labels, "few-labels")):
        with pytest.raises(InputError, match=f"is a regression; {name} needs a task with classes"):
            command(regression)
        with pytest.raises(InputError, match=f"several labels a text, and {name} works with one"):
            command(several(tmp_path / name).uri)
    task = make_task(tmp_path, ROWS, "macro_f1", ["kitchen", "road"])
    for step in (0, 10_000):
        with pytest.raises(InputError, match=f"step is {step}; expected 1 "):
            labels_saved(task, step=step)


def test_the_study_scores_a_model_by_the_names_of_its_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another task has them in another order; a model of other classes has no score."""
    task = make_task(tmp_path, ROWS, "macro_f1", ["kitchen", "road"])
    turned = make_task(tmp_path, ROWS, "macro_f1", ["road", "kitchen"], "turned")
    few_labels(task, model=baseline(turned, root=str(tmp_path)), seeds=1)
    assert "model\t100.0\n" in capsys.readouterr().out
    other = make_task(
        tmp_path, [(*row[:2], f"a {row[2]}", row[3]) for row in ROWS], "macro_f1", ["a kitchen", "a road"]
    )
    with pytest.raises(InputError, match=r"answers with \['a kitchen', 'a road'\]; expected one of the task's"):
        few_labels(task, model=baseline(other, root=str(tmp_path)))


def test_labels_are_saved_from_the_first_round_that_is_as_good() -> None:
    """The second round is worse than the first, so that the best until then is the same."""
    random, other = np.array([0.2, 0.3, 0.4]), np.array([0.2, 0.1, 0.4])
    assert [*_saved(random, other, range(100, 301, 100))] == ["100", "250", "300"]
    assert [*_saved(random, random / 2, range(100, 301, 100))] == ["300", "–", "–"]
