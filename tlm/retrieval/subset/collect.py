"""Collect the texts of candidates from a corpus, which is read once, a large one in several processes."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.data.corpus_reader import SEVERAL, shard_passages, shards
from tlm.data.parts.parallel import each
from tlm.data.ranges import Ints, offsets_of
from tlm.data.shards import GROUP_ROWS

TEXTS = pa.schema([("doc", pa.int64()), ("text", pa.string())])


def collect(corpus: Artifact, docs: Ints, folder: Path) -> None:
    """Write the texts of `docs` (ascending) to files in `folder`, for `collected` to read."""
    ends = np.searchsorted(docs, offsets_of(np.array([entry.rows or 0 for entry in shards(corpus)])))
    wanted = [(number, docs[start:stop]) for number, (start, stop) in enumerate(pairwise(ends)) if start < stop]
    each(partial(_collect, corpus.uri, folder), wanted, "reading passages", "shards", least=SEVERAL)


def collected(folder: Path) -> Iterator[pa.RecordBatch]:
    """Read what `collect` wrote: ``doc`` and ``text``, ascending."""
    for path in sorted(folder.iterdir()):
        with pq.ParquetFile(path) as texts:
            yield from texts.iter_batches(GROUP_ROWS)


def _collect(uri: str, folder: Path, wanted: tuple[int, Ints]) -> None:
    number, docs = wanted
    with pq.ParquetWriter(folder / f"texts-{number:07d}.parquet", TEXTS, compression="lz4") as texts:
        for batch in shard_passages(uri, number, TEXTS.names):
            here = batch.column("doc").to_numpy()
            start, stop = np.searchsorted(docs, [here[0], here[-1] + 1])
            if start < stop:
                texts.write_batch(batch.take(pa.array(np.searchsorted(here, docs[start:stop]))))
