"""Corpora with less text on a topic: exact shares, an unchanged general part, smaller ones inside larger ones."""

from pathlib import Path

import pytest

from research.dilute import dilute
from tests.faults.making import objects
from tlm.artifacts.artifact import Artifact
from tlm.data.corpus.load import load_corpus
from tlm.data.passages import passages
from tlm.errors import InputError
from tlm.settings.options import Layout

SOURCES = ("physics", "poems", "news", "code")


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    """400 passages, a hundred of each source, in turn."""
    rows = [{"text": f"passage number {number}", "s": SOURCES[number % 4]} for number in range(400)]
    (tmp_path / "corpus.jsonl").write_text(objects(*rows))
    return load_corpus([str(tmp_path / "corpus.jsonl")], layout=Layout(source_field="s"), root=str(tmp_path / "root"))


def rows_of(uri: str) -> list[dict[str, object]]:
    return [row for batch in passages(Artifact.open(uri)) for row in batch.to_pylist()]


def texts_of(uri: str, *sources: str) -> list[object]:
    return [row["text"] for row in rows_of(uri) if row["source"] in sources]


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.005, 1), (0.1, 22), (1 / 3, 100), (0.5, 200)])
def test_the_share_is_exact_and_the_general_part_the_same(share: float, count: int, corpus: str) -> None:
    thin = dilute(corpus, topic=["code", "physics"], share=share)
    assert len(texts_of(thin, "code", "physics")) == count
    assert texts_of(thin, "poems", "news") == texts_of(corpus, "poems", "news")
    assert Artifact.open(thin).counts == {"passages": 200 + count, "on topic": count, "general": 200}
    assert Artifact.open(thin).details["passages"] == 200 + count


def test_passages_keep_their_order_and_are_numbered_anew(corpus: str) -> None:
    thin = rows_of(dilute(corpus, topic=["code"], share=0.1))
    assert [row["doc"] for row in thin] == list(range(len(thin)))
    before = {row["id"]: row for row in rows_of(corpus)}
    assert [row["text"] for row in thin] == [before[row["id"]]["text"] for row in thin]
    assert [before[row["id"]]["doc"] for row in thin] == sorted(before[row["id"]]["doc"] for row in thin)  # type: ignore[type-var]


def test_a_smaller_share_is_inside_a_larger_one_and_seeds_differ(corpus: str) -> None:
    few, many = (set(texts_of(dilute(corpus, topic=["code"], share=share), "code")) for share in (0.02, 0.2))
    assert few < many
    assert few != set(texts_of(dilute(corpus, topic=["code"], share=0.02, seed=1), "code"))


def test_the_order_of_sources_does_not_matter(corpus: str) -> None:
    first, second = (dilute(corpus, topic=topic, share=0.1) for topic in (["code", "news"], ["news", "code", "news"]))
    assert first == second


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"topic": [], "share": 0.1}, "topic is empty"),
        ({"topic": ["cod"], "share": 0.1}, "has no source 'cod'; did you mean 'code'"),
        ({"topic": ["code"], "share": 1.0}, "share is 1.0; expected 0 or more, and less than 1"),
        ({"topic": ["code"], "share": 0.3}, "only 25.00% of the passages are on the topic"),
        ({"topic": list(SOURCES), "share": 0.1}, "all passages are from the sources of the topic"),
        ({"topic": ["code"], "share": 0.1, "seed": -1}, "seed"),
    ],
)
def test_what_cannot_be_thinned_out_is_said_in_a_sentence(settings: dict, sentence: str, corpus: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(InputError, match=sentence):
        dilute(corpus, **settings)
