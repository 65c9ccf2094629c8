"""Published models as arms of the pipelines: fine-tuned, trained further, and as features of a linear model."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.test_run import arguments, artifacts, runs
from tests.published import write_bert
from tests.tiny import write_tiny
from tlm.artifacts.artifact import Artifact


def written(folder: Path) -> Path:
    """The files of a tiny run, and a tiny published model of their words, ``folder/models/tiny-bert``."""
    write_tiny(folder)
    words = re.findall(r"[a-z]+", (folder / "corpus.jsonl").read_text().lower())
    write_bert(folder / "models" / "tiny-bert", sorted({*words}), positions=128)
    return folder / "models" / "tiny-bert"


def published(model: Path) -> list[str]:
    values = {"run_published": model, "run_published_preset": "tiny"}
    return [item for name, value in values.items() for item in ("--set", f"{name}={value}")]


def told(report: str) -> dict[str, tuple[str, str]]:
    """Kind and text of each row of a report, by its name."""
    groups = json.loads(Artifact.open(report, "report").path("report.json").read_text())["groups"]
    return {group["name"]: (group["kind"], group["text"]) for group in groups}


@pytest.mark.slow
def test_they_stand_beside_a_network_from_scratch(run_module: Callable, tmp_path: Path) -> None:
    model = written(tmp_path)
    arms = "bm25,published,published-bm25,published-task-only,embeddings"
    given = ["local", *arguments(tmp_path, "store", "embedded", arms, "0"), *published(model)]
    done = run_module("pipelines.run", *given)
    report = done.stdout.strip().splitlines()[-1]
    further = {f"published-tiny-bert-{text}": ("published", text) for text in ("bm25", "task-only")}
    alone = {
        "linear": ("linear", ""), "static-bm25": ("static", "bm25"), "static-task-only": ("static", "task-only"),
        "bm25": ("encoder", "bm25"), "embeddings-tiny-bert": ("embeddings", ""),
        "published-tiny-bert": ("published", ""), **further,
    }  # fmt: skip
    mixed = {f"{name} + linear": (f"{kind} + linear", text) for name, (kind, text) in alone.items() if name != "linear"}
    both = {f"{name} + static + linear": (f"{kind} + static + linear", text) for name, (kind, text) in further.items()}
    both["bm25 + static + linear"] = ("encoder + static + linear", "bm25")
    for kind in ("embeddings", "published"):
        both[f"{kind}-tiny-bert + static-bm25 + linear"] = (f"{kind} + static + linear", "bm25")
    assert told(report) == {**alone, **mixed, **both}
    root = str(tmp_path / "store")
    assert len(artifacts(root, "tokens")) == 4, "task and subset, by our tokenizer and by the model's own"
    before = {one.details["arm"]: one.details["cost"]["steps"] for one in artifacts(root, "checkpoint")}
    assert before == {"bm25": 24, "published-tiny-bert": 0, **dict.fromkeys(further, 24)}
    cards = {
        one.details["arm"]: one.path("model/README.md").read_text()
        for one in artifacts(root, "model")
        if one.manifest.step == "finetune"
    }
    assert "from scratch" in cards.pop("bm25")
    assert all("What its pre-training cost is not counted here" in card for card in cards.values())
    assert "retrieved by BM25" in cards["published-tiny-bert-bm25"]
    assert "none beside those of the published model\n" in cards["published-tiny-bert"]
    done_before = runs(root)
    fewer = ["local", *arguments(tmp_path, "store", "embedded", "published-bm25,embeddings", "0"), *published(model)]
    run_module("pipelines.run", *fewer)
    assert runs(root) == done_before, "a finished run was done again"


@pytest.mark.slow
def test_without_a_network_their_embeddings_are_compared(run_module: Callable, tmp_path: Path) -> None:
    model = written(tmp_path)
    given = ["local", "--pipeline", "shallow", *arguments(tmp_path, "store", "embedded", "bm25", "0")]
    done = run_module("pipelines.run", *given, *published(model))
    assert told(done.stdout.strip().splitlines()[-1]) == {
        "linear": ("linear", ""),
        "embeddings-tiny-bert": ("embeddings", ""),
        "static-bm25": ("static", "bm25"),
        "static-bm25 + linear": ("static + linear", "bm25"),
        "embeddings-tiny-bert + linear": ("embeddings + linear", ""),
        "embeddings-tiny-bert + static-bm25 + linear": ("embeddings + static + linear", "bm25"),
    }
    begun = [line.removeprefix("▸ ") for line in done.stderr.splitlines() if line.startswith("▸")]
    assert "embed" in begun
    assert "no-embeddings" not in begun


@pytest.mark.parametrize(
    ("pipeline", "setting", "sentence", "begun"),
    [
        ("tlm", "run_arms=bm25,published", "'published' needs a published model, and run_published names none", []),
        ("shallow", "run_published=./models/x", "./models/x: there is no such file or folder", ["▸ preflight"]),
    ],
)
def test_what_cannot_be_had_is_said_before_any_work(
    pipeline: str, setting: str, sentence: str, begun: list[str], run_module: Callable
) -> None:
    given = [option for one in ("corpus_paths=x", "task_path=x", setting) for option in ("--set", one)]
    done = run_module("pipelines.run", "local", "--pipeline", pipeline, *given, code=2)
    assert done.stderr.count(sentence) == 1
    assert [line for line in done.stderr.splitlines() if line.startswith("▸")] == begun
    assert "Traceback" not in done.stderr
