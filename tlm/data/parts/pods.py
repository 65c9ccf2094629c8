"""Load a corpus on several pods. Each takes every nth part; its item is a string with all that it has to know."""

import json
from collections.abc import Sequence
from typing import Final

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, finished, produce
from tlm.data.parts.dedup import dedup_buckets
from tlm.data.parts.plan import Plan, make_plan, part_size
from tlm.data.parts.publish import publish
from tlm.data.parts.shards import write_shards
from tlm.data.parts.stage import stage_parts
from tlm.data.reading.files import Piece, raw_files
from tlm.data.registry import corpus_addresses
from tlm.errors import InputError
from tlm.options import Layout

PLAN: Final = "corpus-plan"
MAX_REJECTED = 10  # as in load_corpus


def plan_corpus(
    paths: Sequence[str],
    *,
    layout: Layout = Layout(),
    pods: int,
    least: int = 1 << 20,
    root: str | None = None,
) -> list[str]:
    """Plan the parts of a corpus, and return an item for each pod.

    Args:
        paths: Files of the corpus, as `load_corpus` takes them.
        layout: How documents are read and cut.
        pods: How many pods load it.
        least: Smallest size of a part, in bytes of text; it is a 64th of all text, but at most a GiB.
        root: Store to write to; by default TLM_ROOT, else ./artifacts.

    Raises:
        InputError: a setting out of range, an unreadable file, a missing field.
    """
    if pods < 1:
        raise InputError(f"pods is {pods}; expected 1 or more")
    addresses = corpus_addresses(list(paths))
    with raw_files(addresses, together=False) as files:
        plan = make_plan(addresses, root, layout, files, part_size(files, least))

    def write(draft: Draft) -> None:
        draft.details = {"settings": plan.settings, "parts": [list(part) for part in plan.parts]}
        draft.details["buckets"] = plan.buckets
        draft.details["pieces"] = [[number, *found] for number, found in plan.pieces.items()]

    uri = produce(plan.recipe(PLAN, 0), root, write)
    return [json.dumps({"plan": uri, "paths": addresses, "pod": pod, "pods": pods}) for pod in range(pods)]


def stage_corpus(pod: str) -> str:
    """Read the pod's parts of the files. Returns the item."""
    plan, own = _opened(pod)
    if not _there(plan):
        stage_parts(plan, MAX_REJECTED, own)
    return pod


def dedup_corpus(pods: list[str]) -> list[str]:
    """Find the passages that repeat an earlier one, over all parts. Returns the items."""
    plan = _opened(pods[0])[0]
    if not _there(plan):
        dedup_buckets(plan, range(plan.buckets))
    return pods


def write_corpus(pod: str) -> str:
    """Write the shards that begin in the pod's parts. Returns the item."""
    plan, own = _opened(pod)
    if not _there(plan):
        write_shards(plan, own)
    return pod


def publish_corpus(pods: list[str]) -> str:
    """Publish the corpus, and return its URI."""
    plan, _ = _opened(pods[0])
    return publish(plan, MAX_REJECTED)


def _there(plan: Plan) -> bool:
    """Whether the corpus is finished, by an equal run perhaps, so that its parts may be gone."""
    return finished(plan.corpus, plan.root) is not None


def _opened(pod: str) -> tuple[Plan, range]:
    """The plan of an item, and the numbers of the pod's parts."""
    item = json.loads(pod)
    artifact = Artifact.open(item["plan"], PLAN)
    parts = tuple((start, stop) for start, stop in artifact.details["parts"])
    details = artifact.details
    pieces = {number: [Piece(*values) for values in found] for number, *found in details["pieces"]}
    plan = Plan(tuple(item["paths"]), artifact.store.root, details["settings"], parts, details["buckets"], pieces)
    return plan, range(item["pod"], len(parts), item["pods"])
