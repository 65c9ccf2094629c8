"""Read the examples of a task."""

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.groups import COLUMN as GROUP

LABELLED = [("id", "string"), ("text", "string"), ("text_pair", "string"), ("label", "string"), ("target", "float64")]
SCHEMA = [*LABELLED, ("split", "string"), (GROUP, "string")]


def examples(task: Artifact) -> pa.Table:
    """Read the examples: columns id, text, text_pair, label, target, split; row ordinals identify examples.

    Ordered train, dev, test, unlabelled. `text_pair` is null without pairs, `label` for regression, `target` for
    classes, both without a label. A task with a group field has the column `group` as well (see `groups_of`).
    """
    return pq.ParquetFile(task.path("examples.parquet")).read()
