"""What a table's runs start from: subsets, published models and tokenized texts, each made once."""

from collections.abc import Mapping
from pathlib import Path

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.options import Filters
from tlm.paper.plan import RANDOM, Start, drawn, missing, subsets_for, top_k, trials, wanted
from tlm.paper.tables import our_name
from tlm.plan.runs import parse_seeds
from tlm.presets import resolve
from tlm.retrieval.search.retrieve import retrieve
from tlm.retrieval.subset.export import export
from tlm.training.input.tokenize import tokenize_all
from tlm.training.load_model import load_model, published_name
from tlm.training.model.located import EXPECTED


def make_subsets(
    index: str,
    task: str,
    *,
    table: str,
    scale: str,
    corpus: str = "",
    seeds: str = "",
    filters: Filters = Filters(),
    root: str | None = None,
) -> dict[str, str]:
    """Retrieve and export the subsets of a table; their URIs by K, and by `drawn` for each draw of random text.

    Args:
        index: URI of the index.
        task: URI of the task; its name is that of a column, if the paper has it.
        table: Number of the table.
        scale: Name of the scale.
        corpus: The corpus that was indexed, C_BERT or C_RoBERTa, if the table has both.
        seeds: Seeds to draw random text by, separated by commas; by default those that the table plans.
        filters: What `export` leaves out.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    cells = wanted(table, scale, _name(task), corpus)
    made: dict[str, str] = {}
    draws = {drawn(seed): seed for seed in (parse_seeds(seeds) if seeds else range(max(cell.seeds for cell in cells)))}
    for subset in subsets_for(cells, [*draws.values()]):
        if subset in draws:
            like = made[str(next(top_k(cell) for cell in cells if cell.arm == RANDOM))]
            hits = retrieve(index, task, arm="random", like=like, seed=draws[subset], root=root)
        else:
            cell = next(cell for cell in cells if str(top_k(cell)) == subset)
            query = resolve(cell.preset, cell.overrides).retrieve.query
            hits = retrieve(index, task, query=query, top_k=int(subset), root=root)
        made[subset] = export(hits, filters=filters, root=root)
    return made


def make_models(
    task: str, *, table: str, scale: str, corpus: str = "", folder: str = "", root: str | None = None
) -> dict[str, str]:
    """Load the published models that a table compares with; URIs of their checkpoints by name on the Hub.

    Args:
        task: URI of the task.
        table: Number of the table.
        scale: Name of the scale.
        corpus: C_BERT or C_RoBERTa, if the table has both.
        folder: Folder on this machine or on S3 with a folder for each model, named like the last part of the model's
            name; by default the Hugging Face Hub.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Raises:
        InputError: A model is missing, or the Hub cannot be reached.
    """
    presets = {cell.start: cell.preset for cell in wanted(table, scale, _name(task), corpus) if cell.start}
    places = {model: f"{folder.rstrip('/')}/{published_name(model)}" if folder else model for model in presets}
    for model, place in places.items():
        if folder and not (place.startswith("s3://") or Path(place).is_dir()):
            raise InputError(
                f"{place}: there is no such folder, and the table compares with {model}; {EXPECTED}; "
                f"'hf download {model} --local-dir {place}' downloads it"
            )
    return {model: load_model(places[model], task, preset=preset, root=root) for model, preset in presets.items()}


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
    """Tokenize the task and the subsets of a table, and list all its runs as strings of `tlm.plan.runs.Run`.

    Args:
        task: URI of the task.
        tokenizer: URI of the tokenizer.
        subsets: URIs as `make_subsets` returns them.
        models: URIs as `make_models` returns them.
        table: Number of the table.
        scale: Name of the scale.
        corpus: C_BERT or C_RoBERTa, if the table has both.
        seeds: Seeds, separated by commas; by default those that the table plans.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    cells = wanted(table, scale, _name(task), corpus)
    preset, overrides = cells[0].preset, cells[0].overrides
    tokenize_all((task, *subsets.values()), tokenizer, preset=preset, overrides=overrides, root=root)
    todo = missing(cells, {}, parse_seeds(seeds) if seeds else ())
    found = {name: Artifact.open(uri, "checkpoint") for name, uri in (models or {}).items()}
    starts = {name: Start(one.uri, one.input("task_tokens").input("tokenizer").uri) for name, one in found.items()}
    return trials(todo, task=task, tokenizer=tokenizer, subsets=subsets, models=starts)


def _name(task: str) -> str:
    return our_name(Artifact.open(task, "task").details["name"])
