"""Corpora of any size, and queries, for the retrieval rows: real text, grown where more is asked for than there is.

The corpus that ``TLM_DEV_DATA`` names with SciERC's training sentences as queries, or the demo's with its training
texts. A further copy of the corpus has the words of each 64 neighbouring passages dealt out anew, and its rare words
(at most 3 in the first copy) marked with the copy's number: lengths, topics and the lists of frequent words stay as
they are, no passage stands twice, and the vocabulary goes on growing, as that of real text does.
"""

import gzip
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from research.benchmarks.training_data import demo_files, folder, given_data
from tlm.retrieval.search.query import make_queries

NEIGHBOURS = 64  # passages among which words are dealt out
RARE = 3
SLAB = NEIGHBOURS << 9  # passages made at a time


def told(quick: bool) -> str:
    """The origin of the texts, for a note."""
    source, task = ("320,000 passages of 30 domains (`TLM_DEV_DATA`)", "SciERC's sentences")
    if given_data(quick) is None:
        source, task = "the demo's corpus (`python -m demo`)", "the demo's training texts"
    return f"Corpus: {source}, beyond its size with copies whose words are dealt out anew; queries: {task}."


def corpus(documents: int, quick: bool) -> Path:
    """A parquet file with `documents` passages in its column ``text``; made if it is not there."""
    path = folder() / f"passages-{'demo' if given_data(quick) is None else 'dev'}{'-small' * quick}-{documents}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with pq.ParquetWriter(part, pa.schema([("text", pa.string())]), compression="zstd") as writer:
            for slab in _grown(_base(quick), documents):
                writer.write_table(pa.table({"text": slab}), row_group_size=1 << 13)
        part.replace(path)
    return path


def texts(path: Path) -> Iterator[str]:
    """The passages of such a file, read as the steps read theirs."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(1 << 13, columns=["text"]):
            yield from batch.column("text").to_pylist()


def queries(kind: str, quick: bool, number: int = 0) -> list[str]:
    """Queries of a task, whole ("full") or their keywords ("rake"); `number` of them, evenly taken, or all."""
    given = given_data(quick)
    file = (demo_files(quick) / "api-errors" if given is None else given / "scierc") / "train.jsonl"
    rows = [json.loads(line)["text"] for line in file.read_text("utf-8").splitlines()]
    found = [query.text for query in make_queries(enumerate(rows), kind) if query.text]
    return found[:: max(1, len(found) // number)][:number] if number else found


def lines_file(lines: int, quick: bool) -> Path:
    """The same passages as JSON lines, compressed: input of `load-corpus`. One line in ten stands twice."""
    from tlm.data.reading import zstd

    source = corpus(lines - lines // 11, quick)
    path = source.with_name(f"{source.stem}.jsonl.zst")
    if not path.exists():
        part = path.with_suffix(".part")
        with zstd.ZstdFile(part, "w") as packed:
            for number, text in enumerate(texts(source)):
                line = json.dumps({"text": text, "source": f"part-{number % 7}"}).encode() + b"\n"
                packed.write(line * (2 if number % 10 == 9 else 1))
        part.replace(path)
    return path


@lru_cache(maxsize=1)
def _base(quick: bool) -> pa.Array:
    given = given_data(quick)
    if given is None:
        with gzip.open(demo_files(quick) / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
            return pa.array([json.loads(line)["text"] for line in file], pa.string())
    from tlm.data.reading import zstd

    with zstd.open(given / "mixed-corpus.jsonl.zst", "rt", encoding="utf-8") as stream:
        return pa.array([json.loads(line)["text"] for line in stream], pa.string())


def _grown(base: pa.Array, documents: int) -> Iterator[pa.Array]:
    """The base, then copies of it, until there are `documents` passages."""
    yield base.slice(0, documents)
    made = min(len(base), documents)
    if made == documents:
        return
    words = pc.utf8_split_whitespace(base)
    tokens = words.values.dictionary_encode()
    offsets, codes = words.offsets.to_numpy().astype(np.int64), tokens.indices.to_numpy()
    rare = np.bincount(codes) <= RARE
    random = np.random.default_rng(0)
    copy = 0
    while made < documents:
        copy += 1
        words_and_marks = zip(tokens.dictionary.to_pylist(), rare, strict=True)
        names = [f"{word}x{copy}" if mark else word for word, mark in words_and_marks]
        distinct = pa.array(names, pa.string())
        for first in range(0, len(base), SLAB):
            ends = offsets[first : min(first + SLAB, len(base), first + documents - made) + 1]
            if len(ends) < 2:
                return
            here = codes[ends[0] : ends[-1]]
            group = np.repeat(np.arange(len(ends) - 1) // NEIGHBOURS, np.diff(ends))
            dealt = here[np.argsort(group + random.random(len(here)))]
            lists = pa.ListArray.from_arrays(pa.array(ends - ends[0], pa.int32()), distinct.take(pa.array(dealt)))
            yield pc.binary_join(lists, " ")
            made += len(ends) - 1
