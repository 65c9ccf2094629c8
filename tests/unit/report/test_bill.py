"""The bill: kWh, grams and money by hand, a million predictions of known speed, and nothing that was not measured."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.toy_reports import Page, as_if, is_safe, pages, toy_world
from tests.toys import World, make, save
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.data.parallel import each
from tlm.evaluation.report import bill as units
from tlm.evaluation.report.bill import million, spent_on
from tlm.evaluation.report.report import report
from tlm.evaluation.report.runs import Spent, total
from tlm.evaluation.score.baseline import baseline
from tlm.settings.options import Prices

BURNT = 0.3  # seconds of CPU time, of which the system counts hundredths
GRID = Prices(gpu_hour=2.5, cpu_hour=0.05, kilowatt_hour=0.3, grams_per_kwh=380)
NOTHING = dict.fromkeys(units.AMOUNTS)
SPEED = {"texts": 500, "seconds": 2.0, "cpu_seconds": 4.0, "cpu_joules": 36.0,
         "bytes": 6_300_000, "peak_memory": 512_000_000,
         "alone": {"texts": 100, "median_ms": 1.94, "p99_ms": 4.2}}  # fmt: skip


def bill_of(root: Path, metrics: list[str], **prices: float) -> tuple[dict[str, Any], dict[str, str]]:
    files = pages(report(metrics, prices=Prices(**prices), root=str(root)))
    is_safe(files["html"])
    return json.loads(files["json"])["bill"], files


def row(bill: dict[str, Any], part: str, arm: str = "") -> dict[str, Any]:
    (found,) = (one for one in bill["spent"] if (one["part"], one["arm"]) == (part, arm))
    return found


# ---- by hand


def test_half_a_kilowatt_hour() -> None:
    """1.8 MJ; 190 g at 380 g a kWh; two hours of a core at 0.05 and the energy at 0.3 cost 0.10 + 0.15."""
    used = Spent(seconds=3600.0, cpu_seconds=7200.0, joules=1.8e6)
    told = used.amounts(GRID)
    assert told["joules"] == 1.8e6
    assert told["grams"] == 190
    assert told["money"] == pytest.approx(0.25)
    assert used.amounts(Prices())["grams"] is None


def test_what_was_not_measured_has_neither_grams_nor_money() -> None:
    assert Spent().amounts(GRID) == NOTHING
    used = Spent(seconds=10.0, cpu_seconds=10.0)
    told = used.amounts(GRID)
    assert told["joules"] is told["grams"] is told["money"] is None  # energy has a price
    assert used.amounts(Prices(cpu_hour=36))["money"] == pytest.approx(0.1)


def test_a_million_predictions_of_known_speed() -> None:
    """500 texts took 2 s, 4 s of cores and 36 J: a million take 2000 times as much."""
    told = million(SPEED).amounts(Prices(cpu_hour=0.9, kilowatt_hour=0.5, grams_per_kwh=400))
    assert told == NOTHING | {
        "seconds": 4000, "cpu_seconds": 8000,
        "joules": pytest.approx(72_000), "grams": pytest.approx(8), "money": pytest.approx(2.01),
    }  # fmt: skip
    on_gpu = million({"texts": 1000, "seconds": 0.5, "gpu_seconds": 0.5})
    assert on_gpu.amounts(Prices(gpu_hour=7.2))["money"] == pytest.approx(1)
    assert million({}) == million({"texts": 0, "seconds": 0.0}) == Spent()


def test_a_sum_knows_what_all_its_parts_know() -> None:
    measured, waited = Spent(seconds=5.0, cpu_seconds=9.0, joules=30.0), Spent(seconds=7.0)
    assert total([measured, measured]) == Spent(seconds=10.0, cpu_seconds=18.0, joules=60.0)
    assert total([measured, waited]) == Spent(seconds=12.0)
    assert total([measured, Spent(seconds=1.0, gpu_seconds=4.0, joules=2.0)]).gpu_seconds == 4.0
    assert total([measured, Spent()]) == Spent()


@pytest.mark.parametrize(
    ("form", "value", "words"),
    [
        (units.time, 0.06, "0.06 s"), (units.time, 9.96, "10 s"), (units.time, 5400, "90 min"),
        (units.time, 360_000, "4.2 d"), (units.energy, 36, "0.01 Wh"), (units.energy, 1.8e6, "500 Wh"),
        (units.energy, 8.1e6, "2.2 kWh"), (units.energy, 0.0036, "< 0.0001 Wh"),
        (units.mass, 0.029, "0.029 g"), (units.mass, 1.96, "2.0 g"), (units.mass, 12.3, "12 g"),
        (units.mass, 1234, "1.2 kg"), (units.megabytes, 6.3e6, "6.3"), (units.megabytes, 900, "0.0009"),
        (units.number, 0.997, "1.0"), (units.number, 1234.5, "1,234"), (units.number, 0.42, "0.42"),
        (units.money, 0.00001, "< 0.0001"), (units.money, 0, "0"), (units.money, 1234.5, "1,234.50"),
    ],
)  # fmt: skip
def test_what_is_small_does_not_look_like_nothing(form: Any, value: float, words: str) -> None:
    assert form(value) == words


# ---- what a step's processes use


def burn(seconds: float) -> None:
    """Compute for so many seconds of CPU time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


BURNING = f"import time\nwhile time.process_time() < {BURNT}: pass"


@pytest.mark.parametrize("where", ["here", "a process that ends", "workers that stay"])
def test_the_cpu_time_of_all_processes_of_a_step_is_kept(where: str, tmp_path: Path) -> None:
    def write(draft: Draft) -> None:
        if where == "here":
            burn(BURNT)
        elif where == "a process that ends":
            subprocess.run([sys.executable, "-c", BURNING], check=True)
        else:
            each(burn, [BURNT, BURNT], "burning", "pieces")
        draft.details["where"] = where

    made = Artifact.open(make("burnt", tmp_path, write, {"where": where}))
    assert made.run()["process_seconds"] >= (2 if where == "workers that stay" else 1) * (BURNT - 0.02)
    assert "process_seconds" not in json.dumps(made.details)


# ---- in a report


def test_the_rows_and_who_shares_them(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    metrics = [world.metrics(arm, seed, 0.6) for arm in ("bm25", "random") for seed in (0, 1)]
    for kind, seconds in (("corpus", 40.0), ("index", 9.0), ("hits", 12.0), ("subset", 6.0), ("tokenizer", 5.0)):
        as_if(tmp_path, kind, seconds=seconds, process_seconds=2 * seconds, cpu_joules=36 * seconds)
    as_if(tmp_path, "tokens", seconds=2.0, process_seconds=3.0, cpu_joules=18.0)
    as_if(tmp_path, "metrics", speed=SPEED)
    bill, files = bill_of(tmp_path, metrics, cpu_hour=36, grams_per_kwh=500)
    shared = [(one["shared"], one["part"], one["arm"], one["about"]) for one in bill["spent"]]
    sizes = {arm: f"{Artifact.open(uri).details['passages']} passages" for arm, uri in world.subsets.items()}
    on = "cpu × 1, fp32"
    assert shared == [
        ("all tasks", "corpus", "", "60 passages"), ("all tasks", "index", "", ""),
        ("arm", "selection", "random", sizes["random"]), ("this task", "retrieval", "", ""),
        ("this task", "export", "", sizes["bm25"]), ("this task", "tokens", "", ""),
        *(("arm", part, arm, on) for arm in ("random", "bm25") for part in ("training", "stage 1", "stage 2")),
    ]  # fmt: skip
    corpus = row(bill, "corpus")
    assert (corpus["seconds"], corpus["cpu_seconds"], corpus["flops"]) == (40, 80, None)
    assert corpus["joules"] == pytest.approx(1440)
    assert corpus["grams"] == pytest.approx(0.2)
    assert corpus["money"] == pytest.approx(0.8)
    assert row(bill, "selection", "random")["seconds"] == 12 + 6
    assert row(bill, "tokens")["cpu_seconds"] == 10 + 4 * 3  # a tokenizer; the task's tokens, BM25's, two draws'
    assert row(bill, "training", "bm25")["flops"] == 8e13
    assert row(bill, "training", "bm25")["seconds"] == 401
    assert row(bill, "training", "bm25")["joules"] is None  # the toy machine has no meter for it
    first = bill["predictions"][0]
    assert first["name"] == "random"
    assert (first["million"]["cpu_seconds"], first["million"]["gpu_seconds"]) == (8000, None)
    assert (first["median_ms"], first["p99_ms"]) == (pytest.approx(1.94), pytest.approx(4.2))
    assert first["million"]["grams"] == pytest.approx(10)
    text = Page(files["html"]).text
    for words in ("Once, for all tasks", "CO₂e: 500 g a kilowatt-hour", "36 for an hour of a CPU core"):
        assert words in text
    assert "| Corpus (60 passages) | – | – | – | – | 40 s | 80 s | 0.4 Wh | 0.2 g | 0.8 |" in files["md"]
    assert "| **2.2 h** | **20 Wh** | **10 g** | **80.00** | **1.9** | **4.2** | **6.3** | **512** |" in files["md"]


def test_missing_measurements_stay_missing(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    metrics = [world.metrics("bm25", 0, 0.6)]
    as_if(tmp_path, seconds=None, process_seconds=None, stages={})
    bill, files = bill_of(tmp_path, metrics, cpu_hour=1, kilowatt_hour=1, grams_per_kwh=500)
    for one in bill["spent"]:
        counted = {name: one[name] for name in ("steps", "tokens", "flops", "paper_flops")}
        assert {name: one[name] for name in NOTHING} == NOTHING | counted
        assert (one["flops"] is None) == (one["arm"] == "")  # which the manifest tells
    (model,) = bill["predictions"]
    assert model["million"] == NOTHING
    assert [model[name] for name in units.SPEEDS] == [None] * 4
    assert "| Index | – | – | – | – |" in files["md"]
    assert "not measured" in Page(files["html"]).text
    assert "A million predictions" not in files["md"]  # a table of names alone


@pytest.mark.parametrize(("noted", "known"), [(20.0, Spent(cpu_seconds=23.0)), (None, Spent())])
def test_of_a_corpus_in_parts_the_cpu_time_is_known(tmp_path: Path, noted: float | None, known: Spent) -> None:
    world = toy_world(tmp_path)
    as_if(tmp_path, "corpus", seconds=3.0, process_seconds=3.0, parts=64, parts_process_seconds=noted)
    assert spent_on(Artifact.open(world.corpus)) == known


def test_what_a_search_server_did_is_not_measured(tmp_path: Path) -> None:
    world = World(tmp_path, toy_world(tmp_path).task, ["a", "b", "c", "d", "e", "f", "g"])

    def handle(draft: Draft) -> None:
        draft.details.update(engine="elasticsearch", documents=7)

    def hits(arm: str) -> Artifact:
        def write(draft: Draft) -> None:
            draft.details["arm"] = arm

        return Artifact.open(make("hits", tmp_path, write, {"arm": arm}, {"index": index, "task": world.task}))

    index = make("index", tmp_path, handle, {"engine": "elasticsearch"}, {"corpus": world.corpus})
    opened, searched, scored = Artifact.open(index), hits("bm25"), hits("dsir")
    for kind in ("index", "hits"):
        as_if(tmp_path, kind, seconds=8.0, process_seconds=1.0, cpu_joules=9.0)
    assert spent_on(opened) == spent_on(searched) == Spent(seconds=8.0)
    assert spent_on(scored) == Spent(seconds=8.0, cpu_seconds=1.0, joules=9.0)
    assert spent_on(Artifact.open(world.index)) == Spent(seconds=8.0, cpu_seconds=1.0, joules=9.0)
    as_if(tmp_path, "hits", device="cuda")  # whose energy nobody measured
    assert spent_on(scored) == Spent(seconds=8.0)


def test_a_model_that_chose_a_text_is_paid_by_the_arm(tmp_path: Path) -> None:
    """Its training and the choice; it was trained on BM25's passages, which have rows of their own."""
    world = toy_world(tmp_path)
    first = world.metrics("bm25", 0, 0.6)
    chooser = Artifact.open(first).input("model").input("checkpoint").uri
    tokens = Artifact.open(chooser).manifest.inputs["subset_tokens"]

    def hits(draft: Draft) -> None:
        draft.details["arm"] = "rerank"
        draft.counts["flops"] = 5

    def subset(draft: Draft) -> None:
        save(draft, "passages-00000.parquet", {"doc": [0], "text": ["a"], "queries": [[0]]})
        draft.details.update(arm="rerank", passages=1)

    inputs = {"index": world.index, "task": world.task, "checkpoint": chooser, "like": world.subsets["bm25"],
              "subset_tokens": f"{tmp_path}/tokens/{tokens.key}"}  # fmt: skip
    chosen = make("subset", tmp_path, subset, {}, {"hits": make("hits", tmp_path, hits, {}, inputs)})
    world.subsets["rerank"] = chosen
    metrics = [first, world.metrics("rerank", 0, 0.7)]
    for kind, seconds in (("hits", 12.0), ("subset", 6.0), ("tokens", 2.0), ("checkpoint", 100.0)):
        as_if(tmp_path, kind, seconds=seconds)
    bill, _ = bill_of(tmp_path, metrics)
    found = row(bill, "selection", "rerank")
    assert found["flops"] == 4e13 + 5
    assert found["seconds"] == 100 + 12 + 6


def test_hits_of_two_subsets_are_paid_once(tmp_path: Path) -> None:
    world = toy_world(tmp_path)
    metrics = [world.metrics("bm25", 0, 0.6)]
    searched = Artifact.open(world.subsets["bm25"]).input("hits").uri

    def subset(draft: Draft) -> None:
        columns = {"doc": [0], "text": ["a"], "best_rank": [1], "best_score": [2.0], "queries": [[0]]}
        save(draft, "passages-00000.parquet", columns)
        draft.details.update(arm="bm25", passages=1)

    world.subsets["bm25"] = make("subset", tmp_path, subset, {"jaccard": 0.9}, {"hits": searched})
    metrics.append(world.metrics("bm25", 0, 0.7))
    for kind, seconds in (("hits", 12.0), ("subset", 6.0)):
        as_if(tmp_path, kind, seconds=seconds)
    bill, _ = bill_of(tmp_path, metrics)
    assert row(bill, "retrieval")["seconds"] == 12
    assert row(bill, "export")["seconds"] == 2 * 6


def test_a_linear_model_alone_has_its_training_and_its_speed(tmp_path: Path) -> None:
    bill, files = bill_of(tmp_path, [baseline(toy_world(tmp_path).task, root=str(tmp_path))])
    assert [one["part"] for one in bill["spent"]] == ["training"]
    assert bill["predictions"][0]["million"]["cpu_seconds"] > 0
    assert "CO₂e" not in files["html"]  # no grid intensity is given
    assert "one text, ms | 99th percentile, ms |" in files["md"]
