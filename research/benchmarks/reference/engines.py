"""The search engines that people would use instead of ours, each at its best on one thread and behind the same calls.

An engine is filled with passages (document 0, 1, …) and asked for the K best documents of each query, as BM25 with
k1 = 1.2 and b = 0.75 over whole words without stop words and stems.

How faithful: tantivy and Lucene compute the formula that we compute, with the same quantised lengths (a test holds hits
and scores of tantivy against ours). They differ in what a word is: tantivy's `default` tokenizer takes runs of letters
and digits, Anserini's analyzer for English is Lucene's `standard` and cuts "'s" off. bm25s takes runs of letters,
digits and underscores and exact lengths, so its scores are near ours, not equal. Lucene's hits stay in Java: to
read them out through the bridge would cost more than the search. bm25s' numba functions are compiled before the clock
runs.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

K1, B = 1.2, 0.75
WORD = re.compile(r"\w+")


class Reference(Protocol):
    """An engine, empty at first, with a folder of its own."""

    def __init__(self, folder: Path) -> None: ...

    def prepare(self, texts: Iterable[str]) -> None:
        """Prepare before the clock runs: compile; bring the passages into the form that is read."""

    def fill(self, texts: Iterable[str]) -> None:
        """Index the passages and make them searchable; this is measured."""

    def search(self, queries: Sequence[str], top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Documents and scores of each query's best, best first."""


class Bm25s:
    """bm25s with numba, for its index too: sparse matrix of scores in memory."""

    def __init__(self, folder: Path) -> None:
        import bm25s

        self.index = bm25s.BM25(method="lucene", k1=K1, b=B, backend="numba")

    def prepare(self, texts: Iterable[str]) -> None:
        self.index.compile()  # without it only searching is; its own warm-up writes beyond an array
        self.fill(["some words", "more words", "words"])
        self.search(["some words"], 1)

    def fill(self, texts: Iterable[str]) -> None:
        tokens = self._tokens(list(texts))
        self.documents = len(tokens.ids)
        self.index.index(tokens, show_progress=False)

    def search(self, queries: Sequence[str], top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        docs, scores = self.index.retrieve(
            self._tokens(queries), k=min(top_k, self.documents), n_threads=1, show_progress=False
        )
        return list(zip(docs, scores, strict=True))

    def _tokens(self, texts: Sequence[str]) -> Any:
        import bm25s

        return bm25s.tokenize(texts, stopwords=None, token_pattern=r"(?u)\w+", show_progress=False)


class Tantivy:
    """tantivy with one writing thread, on disk, frequencies only."""

    def __init__(self, folder: Path) -> None:
        import tantivy

        schema = tantivy.SchemaBuilder()
        schema.add_integer_field("doc", stored=False, indexed=False, fast=True)
        schema.add_text_field("text", stored=False, index_option="freq")
        self.index = tantivy.Index(schema.build(), str(folder))

    def prepare(self, texts: Iterable[str]) -> None:
        return

    def fill(self, texts: Iterable[str]) -> None:
        import tantivy

        writer = self.index.writer(256_000_000, 1)
        for doc, text in enumerate(texts):
            writer.add_document(tantivy.Document(doc=doc, text=text))
        writer.commit()
        writer.wait_merging_threads()
        self.index.reload()

    def search(self, queries: Sequence[str], top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        searcher = self.index.searcher()
        found = []
        for query in queries:
            hits = searcher.search(self._query(query), top_k, count=False).hits
            docs = searcher.fast_field_values("doc", [address for _, address in hits])
            found.append((np.array(docs, np.int64), np.array([score for score, _ in hits], np.float32)))
        return found

    def _query(self, query: str) -> Any:
        """Any of the words; one that stands n times counts n times (its own parser would count it once)."""
        import tantivy

        clauses = []
        for word, count in Counter(WORD.findall(query.lower())).items():
            term = tantivy.Query.term_query(self.index.schema, "text", word, "freq")
            weighted = term if count == 1 else tantivy.Query.boost_query(term, float(count))
            clauses.append((tantivy.Occur.Should, weighted))
        return tantivy.Query.boolean_query(clauses)


class Lucene:
    """Lucene as pyserini brings it (Anserini's indexer and queries, Lucene's own searcher), one thread."""

    JAVA = "-Xmx1500m -XX:+UseSerialGC"

    def __init__(self, folder: Path) -> None:
        self.raw, self.folder = folder / "raw", folder / "index"
        os.environ["JAVA_TOOL_OPTIONS"] = self.JAVA

    def prepare(self, texts: Iterable[str]) -> None:
        self.raw.mkdir()
        with (self.raw / "passages.jsonl").open("w") as file:
            for doc, text in enumerate(texts):
                file.write(json.dumps({"id": str(doc), "contents": text}) + "\n")

    def fill(self, texts: Iterable[str]) -> None:
        indexer = [sys.executable, "-m", "pyserini.index.lucene", "--collection", "JsonCollection"]
        places = ["--input", str(self.raw), "--index", str(self.folder)]
        analysis = ["--stemmer", "none", "--keepStopwords"]
        command = [*indexer, *places, "--generator", "DefaultLuceneDocumentGenerator", "--threads", "1", *analysis]
        subprocess.run(command, check=True, capture_output=True)

    def search(self, queries: Sequence[str], top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        for query in queries:
            self._hits(query, top_k)
        return []

    def read(self, query: str, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """One query's hits, read out through the bridge."""
        hits = self._hits(query, top_k).scoreDocs
        names = self.searcher.storedFields()
        return (
            np.array([int(names.document(hit.doc).get("id")) for hit in hits], np.int64),
            np.array([hit.score for hit in hits], np.float32),
        )

    def _hits(self, query: str, top_k: int) -> Any:
        from pyserini.pyclass import autoclass

        if not hasattr(self, "searcher"):
            place = autoclass("org.apache.lucene.store.FSDirectory").open(
                autoclass("java.nio.file.Paths").get(str(self.folder))
            )
            reader = autoclass("org.apache.lucene.index.DirectoryReader").open(place)
            signature = "(Lorg/apache/lucene/index/IndexReader;)V"  # there are several constructors
            self.searcher = autoclass("org.apache.lucene.search.IndexSearcher")(reader, signature=signature)
            self.searcher.setSimilarity(autoclass("org.apache.lucene.search.similarities.BM25Similarity")(K1, B))
            self.generator = autoclass("io.anserini.search.query.BagOfWordsQueryGenerator")()
            self.analyzer = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newNonStemmingInstance(
                autoclass("org.apache.lucene.analysis.CharArraySet").EMPTY_SET
            )
        asked = self.generator.buildQuery("contents", self.analyzer, query)
        return self.searcher.search(asked, top_k)
