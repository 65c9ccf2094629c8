"""Amounts for people, each with its unit, and the columns of the bill. What is small never looks like nothing."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tlm.evaluation.pages.text import power

Form: TypeAlias = Callable[[float], str]
Columns: TypeAlias = dict[str, tuple[str, Form]]  # by the name of the amount: heading, and format


def amount(value: float) -> str:
    """A count, a large one as a power of ten."""
    return f"{value:,.0f}" if value < 1e6 else power(value)


def time(value: float) -> str:
    """Seconds in a unit that suits them."""
    if value < 9.95:
        return f"{value:.1f} s" if value >= 0.05 else "< 0.1 s"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if value < limit:
            return f"{value / size:.0f} {unit}"
    return f"{value / 86400:.1f} d"


def joules(value: float) -> str:
    """Joules in watt-hours."""
    return kilowatt_hours(value / 3.6e6)


def kilowatt_hours(value: float) -> str:
    """Energy in watt-hours, from 1000 on in kilowatt-hours."""
    if value >= 1:
        return f"{value:,.1f} kWh"
    return f"{1000 * value:.1f} Wh" if value >= 1e-3 else f"{_small(1000 * value)} Wh"


def grams(value: float) -> str:
    """Grams of CO2 equivalents, from 1000 on in kilograms."""
    if value >= 1000:
        return f"{value / 1000:,.1f} kg"
    return f"{value:.0f} g" if value >= 9.95 else f"{value:.1f} g" if value >= 1 else f"{_small(value)} g"


def money(value: float) -> str:
    """Money without a currency."""
    return f"{value:,.2f}" if value >= 1 else _small(value)


def milliseconds(value: float) -> str:
    """Milliseconds without their unit."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"


def megabytes(value: float) -> str:
    """Bytes in MB, without their unit."""
    return f"{value / 1e6:,.0f}" if value >= 9.95e6 else f"{value / 1e6:.1f}" if value >= 5e4 else "< 0.1"


def rate(value: float) -> str:
    """Texts a second."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.2g}"


def _small(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-4 or not value else "< 0.0001"


PARTS = {
    "corpus": "Corpus",
    "index": "Index",
    "retrieval": "Retrieval",
    "export": "Export",
    "tokens": "Tokenizer and tokens",
    "selection": "Text of",
    "training": "Training of",
}
SHARED = {
    "all tasks": "Once, for all tasks on this corpus",
    "this task": "Once for this task, whatever the arms and seeds",
    "arm": "For each arm; mean over seeds and draws",
}
AMOUNTS: Columns = {
    "steps": ("steps", amount),
    "tokens": ("tokens", amount),
    "flops": ("FLOPs", amount),
    "paper_flops": ("by the paper’s rule", amount),
    "seconds": ("time", time),
    "cpu_seconds": ("CPU time", time),
    "gpu_seconds": ("GPU time", time),
    "joules": ("energy", joules),
    "kilowatt_hours": ("energy", kilowatt_hours),
    "grams": ("CO₂e", grams),
    "money": ("money", money),
}
COSTS = {name: AMOUNTS[name] for name in AMOUNTS if name not in ("cpu_seconds", "kilowatt_hours")}
BILL = {name: AMOUNTS[name] for name in AMOUNTS if name not in ("steps", "tokens", "paper_flops", "joules")}
SPEED: Columns = {
    "texts_per_cpu_second": ("texts a CPU second", rate),
    "texts_per_gpu_second": ("texts a GPU second", rate),
    "median_ms": ("one text, ms", milliseconds),
    "p99_ms": ("99th percentile", milliseconds),
    "bytes": ("size, MB", megabytes),
    "peak_memory": ("memory, MB", megabytes),
}
SPENT = (
    "FLOPs are those of encoders, without padding. Time is wall-clock time; CPU time is time × threads in training, "
    "and what all threads used elsewhere. The work of a search server is not measured. Of a corpus that was loaded in "
    "parts, only CPU time is known. If a model chose a text, its training is included."
)
MILLION = (
    "If they are as those of dev and test. A mixture predicts with all its parts, one after the other; a cascade asks "
    "its second part only where the first is unsure."
)
ALONE = (
    "Texts a second: dev and test, each in one call. One text: the median of up to a hundred texts of dev, each in a "
    "call of its own, wall-clock. Memory: the most of the process that scored the model, its libraries and the task "
    "included; a model without a network was trained in it, too."
)
OPTIONAL = ("gpu_seconds", "grams", "money", "texts_per_gpu_second")  # shown only where something is known


def columns(bill: dict[str, Any]) -> tuple[Columns, Columns]:
    """The columns of the bill, and those of the table of speed."""
    models = bill["predictions"]
    return _known(BILL, [*bill["spent"], *(row["million"] for row in models)]), _known(SPEED, models)


def _known(every: Columns, rows: Sequence[dict[str, Any]]) -> Columns:
    empty = {name for name in OPTIONAL if all(row.get(name) is None for row in rows)}
    return {name: every[name] for name in every if name not in empty}


def given(prices: dict[str, float]) -> str:
    """Explain dashes, and name the prices and the grid intensity."""
    sentences = ["–: not measured, or no price is given."]
    if named := paid(prices):
        sentences.append(f"Prices: {named}.")
    if prices["grams_per_kwh"]:
        sentences.append(f"CO₂e: {prices['grams_per_kwh']:g} g a kilowatt-hour.")
    return " ".join(sentences)


def paid(prices: dict[str, float]) -> str:
    """The given prices in words; "" if there is none."""
    units = {"gpu_hour": "an hour of a GPU", "cpu_hour": "an hour of a CPU core", "kilowatt_hour": "a kilowatt-hour"}
    return ", ".join(f"{prices[name]:g} for {unit}" for name, unit in units.items() if prices[name])
