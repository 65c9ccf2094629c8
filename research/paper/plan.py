"""The runs that a table still needs, as flat strings that travel in a pipeline."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from research.paper.results import BASELINE, Result
from research.paper.tables import PAPER, PLM, RETRIEVING, Cell, all_tables, cells, is_of, our_name, task_of
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.subset.export import export
from tlm.runs.plan import PlannedRun, parse_seeds
from tlm.settings import presets
from tlm.settings.options import Filters
from tlm.settings.presets import resolve
from tlm.training.input.located import EXPECTED, published_name
from tlm.training.input.tokenize import tokenize_all
from tlm.training.stages import load_model

ByKey = Mapping[str, Mapping[int, Result]]
RANDOM = "random"


class Start(NamedTuple):
    """A published model to start from.

    Attributes:
        checkpoint: URI of its checkpoint.
        tokenizer: URI of its own tokenizer.
    """

    checkpoint: str
    tokenizer: str


def wanted(table: str, scale: str, task: str, corpus: str = "") -> list[Cell]:
    """The cells to run for a task and a corpus (see `is_of`), without repeated runs.

    Raises:
        InputError: The table has no cells for this task at this scale.
    """
    found = once(cell for cell in cells(table, scale, [task]) if is_of(cell, corpus))
    if not found:
        reason = f"has no task '{task}'" if cells(table, scale) else "cannot be had"
        raise InputError(f"table {table} {reason} at scale {scale}; `python -m research paper` lists what there is")
    return found


def once(found: Iterable[Cell]) -> list[Cell]:
    """The cells, without repeats: each needs a run of its own."""
    return list({cell.key: cell for cell in found}.values())


def missing(found: Sequence[Cell], results: ByKey, seeds: Sequence[int] = ()) -> list[tuple[Cell, list[int]]]:
    """The cells with the seeds that have no result, out of `seeds` or of the seeds that each cell plans."""
    todo = []
    for cell in found:
        finished = results.get(cell.key, {})
        left = [seed for seed in seeds or range(cell.seeds) if seed not in finished]
        if left:
            todo.append((cell, left))
    return todo


def tasks_at(table: str, scale: str, results: ByKey) -> list[str]:
    """The tasks of a table, and at our scales the other tasks that have results of it."""
    tasks = list(map(task_of, all_tables()[table]["row"][0]["values"]))
    if scale in PAPER:
        return tasks
    places = [run.values["cell"] for runs in results.values() for run in runs.values()]
    here = {task_of(place["column"]) for place in places if (place["table"], place["scale"]) == (table, scale)}
    return [*tasks, *sorted(here.difference(tasks))]


def top_k(cell: Cell) -> int:
    """The number of passages that a cell retrieves for each example."""
    return presets.resolve(cell.preset, cell.overrides).retrieve.top_k


def drawn(seed: int) -> str:
    """The name of the random subset that is drawn by a seed."""
    return f"{RANDOM}-{seed}" if seed else RANDOM


def subsets_for(found: Sequence[Cell], seeds: Sequence[int] = (0,)) -> list[str]:
    """The subsets to retrieve: each K as text, ascending, then what each seed draws, as large as that of its K."""
    sizes = {top_k(cell) for cell in found if cell.arm in RETRIEVING}  # the random subset is as large as that of its K
    draws_text = any(cell.arm == RANDOM for cell in found)
    return [*map(str, sorted(sizes)), *(map(drawn, seeds) if draws_text else ())]


def trials(
    todo: Sequence[tuple[Cell, Sequence[int]]],
    *,
    task: str,
    tokenizer: str,
    subsets: Mapping[str, str],
    models: Mapping[str, Start] | None = None,
) -> list[str]:
    """The runs that `missing` found as strings of `tlm.runs.plan.PlannedRun`, seed by seed.

    Args:
        todo: Cells, each with its seeds.
        task: URI of the task.
        tokenizer: URI of the tokenizer of all models but the published ones, so that losses can be compared.
        subsets: URIs by the names that `subsets_for` gives.
        models: Published models by their names.
    """
    starts = {"": Start("", tokenizer), **(models or {})}
    runs = []
    for seed, cell in sorted(((seed, cell) for cell, seeds in todo for seed in seeds), key=lambda pair: pair[0]):
        run = PlannedRun(
            cell.arm,
            seed,
            task,
            starts[cell.start].tokenizer,
            _subset_of(cell, seed, subsets),
            cell.preset,
            " ".join(cell.overrides),
            _stages_of(cell),
            starts[cell.start].checkpoint,
        )
        runs.append(str(run))
    return runs


def _subset_of(cell: Cell, seed: int, subsets: Mapping[str, str]) -> str:
    """URI of the subset that a run of a cell trains on; "" without text from the corpus."""
    if cell.arm == RANDOM:
        return subsets[drawn(seed)]
    return subsets[str(top_k(cell))] if cell.arm in RETRIEVING else ""


def _stages_of(cell: Cell) -> str:
    """The stages that a cell runs, as in a `PlannedRun`."""
    if cell.arm == PLM:
        return "2"
    return "12" if cell.stages == 2 else "1"


def command_for(table: str, scale: str, task: str, seeds: Sequence[int], corpus: str = "") -> str:
    """The command that runs a table's cells for a task; finished steps are not repeated."""
    values = {"paper_table": table, "paper_scale": scale, "run_seeds": ",".join(map(str, seeds))}
    if corpus:
        values["paper_corpus"] = corpus
    if scale != BASELINE and any(cell.start for cell in cells(table, scale, [task])):
        values["paper_models"] = "…"
    options = " ".join(f"--set {name}={value}" for name, value in values.items())
    return f"python -m pipelines.run local --pipeline ablation {options} --set task_path=…/{task} --set corpus_paths=…"


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
        seeds: Seeds to draw random text by, separated by commas; by default the table's own.
        filters: What `export` leaves out.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    cells = wanted(table, scale, _name(task), corpus)
    made: dict[str, str] = {}
    numbers = parse_seeds(seeds) if seeds else range(max(cell.seeds for cell in cells))
    draws = {drawn(seed): seed for seed in numbers}
    for subset in subsets_for(cells, [*draws.values()]):
        if subset in draws:
            like = made[str(next(top_k(cell) for cell in cells if cell.arm == RANDOM))]
            hits = retrieve(index, task, arm="random", same_size_as=like, seed=draws[subset], root=root)
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
    """Tokenize the task and the subsets of a table, and list all its runs as strings of `tlm.runs.plan.PlannedRun`.

    Args:
        task: URI of the task.
        tokenizer: URI of the tokenizer.
        subsets: URIs as `make_subsets` returns them.
        models: URIs as `make_models` returns them.
        table: Number of the table.
        scale: Name of the scale.
        corpus: C_BERT or C_RoBERTa, if the table has both.
        seeds: Seeds, separated by commas; by default the table's own.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    cells = wanted(table, scale, _name(task), corpus)
    preset, overrides = cells[0].preset, cells[0].overrides
    tokenize_all((task, *subsets.values()), tokenizer, preset=preset, overrides=overrides, root=root)
    todo = missing(cells, {}, parse_seeds(seeds) if seeds else ())
    starts = {}
    for name, uri in (models or {}).items():
        checkpoint = Artifact.open(uri, "checkpoint")
        starts[name] = Start(checkpoint.uri, checkpoint.input("task_tokens").input("tokenizer").uri)
    return trials(todo, task=task, tokenizer=tokenizer, subsets=subsets, models=starts)


def _name(task: str) -> str:
    return our_name(Artifact.open(task, "task").details["name"])
