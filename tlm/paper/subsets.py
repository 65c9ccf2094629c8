"""The subsets that a table's cells train on, each retrieved and exported once, and the runs on them."""

from collections.abc import Mapping

from tlm.artifacts.artifact import Artifact
from tlm.paper.plan import RANDOM, Start, missing, subsets_for, top_k, trials, wanted
from tlm.paper.tables import our_name
from tlm.plan import parse_seeds
from tlm.presets import resolve
from tlm.retrieval.search.retrieve import retrieve
from tlm.retrieval.subset.export import export
from tlm.training.input.tokenize import tokenize


def make_subsets(
    index: str,
    task: str,
    *,
    table: str,
    scale: str,
    corpus: str = "",
    near_duplicates: bool = True,
    overlap: bool = True,
    root: str | None = None,
) -> dict[str, str]:
    """URIs by what `plan.subsets_for` names: the K's, and ``random``, as large as the subset of its own cell's K.

    Args:
        index: URI of the index.
        task: URI of the task; its name is that of a column, where the paper has it.
        table: Number of the table.
        scale: Name of the scale.
        corpus: C_BERT or C_RoBERTa, whichever was indexed, where the table has both.
        near_duplicates: See `export`.
        overlap: See `export`.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    filters = {"near_duplicates": near_duplicates, "overlap": overlap}
    found = wanted(table, scale, _name(task), corpus)
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


def plan_trials(
    task: str,
    tokenizer: str,
    subsets: Mapping[str, str],
    models: Mapping[str, str] | None = None,
    *,
    table: str,
    scale: str,
    corpus: str = "",
    seeds: str = "",
    root: str | None = None,
) -> list[str]:
    """All runs of a table for a task as strings of `tlm.plan.Run`; what they train on is tokenized.

    Args:
        task: URI of the task.
        tokenizer: URI of the tokenizer.
        subsets: As `make_subsets` gives them.
        models: As `tlm.paper.models.make_models` gives them.
        table: Number of the table.
        scale: Name of the scale.
        corpus: C_BERT or C_RoBERTa, where the table has both.
        seeds: Separated by commas; empty: as many as the table plans.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    for data in (task, *subsets.values()):
        tokenize(data, tokenizer, root=root)
    todo = missing(wanted(table, scale, _name(task), corpus), {}, parse_seeds(seeds) if seeds else ())
    starts = {name: _start(uri) for name, uri in (models or {}).items()}
    return trials(todo, task=task, tokenizer=tokenizer, subsets=subsets, models=starts)


def _start(checkpoint: str) -> Start:
    return Start(checkpoint, Artifact.open(checkpoint, "checkpoint").input("task_tokens").input("tokenizer").uri)


def _name(task: str) -> str:
    return our_name(Artifact.open(task, "task").details["name"])
