"""The preview: the best passages of examples of each label, as the hits have them."""

import pyarrow.parquet as pq
import pytest

from tests.toy_reports import LABELS, toy_world
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.pages.blocks import Heading, Items, Span, Text
from tlm.evaluation.pages.plain import markdown
from tlm.evaluation.report.preview import blocks, preview, section
from tlm.retrieval.subset.export import import_subset


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return toy_world(tmp_path_factory.mktemp("preview"))


def rows_of(artifact: Artifact, name: str) -> list[dict]:
    return pq.ParquetFile(artifact.path(name)).read().to_pylist()


@pytest.mark.parametrize("kind", ["hits", "subset"])
def test_passages_are_the_best_ranked_ones(world, kind):
    subset = Artifact.open(world.subsets["bm25"])
    hits = subset.input("hits")
    source = hits if kind == "hits" else subset
    examples = rows_of(hits.input("task"), "examples.parquet")
    queries = {row["examples"][0]: row["query"] for row in rows_of(hits, "queries.parquet")}
    found = rows_of(hits, "hits.parquet")
    kept = {row["doc"] for row in rows_of(subset, "passages-00000.parquet")}
    shown: dict[str, list[int]] = {}
    for block in [*blocks(source, 2, 2, "", 300)][2:]:
        match block:
            case Heading(line=Span(text=label)):
                shown[label] = []
            case Text(line=(_, _, Span(text=name), *_)):
                row = int(name[1:])
                shown[label].append(row)
                assert (examples[row]["label"], examples[row]["split"]) == (label, "train")
            case Items(lines=lines):
                mine = sorted((hit["rank"], hit["doc"]) for hit in found if hit["query"] == queries[row])
                expected = [(rank, doc) for rank, doc in mine if kind == "hits" or doc in kept][:2]
                assert [text.text for _, text in lines] == [world.passages[doc] for _, doc in expected]
                for (place, _), (rank, doc) in zip(lines, expected, strict=True):
                    assert place.startswith(f"rank {rank}, score ")
                    assert place.endswith(f", passage {doc}: ")
    assert [*shown] == LABELS
    assert all(len(set(rows)) == 2 for rows in shown.values())


def test_markdown_and_terminal(world):
    uri = world.subsets["bm25"]
    text = preview(uri, label="green")
    assert text.count("**Example**") == 1
    assert text.count("- rank") == 3
    assert "`green`" in text
    assert "`red`" not in text
    shown = preview(uri, form="terminal")
    assert "\x1b[1mgreen" in shown
    assert "\x1b[4m" in shown  # words that example and passage share


def test_random_passages_have_no_askers(world):
    for uri in (world.subsets["random"], Artifact.open(world.subsets["random"]).input("hits").uri):
        text = preview(uri, passages=4)
        assert "**Example**" not in text
        assert text.count("\n- ") == 4


def test_a_page_names_askers_only_where_there_are_some_and_says_that_one_has_no_label() -> None:
    asker = {"id": "t:1", "text": "a text", "label": ""}
    passage = {"doc": 7, "pieces": [("words", False)], "asker": None, "rank": None, "score": None, "queries": 0}
    asked = passage | {"asker": asker, "rank": 1, "score": 2.0, "queries": 1}
    for one, said in ((passage, 0), (asked, 1)):
        told = markdown(section([{"arm": "dsir", "total": 9, "passages": [one], "missing": ""}]))
        assert (told.count("whose query found it"), told.count("`no label`")) == (said, said)


def test_regression_is_shown_by_ranges(tmp_path):
    world = toy_world(tmp_path, labels=None)
    told = [*blocks(Artifact.open(world.subsets["bm25"]), 1, 1, "", 300)][2:]
    ranges = [one.line.text for one in told if isinstance(one, Heading)]
    assert len(ranges) == 5
    assert ranges[0].startswith("0 to ")
    with pytest.raises(InputError, match="has numbers, no labels"):
        preview(world.subsets["bm25"], label="1")


def test_wrong_settings_in_a_sentence(world, tmp_path):
    uri = world.subsets["bm25"]
    for options, expected in [
        ({"label": "gren"}, "did you mean 'green'"),
        ({"examples": 0}, "examples is 0"),
    ]:
        with pytest.raises(InputError, match=expected):
            preview(uri, **options)
    with pytest.raises(InputError, match="expected hits or a subset"):
        preview(world.task)
    own = tmp_path / "own.csv"
    own.write_text("text\na passage of our own\n", encoding="utf-8")
    with pytest.raises(InputError, match="was imported, so no query found its passages; give one that tlm export"):
        preview(import_subset(str(own), root=str(tmp_path)))
