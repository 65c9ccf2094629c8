"""The whole pipeline under kfp.local, as a person runs it: embedded and local, then Elasticsearch and S3."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.tiny import write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores import open_store

RUNS = {"arms": "task-only,random,bm25", "seeds": "3"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny(folder)
    return folder


def arguments(tiny: Path, root: object, engine: str, arms: str, seeds: str, corpus: str = "corpus.jsonl") -> list[str]:
    values = {
        "corpus_paths": tiny / corpus,
        "corpus_source_field": "source",
        "task_path": tiny / "task",
        "index_engine": engine,
        "run_preset": "tiny",
        "run_arms": arms,
        "run_seeds": seeds,
        "store_root": root,
    }
    return [item for name, value in values.items() for item in ("--set", f"{name}={value}")]


def artifacts(root: str, kind: str) -> list[Artifact]:
    store = open_store(root)
    keys = {stored.name.split("/")[1] for stored in store.list(f"{kind}/")}
    found = (Artifact.find(store, kind, key) for key in sorted(keys))
    return [artifact for artifact in found if artifact is not None]


def runs(root: str) -> dict[str, dict[str, Any]]:
    """What run.json tells of every training, by URI: a second training would change its times."""
    return {one.uri: one.run() for kind in ("checkpoint", "model", "metrics") for one in artifacts(root, kind)}


def hits(root: str) -> dict[int, list[int]]:
    (artifact,) = [artifact for artifact in artifacts(root, "hits") if artifact.details["arm"] == "bm25"]
    table = pq.read_table(artifact.path("hits.parquet")).to_pydict()
    found: dict[int, list[int]] = {}
    for query, doc in zip(table["query"], table["doc"], strict=True):
        found.setdefault(query, []).append(doc)
    return found


def test_from_files_to_a_report_and_again(tiny: Path, run_module: Callable, tmp_path: Path) -> None:
    more = ["--set", "run_overrides=auto train.steps=20", "--set", "report_cpu_hour=0.05"]
    command = ["local", *arguments(tiny, "store", "embedded", **RUNS), *more]
    done = run_module("pipelines.run", *command)
    uri = done.stdout.strip().splitlines()[-1]
    report = Artifact.open(uri, "report")
    facts = json.loads(report.path("report.json").read_text())
    rules = "Settings by the paper's rules: retrieve.top_k=5 retrieve.query=full train.rho1=1."
    assert f"{rules} Settings given for the run take precedence: train.steps=20." in facts["findings"]
    assert any("60 training examples are fewer than 5,000" in sentence for sentence in facts["findings"])
    assert done.stdout.index("**Warning:** dev has 18 examples") < done.stdout.index("\n## Results\n")
    assert facts["prices"] == {"cpu_hour": 0.05, "gpu_hour": 0.0, "kilowatt_hour": 0.0, "grams_per_kwh": 0.0}
    root = str(tmp_path / "store")
    trained = [one.manifest.settings["train"] for one in artifacts(root, "checkpoint")]
    assert [one.get("rho1") for one in trained].count(1) == 2
    assert [one.get("rho1") for one in trained].count(None) == 1, "task-only has no external steps"
    assert {one["steps"] for one in trained} == {20}
    metrics = artifacts(root, "metrics")
    arms = sorted((artifact.details["arm"], artifact.details["seed"]) for artifact in metrics)
    encoders, texts = [("bm25", 3), ("random", 3), ("task-only", 3)], ("bm25", "random", "task-only")
    static = [("static-bm25", 0), ("static-random", 3), ("static-task-only", 0)]  # random text is drawn by the seed
    mixed = [(f"{arm} + baseline", seed) for arm, seed in static]
    mixed += [(f"{text}{more} + baseline", 3) for text in texts for more in ("", f" + static-{text}")]
    assert arms == sorted([("baseline", 0), *encoders, *static, *mixed])
    kinds = [(group["kind"], group["text"]) for group in facts["groups"]]
    assert {("linear", ""), ("static", "task-only"), ("static", "random"), ("static", "bm25")} <= {*kinds}
    assert len(kinds) == 1 + 5 * 3
    scores = [group["dev"]["mean"] for group in facts["groups"]]
    assert scores == sorted(scores, reverse=True)
    subsets = {artifact.details["arm"]: artifact.details["passages"] for artifact in artifacts(root, "subset")}
    assert subsets["random"] == subsets["bm25"] > 0
    before = runs(root)
    again = run_module("pipelines.run", *command)
    assert again.stdout.strip().splitlines()[-1] == uri
    assert runs(root) == before, "a finished run was done again"
    models = {one.details["arm"]: one for one in artifacts(root, "model") if one.manifest.step == "finetune"}
    cards = {arm: one.path("model/README.md").read_text(encoding="utf-8") for arm, one in models.items()}
    assert [arm for arm, card in cards.items() if "retrieved" in card] == ["bm25"]
    model = models["bm25"]
    run_module("tlm.cli", "download", model.uri, tmp_path / "fetched")
    names = {path.name for path in (tmp_path / "fetched").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= names


def test_elasticsearch_and_s3_give_what_the_laptop_gives(
    tiny: Path,
    run_module: Callable,
    tmp_path: Path,
    elasticsearch_url: str,
    s3_root: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TLM_ELASTICSEARCH_URL", elasticsearch_url)
    once = {"arms": "bm25", "seeds": "0"}
    run_module("pipelines.run", "local", *arguments(tiny, "here", "embedded", **once))
    run_module("pipelines.run", "local", *arguments(tiny, s3_root, "embedded", **once))
    here = str(tmp_path / "here")
    for kind in ("corpus", "task", "index", "hits", "subset", "tokenizer", "tokens", "checkpoint", "model", "metrics"):
        contents = [sorted(artifact.content for artifact in artifacts(root, kind)) for root in (here, s3_root)]
        assert contents[0] == contents[1] != [], kind
    on_servers = f"{s3_root}/elastic"
    name = f"tiny-{uuid.uuid4().hex[:8]}"
    named = ("--set", f"index_name={name}", "--set", "index_vectors=true")
    given = arguments(tiny, on_servers, "elasticsearch", "bm25,dense,hybrid", "0")
    run_module("pipelines.run", "local", "--pipeline", "shallow", *given, *named)  # after the text all is as above
    (index,) = artifacts(on_servers, "index")
    assert index.details["vectors"]
    subsets = {one.details["arm"]: one.details["passages"] for one in artifacts(on_servers, "subset")}
    assert subsets.keys() == {"bm25", "dense", "hybrid"}
    assert min(subsets.values()) > 0
    ours, theirs = hits(here), hits(on_servers)
    assert ours.keys() == theirs.keys()
    shared = [len(set(ours[query]) & set(theirs[query])) / len(ours[query]) for query in ours]
    assert sum(shared) / len(shared) >= 0.98


MISSPELT = "task/train.jsonl has no field 'lable'; it has 'text', 'label'; did you mean 'label'?"
NO_NUMBER = "task/train.jsonl:1: label 'bread' is not a number such as 1234.5, which a regression needs"


@pytest.mark.parametrize(
    ("pipeline", "setting", "sentence"),
    [
        ("tlm", "task_label_field=lable", MISSPELT),
        ("tlm", "task_problem=regression", NO_NUMBER),
        ("ablation", "task_problem=regression", NO_NUMBER),
        ("multitask", "task_problem=regression", NO_NUMBER),
    ],
)
def test_a_failing_step_ends_the_run_with_its_own_sentence(
    tiny: Path, run_module: Callable, pipeline: str, setting: str, sentence: str
) -> None:
    """At once: nothing of the corpus is read, and the step is not tried again, as it would fail again."""
    task = "task_paths" if pipeline == "multitask" else "task_path"
    values = [f"corpus_paths={tiny}/corpus.jsonl", f"{task}={tiny}/task", "store_root=store", setting]
    settings = [item for value in values for item in ("--set", value)]
    done = run_module("pipelines.run", "local", "--pipeline", pipeline, *settings, code=2)
    assert done.stderr.count(sentence) == 1
    begun = [line.removeprefix("▸ ") for line in done.stderr.splitlines() if line.startswith("▸")]
    assert begun == ["preflight", "load-tasks" if pipeline == "multitask" else "load-task"]
    assert "Traceback" not in done.stderr
