"""What is still to be run for a table: as flat strings, because that is what travels in a pipeline."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tlm import presets
from tlm.errors import InputError
from tlm.paper.results import BASELINE, Result
from tlm.paper.tables import PLM, RETRIEVING, Cell, cells, is_of
from tlm.plan import Run

ByKey = Mapping[str, Mapping[int, Result]]
RANDOM = "random"
STAGES = {1: "1", 2: "12"}


class Start(NamedTuple):
    """URIs of a published model's checkpoint and of its own tokenizer."""

    checkpoint: str
    tokenizer: str


def wanted(table: str, scale: str, task: str, corpus: str = "") -> list[Cell]:
    """The cells to run for a task and a corpus (see `is_of`), those that are the same run once.

    Raises:
        InputError: the table cannot be had at this scale.
    """
    found = once(cell for cell in cells(table, scale, [task]) if is_of(cell, corpus))
    if not found:
        raise InputError(f"{_why_not(table, scale, task)}; `tlm paper` lists what there is")
    return found


def once(found: Iterable[Cell]) -> list[Cell]:
    """The cells without those that are the same run as one before."""
    return list({cell.key: cell for cell in found}.values())


def missing(found: Sequence[Cell], results: ByKey, seeds: Sequence[int] = ()) -> list[tuple[Cell, list[int]]]:
    """The cells with seeds that no result has; without `seeds` as many as each cell plans."""
    todo = []
    for cell in found:
        left = [seed for seed in seeds or range(cell.seeds) if seed not in results.get(cell.key, {})]
        if left:
            todo.append((cell, left))
    return todo


def top_k(cell: Cell) -> int:
    """K of a cell."""
    return presets.resolve(cell.preset, cell.overrides).retrieve.top_k


def subsets_for(found: Sequence[Cell]) -> list[str]:
    """What has to be retrieved: each K as text, ascending, then ``random``, as large as the subset of its cell's K."""
    sizes = {top_k(cell) for cell in found if cell.arm in RETRIEVING}  # of the random arm's K it takes the size
    return [*map(str, sorted(sizes)), *([RANDOM] if any(cell.arm == RANDOM for cell in found) else [])]


def trials(
    todo: Sequence[tuple[Cell, Sequence[int]]],
    *,
    task: str,
    tokenizer: str,
    subsets: Mapping[str, str],
    models: Mapping[str, Start] | None = None,
) -> list[str]:
    """What `missing` found, as the strings of `tlm.plan.Run`, seed by seed.

    Args:
        todo: Cells, each with its seeds.
        task: URI of the task.
        tokenizer: URI of the tokenizer; the same for all but published models, so that losses compare.
        subsets: URIs by what `subsets_for` names.
        models: Published models by their names.
    """
    order = sorted((seed, place) for place, (_, seeds) in enumerate(todo) for seed in seeds)
    known = {"": Start("", tokenizer), **(models or {})}
    return [str(_run(todo[place][0], seed, task, subsets, known)) for seed, place in order]


def _run(cell: Cell, seed: int, task: str, subsets: Mapping[str, str], models: Mapping[str, Start]) -> Run:
    subset, start = "", models[cell.start]
    if cell.arm in RETRIEVING:
        subset = subsets[RANDOM if cell.arm == RANDOM else str(top_k(cell))]
    stages = "2" if cell.arm == PLM else STAGES[cell.stages]
    overrides = " ".join(cell.overrides)
    return Run(cell.arm, seed, task, start.tokenizer, subset, cell.preset, overrides, stages, start.checkpoint)


def command_for(table: str, scale: str, task: str, seeds: Sequence[int], corpus: str = "") -> str:
    """The command that runs a table's cells for a task; finished steps are found and not repeated."""
    values = {"paper_table": table, "paper_scale": scale, "run_seeds": ",".join(map(str, seeds))}
    if corpus:
        values["paper_corpus"] = corpus
    if scale != BASELINE and any(cell.start for cell in cells(table, scale, [task])):
        values["paper_models"] = "…"
    told = " ".join(f"--set {name}={value}" for name, value in values.items())
    return f"python -m pipelines.run local --pipeline ablation {told} --set task_path=…/{task} --set corpus_paths=…"


def _why_not(table: str, scale: str, task: str) -> str:
    if not cells(table, scale):
        return f"table {table} cannot be had at scale {scale}"
    return f"table {table} has no task '{task}' at scale {scale}"
