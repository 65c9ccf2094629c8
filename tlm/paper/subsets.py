"""The subsets that a table's cells train on, each retrieved and exported once."""

from tlm.paper.plan import RANDOM, subsets_for, top_k, wanted
from tlm.presets import resolve
from tlm.retrieval.export import export
from tlm.retrieval.retrieve import retrieve


def make_subsets(
    index: str,
    task: str,
    *,
    table: str,
    scale: str,
    name: str,
    corpus: str = "",
    near_duplicates: bool = True,
    overlap: bool = True,
    root: str | None = None,
) -> dict[str, str]:
    """URIs by what `plan.subsets_for` names: the K's, and ``random``, as large as the subset of its own cell's K.

    Args:
        index: URI of the index.
        task: URI of the task.
        table: Number of the table.
        scale: Name of the scale.
        name: The task's name in the tables.
        corpus: C_BERT or C_RoBERTa, whichever was indexed, where the table has both.
        near_duplicates: See `export`.
        overlap: See `export`.
        root: Where artifacts are kept.
    """
    filters = {"near_duplicates": near_duplicates, "overlap": overlap}
    found = wanted(table, scale, name, corpus)
    made: dict[str, str] = {}
    for subset in subsets_for(found):
        if subset == RANDOM:
            like = made[str(next(top_k(cell) for cell in found if cell.arm == RANDOM))]
            hits = retrieve(index, task, arm="random", like=like, root=root)
        else:
            cell = next(cell for cell in found if str(top_k(cell)) == subset)
            query = resolve(cell.preset, cell.overrides).retrieve.query
            hits = retrieve(index, task, query=query, top_k=int(subset), root=root)
        made[subset] = export(hits, **filters, root=root)
    return made
