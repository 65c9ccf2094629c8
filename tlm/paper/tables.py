"""Every cell of the paper's tables as settings to run: at the paper's own scales, and mapped to ours.

The numbers are data: ``expected.toml`` has what the paper prints, ``scales.toml`` how smaller scales stand for it;
``own.toml`` has tables in the same form that the paper does not have.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tlm import presets
from tlm.errors import InputError, nearest
from tlm.presets.advice import paper_top_k
from tlm.presets.published import paper_presets, table_b1, task_names

PAPER = ("small", "medium", "large")
PAPER_SEEDS = 3
CORPUS = "C_BERT"  # what the small and medium scales retrieve from
RETRIEVING = ("bm25", "random")
PLM = "plm"  # a published model fine-tuned, without a stage 1
NEUTRAL = ("train.accumulation", "train.precision", "finetune.accumulation", "finetune.precision")


@dataclass(frozen=True)
class Cell:
    """One cell: what is run for it, and what the paper prints there.

    Attributes:
        table: Number of the table.
        row: The row's name in the table (the paper's setting, also at smaller scales).
        column: Task, with ``/metric`` behind it where a task has two published scores.
        scale: small, medium, large, or one of ours.
        arm: bm25, random, task-only; plm and plm-mlm begin with the published model `start`.
        preset: Name of the settings, and `overrides` what differs in them.
        stages: 1 where stage 2 is left out.
        corpus: The paper's name of the corpus; "" at our scales, which have one.
        start: Name of the published model on the Hugging Face Hub; at our scales of the one that stands for it.
        split: Where the paper scores, dev or test.
        metric: Named where it is not the task's own.
        seeds: How many are planned.
        published: Mean and standard deviation in hundredths; None where the paper has no such cell.
        tolerance: What counts as within, where no deviation is printed.
        chosen: Whether this is what the paper chose for the task: the others are compared with it.
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
        """Name of the task."""
        return self.column.partition("/")[0]

    @property
    def key(self) -> str:
        """Name of the runs that fill this cell. Cells of several tables that are the same run have the same key."""
        marks = [override.partition(".")[2].replace("=", "-") for override in self.overrides]
        corpus = self.corpus.lower() if self.corpus not in ("", default_corpus(self.scale)) else ""
        stage = "stage-1" if self.stages == 1 else ""
        parts = [self.scale, self.task, self.arm, self.start.rpartition("/")[2], corpus, *marks, stage]
        return "-".join(part for part in parts if part)

    def settings(self) -> dict[str, Any]:
        """The settings that decide the result, by ``section.name``."""
        resolved = presets.resolve(self.preset, self.overrides)
        own = ("tokenizer", "model", "train") if not self.start else () if self.arm == PLM else ("train",)
        sections = ("retrieve", *own) if self.arm in RETRIEVING else own
        flat: dict[str, Any] = {
            f"{section}.{name}": value
            for section in (*sections, *(("finetune",) if self.stages == 2 else ()))
            for name, value in getattr(resolved, section).model_dump(mode="json").items()
        }
        start = {"start": self.start.rpartition("/")[2]} if self.start else {}
        return {name: value for name, value in flat.items() if name not in NEUTRAL} | start


@lru_cache(1)
def expected() -> dict[str, Any]:
    """The tables by number, as ``expected.toml`` has them."""
    return _data("expected.toml")


@lru_cache(1)
def all_tables() -> dict[str, Any]:
    """The paper's tables and our own, by number or name."""
    return expected() | own_tables()


@lru_cache(1)
def own_tables() -> dict[str, Any]:
    """Those of our own by name, as ``own.toml`` has them."""
    return _data("own.toml")


@lru_cache(1)
def ladders() -> dict[str, Any]:
    """Our scales by name, as ``scales.toml`` has them."""
    return _data("scales.toml")


def scales() -> tuple[str, ...]:
    """Those of the paper and ours."""
    return *PAPER, *ladders()


def check_names(table: str, scale: str) -> None:
    """Raises InputError: there is no such table or scale."""
    if table not in all_tables():
        raise InputError(f"the paper's table '{table}' is not among those with numbers: {', '.join(all_tables())}")
    if scale not in scales():
        raise InputError(f"scale '{scale}' is unknown{nearest(scale, scales())}")


def cells(table: str, scale: str, tasks: Sequence[str] = ()) -> list[Cell]:
    """The cells of a table at a scale, row by row.

    Args:
        table: Its number.
        scale: small, medium or large give the paper's own rows of that scale; tiny, pocket and mini stand for small
            (for medium in Table 8, which has no other): a second corpus and the other scales have no counterpart there,
            nor have published models but those that ``scales.toml`` names. Empty if nothing is left to compare.
        tasks: Only these; also others than the paper's, which then have no published value. None: the paper's.

    Raises:
        InputError: there is no such table or scale.
    """
    check_names(table, scale)
    facts = all_tables()[table]
    stands_for = facts["row"][0].get("scale", "small")
    rows = [row for row in facts["row"] if _is_at(row, scale, stands_for)]
    columns = [column for column in facts["row"][0]["values"] if not tasks or column.partition("/")[0] in tasks]
    columns += [task for task in tasks if task not in columns and scale not in PAPER]
    if len(rows) < 2:
        return []
    return [_cell(table, facts, row, column, scale) for row in rows for column in columns]


def all_cells() -> Iterator[Cell]:
    """Those at the paper's own scales."""
    for table in expected():
        for scale in PAPER:
            yield from cells(table, scale)


def default_corpus(scale: str) -> str:
    """What a scale of the paper retrieves from; "" for ours."""
    return str(table_b1()["scales"][scale]["corpus"]) if scale in PAPER else ""


def is_of(cell: Cell, corpus: str) -> bool:
    """Whether a cell is run with `corpus` (C_BERT or C_RoBERTa; "": the one of its scale); many need none."""
    free = cell.arm not in RETRIEVING or cell.scale not in PAPER
    return free or cell.corpus == (corpus or default_corpus(cell.scale))


def _data(name: str) -> dict[str, Any]:
    return tomllib.loads(files("tlm.paper").joinpath(name).read_text(encoding="utf-8"))


def _is_at(row: dict[str, Any], scale: str, stands_for: str) -> bool:
    if scale in PAPER:
        return bool(row.get("scale", "small") == scale)
    known = row.get("start", "") in ("", *ladders()[scale]["published"]["models"])
    return known and row.get("corpus", CORPUS) == CORPUS and row.get("scale", "small") == stands_for


def _cell(table: str, facts: dict[str, Any], row: dict[str, Any], column: str, scale: str) -> Cell:
    task = column.partition("/")[0]
    preset, changes = _mapped(facts, row, task, scale)
    values, start = row["values"].get(column), row.get("start", "")
    return Cell(
        table=table, row=row["name"], column=column, scale=scale, arm=row["arm"], preset=preset,
        overrides=_that_change(preset, changes), stages=row.get("stages", 2),
        corpus=row.get("corpus", default_corpus(scale)), start=_published(start, scale), split=facts["split"],
        metric=facts.get("metrics", {}).get(column, ""),
        seeds=PAPER_SEEDS if scale in PAPER else facts.get("seeds", PAPER_SEEDS),
        published=(values[0], values[1] if len(values) > 1 else None) if values else None,
        tolerance=facts["tolerance"], chosen=_is_chosen(row, _column(facts, task, scale)),
    )  # fmt: skip


def _published(start: str, scale: str) -> str:
    return start if scale in PAPER or not start else str(ladders()[scale]["published"]["models"][start])


def _column(facts: dict[str, Any], task: str, scale: str) -> str:
    """The preset of Table B.1 that holds for a task; for one that the paper does not have, SciERC's."""
    named = f"{scale if scale in PAPER else 'small'}-{facts.get('settings') or task}"
    return named if named in paper_presets() else named.partition("-")[0]


def _mapped(facts: dict[str, Any], row: dict[str, Any], task: str, scale: str) -> tuple[str, dict[str, Any]]:
    """Preset and settings to change, the same or not."""
    column, changes = _column(facts, task, scale), dict(row.get("set", {}))
    if row["arm"] in RETRIEVING and task in facts.get("train", ()):  # GLUE: one preset, and the rule for K
        changes["retrieve.top_k"] = paper_top_k(facts["train"][task])
    if scale in PAPER:
        return column, {**changes, **row.get("more", {})}
    ladder = ladders()[scale]
    if row["arm"] in RETRIEVING and task in table_b1()["tasks"]:
        changes.setdefault("retrieve.top_k", presets.resolve(column).retrieve.top_k)
    mapped = {name: ladder[name][str(value)] if name in ladder else value for name, value in changes.items()}
    return scale, {**mapped, **(_of_published(row["arm"], ladder["published"]["set"]) if "start" in row else {})}


def _of_published(arm: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Those of a scale's settings for published models that the arm has a stage for."""
    return {name: value for name, value in settings.items() if arm != PLM or not name.startswith("train.")}


def _that_change(preset: str, changes: dict[str, Any]) -> tuple[str, ...]:
    """As overrides, without those that are what the preset has."""
    before = presets.resolve(preset)
    overrides = [f"{name}={value}" for name, value in changes.items()]
    return tuple(one for one in overrides if not _same(presets.resolve(preset, [one]), before))


def _same(one: presets.Preset, other: presets.Preset) -> bool:
    return one.model_dump(exclude={"source"}) == other.model_dump(exclude={"source"})


def _is_chosen(row: dict[str, Any], column: str) -> bool:
    plain = row["arm"] == "bm25" and row.get("stages", 2) == 2
    corpus = row.get("corpus", default_corpus(column.partition("-")[0])) == default_corpus(column.partition("-")[0])
    return plain and corpus and not _that_change(column, row.get("set", {}))


def title(task: str) -> str:
    """The task's name for people."""
    facts = table_b1()["tasks"].get(task)
    return facts["title"] if facts else task


def our_name(task: str) -> str:
    """The name that the tables have for a task, given any of its names; others stay."""
    return task_names().get(task.lower(), task)
