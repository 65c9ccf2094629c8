"""The step `tune`: what it tries, who goes on to the next round, what it recommends, and that a repetition is free."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.toys import make_corpus, make_task, read_json
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import examples, read_splits
from tlm.errors import InputError, NothingLeft
from tlm.retrieval.search.index import build_index
from tlm.runs import advise as step
from tlm.runs.advise import ALONE, Trial, candidates, overrides_of, sample, tune
from tlm.settings.options import Filters
from tlm.settings.presets import resolve
from tlm.settings.sections import Retrieve

LABELS = ["fruit", "metal", "river"]
OWN = {"fruit": "apple pear plum", "metal": "iron zinc tin", "river": "rhine elbe oder"}
SIZES = {"train": 63, "dev": 45, "test": 15}


def texts_of(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts with a word of their label among words of all, each text once, with their labels."""
    random, found = np.random.default_rng(seed), []
    for number in range(count):
        label = LABELS[number % 3]
        words = [
            random.choice(OWN[label].split()),
            *random.choice(["of", "the", "big", "old", "new", "and", "with"], 6),
        ]
        found.append((" ".join([*random.permutation(words), f"n{seed}x{number}"]), label))
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """An index and a task."""
    root = tmp_path_factory.mktemp("root")
    corpus = make_corpus(root, [text for text, _ in texts_of(120, 9)])
    rows = [
        (text, None, label, split) for place, split in enumerate(SIZES) for text, label in texts_of(SIZES[split], place)
    ]
    return build_index(corpus), make_task(root, rows, "macro_f1", LABELS)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds of eight candidates and their best third."""
    monkeypatch.setattr(step, "LEAST", 20)
    monkeypatch.setattr(step, "TIMES", (0.2, 1))


def test_a_sample_keeps_the_shares_of_labels_and_all_of_dev_and_test(world: tuple[str, str]) -> None:
    given, made = (Artifact.open(uri) for uri in (world[1], sample(world[1], 3)))
    whole, few = (examples(one).to_pylist() for one in (given, made))
    assert Counter(row["label"] for row in few if row["split"] == "train") == dict.fromkeys(LABELS, 7)
    assert [row for row in whole if row["split"] != "train"] == [row for row in few if row["split"] != "train"]
    assert [row for row in whole if row in few] == few
    assert len(read_splits(made, "train")["train"].texts) == made.counts["train"] == 21
    assert [made.counts[name] for name in ("dev", "test")] == [given.counts[name] for name in ("dev", "test")]


def test_the_settings_around_the_given_ones_are_tried_each_once() -> None:
    base = resolve("pocket", ["retrieve.top_k=10"]).retrieve
    found = candidates(base, "classification")
    assert len(found) == len(set(map(step.overrides_of, found))) == 16
    assert {one.top_k for one in found} == {2, 4, 10, 20}
    assert base in found
    assert {one.share for one in candidates(base, "regression")} == {"examples"}
    assert {one.top_k for one in candidates(Retrieve(top_k=1), "regression")} == {1, 2}
    assert {one.top_k for one in candidates(Retrieve(top_k=6_000), "regression")} == {1_200, 2_400, 6_000, 10_000}
    assert Retrieve(top_k=7, query="auto") in candidates(Retrieve(top_k=7, query="auto"), "regression")


@pytest.mark.usefixtures("small")
def test_a_search_keeps_settings_that_are_tied_and_its_repetition_makes_nothing(
    world: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    study = Artifact.open(tune(*world, overrides=["retrieve.top_k=10"]))
    found = read_json(study, "study.json")
    first, last = ([row for row in found["rows"] if row["part"] == part] for part in (3, 1))
    assert len(first) == 8
    scores = [row["dev"]["mean"] for row in first]
    assert scores == sorted(scores, reverse=True)
    start = "retrieve.top_k=10 retrieve.query=full retrieve.share=examples"
    went_on = {row["settings"] for row in first[: math.ceil(8 / 3)]}
    assert {row["settings"] for row in last} == {*went_on, start, ALONE}
    own = [row for row in last if row["settings"] != ALONE]
    assert max(row["dev"]["high"] for row in found["rows"]) == 1, "no score is above 100"
    for row in last:
        assert row["tied"] == (row["to_best"]["low"] <= 0 <= row["to_best"]["high"])
        assert row["to_best"]["mean"] == pytest.approx(row["dev"]["mean"] - own[0]["dev"]["mean"])
    assert "+0.0 (" not in study.path("study.html").read_text()  # what the best is behind itself has no sign
    (started,) = (row for row in own if row["settings"] == start)
    cheapest = min((row for row in own if row["tied"]), key=lambda row: row["cpu_seconds"])
    chosen, word = (started, "Keep") if started["tied"] else (cheapest, "Use")
    assert study.details["overrides"] == found["overrides"] == chosen["settings"]
    assert resolve("pocket", found["overrides"].split()).retrieve.top_k in (2, 10)
    shown = capsys.readouterr().err
    assert f"{word} {chosen['settings']}" in shown.replace("\n", " ")
    assert r"\x1b" not in shown

    root = Path(study.store.root)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("manifest.json")}
    assert tune(*world, overrides=["retrieve.top_k=10"]) == study.uri
    assert {path: path.stat().st_mtime_ns for path in root.rglob("manifest.json")} == before


@pytest.mark.usefixtures("small")
def test_the_given_settings_are_in_the_last_round_and_kept_if_tied_although_they_take_longest(
    world: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start, made = Retrieve(top_k=12), step._trial

    def slow(setting: Retrieve, *more: Any) -> Trial:
        return made(setting, *more)._replace(cost=float(setting == start))

    monkeypatch.setattr(step, "_trial", slow)
    monkeypatch.setattr(step, "KEPT", 8)  # only the best of the first round goes on
    filters, asked, made_by = Filters(near_duplicates=False), list[Filters](), step.export
    monkeypatch.setattr(step, "export", lambda hits, **how: asked.append(how["filters"]) or made_by(hits, **how))
    study = Artifact.open(tune(*world, overrides=["retrieve.top_k=12"], filters=filters))
    rows = read_json(study, "study.json")["rows"]
    assert rows[0]["settings"] != overrides_of(start), "in the first round another one is ahead"
    last = {row["settings"]: row["tied"] for row in rows if row["part"] == 1}
    assert last == {rows[0]["settings"]: True, overrides_of(start): True, ALONE: last[ALONE]}
    assert study.details["overrides"] == overrides_of(start)
    assert {*asked} == {filters}


@pytest.mark.usefixtures("small")
def test_a_candidate_with_too_little_text_is_left_out_and_named(
    world: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made, without = step._trial, ["rake"]

    def trial(setting: Retrieve, part: int, *more: Any) -> Trial:
        if setting.query in without or (part > 1 and "small" in without):
            raise NothingLeft("hits/1 holds no hit")
        return made(setting, part, *more)

    monkeypatch.setattr(step, "_trial", trial)
    start = "retrieve.top_k=9 retrieve.query=rake retrieve.share=examples"
    study = Artifact.open(tune(*world, overrides=start.split()))
    found = read_json(study, "study.json")
    assert "query=full" in study.details["overrides"]
    assert {"full"} == {
        word.split("=")[1] for row in found["rows"] for word in row["settings"].split() if "query" in word
    }
    left_out = found["findings"][-1]
    assert left_out.startswith("Left out, because too little text was found or passed the filters: retrieve.")
    assert start in left_out
    assert f"{start} is left out: hits/1 holds no hit" in capsys.readouterr().err

    without[:] = ["small"]  # what a part of train finds does not end the search
    assert tune(*world, overrides=["retrieve.top_k=9"])
    without[:] = ["full", "rake"]
    with pytest.raises(NothingLeft, match=r"no candidate is left to compare; retrieve.* left out: hits/1 holds no hit"):
        tune(*world, overrides=["retrieve.top_k=9"])


def test_settings_of_a_network_are_refused(world: tuple[str, str]) -> None:
    with pytest.raises(InputError, match=r"'train.lr=1e-3' has no effect here: tune searches retrieve.top_k, "):
        tune(*world, overrides=["train.lr=1e-3"])
