"""A corpus loaded by several pods, in place of the component `load_corpus`."""

from kfp.dsl import Metrics, Output

from components.base import DATA_IMAGE, component


@component(DATA_IMAGE)
def plan_corpus(
    paths: str, text_field: str, id_field: str, source_field: str, words: int, pods: int, root: str
) -> list[str]:
    """Check and hash the files of a general corpus, and list the pods that read them."""
    from tlm.data.parts.pods import plan_corpus
    from tlm.options import Layout

    layout = Layout(text_field, id_field, source_field, words)
    return plan_corpus(paths.split(","), layout=layout, pods=pods, root=root)


@component(DATA_IMAGE)
def stage_corpus(pod: str) -> str:
    """Read a pod's parts of the files and split them into passages."""
    from tlm.data.parts.pods import stage_corpus

    return stage_corpus(pod)


@component(DATA_IMAGE)
def dedup_corpus(pods: list[str]) -> list[str]:
    """Find the passages that repeat an earlier one of any part."""
    from tlm.data.parts.pods import dedup_corpus

    return dedup_corpus(pods)


@component(DATA_IMAGE)
def write_corpus(pod: str) -> str:
    """Write the passages of a pod's parts that stay."""
    from tlm.data.parts.pods import write_corpus

    return write_corpus(pod)


@component(DATA_IMAGE)
def publish_corpus(pods: list[str], counts: Output[Metrics]) -> str:
    """Publish the corpus."""
    from tlm.data.parts.pods import publish_corpus
    from tlm.evaluation.pages.ui import log_counts

    return log_counts(publish_corpus(pods), counts)
