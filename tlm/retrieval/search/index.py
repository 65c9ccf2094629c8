"""Index: make a corpus searchable by BM25, in files of our own or in Elasticsearch."""

import re
import sys
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias, assert_never

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Draft, Recipe, finished, produce
from tlm.artifacts.stores import identity
from tlm.data.parallel import each
from tlm.data.passages import SEVERAL, shard_passages, shards, texts
from tlm.errors import InputError
from tlm.progress import Meter, say
from tlm.retrieval.search.query import Engine
from tlm.settings.options import Range

EngineName: TypeAlias = Literal["embedded", "elasticsearch"]

VERSION, WITH_VECTORS = 3, 4
ANALYZER = "standard"
REJECTED = pa.schema([("doc", pa.int64()), ("reason", pa.string()), ("detail", pa.string())])

MOST_EMBEDDED = 50_000_000  # passages, on one machine; four million were measured
VECTORS = "vectors"  # folder of the index with what makes vectors of texts
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


def build_index(
    corpus: str,
    *,
    engine: EngineName = "embedded",
    name: str = "",
    k1: float = 1.2,
    b: float = 0.75,
    vectors: bool = False,
    root: str | None = None,
) -> str:
    """Make the passages of a corpus searchable.

    Args:
        corpus: URI of the corpus.
        engine: "embedded" (files in the store) or "elasticsearch" (the server that TLM_ELASTICSEARCH_URL names).
        name: Name of the index in Elasticsearch, whose alias is tlm-NAME ("corpus" by default). Not used by "embedded".
        k1: BM25's saturation of term frequency, 0 or more.
        b: BM25's normalisation by length, from 0 (none) to 1 (full).
        vectors: Store a vector of each passage as well, for the arms "dense" and "hybrid" of `retrieve`, which
            otherwise compute all vectors themselves. Not used by "embedded".
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URI of the index: for "embedded" its files, for "elasticsearch" a handle without the server's address.

    Raises:
        InputError: a setting is wrong, the server cannot be reached, or has another index of that name.
        Interrupted: the server went away; the command can be repeated.
    """
    source = Artifact.open(corpus, "corpus")
    check_index_name(name)
    Range("0 or more", 0, sys.float_info.max).check("k1", k1)
    Range("0 to 1", 0, 1).check("b", b)
    passages = source.details["passages"]
    if engine == "embedded" and passages > MOST_EMBEDDED:
        most = f"the embedded engine takes at most {MOST_EMBEDDED:,}"
        raise InputError(f"{corpus} has {passages:,} passages; {most}, so choose the engine elasticsearch")
    settings: dict[str, Any] = {"engine": engine, "k1": k1, "b": b}
    details = {**settings, "analyzer": ANALYZER, "documents": passages, "corpus_content": source.content}
    if engine == "embedded":
        recipe = Recipe("index", "index", VERSION, settings, {"corpus": source})
        return produce(recipe, root, _embed, source, details)
    if engine != "elasticsearch":
        assert_never(engine)
    settings["name"] = name or "corpus"
    if vectors:
        settings["vectors"] = True
    recipe = Recipe("index", "index", WITH_VECTORS if vectors else VERSION, settings, {"corpus": source})
    return _index_in_elasticsearch(recipe, source, details, root)


def check_index_name(name: str) -> None:
    """Raise InputError unless Elasticsearch takes this name of an index; "" stands for the default."""
    if name and not _NAME.fullmatch(name):
        expected = "expected at most 100 of a-z, 0-9, '.', '_' and '-', starting with a letter or digit"
        raise InputError(f"name '{name}' is no index name; {expected}")


def open_engine(index: Artifact) -> Engine:
    """Open the engine that searches an ``index`` artifact.

    Raises:
        InputError: the index is gone from its server, or is not what the artifact says.
    """
    if index.details["engine"] == "elasticsearch":
        from tlm.retrieval.search.elastic import Elastic

        return Elastic(located(index))
    from tlm.retrieval.search.embedded import Embedded

    return Embedded(index.path)


def located(index: Artifact) -> dict[str, Any]:
    """The details of an index in Elasticsearch, with its name and alias there.

    The names are not part of its content: an index by another name gives the same hits. Raises InputError for a name
    that `build_index` refuses: with commas or stars in it, `tlm gc` would remove other indices.
    """
    check_index_name(name := str(index.manifest.settings.get("name")))
    return {**index.details, **_names(name, index.manifest.key)}


def _names(name: str, key: str) -> dict[str, str]:
    return {"index": f"tlm-{name}-{key[:12]}", "alias": f"tlm-{name}"}


def _embed(draft: Draft, corpus: Artifact, details: dict[str, Any]) -> None:
    from tlm.retrieval.search.embedded import build

    with closing(Meter("indexing", details["documents"], "passages")) as meter:
        draft.counts = build(texts(corpus, meter), draft.folder, k1=details["k1"], b=details["b"])
    draft.details = details


def _index_in_elasticsearch(recipe: Recipe, corpus: Artifact, details: dict[str, Any], root: str | None) -> str:
    """Fill the index and publish its handle. If the handle exists already, restore the index if it is gone."""
    from tlm.retrieval.search.elastic_build import ensure
    from tlm.retrieval.search.embed import StaticEmbedder

    with_vectors = "vectors" in recipe.settings

    def ensured(embed: StaticEmbedder | None) -> list[tuple[int, str]]:
        """Make the index if it is not there. Returns the documents that the server refused."""
        if embed is not None:
            details["vectors"] = {"dimensions": len(embed.common)}
        described = {**details, **_names(recipe.settings["name"], recipe.key)}
        return ensure(described, identity(home(root, recipe.inputs.values())), partial(_fill, corpus, embed))

    def write(draft: Draft) -> None:
        embed = StaticEmbedder.learn(corpus, seed=0) if with_vectors else None
        if embed is not None:
            embed.write(draft.folder / VECTORS)
        rejected = ensured(embed)
        rows = [{"doc": doc, "reason": "refused", "detail": why} for doc, why in rejected]
        pq.write_table(pa.Table.from_pylist(rows, REJECTED), draft.folder / "rejected.parquet", compression="zstd")
        documents = details["documents"] - len(rejected)
        draft.details = {**details, "documents": documents}
        draft.counts = {"documents": documents, "rejected": len(rejected)}

    was_there = finished(recipe, root)
    uri = produce(recipe, root, write)
    if was_there:
        try:
            ensured(StaticEmbedder.read(Artifact.open(uri, "index").path(VECTORS)) if with_vectors else None)
        except (InputError, OSError) as error:
            say(f"warning: the artifact exists, but its index could not be checked: {error}")
    return uri


def _fill(corpus: Artifact, embed: Any, index: str) -> list[tuple[int, str]]:
    """Send the passages of a corpus to Elasticsearch, a large one's in several processes. Return what it refused."""
    from tlm.retrieval.search import elastic_build

    rows = [entry.rows or 0 for entry in shards(corpus)]
    if len(rows) < SEVERAL:  # with one bar for all passages
        return elastic_build.fill(index, texts(corpus), corpus.details["passages"], embed=embed)
    work = partial(_fill_shard, corpus.uri, embed, index, rows)
    return list(chain.from_iterable(each(work, range(len(rows)), "indexing", "shards")))


def _fill_shard(uri: str, embed: Any, index: str, rows: list[int], number: int) -> list[tuple[int, str]]:
    from tlm.retrieval.search import elastic_build

    passages = (text for batch in shard_passages(uri, number, ["text"]) for text in batch.column("text").to_pylist())
    return elastic_build.fill(index, passages, rows[number], sum(rows[:number]), embed)
