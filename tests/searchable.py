"""Corpora and tasks as artifacts, made of lists of texts, for the tests of retrieval."""

import re
import sysconfig
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from statistics import mean
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tiny import write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.corpus.load import load_corpus
from tlm.data.tasks.task import load_task
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index
from tlm.retrieval.subset.export import export
from tlm.settings.options import Layout

Hits: TypeAlias = dict[int, list[tuple[int, float]]]  # documents and scores, by query

EXAMPLES = pa.schema(
    dict.fromkeys(("id", "text", "text_pair", "label"), pa.string()) | {"target": pa.float64(), "split": pa.string()}
)


COOKING = ["stir the soup with salt", "bake the bread with salt", "salt the soup", "stir and bake"]
KITCHEN_AND_ROAD = [
    f"{a} the {b} with {c}" for a in ("stir", "bake", "drive", "park") for b in ("soup", "car") for c in ("salt", "oil")
]


def cooking(root: str) -> tuple[str, str, str, str]:
    """Corpus, index and a task about cooking, and the subset of BM25."""
    texts = [f"{text} {number}a {number}b {number}c" for number, text in enumerate(KITCHEN_AND_ROAD * 20)]
    corpus, task = corpus_of(texts, root), task_of(COOKING, root)
    index = build_index(corpus, root=root)
    return corpus, index, task, export(retrieve(index, task, top_k=10, root=root), root=root)


def tiny_index(folder: Path) -> tuple[str, str, str, str]:
    """Root in the folder, and corpus, task and index of the tiny data."""
    write_tiny(folder)
    root = str(folder / "root")
    corpus = load_corpus([str(folder / "corpus.jsonl")], layout=Layout(source_field="source"), root=root)
    return root, corpus, load_task(str(folder / "task"), root=root), build_index(corpus, root=root)


def prose(seed: int, words: int = 20) -> str:
    """Text that shares no run of words with that of another seed."""
    return " ".join(f"s{seed}w{i}" for i in range(words))


def corpus_of(texts: list[str], root: str) -> str:
    """URI of a corpus with these passages, in two shards."""

    def write(draft: Draft) -> None:
        middle = len(texts) // 2
        for shard, docs in enumerate((range(middle), range(middle, len(texts)))):
            columns = {
                "doc": pa.array(docs, pa.int64()),
                "id": [str(doc) for doc in docs],
                "text": pa.array([texts[doc] for doc in docs], pa.string()),
                "source": ["test"] * len(docs),
            }
            name = f"passages-{shard:05d}.parquet"
            pq.write_table(pa.table(columns), draft.folder / name)
            draft.rows[name] = len(docs)
        draft.details = {"passages": len(texts)}

    return produce(Recipe("corpus", "corpus-of", 1, {"texts": texts}), root, write)


def task_of(train: list[str], root: str, held_out: tuple[str, ...] = (), pairs: tuple[str | None, ...] = ()) -> str:
    """URI of a task with these training texts (with their second texts), and others in dev and test."""
    rows = [("train", text) for text in train] + [(split, text) for text in held_out for split in ("dev", "test")]
    table = [
        {
            "id": str(number), "text": text, "text_pair": second, "label": "ab"[number % 2], "target": None,
            "split": split,
        }
        for number, ((split, text), second) in enumerate(
            zip_longest(sorted(rows, key=lambda row: ["train", "dev", "test"].index(row[0])), pairs)
        )
    ]  # fmt: skip

    def write(draft: Draft) -> None:
        pq.write_table(pa.Table.from_pylist(table, EXAMPLES), draft.folder / "examples.parquet")
        draft.details = {"problem": "classification", "labels": ["a", "b"], "pair": bool(pairs)}

    return produce(Recipe("task", "task-of", 1, {"rows": table}), root, write)


def columns(uri: str, name: str) -> dict[str, list[object]]:
    """A file of an artifact as lists by column."""
    return pq.read_table(Artifact.open(uri).path(name)).to_pydict()


def by_query(hits: str) -> Hits:
    """For each query its documents and scores, best first."""
    found = pq.read_table(Artifact.open(hits).path("hits.parquet"), columns=["query", "doc", "score"])
    queries: Hits = {}
    for query, doc, score in zip(*found.to_pydict().values(), strict=True):
        queries.setdefault(query, []).append((doc, score))
    return queries


def assert_same(ours: Hits, theirs: Hits) -> None:
    """Scores equal but for rounding, and so are the documents but for those that rounding makes change places."""
    assert ours.keys() == theirs.keys()
    overlaps = []
    for query, hits in ours.items():
        assert [score for _, score in hits] == pytest.approx([score for _, score in theirs[query]], rel=2e-6)
        overlaps.append(len({doc for doc, _ in hits} & {doc for doc, _ in theirs[query]}) / len(hits))
    assert mean(overlaps) >= 0.999


@lru_cache(maxsize=1)
def docstrings(number: int = 3000) -> tuple[str, ...]:
    """Real text that every machine has: docstrings of the standard library, in order of module and place."""
    found: dict[str, None] = {}
    for module in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for _, text in re.findall(r'("""|\'\'\')(.+?)\1', module.read_text("utf-8"), re.DOTALL):
            found.setdefault(" ".join(text.split()))
    texts = [text for text in found if len(text.split()) >= 4]
    assert len(texts) >= number
    return tuple(texts[:number])
