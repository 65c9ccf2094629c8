"""The bill: what was spent on all tasks, on this one and on each model, and what a million predictions cost.

Its amounts are written here, too, each with its unit. What is small never looks like nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tlm.artifacts.artifact import Artifact, follow
from tlm.artifacts.spending import JOULES
from tlm.evaluation.pages.text import power, visible
from tlm.evaluation.report.lineage import everything
from tlm.evaluation.report.runs import KILOWATT_HOUR, Group, Spent, Summary, spreads, total
from tlm.evaluation.score.evaluate import SPEED
from tlm.evaluation.score.imported import IMPORTED
from tlm.evaluation.score.intervals import spread
from tlm.evaluation.score.mix import mixed
from tlm.settings.options import Prices
from tlm.settings.selectors import WITHOUT_QUERIES

NOTHING_KNOWN = Spent()


def spent_on(artifact: Artifact | None) -> Spent:
    """The cost of the step that made an artifact.

    Of what a search server did, nothing is known but how long we waited. Of a corpus that was loaded in parts, by
    several processes or pods at different times, CPU time alone is known: what each has noted.
    """
    if artifact is None:
        return NOTHING_KNOWN
    run = artifact.run()
    if "parts" in run:
        noted = run.get("parts_process_seconds")
        return NOTHING_KNOWN if noted is None else Spent(cpu_seconds=noted + run.get("process_seconds", 0.0))
    elsewhere = _searches(artifact)
    facts = {name: value for name, value in run.items() if not (elsewhere and name.startswith(JOULES))}
    if not elsewhere and run.get("device", "cpu") == "cpu" and "gpu_seconds" not in run:
        facts.setdefault("cpu_seconds", run.get("process_seconds"))
    return Spent.of_stage(artifact.details.get("cost") or {"flops": artifact.counts.get("flops")}, facts)


def _searches(artifact: Artifact) -> bool:
    """Whether the step had a server work: it filled an index there, or searched it."""
    index = artifact if artifact.manifest.kind == "index" else follow(artifact, "index")
    on_server = index is not None and index.details.get("engine") == "elasticsearch"
    return on_server and (index is artifact or artifact.details.get("arm") not in WITHOUT_QUERIES)


ALL_TASKS, THIS_TASK, ARM = "all tasks", "this task", "arm"  # who shares a row
RETRIEVED = "bm25"  # the text that all arms of a task are measured by
Row: TypeAlias = tuple[dict[str, Any], Spent]
Rows: TypeAlias = Iterator[Row]


def spent(
    groups: Iterable[Group], summaries: Iterable[Summary], artifacts: Iterable[Artifact], prices: Prices
) -> list[dict[str, Any]]:
    """The rows of the bill: who shares it, part, arm, its size or stage and device, and amounts; none of what is gone.

    Args:
        groups: The groups of a report.
        summaries: Their summaries, which know the cost of training.
        artifacts: Their metrics, and all that these were made from.
        prices: Prices of time and energy, and grid intensity.
    """
    subsets = {run.subset.manifest.key: run.subset for group in groups for run in group.runs if run.subset is not None}
    rows = [*_texts([*subsets.values()])]
    if tokens := [spent_on(one) for one in artifacts if one.manifest.kind in ("tokenizer", "tokens")]:
        rows.append(_row(THIS_TASK, "tokens", total(tokens)))
    bought = [row | cost.amounts(prices) for row, cost in rows]
    return [*bought, *(row for one in summaries for row in _trained(one))]


def _row(shared: str, part: str, cost: Spent, passages: int | None = None, arm: str = "") -> Row:
    return {"shared": shared, "part": part, "arm": arm, "about": f"{passages:,} passages" if passages else ""}, cost


def _texts(subsets: Sequence[Artifact]) -> Rows:
    """Corpus and index, retrieval and export of BM25's text, and what the other arms' text cost, mean over its draws.

    If a model chose a text, its training is included.
    """
    behind = everything(subsets)
    for made in (one for one in behind if one.manifest.kind in ("corpus", "index")):
        yield _row(ALL_TASKS, made.manifest.kind, spent_on(made), made.details.get("passages"))
    for arm in dict.fromkeys(subset.details["arm"] for subset in subsets):
        draws = [subset for subset in subsets if subset.details["arm"] == arm]
        # of a merged subset, also those of its tasks
        exports = [made for made in behind if made.manifest.kind == "subset" and made.details["arm"] == arm]
        yield from _text(arm, draws, exports)


def _text(arm: str, draws: Sequence[Artifact], exports: Sequence[Artifact]) -> Rows:
    """Retrieval and export of BM25's text; what another arm's text cost, in one row, mean over its draws."""
    passages = draws[0].details["passages"]
    hits = [follow(subset, "hits") for subset in exports if "hits" in subset.manifest.inputs]
    if arm != RETRIEVED:
        choosers = [follow(one, "checkpoint") for one in hits if one and "checkpoint" in one.manifest.inputs]
        cost = total(map(spent_on, [*choosers, *hits, *exports]))
        yield _row(ARM, "selection", cost.times(1 / len(draws)), passages, visible(arm, 40))
        return
    if hits:  # subsets that differ in their filters only share them
        distinct = {one and one.manifest.key: one for one in hits}
        yield _row(THIS_TASK, "retrieval", total(map(spent_on, distinct.values())))
    yield _row(THIS_TASK, "export", total(map(spent_on, exports)), passages)


def _trained(group: Summary) -> Iterator[dict[str, Any]]:
    """Training, mean over seeds: all of it, then stage by stage. A mixture costs what its parts cost."""
    if mixed(group["kind"]) or group["kind"] == IMPORTED:
        return
    stages = group["stages"]
    parts = [("training", group["cost"], [*dict.fromkeys(map(device, stages.values()))])]
    if len(stages) > 1:
        parts += [(stage, costs, [device(costs)]) for stage, costs in stages.items()]
    for part, costs, about in parts:
        if part == "stage 1" and group["together"]:
            about.append(f"one training for {', '.join(group['together'])}")
        row = {"shared": ARM, "part": part, "arm": group["name"], "about": "; ".join(filter(None, about))}
        yield row | {name: costs[name]["mean"] for name in group["cost"]}


def device(stage: Mapping[str, Any]) -> str:
    """The device of a stage: a CPU with its threads, or a number of GPUs."""
    count = stage["threads" if stage["device"] == "cpu" else "processes"]
    name = f"{stage['device']} × {count}" if stage["device"] and count else stage["device"]
    return ", ".join(filter(None, (name, stage["precision"])))


def predictions(groups: Iterable[Group], prices: Prices) -> list[dict[str, Any]]:
    """A row for each model, mean over seeds: name, times of one text, size, memory, and the amounts of a million."""
    return [_predicted(group, prices) for group in groups if group.row.kind != IMPORTED]


def _predicted(group: Group, prices: Prices) -> dict[str, Any]:
    speeds = [run.artifact.run().get(SPEED, {}) for run in group.runs]
    facts = [{**speed.get("alone", {}), **speed} for speed in speeds]
    means = {name: spread(one.get(name) for one in facts)["mean"] for name in SPEEDS}
    amounts = spreads([*map(million, speeds)], prices)
    return {"name": group.name, **means, "million": {name: one["mean"] for name, one in amounts.items()}}


def million(speed: Mapping[str, Any]) -> Spent:
    """The cost of a million predictions like the measured ones, from the `speed` of `tlm.evaluation.score.evaluate`."""
    if not speed.get("texts"):
        return NOTHING_KNOWN
    return Spent.of_stage(dict(speed), dict(speed)).times(1_000_000 / speed["texts"])


Form: TypeAlias = Callable[[float], str]
Columns: TypeAlias = dict[str, tuple[str, Form]]  # by the name of the amount: heading, and format


def number(value: float) -> str:
    """A number to two digits or more; what is small never looks like nothing."""
    if value < 0.995:
        return f"{value:.2g}" if value >= 1e-4 or not value else "< 0.0001"
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}"


def of_units(*units: tuple[float, float, str]) -> Form:
    """A format with units, each with the value from which on it is taken, its size and its name."""

    def shown(value: float) -> str:
        _, size, name = max(unit for unit in units if unit[0] <= value)
        return f"{number(value / size)} {name}"

    return shown


time = of_units((0, 1, "s"), (99.5, 60, "min"), (99.5 * 60, 3600, "h"), (99.5 * 3600, 86400, "d"))
energy = of_units((0, 3600, "Wh"), (KILOWATT_HOUR, KILOWATT_HOUR, "kWh"))
mass = of_units((0, 1, "g"), (1000, 1000, "kg"))


def money(value: float) -> str:
    """Money without a currency."""
    return f"{value:,.2f}" if value >= 1 else number(value)


def megabytes(value: float) -> str:
    """Bytes in MB, without their unit."""
    return number(value / 1e6)


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
    ALL_TASKS: "Once, for all tasks on this corpus",
    THIS_TASK: "Once for this task, for all arms and seeds",
    ARM: "For each arm; mean over seeds and draws",
}
AMOUNTS: Columns = {
    "steps": ("steps", power),
    "tokens": ("tokens", power),
    "flops": ("FLOPs", power),
    "paper_flops": ("FLOPs by the paper’s rule", power),
    "seconds": ("time", time),
    "cpu_seconds": ("CPU time", time),
    "gpu_seconds": ("GPU time", time),
    "joules": ("energy", energy),
    "grams": ("CO₂e", mass),
    "money": ("money", money),
}
SPEEDS: Columns = {
    "median_ms": ("one text, ms", number),
    "p99_ms": ("99th percentile, ms", number),
    "bytes": ("size, MB", megabytes),
    "peak_memory": ("memory, MB", megabytes),
}
MILLION = (
    "For texts like those of dev and test; each of these two was predicted in one call. A mixture predicts with all "
    "its parts, one after the other; a cascade asks its second part only where the first is unsure. One text: the "
    "median of up to a hundred texts of dev, each in a call of its own, wall-clock; a mixture’s is the sum of its "
    "parts’. Memory: the peak of the process that scored the model, its libraries and the task included; a model "
    "without a neural network was trained in it, too."
)


def known(columns: Columns, rows: Sequence[Mapping[str, Any]]) -> dict[str, Callable[[Mapping[str, Any]], str]]:
    """The columns in which something is known, by heading: how a cell of a row is written."""

    def cell(name: str, form: Form) -> Callable[[Mapping[str, Any]], str]:
        return lambda row: "–" if row[name] is None else form(row[name])

    found = {name: column for name, column in columns.items() if any(row[name] is not None for row in rows)}
    return {heading: cell(name, form) for name, (heading, form) in found.items()}


def explained(columns: Iterable[str], prices: Mapping[str, float]) -> str:
    """Explain the bill's columns and its dashes, and name the prices and the grid intensity."""
    of = {
        "FLOPs": "Tokens and FLOPs are those of encoders, without padding. The paper’s rule is 6 · parameters · tokens "
        "with padding. The pre-training of published models is not counted.",
        "time": "Time is wall-clock time. Time and energy of training include all attempts; an interrupted attempt "
        "counts up to its last snapshot.",
        "CPU time": "CPU time is what all threads computed. The work of a search server is not measured. Of a corpus "
        "that was loaded in parts, only CPU time is known. If a model chose a text, its training is included.",
        "energy": "Energy is that of the CPUs, including other processes, and of the GPUs in use, as far as they "
        "report it.",
        "CO₂e": f"CO₂e: {prices['grams_per_kwh']:g} g a kilowatt-hour.",
    }
    sentences = ["–: not measured, or no price is given. A mixture costs what its parts cost."]
    sentences += [sentence for column, sentence in of.items() if column in columns]
    if named := paid(prices):
        sentences.append(f"Prices: {named}.")
    if prices["kilowatt_hour"] and "money" not in columns:
        sentences.append("There is no column of money, because the energy, which has a price, was not measured.")
    return " ".join(sentences)


def paid(prices: Mapping[str, float]) -> str:
    """The given prices in words; "" if there is none."""
    units = {"gpu_hour": "an hour of a GPU", "cpu_hour": "an hour of a CPU core", "kilowatt_hour": "a kilowatt-hour"}
    return ", ".join(f"{prices[name]:g} for {unit}" for name, unit in units.items() if prices[name])
