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
from tlm.retrieval.search.elastic.client import (
    BUSY,
    TRIES,
    blocked,
    connect,
    explained,
    patiently,
    pause,
    reason,
    refusal,
)
from tlm.retrieval.search.elastic.engine import meta, shape, stored

CHUNK_DOCUMENTS = 4000
CHUNK_CHARACTERS = 2_000_000  # well below http.max_content_length
WORKERS = 2  # requests under way at once
SHARD_SECONDS = "10s"  # how long a request waits for the index to be there; a minute by default
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
    rejected = _finished(client, details)
    if rejected is None:
        try:
            _create(client, details)
            rejected = _fill(client, index, texts, total)
            _finish(client, details, total - len(rejected), rejected)
        except Interrupted:
            rejected = _finished(client, details)  # by another writer, which then closes it to us
            if rejected is None:
                raise
    _publish(client, index, details["alias"])
    return rejected


def _finished(client: Elasticsearch, details: Mapping[str, Any]) -> list[Rejected] | None:
    """What the server refused of a finished index; None where it is absent or unfinished."""
    found = stored(client, details["index"])
    if found is None:
        return None
    if not found.is_of(details):
        raise InputError(
            f"Elasticsearch has an index '{details['index']}' that was made from something else (its _meta, mapping or "
            "similarity differs); remove it there, or choose another name for this one"
        )
    return [(doc, why) for doc, why in found.meta["rejected"]] if "documents" in found.meta else None


def _create(client: Elasticsearch, details: Mapping[str, Any]) -> None:
    ours = shape(details)
    settings = {
        "number_of_shards": 1,
        "number_of_replicas": 0,
        "refresh_interval": "-1",
        "similarity": ours["similarity"],
    }
    mappings = {"dynamic": "strict", "_meta": {"tlm": meta(details)}, "properties": ours["properties"]}

    def create() -> None:
        try:
            client.indices.create(index=details["index"], settings=settings, mappings=mappings)
        except BadRequestError as error:
            if error.error != "resource_already_exists_exception":  # half built, another writer's, or our retry
                raise

    patiently(create)


def _fill(client: Elasticsearch, index: str, texts: Iterable[str], total: int) -> list[Rejected]:
    alias = _filling(index)
    patiently(lambda: client.indices.put_alias(index=index, name=alias))
    filler = _Filler(client, alias)
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


def _filling(index: str) -> str:
    """The alias that an index is filled through: a removed index has none, and so is not made anew, as others are."""
    return f"{index}-filling"


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
    """Sends documents to the index behind an alias; used by several threads at once."""

    def __init__(self, client: Elasticsearch, alias: str) -> None:
        self.client, self.alias = client, alias
        self.rejected: list[Rejected] = []
        self.put_off = ""  # why, the last time

    def send(self, documents: list[Document]) -> int:
        """Create the documents, with pauses while the server is busy or gone; how many there were."""
        left = documents
        for attempt in range(TRIES):
            with explained():
                left = self._once(left, last=attempt == TRIES - 1)
            if not left:
                return len(documents)
            if attempt < TRIES - 1:
                pause(attempt)
        raise Interrupted(
            f"Elasticsearch put off {len(left)} documents {TRIES} times ({self.put_off}); "
            "free disk space there if it is full, then repeat the command to go on"
        )

    def _once(self, documents: list[Document], last: bool) -> list[Document]:
        """One request; the documents that must be sent again."""
        operations = [_lines(doc, text) for doc, text in documents]
        try:
            answer = self.client.bulk(
                index=self.alias,
                operations=operations,  # type: ignore[arg-type]
                require_alias=True,
                timeout=SHARD_SECONDS,
                filter_path=WANTED,
            )
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
        if status in BUSY and not blocked(status, why):
            self.put_off = why
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
        {"remove": {"index": index, "alias": _filling(index), "must_exist": False}},
        {"add": {"index": index, "alias": alias}},
    ]
    patiently(lambda: client.indices.update_aliases(actions=actions))
    say(f"index '{index}' stands behind the alias '{alias}'")
