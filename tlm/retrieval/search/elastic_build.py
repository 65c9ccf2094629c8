"""Fill an Elasticsearch index with our own bulk requests, which are safe to stop anywhere and to repeat.

A document's ``_id`` is its number, and documents are only ever created, so that a repetition finds the existing ones
(409). An index is finished when its ``_meta`` has the number of its documents.

Each store that made or found the index has an alias of its own on it. Of aliases, each can be added and removed by
itself; ``_meta`` can only be replaced as a whole, so that of two stores that add themselves at once one would be lost.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from itertools import count
from typing import Any

import numpy as np
from elastic_transport import TransportError
from elasticsearch import ApiError, BadRequestError, Elasticsearch
from numpy.typing import NDArray

from tlm.data.parallel import in_threads
from tlm.errors import InputError, Interrupted
from tlm.progress import Meter, say
from tlm.retrieval.search import elastic_client
from tlm.retrieval.search.analyzer import batched, in_pairs
from tlm.retrieval.search.elastic import DIFFERS, counted, meta, shape, stored_meta
from tlm.retrieval.search.elastic_client import BUSY, blocked, connect, patiently, reason, refusal, until_done
from tlm.retrieval.search.embed import Embed

CHUNK_DOCUMENTS = 4000
CHUNK_CHARACTERS = 2_000_000  # well below http.max_content_length
WORKERS = 2  # requests under way at once
SHARD_SECONDS = "10s"  # how long a request waits for the index to become available; by default a minute
# A shard of fewer documents costs more than it saves; one of more is slow to search and to move to another node.
FEWEST_IN_SHARD, MOST_IN_SHARD = 1_000_000, 150_000_000
MOST_REJECTED = 10  # a sound server refuses none of our documents
TOO_LARGE = 413
OURS = "tlm-*"
USERS = "tlm-_store-"  # no index is named so: names begin with a letter or digit

WANTED = "items.create.status,items.create.error"

Document = tuple[int, str]
Rejected = tuple[int, str]

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def ensure(details: Mapping[str, Any], user: str, fill: Callable[[str], list[Rejected]]) -> list[Rejected]:
    """Build the index described by `details` and publish its alias. A finished index is left as it is.

    The store that uses the index is noted before anything relies on it (`alias_of`).

    Args:
        details: The index (`index.located`); ``documents`` is how many there are to send.
        user: Identity of the store.
        fill: Sends documents 0, 1, …; it takes the name of the index, and returns what the server refused.

    Returns:
        The documents that the server refused, with its reason.

    Raises:
        InputError: no server, not allowed, or an index of that name was made from something else.
        Interrupted: the server went away or blocked writing; repeating goes on.
    """
    client, index = connect(), details["index"]
    rejected = _finished(client, details)
    if rejected is None:
        try:
            _create(client, details)
            added = [_added(index, alias) for alias in (_filling(index), alias_of(user))]
            patiently(client.indices.update_aliases, actions=added)
            rejected = sorted(fill(index))
            _finish(client, details, rejected)
        except Interrupted:
            rejected = _finished(client, details)  # another writer may have finished and closed it
            if rejected is None:
                raise
    _publish(client, index, details["alias"], user)
    return rejected


def _finished(client: Elasticsearch, details: Mapping[str, Any]) -> list[Rejected] | None:
    """The documents that the server refused while the index was built; None if it is absent or unfinished."""
    found = stored_meta(client, details)
    if found is None:
        return None
    if not found:
        other = f"Elasticsearch has an index '{details['index']}' that was made from something else ({DIFFERS})"
        raise InputError(f"{other}; remove it there, or choose another name for this one")
    return [(doc, why) for doc, why in found["rejected"]] if "documents" in found else None


def shards(documents: int, nodes: int) -> int:
    """Return the number of shards of an index: one for every node to search, unless they would be too small."""
    return min(math.ceil(documents / FEWEST_IN_SHARD), max(nodes, math.ceil(documents / MOST_IN_SHARD)))


def data_nodes(client: Elasticsearch) -> int:
    """Count the nodes that hold data; 1 if the key or the distribution does not allow the question."""
    with suppress(ApiError, TransportError):
        return int(client.cluster.health(filter_path="number_of_data_nodes")["number_of_data_nodes"])
    return 1


def idle_nodes(client: Elasticsearch, index: str) -> list[str]:
    """List the data nodes that have no shard of an index and do not search it; none if we may not ask."""
    with suppress(ApiError, TransportError):
        nodes = client.nodes.info(filter_path="nodes.*.name,nodes.*.roles")["nodes"].values()
        holding = client.search_shards(index=index)["nodes"].values()
        data = {node["name"] for node in nodes if any(role.startswith("data") for role in node["roles"])}
        return sorted(data - {node["name"] for node in holding})
    return []


def with_idle_nodes(client: Elasticsearch) -> dict[str, list[str]]:
    """List our indices that were made for fewer data nodes than there are, with the nodes that do not search them."""
    nodes = data_nodes(client)
    if nodes <= 1:
        return {}
    wanted = "*.settings.index.number_of_shards,*.mappings._meta.tlm.documents"
    idle = {}
    for index, facts in patiently(client.indices.get, index=OURS, filter_path=wanted).items():
        documents = facts.get("mappings", {}).get("_meta", {}).get("tlm", {}).get("documents", 0)
        if shards(documents, nodes) > int(facts["settings"]["index"]["number_of_shards"]):
            idle[index] = idle_nodes(client, index)
    return {index: names for index, names in idle.items() if names}


def _create(client: Elasticsearch, details: Mapping[str, Any]) -> None:
    ours = shape(details)
    number = shards(details["documents"], data_nodes(client))
    settings: dict[str, Any] = {"number_of_shards": number, "number_of_replicas": 0, "refresh_interval": "-1"}
    settings["similarity"] = ours["similarity"]
    mappings = {"dynamic": "strict", "_meta": {"tlm": meta(details)}, "properties": ours["properties"]}
    mappings["_source"] = {"enabled": False}  # the texts are in the corpus

    def create() -> None:
        try:
            client.indices.create(index=details["index"], settings=settings, mappings=mappings)
        except BadRequestError as error:
            if error.error != "resource_already_exists_exception":  # half built, by another writer, or by our retry
                raise

    patiently(create)


def fill(index: str, texts: Iterable[str], total: int, first: int = 0, embed: Embed | None = None) -> list[Rejected]:
    """Send `total` texts to an unfinished index, as documents `first`, `first` + 1, …; existing ones are left.

    With `embed`, each has its vector beside it, unless that is 0.
    """
    filler, numbers = _Filler(connect(), _filling(index), embed), count(first)
    batches = batched(texts, CHUNK_DOCUMENTS, CHUNK_CHARACTERS)
    numbered = ([(next(numbers), text) for text in batch] for batch in batches)
    with closing(Meter("indexing", total, "passages")) as meter:
        for documents in in_threads(filler.send, numbered, WORKERS):
            meter.advance(documents)
    return filler.rejected


def _filling(index: str) -> str:
    """The alias used to fill an index. If the index is removed meanwhile, writing fails rather than recreates it."""
    return f"{index}-filling"


class _Filler:
    """Sends documents to the index behind an alias; used by several threads at once."""

    def __init__(self, client: Elasticsearch, alias: str, embed: Embed | None) -> None:
        self.client, self.alias, self.embed = client.options(ignore_status=TOO_LARGE), alias, embed
        self.rejected: list[Rejected] = []
        self.why = ""  # the last reason why the server was too busy for a document

    def send(self, documents: list[Document]) -> int:
        """Create the documents, with pauses while the server is busy or gone. Return their number."""
        left = until_done(self._create, documents)
        if left:
            busy = f"Elasticsearch was too busy for {len(left)} documents {elastic_client.TRIES} times ({self.why})"
            raise Interrupted(f"{busy}; free disk space there if it is full, then repeat the command to resume")
        return len(documents)

    def _create(self, documents: list[Document]) -> list[Document]:
        """Create the documents in one request. Return those to send again."""
        vectors = [""] * len(documents) if self.embed is None else _written(self.embed([text for _, text in documents]))
        operations = [_lines(*document, vector) for document, vector in zip(documents, vectors, strict=True)]
        options = {"require_alias": True, "timeout": SHARD_SECONDS, "filter_path": WANTED}
        answer = patiently(self.client.bulk, index=self.alias, operations=operations, **options)
        if answer.meta.status == TOO_LARGE:
            return self._split(documents)
        items = zip(documents, answer["items"], strict=True)
        return [document for document, item in items if self._to_repeat(document, item["create"])]

    def _split(self, documents: list[Document]) -> list[Document]:
        """Send documents that were too large for one request in two."""
        if len(documents) == 1:
            self._reject(documents[0][0], "larger than the server's http.max_content_length")
        else:
            middle = len(documents) // 2
            self.send(documents[:middle])
            self.send(documents[middle:])
        return []

    def _to_repeat(self, document: Document, item: Mapping[str, Any]) -> bool:
        """Return whether the document must be sent again, by the status in the answer."""
        status = item["status"]
        if status in (200, 201, 409):
            return False
        why = f"{item.get('error', {}).get('type')}: {reason(item)}"
        if status == 400:
            self._reject(document[0], why)
            return False
        if status not in BUSY or blocked(status, why):
            raise refusal(status, why)
        self.why = why
        return True

    def _reject(self, doc: int, why: str) -> None:
        self.rejected.append((doc, why))
        if len(self.rejected) > MOST_REJECTED:
            raise InputError(f"Elasticsearch refused more than {MOST_REJECTED} passages, the last one, {doc}: {why}")


def _lines(doc: int, text: str, vector: str) -> str:
    """Write a document as the bulk API takes it, which is faster than leaving it to the client."""
    return f'{{"create":{{"_id":"{doc}"}}}}\n{{"doc":{doc},"text":{_quoted(in_pairs(text))}{vector}}}'


def _written(vectors: NDArray[np.float32]) -> list[str]:
    """The field with the vector of each document; none where the vector is 0."""
    return [f',"vector":{json.dumps(vector)}' if any(vector) else "" for vector in vectors.tolist()]


def _finish(client: Elasticsearch, details: Mapping[str, Any], rejected: list[Rejected]) -> None:
    """Make all documents visible, count them, and only then mark the index as finished."""
    index, documents = details["index"], details["documents"] - len(rejected)
    patiently(client.indices.refresh, index=index)
    found = counted(client, index)
    if found < documents:  # it called a document a duplicate before that was on its disk, and was killed
        lost = f"index '{index}' has {found:,} documents of {documents:,} that were sent, as the server was interrupted"
        raise Interrupted(f"{lost}; repeat the command to send them again")
    if found > documents:
        more = f"index '{index}' has {found:,} documents after {documents:,} were sent: something else writes into it"
        raise InputError(f"{more}; remove it, then repeat the command")
    finished = {"tlm": {**meta(details), "documents": documents, "rejected": rejected}}
    patiently(client.indices.put_mapping, index=index, meta=finished)


def _publish(client: Elasticsearch, index: str, alias: str, user: str) -> None:
    """Close the index to writing and move its public alias to it."""
    patiently(client.indices.put_settings, index=index, settings={"index.blocks.write": True})
    removed = [_removed(OURS, alias), _removed(index, _filling(index))]
    added = [_added(index, alias), _added(index, alias_of(user))]
    patiently(client.indices.update_aliases, actions=removed + added)
    say(f"the alias '{alias}' now points to index '{index}'")


def _added(index: str, alias: str) -> dict[str, Any]:
    return {"add": {"index": index, "alias": alias}}


def _removed(index: str, alias: str) -> dict[str, Any]:
    return {"remove": {"index": index, "alias": alias, "must_exist": False}}


def alias_of(user: str) -> str:
    """Return the alias of a store (`tlm.artifacts.stores.open`) on the indices that it uses."""
    return USERS + user


def leave(details: Mapping[str, Any], user: str) -> None:
    """Note that a store no longer uses an index, and remove the index if no other store does.

    A store that begins to use the index between our last two requests loses it; its step then says that the index is
    gone, and repeating makes it again.

    Args:
        details: The index (`index.located`); no error if it is gone.
        user: Identity of the store.
    """
    client, index = connect(), details["index"]
    may_be_gone = client.options(ignore_status=404).indices
    # First we leave, then we look: of two that leave at once, the later one sees that nobody is left
    patiently(may_be_gone.update_aliases, actions=[_removed(index, alias_of(user))])
    for found in patiently(client.indices.get, index=index, ignore_unavailable=True).values():
        others = sorted(alias for alias in found["aliases"] if alias.startswith(USERS))
        if others:
            say(f"the index '{index}' stays, as another store uses it ({', '.join(others)})")
        else:
            patiently(may_be_gone.delete, index=index)
