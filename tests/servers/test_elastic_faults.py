"""Elasticsearch that is busy, gone or full, or holds something else: overcome, or said in one sentence."""

import gc
import json
import socket
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from threading import Thread

import pytest

from tests.searchable import columns, corpus_of, docstrings, task_of
from tests.servers.faulty import HANG_UP, Answer, faulty
from tests.servers.servers import free_port
from tlm.artifacts.artifact import Artifact
from tlm.data import parallel
from tlm.errors import InputError, Interrupted
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search import elastic, elastic_build, elastic_client
from tlm.retrieval.search.elastic_build import leave
from tlm.retrieval.search.index import build_index, located
from tlm.runs.preflight import preflight

TEXTS = list(docstrings()[:600])
URL = "TLM_ELASTICSEARCH_URL"
PAGE = (("content-type", "text/html"),)
JSON = (("content-type", "application/json"), ("x-elastic-product", "Elasticsearch"))


@pytest.fixture
def root(elasticsearch_root, monkeypatch):
    monkeypatch.setattr(elastic_build, "CHUNK_DOCUMENTS", 50)  # twelve requests
    return elasticsearch_root


def index_of(texts, root, **settings):
    return build_index(corpus_of(texts, root), engine="elasticsearch", root=root, **settings)


def search(index, root, top_k=20):
    return columns(retrieve(index, task_of(TEXTS[::40], root), query="full", top_k=top_k, root=root), "hits.parquet")


def expected(root):
    return search(build_index(corpus_of(TEXTS, root), root=root), root)


def try_only(times, monkeypatch):
    monkeypatch.setattr(elastic_client, "TRIES", times)


def server_index(index):
    return located(Artifact.open(index))["index"]


def of_each(name, part, request):
    """An answer with the same part for each query or document of a request; each has two lines."""
    return Answer(200, json.dumps({name: [part] * (request.body.count(b"\n") // 2)}).encode(), JSON)


def test_an_index_is_closed_behind_its_alias_and_searched_by_name(root, elasticsearch):
    first = index_of(TEXTS, root, name="mine")
    second = index_of(TEXTS[:300], root, name="mine")
    assert set(elasticsearch.indices.get_alias(name="tlm-mine")) == {server_index(second)}
    stored = elasticsearch.indices.get(index=server_index(first))[server_index(first)]
    assert stored["settings"]["index"]["blocks"]["write"] == "true"
    assert stored["settings"]["index"]["number_of_replicas"] == "0"
    assert stored["mappings"]["dynamic"] == "strict"
    assert not [alias for alias in stored["aliases"] if not alias.startswith(elastic_build.USERS)], "nobody fills it"
    assert search(first, root)["doc"] == expected(root)["doc"]  # the alias has moved on, the handle means its index


def test_a_busy_server_is_waited_for(root, elasticsearch_url, monkeypatch):
    numbers = count()

    def often_busy(request):
        trouble = (429, 503, HANG_UP, None, None)[next(numbers) % 5]
        first_contact = request.method == "HEAD"  # where nobody answers, waiting is no use
        return None if first_contact and trouble == HANG_UP else trouble

    index = index_of(TEXTS, root, name="calm")
    with faulty(elasticsearch_url, often_busy) as url:
        monkeypatch.setenv(URL, url)
        troubled = index_of(TEXTS, root)
        assert columns(troubled, "rejected.parquet")["doc"] == []
        found = search(troubled, root)
    monkeypatch.setenv(URL, elasticsearch_url)
    assert found == search(index, root)


def test_an_answer_that_is_not_whole_is_asked_for_again(root, elasticsearch_url, monkeypatch):
    """One of several in an answer that is a success itself."""
    index, nothing = index_of(TEXTS, root), {"hits": {"hits": []}}
    parts = [
        {"status": 429, "error": {"type": "es_rejected_execution_exception"}},
        {"status": 503, "error": {"type": "no_shard_available_action_exception"}},
        {**nothing, "timed_out": True},
        {**nothing, "_shards": {"failed": 1}},
    ]

    def often_partial(request):
        if "_msearch" in request.path and parts:
            return of_each("responses", parts.pop(), request)
        return None

    with faulty(elasticsearch_url, often_partial) as url:
        monkeypatch.setenv(URL, url)
        assert search(index, root)["doc"] == expected(root)["doc"]
    assert parts == []


@pytest.mark.parametrize("status", [200, 404, 408, 500])
def test_a_page_of_a_proxy_is_no_answer(root, elasticsearch_url, monkeypatch, status):
    """If it were believed, a success would mark the index as finished, and a 404 would mean that it is lost."""
    index, page, numbers = index_of(TEXTS, root, name="calm"), Answer(status, b"<html></html>", PAGE), count()
    with faulty(
        elasticsearch_url, lambda request: page if request.method != "HEAD" and next(numbers) % 2 else None
    ) as url:
        monkeypatch.setenv(URL, url)
        assert search(index_of(TEXTS, root), root) == search(index, root)
    try_only(2, monkeypatch)
    with faulty(elasticsearch_url, lambda request: page if "_msearch" in request.path else None) as url:
        monkeypatch.setenv(URL, url)
        with pytest.raises(Interrupted, match=rf"went away \(something else answers with {status}, perhaps a proxy\)"):
            search(index, root, top_k=3)


def test_what_is_too_large_for_a_request_goes_in_several(root, elasticsearch_url, monkeypatch):
    sent, busy = set(), {"create": {"status": 429, "error": {"type": "es_rejected_execution_exception"}}}

    def limited(request):
        if "_bulk" not in request.path or request.body in sent:
            return None
        sent.add(request.body)
        return 413 if len(request.body) > 20_000 else of_each("items", busy, request)

    texts = [*TEXTS, "enormous " * 5000, "last"]
    with faulty(elasticsearch_url, limited) as url:
        monkeypatch.setenv(URL, url)
        index = index_of(texts, root)
    monkeypatch.setenv(URL, elasticsearch_url)
    assert max(map(len, sent)) > 20_000
    rejected = columns(index, "rejected.parquet")
    assert rejected["doc"] == [600]
    assert "http.max_content_length" in rejected["detail"][0]
    assert Artifact.open(index).counts == {"documents": 601, "rejected": 1}
    assert columns(retrieve(index, task_of(["last"], root), root=root), "hits.parquet")["doc"][0] == 601
    assert index_of(texts, root + "-other").rpartition("/")[2] == index.rpartition("/")[2]
    assert columns(index_of(texts, root + "-other"), "rejected.parquet") == rejected  # the finished index remembers


def test_a_server_that_goes_away_interrupts_and_repeating_goes_on(root, elasticsearch_url, elasticsearch, monkeypatch):
    numbers = count()

    def gone(request):
        return HANG_UP if "_bulk" in request.path and next(numbers) >= 4 else None

    try_only(2, monkeypatch)
    with faulty(elasticsearch_url, gone) as url:
        monkeypatch.setenv(URL, url)
        with pytest.raises(Interrupted, match=r"went away .* repeat the command to resume"):
            index_of(TEXTS, root)
    (half,) = elasticsearch.indices.get(index="tlm-corpus-*")
    elasticsearch.indices.refresh(index=half)
    assert 0 < elasticsearch.count(index=half)["count"] < len(TEXTS)
    monkeypatch.setenv(URL, elasticsearch_url)
    index = index_of(TEXTS, root)
    assert server_index(index) == half
    assert elasticsearch.count(index=half)["count"] == len(TEXTS)
    assert search(index, root)["doc"] == expected(root)["doc"]


def test_a_kill_at_any_request_can_be_repeated(root, elasticsearch_url, elasticsearch, monkeypatch):
    """Each time all connections break one request later, until the command gets through."""
    monkeypatch.setattr(elastic_build, "CHUNK_DOCUMENTS", 200)
    try_only(1, monkeypatch)
    for allowed in count():
        numbers = count()
        with faulty(elasticsearch_url, lambda _, n=allowed, c=numbers: None if next(c) < n else HANG_UP) as url:
            monkeypatch.setenv(URL, url)
            try:
                index = index_of(TEXTS, root)
                break
            except (InputError, Interrupted):
                assert allowed < 40
    assert allowed > 8
    monkeypatch.setenv(URL, elasticsearch_url)
    assert elasticsearch.count(index=server_index(index))["count"] == len(TEXTS)
    assert search(index, root)["doc"] == expected(root)["doc"]


def test_documents_that_are_lost_before_they_are_counted_are_sent_again(
    root, elasticsearch_url, elasticsearch, monkeypatch
):
    """A server that is killed may lose a document that it called a duplicate: of a request whose answer was lost."""
    numbers = count()

    def lose(request):
        if "_refresh" in request.path and next(numbers) == 0:
            (there,) = elasticsearch.indices.get(index="tlm-corpus-*")
            elasticsearch.delete(index=there, id="7")

    with faulty(elasticsearch_url, lose) as url:
        monkeypatch.setenv(URL, url)
        with pytest.raises(Interrupted, match=r"has 599 documents of 600 .*; repeat the command to send them again"):
            index_of(TEXTS, root)
        index = index_of(TEXTS, root)
    monkeypatch.setenv(URL, elasticsearch_url)
    assert elasticsearch.count(index=server_index(index))["count"] == len(TEXTS)
    assert search(index, root)["doc"] == expected(root)["doc"]


def test_documents_of_others_stop_an_index_before_it_is_finished(root, elasticsearch_url, elasticsearch, monkeypatch):
    def add(request):
        if "_refresh" in request.path:
            (there,) = elasticsearch.indices.get(index="tlm-corpus-*")
            elasticsearch.index(index=there, id="foreign", document={"doc": 9, "text": "foreign"})

    with faulty(elasticsearch_url, add) as url:
        monkeypatch.setenv(URL, url)
        with pytest.raises(InputError, match=r"has 601 documents after 600 were sent: something else writes into it"):
            index_of(TEXTS, root)


def test_a_search_that_breaks_off_leaves_nothing(root, elasticsearch_url, monkeypatch):
    index = index_of(TEXTS, root)
    try_only(2, monkeypatch)
    with faulty(elasticsearch_url, lambda request: HANG_UP if "_msearch" in request.path else None) as url:
        monkeypatch.setenv(URL, url)
        with pytest.raises(Interrupted, match="went away"):
            search(index, root)
    monkeypatch.setenv(URL, elasticsearch_url)
    assert search(index, root)["doc"] == expected(root)["doc"]


def test_an_index_that_is_made_again_during_a_search_interrupts_it(root, elasticsearch_url, elasticsearch, monkeypatch):
    """A server without a disk of its own restarts, and another run begins to fill the index."""
    index, numbers = index_of(TEXTS, root), count()
    details = located(Artifact.open(index))

    def lose(request):
        if "_msearch" in request.path and next(numbers) == 3:
            elasticsearch.indices.delete(index=details["index"])
            elastic_build._create(elasticsearch, details)

    monkeypatch.setattr(elastic, "TOGETHER", 1)
    monkeypatch.setattr(elastic, "MOST_UNDER_WAY", 1)  # no request meets the server between the two calls
    with faulty(elasticsearch_url, lose) as url:
        monkeypatch.setenv(URL, url)
        with pytest.raises(Interrupted, match="was lost or made again while it was searched; repeat the command"):
            search(index, root)


def test_shards_that_are_not_there_are_no_reason_to_remove_an_index(root, elasticsearch, monkeypatch):
    """After a restart, shards open one after the other: what is counted before is less."""
    index = index_of(TEXTS, root)
    name = server_index(index)
    finished = elasticsearch.indices.get(index=name)[name]
    elasticsearch.indices.delete(index=name)
    settings = {"number_of_shards": 2, "number_of_replicas": 0, "routing.allocation.total_shards_per_node": 1}
    settings["similarity"] = finished["settings"]["index"]["similarity"]
    elasticsearch.indices.create(
        index=name, mappings=finished["mappings"], settings=settings, wait_for_active_shards=1
    )  # the server has one node, so the other shard has no place
    try_only(1, monkeypatch)
    with pytest.raises(Interrupted, match=r"missing shards .*; if a node is gone for good, remove the index"):
        search(index, root)
    elasticsearch.indices.put_settings(index=name, settings={"routing.allocation.total_shards_per_node": -1})
    elasticsearch.cluster.health(index=name, wait_for_status="green")
    with pytest.raises(InputError, match=r"has 0 documents, not 600; remove it"):
        search(index, root)


def test_an_index_of_that_name_with_another_origin_is_left_alone(root, elasticsearch):
    index = index_of(TEXTS, root)
    name = server_index(index)
    elasticsearch.indices.delete(index=name)
    elasticsearch.indices.create(index=name, mappings={"_meta": {"tlm": {"corpus_content": "another"}}})
    with pytest.raises(InputError, match=rf"'{name}' is unfinished, or made from something else"):
        search(index, root)
    with pytest.raises(InputError, match=rf"has an index '{name}' that was made from something else"):
        index_of(TEXTS, root + "-other")
    elasticsearch.indices.delete(index=name)
    elasticsearch.indices.create(index=name)
    with pytest.raises(InputError, match="made from something else"):
        index_of(TEXTS, root + "-other")


def test_a_lost_index_is_named_and_restored(root, elasticsearch):
    index = index_of(TEXTS, root)
    elasticsearch.indices.delete(index=server_index(index))
    leave(located(Artifact.open(index)), "user")  # what is not there is no error
    with pytest.raises(InputError, match=r"has no index 'tlm-corpus-\w+' \(any more\); run `tlm index` again"):
        search(index, root)
    assert index_of(TEXTS, root) == index
    assert search(index, root)["doc"] == expected(root)["doc"]


def test_a_finished_handle_needs_no_server(root, monkeypatch, capsys):
    index = index_of(TEXTS, root)
    monkeypatch.setenv(URL, f"http://127.0.0.1:{free_port()}")
    assert index_of(TEXTS, root) == index
    assert "could not be checked" in capsys.readouterr().err


def test_documents_that_others_add_are_noticed(root, elasticsearch):
    index = index_of(TEXTS, root)
    elasticsearch.indices.put_settings(index=server_index(index), settings={"index.blocks.write": False})
    elasticsearch.index(index=server_index(index), document={"doc": 9, "text": "foreign"}, refresh=True)
    with pytest.raises(InputError, match="has 601 documents, not 600"):
        search(index, root)


def test_a_full_disk_interrupts_at_once(root, elasticsearch, monkeypatch):
    monkeypatch.setattr(parallel, "ThreadPoolExecutor", _blocking(elasticsearch, parallel.ThreadPoolExecutor))
    with pytest.raises(Interrupted, match=r"has blocked this .*; free disk space there, then repeat"):
        index_of(TEXTS, root)


def _blocking(elasticsearch, executor):
    """What the server does itself at the flood-stage watermark, just before the first documents come."""

    def start(*arguments):
        block = {"index.blocks.read_only_allow_delete": True}
        elasticsearch.indices.put_settings(index="tlm-corpus-*", settings=block)
        return executor(*arguments)

    return start


def test_passages_that_the_server_refuses_stop_the_step(root, elasticsearch):
    template = {"mappings": {"_routing": {"required": True}}}
    elasticsearch.indices.put_index_template(name="tlm-test", index_patterns=["tlm-corpus-*"], template=template)
    try:
        with pytest.raises(InputError, match=r"refused more than 10 passages, the last one, .*: routing_missing"):
            index_of(TEXTS, root)
    finally:
        elasticsearch.indices.delete_index_template(name="tlm-test")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", f"{URL} is not set"),
        ("localhost:9200", f"{URL} is 'localhost:9200'; expected https://host:port"),
        ("https://no.invalid:9200", f"{URL} is https://no.invalid:9200, but Elasticsearch does not answer there"),
        ("http://user:secret@127.0.0.1:1", f"{URL} is http://…@127.0.0.1:1, but Elasticsearch does not answer there"),
    ],
)
def test_a_wrong_address_is_named(root, monkeypatch, url, sentence):
    monkeypatch.setenv(URL, url)
    with pytest.raises(InputError, match=sentence) as error:
        index_of(TEXTS, root)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_an_address_that_stays_silent_is_wrong_after_one_request(root, monkeypatch):
    """As behind a firewall that drops what it forbids: thirteen requests would take 27 minutes."""
    monkeypatch.setattr(elastic_client, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(elastic_client, "_pause", lambda _: pytest.fail("it was asked again"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(URL, f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(InputError, match=r"but Elasticsearch does not answer there \(.*timed out.*\); start it or"):
            index_of(TEXTS, root)


def test_in_a_pod_a_step_waits_for_the_server_that_preflight_saw(root, elasticsearch_url, monkeypatch):
    """A Service leads nowhere while the only pod behind it is replaced."""
    numbers = count()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    with faulty(elasticsearch_url, lambda _: HANG_UP if next(numbers) < 3 else None) as url:
        monkeypatch.setenv(URL, url)
        with pytest.raises(InputError, match="but Elasticsearch does not answer there"):
            preflight(engine="elasticsearch", root=root)
        index = index_of(TEXTS, root, name="late")
    assert next(numbers) > 4
    assert server_index(index)
    try_only(1, monkeypatch)
    monkeypatch.setenv(URL, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Interrupted, match=r"went away \(.*refused.*\); repeat the command to resume"):
        index_of(TEXTS[:300], root)


@pytest.mark.parametrize("status", [200, 400, 404, 501])
def test_another_kind_of_server_is_named(root, monkeypatch, status):
    class Page(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(status)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Page)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(URL, f"http://127.0.0.1:{server.server_port}")
    try:
        with pytest.raises(InputError, match=rf"does not answer there \(something else answers with {status}, "):
            index_of(TEXTS, root)
        monkeypatch.setenv(URL, f"https://127.0.0.1:{server.server_port}")
        with pytest.raises(InputError, match=r"TLS fails there .* give an http:// address"):
            index_of(TEXTS, root)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_as_it_was_before_an_answer(enabled):
    try:
        (gc.enable if enabled else gc.disable)()
        for data, error in ((b"{}", nullcontext()), (b"no", pytest.raises(ValueError, match="expected"))):
            with error:
                elastic_client._Reader().json_loads(data)
            assert gc.isenabled() == enabled
    finally:
        gc.enable()


@pytest.mark.parametrize("variable", ["TLM_ELASTICSEARCH_API_KEY_FILE", "TLM_ELASTICSEARCH_CA_FILE"])
def test_a_missing_file_is_named(root, monkeypatch, variable):
    monkeypatch.setenv(variable, "/no/such/file")
    with pytest.raises(InputError, match=f"{variable} is '/no/such/file'; there is no such file"):
        index_of(TEXTS, root)


def test_the_key_in_the_file_is_sent(root, elasticsearch_url, monkeypatch, tmp_path):
    (tmp_path / "key").write_text("c2VjcmV0\n")
    monkeypatch.setenv("TLM_ELASTICSEARCH_API_KEY_FILE", str(tmp_path / "key"))

    def gate(request):
        return None if request.headers.get("authorization") == "ApiKey c2VjcmV0" else 401

    with faulty(elasticsearch_url, gate) as url:
        monkeypatch.setenv(URL, url)
        index = index_of(TEXTS, root)
        monkeypatch.delenv("TLM_ELASTICSEARCH_API_KEY_FILE")
        with pytest.raises(InputError, match="does not accept our credentials"):
            search(index, root)
