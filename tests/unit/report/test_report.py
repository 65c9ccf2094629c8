"""The report: right numbers, and no claim that intervals do not carry."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from kfp import dsl

from tests.toy_reports import LABELS, as_if, is_safe, reported, told_of, toy_world
from tests.toys import Row, make, make_corpus, make_task, read_json, words
from tlm.artifacts.artifact import Artifact
from tlm.data.passages import evenly, rows_at
from tlm.data.tasks.metrics import score
from tlm.errors import InputError
from tlm.evaluation.report import kfp
from tlm.evaluation.report.page import in_units
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.intervals import spread


def test_the_numbers_are_those_of_the_runs(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    skills = [0.5, 0.6, 0.7]
    uris = [world.metrics("bm25", seed, skill) for seed, skill in enumerate(skills)]
    first = baseline(world.task, root=str(tmp_path))
    files = reported(tmp_path, [*uris, first])
    told = json.loads(files["json"])
    scores = [Artifact.open(uri).details["test"] for uri in uris]
    group = {group["arm"]: group for group in told["groups"]}["bm25"]
    assert group["seeds"] == [0, 1, 2]
    assert group["test"]["values"] == scores
    assert group["test"]["std"] == pytest.approx(np.std(scores, ddof=1))
    assert group["cost"]["flops"]["mean"] == 8e13
    matrices = [Artifact.open(uri).json("metrics.json")["splits"]["test"]["confusion"] for uri in uris]
    assert told["confusion"]["matrix"] == np.sum(matrices, axis=0).tolist()
    expected = f"{100 * np.mean(scores):.1f} ± {100 * np.std(scores, ddof=1):.1f}"
    for form in ("html", "md"):
        assert expected in files[form]
        assert f"{100 * Artifact.open(first).details['test']:.1f}" in files[form]
    means = [group["dev"]["mean"] for group in told["groups"]]
    assert means == sorted(means, reverse=True)  # the best on dev first


def test_the_order_of_metrics_does_not_matter_and_nothing_is_done_twice(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    uris = [world.metrics(arm, seed, 0.6) for arm in ("bm25", "random", "task-only") for seed in (0, 1)]
    one = report(uris, root=str(tmp_path))
    assert report([*uris[::-1], uris[0]], root=str(tmp_path)) == one
    told = json.loads(Artifact.open(one).path("report.json").read_text())
    assert {group["arm"]: group["seeds"] for group in told["groups"]} == {
        arm: [0, 1] for arm in ("task-only", "random", "bm25")
    }


def test_it_is_the_same_each_time(tmp_path: Path) -> None:
    pages = []
    for name in ("one", "two/hive=x"):
        world = toy_world(tmp_path / name)
        uris = [world.metrics(arm, seed, 0.6) for arm in ("bm25", "random") for seed in range(3)]
        as_if(tmp_path / name, seconds=2.5, process_seconds=3.5)
        pages.append(reported(tmp_path / name, uris))
    assert pages[0] == pages[1]


@pytest.mark.parametrize("arms", [["task-only"], ["random", "bm25"]])
def test_any_choice_of_arms(arms: list[str], tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    files = reported(tmp_path, [world.metrics(arm, 0, 0.6) for arm in arms])
    is_safe(files["html"])
    assert ("What bm25 retrieved" in files["html"]) == ("bm25" in arms)
    assert ("passages drawn at random" in files["html"]) == ("random" in arms)


def test_retrieved_text_comes_before_random_text(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    files = reported(tmp_path, [world.metrics("random", 0, 0.9), world.metrics("bm25", 0, 0.6)])
    found = json.loads(files["json"])
    assert [one["arm"] for one in found["evidence"]] == ["bm25", "random"]
    assert [one["arm"] for one in found["dropped"] if one["kind"] == "subset"] == ["bm25", "random"]


def test_only_a_baseline(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    files = reported(tmp_path, [baseline(world.task, root=str(tmp_path))])
    is_safe(files["html"])
    assert "Only the linear model was trained" in files["md"]


def test_the_note_below_the_scores_is_true_of_a_model_without_seeds(tmp_path: Path) -> None:
    """A linear model has one run and an interval; the note said that there is none below three seeds."""
    files = reported(tmp_path, [baseline(toy_world(tmp_path).task, root=str(tmp_path))])
    (row,) = json.loads(files["json"])["groups"]
    assert (row["repeats"], row["fixed"], row["test"]["low"] is None) == ("one seed", True, False)
    words = "with fewer than 3 seeds or draws there is none, unless a model is the same with every seed (–)"
    assert words in files["md"]


def test_regression(tmp_path: Path) -> None:
    world = toy_world(tmp_path, labels=None)
    runs = [world.metrics("bm25", seed, 0.9) for seed in range(3)]
    files = reported(tmp_path, [*runs, baseline(world.task, root=str(tmp_path))])
    is_safe(files["html"])
    assert "Pearson correlation" in files["html"]
    assert "Predicted against gold values" in files["html"]
    assert "by gold class" not in files["html"]
    errors = [read_json(Artifact.open(uri), "metrics.json")["splits"]["test"]["rmse"] for uri in runs]
    for form in ("html", "md"):
        assert "root mean squared error" in files[form]
        assert "Errors are in the unit of the labels; lower is better." in files[form]
        assert re.search(rf"\b0\.[1-9]\d\d ± {np.std(errors, ddof=1):.3f}", files[form])
        assert in_units(spread(errors)) in files[form]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([12_345.6], "12346"), ([1.917, 2.117], "2.02 ± 0.14"), ([0.0123], "0.0123"),
        ([1.5e-6, 1.7e-6], "1.60e-06 ± 1.4e-07"), ([0.0], "0"), ([], "–"),
    ],
)  # fmt: skip
def test_errors_have_three_digits_in_any_unit(values: list[float], expected: str) -> None:
    assert in_units(spread(values)) == expected


def test_many_classes_are_listed_by_their_confusions(tmp_path: Path) -> None:
    world = toy_world(tmp_path, labels=[f"class {number}" for number in range(20)])
    files = reported(tmp_path, [world.metrics("bm25", 0, 0.3)])
    is_safe(files["html"])
    assert "The most frequent confusions" in files["html"]
    assert "by gold class" not in files["html"]


def test_stage_1_alone_stands_apart(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    told = told_of([world.metrics("bm25", 0, 0.9 / stage, stage=stage) for stage in (1, 2)])
    assert [group["name"] for group in told["groups"]] == ["bm25", "bm25, stage 1 only"]
    assert told["best"]["name"] == "bm25"  # whole runs are judged, even where stage 1 alone did better


def test_runs_of_one_arm_with_other_settings_stand_apart_and_say_which(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    uris = [world.metrics("bm25", seed, 0.6, rho1=rho1) for rho1 in (4, 20) for seed in (0, 1)]
    groups = told_of(uris)["groups"]
    assert [(group["name"], group["seeds"]) for group in groups] == [
        ("bm25 (rho1=4)", [0, 1]),
        ("bm25 (rho1=20)", [0, 1]),
    ]


def test_runs_with_other_texts_or_files_under_the_same_settings_stand_apart(tmp_path: Path) -> None:
    """A corpus, a vocabulary and a published model are no seeds of each other, whatever they are called."""
    world = toy_world(tmp_path)
    first = world.metrics("bm25", 0, 0.6)
    runs = [[first, world.metrics("bm25", 0, 0.7, vocabulary="another")]]
    files = ({"model.safetensors": digest} for digest in ("a" * 64, "b" * 64))
    runs.append([world.metrics("task-only", 0, skill, files=one) for skill, one in zip((0.5, 0.6), files, strict=True)])
    subset, world.passages = world.subsets["bm25"], world.passages[:50]
    world.corpus = make_corpus(tmp_path, world.passages)
    world.index = make("index", tmp_path, world._index, {"engine": "embedded"}, {"corpus": world.corpus})
    subsets = [subset, world.subset("bm25")]
    runs.append([static(world.task, subset=one, root=str(tmp_path)) for one in subsets])
    for pair in runs:
        groups = told_of(pair)["groups"]
        assert [group["seeds"] for group in groups] == [[0], [0]]
        assert len({group["name"] for group in groups}) == 2


def test_losses_over_another_vocabulary_are_not_compared(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    runs = [world.metrics(arm, seed, 0.6) for arm in ("task-only", "random") for seed in range(2)]
    runs += [world.metrics("bm25", seed, 0.7, mlm=1.5, vocabulary="of a pre-trained model") for seed in range(2)]
    told = told_of(runs)
    assert sorted(told["losses"]) == ["random", "task-only"]
    page, _, note = reported(tmp_path, runs)["md"].partition("## Results")[2].partition("Dev and test:")
    assert "lower is better. –: none, or over another vocabulary." in note  # a linear model has none
    losses = {row.split("`")[1]: row.split("|")[-3].strip(" *") for row in page.splitlines() if "`" in row}
    assert losses["task-only"].startswith("5.00")
    assert losses["bm25"] == "–"


def test_an_order_is_claimed_only_where_intervals_carry_it(tmp_path: Path) -> None:
    def claims(name: str, skills: dict[str, list[float]]) -> str:
        world = toy_world(tmp_path / name)
        uris = [world.metrics(arm, seed, skill) for arm, own in skills.items() for seed, skill in enumerate(own)]
        return " ".join(told_of(uris)["findings"])

    apart = claims("apart", {"random": [0.0] * 4, "bm25": [1.0] * 4})
    assert "Retrieved text is ahead of random text (4 draws): +" in apart
    assert ", bm25 over random." in apart
    together = claims("together", {"random": [0.1, 0.9, 0.5], "bm25": [0.9, 0.1, 0.6]})
    assert "Retrieved text is not shown to be ahead of random text (3 draws): " in together
    assert "text is ahead" not in together
    few = claims("few", {"random": [0.0] * 2, "bm25": [1.0] * 2})
    assert "etrieved text" not in few


def test_one_draw_of_random_text_gives_no_order_whatever_the_seeds(tmp_path: Path) -> None:
    """Five seeds on one draw tell nothing of the next one; the interval of the difference covers the draws."""
    world = toy_world(tmp_path)
    bm25 = [world.metrics("bm25", seed, 1.0) for seed in range(5)]

    def told(*draws: int) -> dict[str, Any]:
        return told_of([*bm25, *(world.metrics("random", seed, 0.0, draw=draw) for seed, draw in enumerate(draws))])

    one = told(0, 0, 0, 0, 0)
    (difference,) = one["differences"]
    assert difference["low"] is difference["high"] is None
    assert difference["ahead"] == ""
    retrieved, random = one["groups"]
    assert (random["test"]["low"], random["draws"], random["repeats"]) == (None, 1, "5 seeds of one draw")
    assert retrieved["test"]["low"] is not None
    assert (retrieved["draws"], retrieved["repeats"]) == (0, "5 seeds")
    assert [check["code"] for check in one["checks"]] == ["TLM003", "TLM003", "TLM012", "TLM012"]
    several = told(0, 1, 2, 3, 4)
    assert several["differences"][0]["ahead"] == "bm25"
    assert (several["groups"][1]["draws"], several["groups"][1]["repeats"]) == (5, "5 seeds and draws")
    assert "Retrieved text is ahead of random text (5 draws): +" in " ".join(several["findings"])
    assert len(several["bill"]["spent"]) == len(one["bill"]["spent"])
    assert len(several["dropped"]) == len(one["dropped"])


@pytest.mark.parametrize(
    ("skills", "expected"),
    [
        ([1.0] * 3, r"Use bm25: .* points above the linear model .*: very probably better"),
        (
            [0.0] * 3,
            "Use the linear model: .* bm25 is .* points below it on dev, and .* points below it on test",
        ),
    ],
)
def test_the_best_arm_is_held_against_the_baseline(skills: list[float], expected: str, tmp_path: Path) -> None:
    texts = [f"{word} sign{index % 3 if index % 2 else 0}" for index, word in enumerate(words(60, 4))]
    world = toy_world(tmp_path, texts=texts)
    uris = [world.metrics("bm25", seed, skill) for seed, skill in enumerate(skills)]
    told = told_of([*uris, baseline(world.task, root=str(tmp_path))])
    assert 0.3 < next(one for one in told["groups"] if one["arm"] == "baseline")["test"]["mean"] < 0.95
    assert re.match(expected, told["findings"][0])
    named = told["findings"][0].removeprefix("Use ").removeprefix("the ").partition(":")[0].removesuffix(" model")
    assert told["best"]["name"] == named


def test_linear_models_whose_answers_differ_count_as_seeds(tmp_path: Path) -> None:
    """Each learned from other labels, say; with two of them there is no interval."""
    world = toy_world(tmp_path)
    world.subsets["baseline"] = world.subsets["bm25"]
    for seeds, fixed in (((0, 1), False), ((0,), True)):
        (group,) = told_of([world.metrics("baseline", seed, 0.6) for seed in seeds])["groups"]
        assert (group["fixed"], group["test"]["low"] is not None) == (fixed, fixed)


def test_the_best_arm_is_named_by_dev_also_where_test_says_otherwise(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    better_on_dev = [world.metrics("random", seed, skill={"dev": 0.9, "test": 0.3}) for seed in range(3)]
    better_on_test = [world.metrics("bm25", seed, skill={"dev": 0.3, "test": 0.9}) for seed in range(3)]
    told = told_of([*better_on_dev, *better_on_test])
    means = {group["arm"]: (group["dev"]["mean"], group["test"]["mean"]) for group in told["groups"]}
    assert means["random"][0] > means["bm25"][0]
    assert means["random"][1] < means["bm25"][1]
    assert told["best"]["name"] == "random"
    assert re.match("Use random: .* It is the best of these models on dev", told["findings"][0])


def test_the_run_to_use_is_the_best_on_dev(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    skills = [{"dev": 0.9, "test": 0.2}, {"dev": 0.2, "test": 0.9}]
    good, lucky = (Artifact.open(world.metrics("bm25", seed, skill)) for seed, skill in enumerate(skills))
    assert (good.details["dev"] > lucky.details["dev"], good.details["test"] < lucky.details["test"]) == (True, True)
    assert told_of([lucky.uri, good.uri])["best"]["metrics"] == good.manifest.key


def test_scores_stand_beside_those_without_the_texts_that_train_has_too(tmp_path: Path) -> None:
    copies = [31, 41, 45, 52]  # one of dev, three of test
    world = toy_world(tmp_path, copies=copies)
    uris = [world.metrics("bm25", seed, 0.7) for seed in range(3)]
    first = baseline(world.task, root=str(tmp_path))
    told = told_of([*uris, first])
    group = next(group for group in told["groups"] if group["arm"] == "bm25")
    for split, start, stop in (("dev", 30, 40), ("test", 40, 60)):
        kept = [row for row in range(start, stop) if row not in copies]
        left = group["without_copies"][split]
        assert left["n"] == len(kept)
        for name in ("macro_f1", "accuracy"):
            assert left["scores"][name]["values"] == pytest.approx([_score(uri, kept, name) for uri in uris])
        assert left["score"]["values"] == pytest.approx([_score(uri, kept, "macro_f1") for uri in uris])
    copied = next(check for check in told["checks"] if check["code"] == "TLM002")
    assert copied["severity"] == "warning"
    assert "3 of the 20 test texts are in train too" in copied["sentence"]
    files = reported(tmp_path, [*uris, first])
    for form in ("html", "md"):
        assert "Test without the texts that are also in train" in files[form]
        assert "Dev without the texts that are also in train" in files[form]
        assert "17 of 20 examples" in files[form]


def test_without_such_texts_nothing_is_said_of_them(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    assert "also in train" not in reported(tmp_path, [world.metrics("bm25", 0, 0.6)])["html"]


def _score(uri: str, rows: list[int], name: str) -> float:
    """Of the predictions for these examples, by scikit-learn."""
    table = pq.read_table(Artifact.open(uri).path("predictions.parquet"), partitioning=None).to_pylist()
    chosen = [row for row in table if row["example"] in rows]
    return score(name, *(np.array([LABELS.index(row[side]) for row in chosen]) for side in ("gold", "predicted")))


def test_retrieved_passages_stand_with_the_example_that_asked(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    told = told_of([world.metrics("bm25", 0, 0.6), world.metrics("random", 0, 0.5)])
    retrieved, drawn = told["evidence"]
    assert (retrieved["arm"], len(retrieved["passages"]), drawn["arm"], len(drawn["passages"])) == (
        "bm25",
        10,
        "random",
        3,
    )
    subset = Artifact.open(world.subsets["bm25"])
    hits = rows_at(subset.input("hits"), "hits.parquet", range(1000)).values()
    examples = rows_at(Artifact.open(world.task), "examples.parquet", range(60))
    for passage in retrieved["passages"]:
        assert passage["text"] == world.passages[passage["doc"]]
        own = [hit for hit in hits if hit["doc"] == passage["doc"]]
        asking = [examples[hit["query"]]["text"] for hit in own if hit["rank"] == min(hit["rank"] for hit in own)]
        assert passage["asker"]["text"] in asking
        assert passage["queries"] == len(own)
    assert all(passage["asker"] is None for passage in drawn["passages"])


def test_what_was_dropped_is_told_with_its_text(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    files = reported(tmp_path, [world.metrics("bm25", 0, 0.6)])
    steps = {step["kind"]: step for step in json.loads(files["json"])["dropped"]}
    assert list(steps) == ["corpus", "task", "hits", "subset"]
    assert steps["corpus"]["counts"]["duplicates"] == 2
    assert {reason["reason"]: reason["count"] for reason in steps["subset"]["reasons"]} == {
        "near-duplicate": 2,
        "overlaps test": 1,
    }
    assert steps["subset"]["reasons"][0]["samples"][0]["text"] == world.passages[-1]
    for word in ("near-duplicate", "overlaps test", "no hit", "not JSON"):
        assert word in files["html"]
        assert word in files["md"]


@pytest.mark.parametrize("labels", [["fraud", "ok"], ["ok", "fraud"]])
def test_the_f1_of_two_classes_names_its_class(labels: list[str], tmp_path: Path) -> None:
    splits = ["train"] * 20 + ["dev"] * 20 + ["test"] * 20
    rows: list[Row] = [(f"{'cash' if n % 4 == 0 else 'leak'} {n % 7}", None, "ok" if n % 4 else "fraud", split)
                       for n, split in enumerate(splits)]  # fmt: skip
    made = report([baseline(make_task(tmp_path, rows, "f1", labels), root=str(tmp_path))], root=str(tmp_path))
    found = Artifact.open(made)
    assert found.json("report.json")["findings"][0].endswith(f" F1 of {labels[1]} on test.")
    assert f"F1 of {labels[1]}" in found.path("report.md").read_text(encoding="utf-8").splitlines()[2]


def test_what_cannot_be_reported_is_said_in_a_sentence(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    other = make_task(
        tmp_path,
        [(f"t {i}", None, "ab"[i % 2], split) for i, split in enumerate(["train", "train", "dev", "test"])],
        "accuracy",
        ["a", "b"],
    )
    with pytest.raises(InputError, match="are of different tasks"):
        report([world.metrics("bm25", 0, 0.6), baseline(other, root=str(tmp_path))], root=str(tmp_path))
    with pytest.raises(InputError, match="needs the URI of at least one"):
        report([], root=str(tmp_path))
    with pytest.raises(InputError, match="is a task; expected metrics"):
        report([world.task], root=str(tmp_path))


def test_what_the_pipelines_page_shows(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    uri = world.metrics("bm25", 3, 0.6, mlm=4.0)
    summary = kfp.summary(Artifact.open(uri).json("metrics.json"))
    assert summary["test_macro_f1"] == Artifact.open(uri).details["test"]
    assert summary["test_mlm_loss"] == pytest.approx(4.03)
    assert np.isfinite(list(summary.values())).all()
    shown = dsl.ClassificationMetrics()
    kfp.log_scores(uri, dsl.Metrics(), shown)
    matrix = shown.metadata["confusionMatrix"]
    assert [one["displayName"] for one in matrix["annotationSpecs"]] == LABELS
    assert np.sum([one["row"] for one in matrix["rows"]]) == 20
    card = kfp.dataset_card(world.subsets["bm25"])
    assert "| `near-duplicate` | 2 |" in card
    assert " · query of example " in card


def test_evenly_spaced_rows_out_of_shards(tmp_path: Path) -> None:
    assert evenly(100, 10) == [5, 15, 25, 35, 45, 55, 65, 75, 85, 95]
    assert evenly(3, 10) == [0, 1, 2]
    assert evenly(0, 10) == []
    world = toy_world(tmp_path)
    corpus = Artifact.open(world.corpus)
    assert len(corpus.entries("passages-*.parquet")) == 2
    rows = rows_at(corpus, "passages-*.parquet", [0, 29, 30, 59, 60])
    assert {doc: row["text"] for doc, row in rows.items()} == {doc: world.passages[doc] for doc in (0, 29, 30, 59)}


def test_intervals() -> None:
    assert spread([]) == {"values": [], "mean": None, "std": None, "low": None, "high": None}
    assert spread([None, 2.0])["std"] is None
    assert spread([1.0, 3.0])["low"] is None
    five = spread([1.0, 2.0, 3.0, 4.0, 5.0])
    assert five["high"] - five["mean"] == pytest.approx(2.776 * np.sqrt(2.5 / 5), rel=1e-3)  # t(0.975, 4), from a table
