"""Second: find the passages that repeat an earlier one of any part, a bucket of digests at a time."""

from collections.abc import Iterable
from functools import partial
from typing import Final

import numpy as np

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, finished, produce
from tlm.data.parts.parallel import each
from tlm.data.parts.plan import Plan
from tlm.data.parts.stage import PART
from tlm.data.stage import repeated

BUCKET: Final = "corpus-bucket"


def dedup_buckets(plan: Plan, numbers: Iterable[int]) -> None:
    """Go through these buckets; those that are done already are left alone."""
    each(partial(_dedup, plan), list(numbers), "comparing", "buckets")


def _dedup(plan: Plan, number: int) -> None:
    recipe = plan.recipe(BUCKET, number)
    if finished(recipe, plan.root) is None:
        parts = [plan.found(PART, part) for part in range(len(plan.parts))]
        produce(recipe, plan.root, _write, parts, f"digests-{number:03d}.bin")


def _write(draft: Draft, parts: list[Artifact], name: str) -> None:
    """Write the rows of each part that repeat an earlier text, and how many they are."""
    entries = [part.entries(name)[0] for part in parts]
    found = repeated([part.verified(entry) for part, entry in zip(parts, entries, strict=True)])
    for part, entry in zip(parts, entries, strict=True):
        part.store.forget(f"{part.folder_name}/{entry.name}")
    for number, rows in enumerate(found):
        if len(rows):
            np.save(draft.folder / f"part-{number:05d}.npy", rows)
            draft.rows[f"part-{number:05d}.npy"] = len(rows)
