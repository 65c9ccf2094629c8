"""The subsets of the arms: BM25's, and as much random text if an arm trains on it."""

from tlm.artifacts.artifact import Artifact
from tlm.retrieval.search.retrieve import retrieve
from tlm.retrieval.subset.export import export


def export_arms(
    hits: str, arms: str, *, near_duplicates: bool = True, overlap: bool = True, root: str | None = None
) -> tuple[str, str]:
    """Export BM25's hits, and draw as many random passages through the same filters for the arm "random".

    Args:
        hits: URI of BM25's hits.
        arms: The arms to train, separated by commas.
        near_duplicates: As `export` has it.
        overlap: As `export` has it.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URIs of both subsets; the second is "" if no arm needs it.
    """
    subset = export(hits, near_duplicates=near_duplicates, overlap=overlap, root=root)
    if "random" not in [arm.strip() for arm in arms.split(",")]:
        return subset, ""
    index, task = (Artifact.open(hits, "hits").input(name).uri for name in ("index", "task"))
    drawn = retrieve(index, task, arm="random", like=subset, root=root)
    return subset, export(drawn, near_duplicates=near_duplicates, overlap=overlap, root=root)
