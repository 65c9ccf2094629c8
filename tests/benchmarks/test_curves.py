"""A point of a curve, from corpus and task to the kept results."""

from pathlib import Path

import pytest

from benchmarks.curves import dilution, on_topic
from tests.tiny import write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.data.corpus import load_corpus, passages
from tlm.data.tasks.task import load_task
from tlm.paper.results import fault, read_results


def test_points_of_a_diluted_corpus_and_of_the_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(tmp_path / "tiny")
    root = str(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    corpus = load_corpus([str(tmp_path / "tiny" / "corpus.jsonl")], source_field="source", root=root)
    task = load_task(str(tmp_path / "tiny" / "task"), root=root)
    sources = [source for batch in passages(Artifact.open(corpus), ["source"]) for source in batch[0].to_pylist()]
    topic, whole = sources[0], round(sources.count(sources[0]) / len(sources), 2)
    assert on_topic(corpus, [topic]) == whole
    for share in (0.0, whole / 2):
        dilution(corpus, task, [topic], share, 1, 5, str(tmp_path / "results"))
    found = read_results(tmp_path / "results")
    assert {one.values["cell"]["at"] for one in found} == {whole, whole / 2}
    arms = ("baseline", "static-bm25", "static-random", "static-bm25 + baseline", "static-random + baseline")
    assert {one.values["arm"] for one in found} == set(arms)
    assert len(found) == 10
    assert [fault(one, root) for one in found] == [""] * 10
    assert {one.seed for one in found} == {1}
    assert all(one.values["command"].startswith("python -m benchmarks.curves dilution CORPUS TASK") for one in found)
