"""Select the text of an arm, and score what a shallow model makes of it."""

from tlm.evaluation.score.baseline import static
from tlm.options import Filters
from tlm.retrieval.subset.arms import Arm


def select(arm: str, filters: Filters = Filters(), root: str | None = None) -> tuple[str, str]:
    """Select the text of an arm, as much as BM25 found; train and score a static model of it.

    Args:
        arm: An `Arm`, as a string.
        filters: Those of BM25's subset.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URIs of the subset ("" for task-only), and of the metrics.
    """
    chosen = Arm.parse(arm)
    subset = chosen.subset(filters, root)
    return subset, static(chosen.task, subset=subset, seed=chosen.seed, root=root)
