"""A point of a curve, from corpus and task to the kept results."""

from pathlib import Path

import pytest

from research.benchmarks.curves import compute, dilution, labels, largest, on_topic
from research.paper.results import fault, read_results
from tests.tiny import write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.data.corpus.load import load_corpus
from tlm.data.passages import passages
from tlm.data.tasks.task import load_task
from tlm.settings.options import Layout

STATIC = ("baseline", "static-bm25", "static-random", "static-bm25 + baseline", "static-random + baseline")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, str, str]:
    """A corpus and a task, the root that they are in, and an empty folder of results."""
    write_tiny(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    root = str(tmp_path / "store")
    corpus = load_corpus([str(tmp_path / "tiny" / "corpus.jsonl")], layout=Layout(source_field="source"), root=root)
    return corpus, load_task(str(tmp_path / "tiny" / "task"), root=root), root, str(tmp_path / "results")


def test_points_of_a_diluted_corpus_and_of_the_whole_one(world: tuple[str, str, str, str]) -> None:
    corpus, task, root, results = world
    sources = [source for batch in passages(Artifact.open(corpus), ["source"]) for source in batch[0].to_pylist()]
    topic, whole = sources[0], round(sources.count(sources[0]) / len(sources), 2)
    assert on_topic(corpus, [topic]) == whole
    for share in (0.0, whole / 2):
        dilution(corpus, task, [topic], share, 1, top_k=5, results=results)
    found = read_results(Path(results))
    assert {one.values["cell"]["at"] for one in found} == {whole, whole / 2}
    assert {one.values["arm"] for one in found} == set(STATIC)
    assert len(found) == 10
    assert [fault(one, root) for one in found] == [""] * 10
    assert {one.seed for one in found} == {1}
    assert all(
        one.values["command"].startswith("python -m research.benchmarks.curves dilution CORPUS TASK") for one in found
    )


def test_points_of_several_selectors(world: tuple[str, str, str, str]) -> None:
    corpus, task, root, results = world
    topic = next(passages(Artifact.open(corpus), ["source"]))[0][0].as_py()
    dilution(corpus, task, [topic], 0.0, 2, ["task-only", "dsir", "dense"], top_k=5, results=results)
    found = read_results(Path(results))
    assert {(one.values["cell"]["table"], one.seed) for one in found} == {("selectors", 2)}
    others = ("static-dsir", "static-dense", "static-dsir + baseline", "static-dense + baseline")
    assert {one.values["arm"].replace("task-only", "random") for one in found} == {*STATIC, *others}
    assert [fault(one, root) for one in found] == [""] * len(found)
    assert found[0].values["command"].endswith("--share 0 --arm task-only --arm dsir --arm dense --draw 2 --top-k 5")


def test_a_point_of_text_that_an_encoder_chose(world: tuple[str, str, str, str]) -> None:
    corpus, task, root, results = world
    topic = next(passages(Artifact.open(corpus), ["source"]))[0][0].as_py()
    dilution(corpus, task, [topic], 0.0, 1, ["rerank"], top_k=5, preset="tiny", results=results)
    found = read_results(Path(results))
    alone = {"baseline", "static-bm25", "static-rerank", "rerank"}
    mixed = {"static-bm25 + baseline", "static-rerank + baseline", "rerank + baseline"}
    assert {one.values["arm"] for one in found} == {*alone, *mixed, "rerank + static-rerank + baseline"}
    assert [fault(one, root) for one in found] == [""] * len(found)


def test_points_with_fewer_labels_and_with_encoders(world: tuple[str, str, str, str]) -> None:
    corpus, task, root, results = world
    labels(corpus, task, 0, 0, top_k=5, results=results)
    labels(corpus, task, 4, 1, keep_texts=True, top_k=5, results=results)
    labels(corpus, task, 4, 2, top_k=5, preset="tiny", results=results)
    found = read_results(Path(results))
    assert [fault(one, root) for one in found] == [""] * len(found)
    by_place = {(one.values["cell"]["table"], one.values["cell"]["at"], one.seed) for one in found}
    assert by_place == {("labels", largest(task), 0), ("labels-and-texts", 4, 1), ("labels", 4, 2)}
    trained = {one.values["arm"]: one for one in found if one.seed == 2}
    encoders = ("bm25", "random", "bm25 + baseline", "random + baseline")
    assert trained.keys() == {*STATIC, *encoders, "bm25 + static-bm25 + baseline", "random + static-random + baseline"}
    assert trained["bm25"].values["command"] == (
        "python -m research.benchmarks.curves labels CORPUS TASK --per-class 4 --draw 2 --top-k 5 --preset tiny"
    )


def test_points_with_more_compute(world: tuple[str, str, str, str]) -> None:
    corpus, task, root, results = world
    for steps, draw in ((0, 0), (96, 0), (96, 1)):
        compute(corpus, task, steps, draw, top_k=5, preset="tiny", results=results)
    found = read_results(Path(results))
    assert [fault(one, root) for one in found] == [""] * 3
    assert {one.values["arm"] for one in found} == {"bm25"}
    places = sorted((one.values["cell"]["at"], one.seed) for one in found)
    assert [seed for _, seed in places] == [0, 0, 1]
    assert places[1][0] == places[2][0] > 2 * places[0][0]
