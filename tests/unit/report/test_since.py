"""A report against an earlier one: numbers by other ways, classes that come and go, refusals, and the pages."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sklearn.metrics import f1_score

from tests.toy_reports import HOSTILE, LABELS, is_safe, pages, toy_world
from tests.toys import Row, World, make_task, words
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.report import kfp
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.mix import mix

TEXTS = words(100, 4, "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu")


def world_of(root: Path, labels: list[Any] | None, train: range, test: range, shift: int = 0) -> World:
    """A task with these of `TEXTS`; the gold label of a text is by its number, `shift` labels further."""
    parts = [*((n, "train") for n in train), *((n, "dev") for n in range(80, 95)), *((n, "test") for n in test)]
    rows: list[Row] = [
        (TEXTS[n], None, labels[(n + shift) % len(labels)] if labels else n / 7, split) for n, split in parts
    ]
    return World(root, make_task(root, rows, "macro_f1" if labels else "pearson", labels), words(60, 1))


def contents(uri: str) -> Any:
    return json.loads(Artifact.open(uri).path("report.json").read_text())


def answers(metrics: str) -> dict[str, tuple[Any, Any]]:
    """Gold and predicted value of each test text."""
    found = Artifact.open(metrics)
    texts = pq.read_table(found.input("task").path("examples.parquet"))["text"].to_pylist()
    rows = pq.read_table(found.path("predictions.parquet"), partitioning=None).to_pylist()
    return {texts[row["example"]]: (row["gold"], row["predicted"]) for row in rows if row["split"] == "test"}


def test_on_one_task_the_difference_is_that_of_a_report_with_both(tmp_path):
    world = toy_world(tmp_path)
    first, second = ([world.metrics(arm, seed, skill) for seed in range(3)] for arm, skill in
                     (("bm25", 0.8), ("random", 0.5)))  # fmt: skip
    (expected,) = contents(report([*first, *second], root=str(tmp_path)))["differences"]
    earlier = report(second, root=str(tmp_path))
    found = contents(report(first, against=earlier, root=str(tmp_path)))["since"]
    for name in ("mean", "low", "high", "chance"):
        assert found["difference"][name] == pytest.approx(expected[name])
    assert found["difference"]["ahead"] == {"bm25": "now", "random": "before", "": ""}[expected["ahead"]]
    assert found["names"] == {"before": "random", "now": "bm25"}
    assert all(not row["added"] and not row["removed"] for row in found["data"]["splits"])
    assert {"name": "arm", "before": "random", "now": "bm25"} in found["settings"]


def test_answers_are_counted_on_the_texts_that_both_tests_have(tmp_path):
    old, new = (
        world_of(tmp_path, LABELS, range(20), range(20, 50)),
        world_of(tmp_path, LABELS, range(20), range(30, 70)),
    )
    before, now = old.metrics("bm25", 0, 0.5), new.metrics("bm25", 0, 0.7, lr=0.1)
    found = contents(report([now], against=before, root=str(tmp_path)))["since"]
    theirs, ours = answers(before), answers(now)
    both = [text for text in ours if text in theirs]
    expected = dict.fromkeys(found["changed"], 0)
    for text in both:
        gold, answer = ours[text]
        was, right = theirs[text][1] == gold, answer == gold
        expected["right to wrong"] += was and not right
        expected["wrong to right"] += right and not was
        expected["wrong to another wrong one"] += not was and not right and theirs[text][1] != answer
    assert found["changed"] == expected
    assert sum(expected.values()) > 5
    assert found["tests"] == {"before": 30, "now": 40, "both": len(both), "compared": len(both)}
    for kind, count in expected.items():
        assert sum(row[kind] for row in found["classes"]) == count
    assert 0 < len(found["answers"]) <= 10
    for one in found["answers"]:
        assert (one["label"], one["now"], one["before"]) == (*ours[one["text"]], theirs[one["text"]][1])
    assert {"name": "preset.train.lr", "before": "0.003", "now": "0.1"} in found["settings"]


def test_classes_that_are_new_and_gone(tmp_path):
    """An answer with a class that is gone is wrong; macro-F1 is over the classes of today."""
    old, new = ["blue", "green", "red"], ["green", "pink", "red", "yellow"]
    one, two = world_of(tmp_path, old, range(20), range(20, 60)), world_of(tmp_path, new, range(20), range(20, 60))
    before, now = one.metrics("bm25", 0, 0.6), two.metrics("bm25", 0, 0.6)
    made = report([now], against=before, root=str(tmp_path))
    found = contents(made)["since"]
    assert (list(found["data"]["came"]), list(found["data"]["went"])) == (["pink", "yellow"], ["blue"])
    ours, theirs = answers(now), answers(before)
    gold = [pair[0] for pair in ours.values()]
    for name, given in (("now", [pair[1] for pair in ours.values()]), ("before", [theirs[text][1] for text in ours])):
        assert "blue" in given or name == "now"
        score = f1_score(gold, given, labels=new, average="macro", zero_division=0)
        assert found["scores"][name]["mean"] == pytest.approx(score)
    assert "new labels: pink, yellow; labels that are gone: blue" in contents(made)["findings"][1]


@pytest.mark.parametrize(
    ("new", "renamed", "said"),
    [
        (["blue", "crimson", "green"], {"red": "crimson"}, "renamed or merged labels: red is now crimson"),
        (["cold", "red"], {"blue": "cold", "green": "cold"}, "blue is now cold, green is now cold"),
    ],
)
def test_a_renamed_or_merged_label_is_no_gain(tmp_path, new, renamed, said):
    """The same answers, with the names of now, change nothing: macro-F1 of both sides is that of the mapped answers."""
    labels = ["blue", "green", "red"]
    rows = [(TEXTS[n], labels[n % 3], "train" if n < 20 else "dev" if n < 35 else "test") for n in range(80)]
    tasks = [
        make_task(
            tmp_path, [(text, None, named.get(label, label), split) for text, label, split in rows], "macro_f1", known
        )
        for named, known in (({}, labels), (renamed, new))
    ]
    before, now = (baseline(task, root=str(tmp_path)) for task in tasks)
    made = contents(report([now], against=before, root=str(tmp_path)))
    given = {text: renamed.get(answer, answer) for text, (_, answer) in answers(before).items()}
    gold = {text: right for text, (right, _) in answers(now).items()}
    score = f1_score(list(gold.values()), [given[text] for text in gold], labels=new, average="macro", zero_division=0)
    assert made["since"]["scores"]["before"]["mean"] == pytest.approx(score)
    assert said in made["findings"][1]
    assert "gone" not in made["findings"][1]
    assert made["since"]["changed"]["wrong to right"] <= sum(given[text] != gold[text] for text in gold)


def test_texts_that_either_side_learned_from_are_not_compared(tmp_path):
    """What a leak of 20 test texts into train adds to the score is no gain."""
    rows = [(TEXTS[n], None, LABELS[n % 3], "train" if n < 20 else "dev" if n < 35 else "test") for n in range(80)]
    leaked = [*((text, pair, label, "train") for text, pair, label, _ in rows[40:60]), *rows]
    tasks = (
        make_task(tmp_path, one, "macro_f1", LABELS, copies=copies)
        for one, copies in ((rows, ()), (leaked, range(60, 80)))
    )
    before, now = (baseline(task, root=str(tmp_path)) for task in tasks)
    for new, old in ((now, before), (before, now)):
        made = contents(report([new], against=old, root=str(tmp_path)))
        assert made["since"]["tests"] == {"before": 45, "now": 45, "both": 45, "compared": 25}
        assert "On the 25 test texts that both have, and neither has in train, " in made["findings"][1]
    theirs, ours = answers(before), answers(now)
    others = [text for text, *_, split in rows if split == "test" and text not in {one[0] for one in rows[40:60]}]
    gold, given = [ours[text][0] for text in others], [theirs[text][1] for text in others]
    score = f1_score(gold, given, labels=LABELS, average="macro", zero_division=0)
    assert made["since"]["scores"]["now"]["mean"] == pytest.approx(score)


def test_a_relabelled_text_is_judged_by_its_label_of_now(tmp_path):
    old, new = (world_of(tmp_path, LABELS, range(20), range(20, 60), shift) for shift in (0, 1))
    before, now = old.metrics("bm25", 0, 1.0), new.metrics("bm25", 0, 1.0)
    found = contents(report([now], against=before, root=str(tmp_path)))["since"]
    assert [row["relabelled"] for row in found["data"]["splits"]] == [20, 15, 40]
    assert found["changed"] == {"right to wrong": 0, "wrong to right": 40, "wrong to another wrong one": 0}
    assert (found["scores"]["before"]["mean"], found["scores"]["now"]["mean"]) == (0, 1)


def test_numbers_move_towards_their_target_or_away_from_it(tmp_path):
    old, new = (world_of(tmp_path, None, range(20), test) for test in (range(20, 60), range(30, 70)))
    before, now = old.metrics("bm25", 0, 0.2), new.metrics("bm25", 0, 0.9)
    made = report([now], against=before, root=str(tmp_path))
    found = contents(made)["since"]
    theirs, ours = answers(before), answers(now)
    further = sum(abs(ours[text][1] - ours[text][0]) > abs(theirs[text][1] - ours[text][0]) for text in theirs if
                  text in ours)  # fmt: skip
    assert found["changed"] == {"further from the target": further, "closer to the target": 30 - further}
    assert found["classes"] == []
    assert len(found["answers"]) == 10
    is_safe(pages(made)["html"])


def test_without_common_test_texts_data_and_settings_are_compared_all_the_same(tmp_path):
    old, new = (world_of(tmp_path, LABELS, range(20), test) for test in (range(20, 40), range(40, 60)))
    made = report([new.metrics("bm25", 0, 0.7)], against=old.metrics("bm25", 0, 0.7), root=str(tmp_path))
    found = contents(made)
    assert "difference" not in found["since"]
    assert (
        "Apart from texts in train, they share no test text, so the answers cannot be compared." in found["findings"][1]
    )
    is_safe(pages(made)["html"])


def test_nothing_changes_without_it_and_a_report_stands_for_the_metrics_of_its_model(tmp_path):
    world = toy_world(tmp_path)
    old, new = world.metrics("random", 0, 0.4), world.metrics("bm25", 0, 0.8)
    alone = report([new], root=str(tmp_path))
    assert report([new], against="", root=str(tmp_path)) == alone
    assert contents(alone)["since"] is None
    compared = report([new], against=report([old], root=str(tmp_path)), root=str(tmp_path))
    assert compared != alone
    assert report([new], against=old, root=str(tmp_path)) == compared
    assert "metrics-001" not in Artifact.open(compared).manifest.inputs
    assert kfp.models(Artifact.open(compared)) == kfp.models(
        Artifact.open(alone)
    )  # models that may be used are those of now


def test_of_a_report_with_several_arms_the_recommended_one_counts(tmp_path):
    world = toy_world(tmp_path)
    old = [world.metrics(arm, seed, skill) for arm, skill in (("bm25", 0.9), ("random", 0.4)) for seed in range(3)]
    earlier = report(old, root=str(tmp_path))
    found = contents(report([world.metrics("task-only", 0, 0.5)], against=earlier, root=str(tmp_path)))["since"]
    assert found["names"]["before"] == contents(earlier)["best"]["name"]
    assert len(found["scores"]["before"]["values"]) == 3


def test_the_settings_of_a_mixture_include_those_of_its_parts(tmp_path):
    world = toy_world(tmp_path)
    linear = baseline(world.task, root=str(tmp_path))
    parts = [static(world.task, subset=subset, root=str(tmp_path)) for subset in ("", world.subsets["bm25"])]
    one, two = (mix([part, linear], root=str(tmp_path)) for part in parts)
    found = contents(report([two], against=one, root=str(tmp_path)))["since"]
    changed = {row["name"]: (row["before"], row["now"]) for row in found["settings"]}
    assert changed["static-bm25: arm"] == ("–", "static-bm25")
    assert changed["static-task-only: arm"] == ("static-task-only", "–")
    assert not any(name.startswith("baseline: ") for name in changed)  # the other part is the same


def test_texts_from_outside_are_inert(tmp_path):
    texts = [*words(45, 0), *HOSTILE]
    world, other = (toy_world(tmp_path, labels, texts) for labels in ([*LABELS[:2], HOSTILE[0]], [*LABELS[:2], "x"]))
    made = report([other.metrics("bm25", 0, 0.2)], against=world.metrics("bm25", 0, 0.9), root=str(tmp_path))
    assert any("iframe" in one["text"] or "evil" in one["text"] for one in contents(made)["since"]["answers"])
    page = pages(made)["html"]
    is_safe(page)
    for name in ("text", "label", "before", "now"):  # or long labels push the last ones beyond the page's edge
        assert f'class="left words">{name}</th>' in page


def test_what_cannot_be_compared_is_refused_in_a_sentence(tmp_path):
    world = toy_world(tmp_path)
    new = world.metrics("bm25", 0, 0.7)
    numbers = toy_world(tmp_path, None).metrics("bm25", 0, 0.7)
    with pytest.raises(InputError, match="are of classification and regression; compare two"):
        report([new], against=numbers, root=str(tmp_path))
    rows: list[Row] = [(f"another text {n}", None, LABELS[n % 3], "train" if n < 9 else "dev" if n < 12 else "test")
                       for n in range(20)]  # fmt: skip
    foreign = World(tmp_path, make_task(tmp_path, rows, "macro_f1", LABELS), words(60, 1)).metrics("bm25", 0, 0.7)
    with pytest.raises(InputError, match="have no text in common"):
        report([new], against=foreign, root=str(tmp_path))
    with pytest.raises(InputError, match="is a task; expected a report or metrics"):
        report([new], against=world.task, root=str(tmp_path))


def test_intervals_count_the_seeds_of_both_sides(tmp_path):
    """More seeds of the earlier model that disagree make the interval wider."""
    world = toy_world(tmp_path)
    now = [world.metrics("bm25", seed, 0.8) for seed in range(3)]
    wide, narrow = (
        [world.metrics("task-only", seed, skill, lr=lr) for seed, skill in enumerate(skills)]
        for lr, skills in ((0.1, (0.1, 0.5, 0.9)), (0.2, (0.5, 0.5, 0.5)))
    )
    width = []
    for old in (wide, narrow):
        found = contents(report(now, against=report(old, root=str(tmp_path)), root=str(tmp_path)))["since"]
        width.append(found["difference"]["high"] - found["difference"]["low"])
    assert width[0] > width[1] > 0
