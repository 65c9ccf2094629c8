"""Filling an Elasticsearch index: our own bulk loop, safe to stop anywhere and to repeat.

A document's ``_id`` is its ordinal, and documents are only ever created, so that a repetition finds what is there
already (409). An index is finished when its ``_meta`` tells the number of its documents.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from elastic_transport import TransportError
from elasticsearch import ApiError, BadRequestError, Elasticsearch

from tlm.errors import InputError, Interrupted
from tlm.progress import Meter, say
from tlm.retrieval.elastic import meta, stored_meta
from tlm.retrieval.elastic_client import BUSY, TRIES, connect, explained, patiently, pause, reason, refusal

CHUNK_DOCUMENTS = 1000
CHUNK_CHARACTERS = 2_000_000  # well below http.max_content_length
WORKERS = 2  # requests under way at once
MOST_REJECTED = 10  # the server refuses none of our documents unless something is wrong with it

WANTED = "items.create.status,items.create.error"

Document = tuple[int, str]
Rejected = tuple[int, str]

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def ensure(details: Mapping[str, Any], texts: Iterable[str], total: int) -> list[Rejected]:
    """Make the index of `details` hold `texts` (document 0, 1, …; `total` of them), finished and behind its alias.

    Returns the documents that the server refused, with its reason. A finished index is left as it is.

    Raises:
        InputError: no server, not allowed, or an index of that name was made from something else.
        Interrupted: the server went away or blocked writing; repeating goes on.
    """
    client, index = connect(), details["index"]
    stored = stored_meta(client, index)
    if stored is None:
        _create(client, details)
    elif {name: stored.get(name) for name in meta(details)} != meta(details):
        raise InputError(
            f"Elasticsearch has an index '{index}' that was made from something else (its _meta differs); "
            "remove it there, or choose another name for this one"
        )
    if stored and "documents" in stored:
        rejected = [(doc, why) for doc, why in stored["rejected"]]
    else:
        rejected = _fill(client, index, texts, total)
        _finish(client, details, total - len(rejected), rejected)
    _publish(client, index, f"tlm-{details['name']}")
    return rejected


def _create(client: Elasticsearch, details: Mapping[str, Any]) -> None:
    similarity = {"type": "BM25", "k1": details["k1"], "b": details["b"]}
    settings = {
        "number_of_shards": 1,
        "number_of_replicas": 0,
        "refresh_interval": "-1",
        "similarity": {"tlm": similarity},
    }
    text = {"type": "text", "analyzer": details["analyzer"], "index_options": "freqs", "similarity": "tlm"}
    mappings = {
        "dynamic": "strict",
        "_meta": {"tlm": meta(details)},
        "properties": {"doc": {"type": "long", "index": False}, "text": text},
    }

    def create() -> None:
        try:
            client.indices.create(index=details["index"], settings=settings, mappings=mappings)
        except BadRequestError as error:
            if error.error != "resource_already_exists_exception":  # another writer was faster, or our retry came twice
                raise

    patiently(create)


def _fill(client: Elasticsearch, index: str, texts: Iterable[str], total: int) -> list[Rejected]:
    filler = _Filler(client, index)
    meter = Meter("indexing", total, "passages")
    waiting: deque[Future[int]] = deque()
    with ThreadPoolExecutor(WORKERS) as pool:
        try:
            for chunk in _chunks(texts):
                waiting.append(pool.submit(filler.send, chunk))
                if len(waiting) > 2 * WORKERS:
                    meter.advance(waiting.popleft().result())
            for sent in waiting:
                meter.advance(sent.result())
        finally:
            pool.shutdown(cancel_futures=True)
            meter.close()
    return sorted(filler.rejected)


def _chunks(texts: Iterable[str]) -> Iterator[list[Document]]:
    chunk: list[Document] = []
    size = 0
    for document in enumerate(texts):
        chunk.append(document)
        size += len(document[1])
        if len(chunk) == CHUNK_DOCUMENTS or size >= CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _lines(doc: int, text: str) -> str:
    """A document as the bulk API takes it: written here, which is several times as fast as the client's own way."""
    return f'{{"create":{{"_id":"{doc}"}}}}\n{{"doc":{doc},"text":{_quoted(text)}}}'


class _Filler:
    """Sends documents to an index; used by several threads at once."""

    def __init__(self, client: Elasticsearch, index: str) -> None:
        self.client, self.index = client, index
        self.rejected: list[Rejected] = []

    def send(self, documents: list[Document]) -> int:
        """Create the documents, with pauses while the server is busy or gone; how many there were."""
        left = documents
        for attempt in range(TRIES):
            with explained():
                left = self._once(left, last=attempt == TRIES - 1)
            if not left:
                return len(documents)
            pause(attempt)
        raise Interrupted(f"Elasticsearch put off {len(left)} documents {TRIES} times; repeat the command to go on")

    def _once(self, documents: list[Document], last: bool) -> list[Document]:
        """One request; the documents that must be sent again."""
        operations = [_lines(doc, text) for doc, text in documents]
        try:
            answer = self.client.bulk(index=self.index, operations=operations, filter_path=WANTED)  # type: ignore[arg-type]
        except ApiError as error:
            if error.status_code == 413:
                return self._halves(documents)
            if last or error.status_code not in BUSY:
                raise
            return documents
        except TransportError:
            if last:
                raise
            return documents
        items = zip(documents, answer["items"], strict=True)
        return [document for document, item in items if self._put_off(document, item["create"])]

    def _halves(self, documents: list[Document]) -> list[Document]:
        """Send what was too large for one request in two."""
        if len(documents) == 1:
            self._reject(documents[0][0], "larger than the server's http.max_content_length")
        else:
            middle = len(documents) // 2
            self.send(documents[:middle])
            self.send(documents[middle:])
        return []

    def _put_off(self, document: Document, item: Mapping[str, Any]) -> bool:
        """Look at one document's status: whether it must be sent again."""
        status = item["status"]
        if status in (200, 201, 409):
            return False
        error = item.get("error", {})
        why = f"{error.get('type')}: {reason(item)}"
        if status == 400:
            self._reject(document[0], why)
            return False
        if status in BUSY and error.get("type") != "cluster_block_exception":
            return True
        raise refusal(status, why)

    def _reject(self, doc: int, why: str) -> None:
        self.rejected.append((doc, why))
        if len(self.rejected) > MOST_REJECTED:
            raise InputError(f"Elasticsearch refused more than {MOST_REJECTED} passages, passage {doc} because: {why}")


def _finish(client: Elasticsearch, details: Mapping[str, Any], documents: int, rejected: list[Rejected]) -> None:
    """Make everything visible, count, and only then write down that the index is finished."""
    index = details["index"]
    patiently(lambda: client.indices.refresh(index=index))
    count = patiently(lambda: client.count(index=index))["count"]
    if count != documents:
        raise InputError(
            f"index '{index}' has {count:,} documents after {documents:,} were sent: somebody else writes into it; "
            "remove it, then repeat the command"
        )
    finished = {"tlm": {**meta(details), "documents": documents, "rejected": rejected}}
    patiently(lambda: client.indices.put_mapping(index=index, meta=finished))


def _publish(client: Elasticsearch, index: str, alias: str) -> None:
    """Close the index to writing and move the alias, which people look it up by, to it."""
    patiently(lambda: client.indices.put_settings(index=index, settings={"index.blocks.write": True}))
    actions: list[dict[str, Any]] = [
        {"remove": {"index": "tlm-*", "alias": alias, "must_exist": False}},
        {"add": {"index": index, "alias": alias}},
    ]
    patiently(lambda: client.indices.update_aliases(actions=actions))
    say(f"index '{index}' stands behind the alias '{alias}'")
