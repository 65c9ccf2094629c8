"""The switches of the two filters, from the components' arguments to both arms' text."""

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kfp import dsl

from components import data
from research.components import multitask, paper
from tests.tiny import write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.data.corpus.load import load_corpus
from tlm.data.tasks.task import load_task
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index

TWIN = "rain and bread with chess before the storm and after the oven under a queen and over the cloud of flour"
SWITCHES = [(True, True), (True, False), (False, True), (False, False)]


@dataclass(frozen=True)
class Made:
    """URIs of what comes before the subsets, and the store they are in."""

    root: str
    index: str
    task: str
    hits: str


def write_planted(folder: Path) -> None:
    """The tiny corpus and task, a passage that holds a test text and two that nearly repeat each other."""
    write_tiny(folder, documents=100, train=12, held_out=6)
    test = json.loads((folder / "task" / "test.jsonl").read_text(encoding="utf-8").splitlines()[0])["text"]
    planted = [f"{test} and then the rain", TWIN, f"{TWIN} again"]
    with (folder / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        corpus.writelines(json.dumps({"text": text, "source": "planted"}) + "\n" for text in planted)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("planted")
    write_planted(folder)
    root = str(folder / "store")
    task = load_task(str(folder / "task"), root=root)
    index = build_index(load_corpus([str(folder / "corpus.jsonl")], root=root), root=root)
    return Made(root, index, task, retrieve(index, task, query="full", top_k=500, root=root))


def removed(subset: str) -> set[str]:
    """Why passages were removed from a subset."""
    table = pq.read_table(Artifact.open(subset, "subset").path("dropped.parquet"))
    return set(table["reason"].to_pylist())


def expected(near_duplicates: bool, overlap: bool) -> set[str]:
    reasons = {"near-duplicate": near_duplicates, "overlaps test": overlap}
    return {reason for reason, on in reasons.items() if on}


@pytest.mark.parametrize(("near_duplicates", "overlap"), SWITCHES)
def test_the_components_of_both_arms_filter_as_they_are_told(
    made: Made, tmp_path: Path, near_duplicates: bool, overlap: bool
) -> None:
    switches = {"near_duplicates": near_duplicates, "overlap": overlap, "root": made.root}
    outputs = {
        "counts": dsl.Metrics(uri=str(tmp_path / "counts")),
        "dataset_card": dsl.Markdown(uri=str(tmp_path / "card.md")),
    }
    chosen = {"arms": "bm25, random,task-only", "seeds": "3", "network": True}
    arms, missing = data.export.python_func(made.hits, made.task, **chosen, **switches, **outputs)
    assert missing == ""
    assert bool(outputs["counts"].metadata["overlaps test"]) == overlap
    assert "What bm25 retrieved" in (tmp_path / "card.md").read_text(encoding="utf-8")
    counts = [dsl.Metrics(uri=str(tmp_path / f"counts-{number}")) for number in range(3)]
    made_of = [data.select.python_func(arm, **switches, counts=one) for arm, one in zip(arms, counts, strict=True)]
    (bm25, _), (random, _), (nothing, _) = made_of
    for subset, arm in ((bm25, "bm25"), (random, "random")):
        assert Artifact.open(subset).details["arm"] == arm
        assert removed(subset) == expected(near_duplicates, overlap)
    assert nothing == ""
    scores = [Artifact.open(scored).details for _, scored in made_of]
    assert [(one["arm"], one["seed"]) for one in scores] == [
        ("static-bm25", 0), ("static-random", 3), ("static-task-only", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(("near_duplicates", "overlap"), SWITCHES)
def test_the_components_of_several_subsets_filter_as_they_are_told(
    made: Made, near_duplicates: bool, overlap: bool
) -> None:
    switches = {"near_duplicates": near_duplicates, "overlap": overlap, "root": made.root}
    overrides = "retrieve.query=full retrieve.top_k=500"
    _, own = multitask.task_subsets.python_func(made.index, [made.task], "tiny", overrides, **switches)
    assert removed(own) == expected(near_duplicates, overlap)
    of_table = paper.subsets.python_func(made.index, made.task, "3", "tiny", "", "0", **switches)
    assert removed(of_table["random"]) == expected(near_duplicates, overlap)
