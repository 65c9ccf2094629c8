"""The embedded engine against BM25 written out in plain Python."""

import math
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.form import Index
from tests.places import check_places, in_help
from tests.searchable import corpus_of, docstrings
from tlm.retrieval.search import embedded
from tlm.retrieval.search import embedded as bm25
from tlm.retrieval.search import embedded as embedded_build
from tlm.retrieval.search.analyzer import terms_of_text
from tlm.retrieval.search.embedded import Embedded, build
from tlm.retrieval.search.index import EngineName, build_index
from tlm.runs.preflight import preflight

WORDS = st.sampled_from(["a", "b", "c", "d", "e", "rare", "odd", "x.y", "é", ""])
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), min_size=1, max_size=40)
QUERY = st.lists(WORDS | st.just("unknown"), max_size=8).map(" ".join)


def test_every_engine_is_everywhere(tmp_path):
    """What is no engine yet must not be sent to Elasticsearch."""
    engines = {*get_args(EngineName)}
    places = {
        "help of engine, tlm/retrieval/search/index.py": (engines, in_help(build_index, "engine")),
        "help of engine, tlm/runs/preflight.py": (engines, in_help(preflight, "engine")),
        "help of engine, pipelines/form.py": (engines, in_help(Index, "engine")),
    }
    check_places(places)
    with pytest.raises(AssertionError, match="'scan'"):
        build_index(corpus_of(["a text"], str(tmp_path)), engine="scan", root=str(tmp_path))


@pytest.fixture
def engine_of(tmp_path):
    """Makes an engine on the given texts."""

    def make(texts, k1=1.2, b=0.75, name="index"):
        return built(texts, tmp_path / name, k1, b)

    return make


def built(texts, folder, k1=1.2, b=0.75):
    folder.mkdir()
    build(texts, folder, k1=k1, b=b)
    return Embedded(lambda name: folder / name)


def reference(texts, query, k1=1.2, b=0.75):
    """Scores of all documents, by the formula of Elasticsearch's documentation of its explanations."""
    found = [Counter(terms_of_text(text)) for text in texts]
    lengths = [sum(counts.values()) for counts in found]
    filled = [length for length in lengths if length]
    mean = sum(filled) / max(len(filled), 1)
    df = Counter(term for counts in found for term in counts)
    scores = []
    for counts, length in zip(found, lengths, strict=True):
        score = 0.0
        for term, asked in Counter(terms_of_text(query)).items():
            if tf := counts[term]:
                idf = math.log(1 + (len(filled) - df[term] + 0.5) / (df[term] + 0.5))
                norm = k1 * (1 - b + b * lossy(length) / mean)
                score += asked * (k1 + 1) * idf * tf / (tf + norm)
        scores.append(score)
    return scores


def decoded(byte):
    """The length that a byte stands for: `byte4ToInt` of Lucene's SmallFloat."""
    bits, shift = (byte - 24) & 7, ((byte - 24) >> 3) - 1
    return byte if byte < 24 else 24 + (bits if shift < 0 else (bits | 8) << shift)


STORED = [decoded(byte) for byte in range(256)]


def lossy(length):
    """A length as it comes back from Lucene's byte: the largest that is not above it."""
    return STORED[bisect_right(STORED, length) - 1]


def check_against_reference(engine, texts, query, top_k, **parameters):
    expected = reference(texts, query, **parameters)
    ((docs, scores),) = engine.search([query], top_k)
    assert scores == pytest.approx([expected[doc] for doc in docs], rel=2e-6)
    assert list(zip(-scores, docs, strict=True)) == sorted(zip(-scores, docs, strict=True))
    assert len(set(docs.tolist())) == len(docs) == min(top_k, sum(score > 0 for score in expected))
    rest = [score for doc, score in enumerate(expected) if doc not in docs]
    assert max(rest, default=0.0) <= min(scores, default=0.0) * (1 + 2e-6)


@settings(max_examples=150, deadline=None)
@given(TEXTS, QUERY, st.integers(1, 50), st.sampled_from([(1.2, 0.75), (0.9, 0.4), (0.0, 0.5), (2.0, 1.0), (1.0, 0.0)]))
def test_every_hit_scores_what_the_formula_says(texts, query, top_k, parameters):
    k1, b = parameters
    with TemporaryDirectory() as folder:
        engine = built(texts, Path(folder) / "index", k1, b)
        check_against_reference(engine, texts, query, top_k, k1=k1, b=b)


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.lists(QUERY, max_size=6), st.integers(1, 8), st.integers(1, 9))
def test_neither_blocks_nor_company_change_a_query_s_hits(texts, queries, top_k, block):
    """The same bits, whether a block holds all documents or a few (then most of the skipping is at work)."""
    with TemporaryDirectory() as folder:
        engine = built(texts, Path(folder) / "index")
        alone = [next(engine.search([query], top_k)) for query in queries]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(embedded, "BLOCK", block)
            patch.setattr(embedded, "TOGETHER", 2)
            together = list(Embedded(lambda name: Path(folder) / "index" / name).search(queries, top_k))
    assert len(together) == len(queries)
    for one, other in zip(alone, together, strict=True):
        assert one[0].tolist() == other[0].tolist()
        assert one[1].tobytes() == other[1].tobytes()


@settings(max_examples=30, deadline=None)
@given(TEXTS, st.integers(1, 9), st.integers(1, 40))
def test_equal_corpora_give_equal_bytes_however_they_are_portioned(texts, chunk, segment):
    with TemporaryDirectory() as folder:
        built(texts, Path(folder) / "one")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(embedded_build, "CHUNK", chunk)
            patch.setattr(embedded_build, "SEGMENT", segment)
            built(iter(texts), Path(folder) / "other")
        names = sorted(path.name for path in (Path(folder) / "one").iterdir())
        assert names == ["dense.npy", "docs.npy", "impacts.npy", "offsets.npy", "terms.parquet"]
        for name in names:
            assert (Path(folder) / "one" / name).read_bytes() == (Path(folder) / "other" / name).read_bytes()


def test_portions_hold_no_more_than_their_limits(tmp_path, monkeypatch):
    chunks, terms = [], embedded_build.analyzer.terms
    monkeypatch.setattr(embedded_build.analyzer, "terms", lambda texts: chunks.append(len(texts)) or terms(texts))
    monkeypatch.setattr(embedded_build, "CHUNK", 3)
    monkeypatch.setattr(embedded_build, "CHUNK_CHARACTERS", 10)
    build(["a", "b", "c", "five of", "six", "d"], tmp_path, k1=1.2, b=0.75)
    assert chunks == [3, 2, 1]
    monkeypatch.setattr(embedded_build, "SEGMENT", 4)
    assert list(embedded_build._segments(np.array([2, 2, 1, 9, 3, 1, 1]))) == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 7)]


def test_what_it_keeps_on_the_way_is_beside_the_index(tmp_path, monkeypatch):
    """Not in /tmp, which may be a small disk, or memory."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "there is none"))
    build(["a text"], tmp_path, k1=1.2, b=0.75)


def test_a_term_in_more_than_one_of_8_documents_has_a_row(engine_of):
    engine = engine_of(["rare common", "common", *["other words"] * 6])
    assert np.diff(engine.offsets).tolist() == [1, 0, 0, 0]
    assert np.count_nonzero(engine.rows, axis=1).tolist() == [2, 6, 6]


def test_a_chunk_with_very_many_terms_keeps_them_apart(tmp_path):
    """More terms times documents than 32 bits hold."""
    documents, each = 8000, 80
    texts = [" ".join(f"w{doc * each + place}" for place in range(each)) for doc in range(documents)]
    build(texts, tmp_path, k1=1.2, b=0.75)
    assert documents * each << documents.bit_length() > 1 << 32
    assert np.load(tmp_path / "docs.npy").tolist() == [doc for doc in range(documents) for _ in range(each)]
    assert np.diff(np.load(tmp_path / "offsets.npy")).tolist() == [1] * documents * each


def test_real_text_with_real_queries(engine_of, monkeypatch):
    texts = docstrings()
    monkeypatch.setattr(embedded, "BLOCK", 512)
    engine = engine_of(texts)
    for query in texts[::150]:
        check_against_reference(engine, texts, query, 50)


def test_equal_documents_come_in_their_order(engine_of):
    engine = engine_of(["same words here"] * 70 + ["other text"])
    ((docs, scores),) = engine.search(["words"], 50)
    assert docs.tolist() == list(range(50))
    assert len(set(scores.tolist())) == 1


@pytest.mark.parametrize("query", ["rare", "rare rare", "rare odd", "rare common"])
@pytest.mark.parametrize("lengths", [[5] * 10, range(1, 11), [5] * 13], ids=["equal", "different", "more than K"])
def test_a_rare_term_finds_all_of_the_first_k(engine_of, lengths, query):
    """A block so large that the first score to beat is taken from what its documents have of the rare terms."""
    found = [f"rare odd {'filler ' * length}" for length in lengths]
    texts = found + ["common words that stand in most texts"] * (4 * 10 * embedded.GROUP)
    engine = engine_of(texts)
    ((docs, _),) = engine.search([query], 10)
    assert len(docs) == 10
    check_against_reference(engine, texts, query, 10)


def test_lengths_are_kept_as_lucene_keeps_them():
    lengths = np.array([*range(5000), *STORED, *(length - 1 for length in STORED[1:]), 10**5, 10**6, 2**31 - 1])
    assert bm25.stored_length(lengths).tolist() == [lossy(int(length)) for length in lengths]
    explained = bm25.stored_length(np.array([40, 41, 42, 100, 1000]))  # by the server
    assert explained.tolist() == [40, 40, 42, 96, 984]
