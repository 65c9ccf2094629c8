"""The task."""

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact


def examples(task: Artifact) -> pa.Table:
    """The labelled examples: columns id, text, text_pair, label, target, split; the row ordinal names the example.

    Ordered train, dev, test. `text_pair` is null without pairs, `label` for regression, `target` for classes.
    """
    return pq.ParquetFile(task.path("examples.parquet")).read()
