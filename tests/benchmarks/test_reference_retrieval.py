"""The engines that ours is measured against answer the same questions; corpora are grown as promised."""

import http.server
import importlib
import importlib.util
import json
import multiprocessing
import re
import threading
from collections import Counter

import pyarrow as pa
import pytest
from elasticsearch import Elasticsearch

from research.benchmarks import elastic as service
from research.benchmarks import embedded, passages
from research.benchmarks.reference import elastic, engines
from research.benchmarks.row import PASS, SHORT
from tests.conftest import missing
from tests.searchable import docstrings
from tlm.retrieval.search.elastic import Elastic
from tlm.retrieval.search.elastic_build import ensure, fill
from tlm.retrieval.search.elastic_client import URL

TEXTS = [" ".join(re.findall("[a-z]+", text.lower())) or "nothing" for text in docstrings(600)]  # words as all see them
QUERIES = TEXTS[::60]


def ours(folder, top_k):
    engine = embedded.Ours(folder)
    engine.fill(TEXTS)
    return engine.search(QUERIES, top_k)


def same_hits(found, expected, factor=1.0):
    """Equal scores, and equal documents but for those that score the same."""
    for (docs, scores), (our_docs, our_scores) in zip(found, expected, strict=True):
        assert [factor * score for score in scores] == pytest.approx(our_scores.tolist(), rel=1e-5)
        by_doc = dict(zip(our_docs.tolist(), our_scores.tolist(), strict=True))
        last = our_scores[-1]
        for doc, score in zip(docs, scores, strict=True):
            assert by_doc.get(doc, last) == pytest.approx(factor * score, rel=1e-5)


def engine(name, folder):
    if not importlib.util.find_spec(embedded.OTHERS[name]):
        missing(f"{embedded.OTHERS[name]} is not installed: pip install -r research/benchmarks/requirements.txt")
    folder.mkdir()
    return embedded.MAKERS[name](folder)


def test_tantivy_finds_what_we_find(tmp_path):
    tantivy = engine("tantivy", tmp_path / "tantivy")
    tantivy.fill(TEXTS)
    (tmp_path / "ours").mkdir()
    same_hits(tantivy.search(QUERIES, 20), ours(tmp_path / "ours", 20))


def test_bm25s_finds_nearly_what_we_find(tmp_path):
    """Its document lengths are exact, ours are Lucene's, of four significant bits."""
    bm25s = engine("bm25s", tmp_path / "bm25s")
    bm25s.fill(TEXTS)
    (tmp_path / "ours").mkdir()
    for (docs, scores), (our_docs, our_scores) in zip(
        bm25s.search(QUERIES, 20), ours(tmp_path / "ours", 20), strict=True
    ):
        assert len(set(docs.tolist()) & set(our_docs.tolist())) >= 16
        assert ((engines.K1 + 1) * scores).tolist() == pytest.approx(our_scores.tolist(), rel=0.05)


def test_bm25s_is_compiled_before_the_clock_runs(tmp_path):
    bm25s = engine("bm25s", tmp_path / "bm25s")
    bm25s.prepare(TEXTS)
    compiled = list(bm25s.index._np_csc.signatures)
    bm25s.fill(TEXTS)
    assert bm25s.index._np_csc.signatures == compiled != []


def test_every_query_is_charged_for():
    cost = embedded.Cost(wall=2.0, cpu=1.0, work=10)
    trial = embedded.Trial(embedded.Cost(7.0, 5.0), {("full", 50): cost}, 1)
    assert trial.subset(("full", 50), 200).cpu == pytest.approx(5 + 200 / 10)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("TLM_BENCHMARK_ROOT", str(tmp_path / "root"))
    data = tmp_path / "data" / "scierc"
    data.mkdir(parents=True)
    (data / "train.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in QUERIES))
    monkeypatch.setenv("TLM_DEV_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(passages, "_base", lambda _: pa.array(TEXTS))


def test_a_grown_corpus_has_new_passages_of_the_same_lengths_and_frequencies(root):
    grown = list(passages.texts(passages.corpus(1500, False)))
    assert grown[:600] == TEXTS
    assert len(grown) == 1500
    copy = grown[600:1200]
    assert [len(text.split()) for text in copy] == [len(text.split()) for text in TEXTS]
    assert len(set(grown)) > 1450
    first, second = (Counter(word for text in part for word in text.split()) for part in (TEXTS, copy))
    assert all(second[word] == count for word, count in first.items() if count > passages.RARE)
    assert all(second[f"{word}x1"] == count for word, count in first.items() if count <= passages.RARE)


def test_the_row_of_a_small_corpus(root):
    results = embedded.size(200, ["ours"], 1, 5, False)
    assert [result.label for result in results] == ["200 documents: our peak memory"]
    names = ["ours", *(name for name in ("tantivy",) if importlib.util.find_spec(name))]
    results = embedded.size(200, names, 1, 5, False)
    assert len(results) == 1 + 10 * (len(names) - 1)
    assert {result.verdict for result in results} <= {PASS, SHORT, ""}


@pytest.fixture
def served(elasticsearch_url, monkeypatch):
    """A data set that Elasticsearch has as `datasets` indexes it."""
    if not importlib.util.find_spec("datasets"):
        missing("datasets is not installed: pip install -r research/benchmarks/requirements.txt")
    rows = importlib.import_module("datasets").Dataset.from_dict({"text": TEXTS})
    monkeypatch.setenv(URL, elasticsearch_url)
    with service.Server(elasticsearch_url) as server:
        elastic.add_index(server.client, rows, "benchmark-datasets")
        yield rows


def test_the_loop_and_the_limit_find_what_we_find(served, elasticsearch_url):
    details = service.details(len(TEXTS))
    ensure(details, "test", lambda index: fill(index, TEXTS, len(TEXTS)))
    expected = list(Elastic(details).search(QUERIES, 20))
    found = list(elastic.Loop(served, "benchmark-datasets").search(QUERIES, 20))
    bodies = elastic.serialise(QUERIES, details["index"], 20, 2)
    answers = [
        answer["hits"]["hits"]
        for body in elastic.send(elasticsearch_url, bodies, 2)
        for answer in json.loads(body)["responses"]
    ]
    same_hits([(docs, scores) for docs, scores, _ in found], expected)
    assert all(texts == [TEXTS[doc] for doc in docs] for docs, _, texts in found)
    for hits, (docs, _) in zip(answers, expected, strict=True):
        assert [hit["sort"][1] for hit in hits] == docs.tolist()


def test_the_processes_of_the_loop_inherit_one_client(served, monkeypatch):
    made, make = multiprocessing.Value("i"), Elasticsearch.__init__

    def counted(client, *arguments, **options):
        with made.get_lock():
            made.value += 1
        make(client, *arguments, **options)

    monkeypatch.setattr(Elasticsearch, "__init__", counted)
    elastic.client.cache_clear()
    assert len(list(elastic.Loop(served, "benchmark-datasets").search(QUERIES, 5))) == len(QUERIES)
    assert made.value == 1


def test_the_limit_has_as_many_requests_under_way_as_it_is_asked_for():
    arrived = threading.Barrier(2, timeout=30)

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            arrived.wait()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            return

        protocol_version = "HTTP/1.1"

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        bodies = [str(number).encode() for number in range(6)]
        assert elastic.send(f"http://127.0.0.1:{server.server_port}", bodies, 2) == bodies
        server.shutdown()
