"""Components for the paper's tables: the subsets, published models and runs of their cells."""

from components.base import DATA_IMAGE, TRAIN_IMAGE, component


@component(DATA_IMAGE)
def subsets(
    index: str,
    task: str,
    table: str,
    scale: str,
    corpus: str,
    seeds: str,
    near_duplicates: bool,
    overlap: bool,
    root: str,
) -> dict[str, str]:
    """Retrieve and export the subsets that the cells of one of the paper's tables train on; random text by seed."""
    from research.paper.plan import make_subsets
    from tlm.settings.options import Filters

    filters = Filters(near_duplicates, overlap)
    cells = {"table": table, "scale": scale, "corpus": corpus, "seeds": seeds}
    return make_subsets(index, task, **cells, filters=filters, root=root)


@component(TRAIN_IMAGE)
def models(task: str, table: str, scale: str, corpus: str, folder: str, root: str) -> dict[str, str]:
    """Import the published models that one of the paper's tables compares with; most tables have none."""
    from research.paper.plan import make_models

    return make_models(task, table=table, scale=scale, corpus=corpus, folder=folder, root=root)


@component(DATA_IMAGE)
def trials(
    task: str,
    tokenizer: str,
    subsets: dict[str, str],
    models: dict[str, str],
    table: str,
    scale: str,
    corpus: str,
    seeds: str,
    gpus: str,
    root: str,
) -> list[dict[str, str]]:
    """List the runs of one of the paper's tables (settings × arms × seeds), and tokenize their texts once."""
    from research.paper.plan import plan_trials
    from tlm.runs.plan import on_pods

    sources = {"task": task, "tokenizer": tokenizer, "subsets": subsets, "models": models}
    return on_pods(plan_trials(**sources, table=table, scale=scale, corpus=corpus, seeds=seeds, root=root), gpus)
