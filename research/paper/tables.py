"""Every cell of the paper's tables as settings to run, at the paper's scales and mapped to ours.

The numbers are data: ``expected.toml`` has what the paper prints, ``scales.toml`` maps its settings to smaller scales,
and ``own.toml`` has tables in the same form that are not in the paper.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from tlm.errors import InputError, nearest
from tlm.runs.advise import paper_top_k
from tlm.settings import presets
from tlm.settings.presets import paper_presets, table_b1

PAPER = ("small", "medium", "large")
PAPER_SEEDS = 3
CORPUS = "C_BERT"  # the corpus of the small and medium scales
RETRIEVING = ("bm25", "random")
PLM = "published"  # a published model, fine-tuned without stage 1
NEUTRAL = ("train.accumulation", "train.precision", "finetune.accumulation", "finetune.precision")


@dataclass(frozen=True)
class Cell:
    """One cell: what to run for it, and what the paper prints there.

    Attributes:
        table: Number of the table.
        row: Name of the row (the paper's setting, also at smaller scales).
        column: The task, followed by ``/metric`` if the task has two published scores.
        scale: small, medium, large, or one of our scales.
        arm: bm25, random or task-only; published and published-task-only start from the published model `start`.
        preset: Name of the preset.
        overrides: Settings that differ from the preset.
        stages: 2, or 1 without stage 2.
        corpus: The paper's name of the corpus; "" at our scales, which have one corpus.
        start: Name on the Hugging Face Hub of the published model, or at our scales of the model that replaces it.
        split: The split that the paper scores, dev or test.
        metric: Name of the metric; "" for the task's own.
        seeds: Number of planned seeds.
        published: Mean and standard deviation in hundredths; None if the paper has no such cell.
        tolerance: Tolerance in hundredths if no deviation is printed.
        chosen: Whether this is the paper's choice for the task, which other rows are compared with.
    """

    table: str
    row: str
    column: str
    scale: str
    arm: str
    preset: str
    overrides: tuple[str, ...]
    stages: int
    corpus: str
    start: str
    split: str
    metric: str
    seeds: int
    published: tuple[float, float | None] | None
    tolerance: float
    chosen: bool

    @property
    def task(self) -> str:
        """Name of the task, without a metric."""
        return task_of(self.column)

    @property
    def key(self) -> str:
        """Name of the runs that fill this cell; cells of several tables that need the same run share their key."""
        marks = [override.partition(".")[2].replace("=", "-") for override in self.overrides]
        corpus = self.corpus.lower() if self.corpus not in ("", default_corpus(self.scale)) else ""
        stage = "stage-1" if self.stages == 1 else ""
        parts = [self.scale, self.task, self.arm, self.start.rpartition("/")[2], corpus, *marks, stage]
        return "-".join(part for part in parts if part)

    def settings(self) -> dict[str, Any]:
        """The settings that determine the result, by ``section.name``."""
        resolved = presets.resolve(self.preset, self.overrides).model_dump(mode="json")
        sections = ["retrieve"] if self.arm in RETRIEVING else []
        if self.arm != PLM:
            sections += ["train"] if self.start else ["tokenizer", "model", "train"]
        if self.stages == 2:
            sections.append("finetune")
        flat = {f"{section}.{name}": value for section in sections for name, value in resolved[section].items()}
        start = {"start": self.start.rpartition("/")[2]} if self.start else {}
        return {name: value for name, value in flat.items() if name not in NEUTRAL} | start


@cache
def data(name: str) -> dict[str, Any]:
    """One of the files of this folder in TOML."""
    return tomllib.loads(files("research.paper").joinpath(name).read_text(encoding="utf-8"))


def expected() -> dict[str, Any]:
    """The paper's tables by number, as in ``expected.toml``."""
    return data("expected.toml")


def own_tables() -> dict[str, Any]:
    """Our own tables by name, as in ``own.toml``."""
    return data("own.toml")


def all_tables() -> dict[str, Any]:
    """The paper's tables and our own, by number or name."""
    return expected() | own_tables()


def ladders() -> dict[str, Any]:
    """Our scales by name, as in ``scales.toml``."""
    return data("scales.toml")


def scales() -> tuple[str, ...]:
    """Names of the paper's scales and ours."""
    return *PAPER, *ladders()


def check_names(table: str, scale: str) -> None:
    """Raise InputError if there is no such table or scale."""
    if table not in all_tables():
        raise InputError(f"the paper's table '{table}' is not among those with numbers: {', '.join(all_tables())}")
    if scale not in scales():
        raise InputError(f"scale '{scale}' is unknown{nearest(scale, scales())}")


def cells(table: str, scale: str, tasks: Sequence[str] = ()) -> list[Cell]:
    """The cells of a table at a scale, row by row; [] if fewer than two rows are left to compare.

    Args:
        table: Number or name of the table.
        scale: small, medium and large give the paper's rows of that scale. Our scales stand for small (for medium in
            Table 8, which has no other); they have no second corpus, and only the published models that
            ``scales.toml`` names.
        tasks: Only these tasks, by default the paper's; at our scales also others, which have no published value.

    Raises:
        InputError: There is no such table or scale.
    """
    check_names(table, scale)
    facts = all_tables()[table]
    stands_for = scale if scale in PAPER else facts["row"][0].get("scale", "small")
    rows = [row for row in facts["row"] if row.get("scale", "small") == stands_for and _is_available(row, scale)]
    columns = [column for column in facts["row"][0]["values"] if not tasks or task_of(column) in tasks]
    columns += [task for task in tasks if task not in columns and scale not in PAPER]
    return [_cell(table, facts, row, column, scale) for row in rows for column in columns] if len(rows) > 1 else []


def default_corpus(scale: str) -> str:
    """The corpus of one of the paper's scales; "" for ours."""
    return str(table_b1()["scales"][scale]["corpus"]) if scale in PAPER else ""


def is_of(cell: Cell, corpus: str) -> bool:
    """Whether a cell is run with `corpus` (C_BERT or C_RoBERTa; "": the scale's own) or needs no particular one."""
    free = cell.arm not in RETRIEVING or cell.scale not in PAPER
    return free or cell.corpus == (corpus or default_corpus(cell.scale))


def title(task: str) -> str:
    """The task's name as the paper writes it."""
    return str(table_b1()["tasks"].get(task, {}).get("title", task))


def task_of(column: str) -> str:
    """The task of a column, without a metric."""
    return column.partition("/")[0]


def our_name(task: str) -> str:
    """Our name of one of the paper's tasks, given any of its names; other names stay."""
    also = (name for name, facts in table_b1()["tasks"].items() if task.lower() in (name, *facts["also"]))
    return next(also, task)


def _is_available(row: dict[str, Any], scale: str) -> bool:
    """Whether a row can be run at this scale: our scales lack the second corpus and most published models."""
    if scale in PAPER:
        return True
    models = ladders()[scale]["published"]["models"]
    return row.get("start", "") in ("", *models) and row.get("corpus", CORPUS) == CORPUS


def _cell(table: str, facts: dict[str, Any], row: dict[str, Any], column: str, scale: str) -> Cell:
    task, start = task_of(column), row.get("start", "")
    paper = _paper_preset(facts, task, scale)
    changes = dict(row.get("set", {}))
    if row["arm"] in RETRIEVING and task in facts.get("train", ()):  # GLUE: one preset, and the rule for K
        changes["retrieve.top_k"] = paper_top_k(facts["train"][task])
    if scale in PAPER:
        preset, changes = paper, {**changes, **row.get("more", {})}
    else:
        ladder = ladders()[scale]
        preset, changes = ladder.get("preset", scale), _mapped(row, task, changes, paper, ladder)
        if start:
            start = ladder["published"]["models"][start]
    printed = row["values"].get(column)
    return Cell(
        table=table, row=row["name"], column=column, scale=scale, arm=row["arm"], preset=preset,
        overrides=_overrides(preset, changes), stages=row.get("stages", 2),
        corpus=row.get("corpus", default_corpus(scale)), start=start, split=facts["split"],
        metric=facts.get("metrics", {}).get(column, ""),
        seeds=PAPER_SEEDS if scale in PAPER else facts.get("seeds", PAPER_SEEDS),
        published=(printed[0], printed[1] if len(printed) > 1 else None) if printed else None,
        tolerance=facts["tolerance"], chosen=_is_chosen(row, paper),
    )  # fmt: skip


def _paper_preset(facts: dict[str, Any], task: str, scale: str) -> str:
    """The preset with a task's column of Table B.1; the scale's plain preset for tasks that the paper does not have."""
    scale = scale if scale in PAPER else "small"
    name = f"{scale}-{facts.get('settings') or task}"
    return name if name in paper_presets() else scale


def _mapped(
    row: dict[str, Any], task: str, changes: dict[str, Any], paper: str, ladder: dict[str, Any]
) -> dict[str, Any]:
    """The changes of one of the paper's rows at one of our scales."""
    if row["arm"] in RETRIEVING and task in table_b1()["tasks"]:
        changes.setdefault("retrieve.top_k", presets.resolve(paper).retrieve.top_k)  # last, as in the keys of old runs
    mapped = {name: ladder[name][str(value)] if name in ladder else value for name, value in changes.items()}
    published = ladder["published"]["set"] if "start" in row else {}
    kept = {name: value for name, value in published.items() if row["arm"] != PLM or not name.startswith("train.")}
    return mapped | kept


def _overrides(preset: str, changes: dict[str, Any]) -> tuple[str, ...]:
    """The changes as overrides; a change that the preset has already is left out."""
    before = presets.resolve(preset).model_dump(exclude={"source"})
    overrides = [f"{name}={value}" for name, value in changes.items()]
    return tuple(one for one in overrides if presets.resolve(preset, [one]).model_dump(exclude={"source"}) != before)


def _is_chosen(row: dict[str, Any], paper: str) -> bool:
    """Whether a row is the method with both stages and with the corpus and settings of Table B.1."""
    corpus = default_corpus(paper.partition("-")[0])
    plain = row["arm"] == "bm25" and row.get("stages", 2) == 2 and row.get("corpus", corpus) == corpus
    return plain and not _overrides(paper, row.get("set", {}))


SCALE = "curve"  # stands where tables have their scale


def curves() -> dict[str, Any]:
    """The curves by name, as in ``curves.toml``."""
    return data("curves.toml")


def key_of(curve: str, task: str, arm: str, at: float) -> str:
    """The key of a point: runs that differ in their draw only have the same one."""
    return f"{curve}-{task}-{arm.replace(' ', '')}-at-{at:g}"


def place_of(curve: str, task: str, arm: str, at: float) -> dict[str, Any]:
    """Key and cell of a point, for its result.

    Raises:
        InputError: the value is not above 0.
    """
    if at <= 0:
        raise InputError(f"at is {at:g}; give the value on the axis of {curve}: {curves()[curve]['axis']}")
    cell = {"table": curve, "scale": SCALE, "column": task, "row": arm, "at": at}
    return {"key": key_of(curve, task, arm, at), "cell": cell}
