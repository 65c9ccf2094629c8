"""Settings for a task, before a run.

`advise` takes the paper's rule for K, and its Table B.1 for rho1 and rho2; the step `tune` finds settings of the
retrieval on dev, by models without a network.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import ceil, log
from statistics import median
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.passages import count
from tlm.data.tasks.examples import examples
from tlm.data.tasks.labelled import UNLABELLED, twin_key
from tlm.data.tasks.splits import find_leaks
from tlm.errors import InputError, NothingLeft
from tlm.evaluation.pages.blocks import Block, Column, Span, Table, opening
from tlm.evaluation.pages.plain import terminal
from tlm.evaluation.pages.render import write_pages
from tlm.evaluation.pages.text import signed
from tlm.evaluation.report.findings import interval_text
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.intervals import difference, with_interval
from tlm.evaluation.score.mix import mixtures
from tlm.evaluation.score.scores import METRIC_NAMES
from tlm.progress import say
from tlm.retrieval.retrieve import CLASSES, EXAMPLES, retrieve, training_texts
from tlm.retrieval.search.query import LONG_WORDS
from tlm.retrieval.subset.export import export
from tlm.settings.options import Filters
from tlm.settings.presets import paper_presets, resolve
from tlm.settings.sections import MOST_HITS, Preset, Retrieve

FEW, MANY = 5_000, 100_000  # training examples; the limits of the paper's rule
TOKENS_PER_WORD = 1.3  # of English in a vocabulary of BERT's size, special tokens aside
GRID = (1, 3, 7, 19, 99, 499, 999, 1999)  # the paper's values of rho1
TEXT = (
    "Text: the arm bm25; none of random, dsir, classifier, dense, hybrid and rerank has a significantly higher score, "
    "on SciERC at three shares of text on topic and on ACL-ARC at one (research/RESULTS.md); all but random "
    "take longer. The cost of choosing text was compared in CPU time, not FLOPs."
)
PAPER_STEPS, PAPER_BATCH = 150_000, 256  # of the small scale, which the rule for rho1 is taken from


class Advice(NamedTuple):
    """Settings for a task, with reasons.

    Attributes:
        overrides: Settings to change, as ``section.name=value``.
        reasons: A sentence for each of them.
    """

    overrides: list[str]
    reasons: list[str]


def advise_command(task: str, *, preset: str = "pocket", corpus: str = "") -> str:
    """Print what the paper would choose for a task: K, query, rho1 and rho2, with the reasons.

    The reasons go to stderr. The last line on stdout can be given to the pipeline as run_overrides; the override
    ``auto`` makes the pipeline do the same.

    Args:
        task: URI of the task.
        preset: Named settings to start from; `tlm show` lists them.
        corpus: URI of the corpus or its index; a small corpus needs a lower K. Empty: its size is not considered.
    """
    advice = advice_for(task, resolve(preset), corpus)
    say("\n".join(f"- {reason}" for reason in advice.reasons))
    return " ".join(advice.overrides)


def advice_for(task: str, preset: Preset, corpus: str = "") -> Advice:
    """Return what the paper would choose for a task.

    Args:
        task: URI of the task.
        preset: The settings to start from.
        corpus: URI of the corpus or its index; "" if there is none yet.
    """
    labelled = Artifact.open(task, "task")
    searched, unlabelled = training_texts(labelled), labelled.counts.get(UNLABELLED, 0)
    words = median(count(text) for _, text in searched)
    details = Artifact.open(corpus, "corpus", "index").details if corpus else {}
    passages = details.get("passages", details.get("documents"))
    return advise(len(searched) - unlabelled, words, preset, passages, unlabelled)


def advise(examples: int, words: float, preset: Preset, passages: int | None = None, unlabelled: int = 0) -> Advice:
    """Return what the paper would choose for a task.

    Args:
        examples: Number of training examples.
        words: Median number of words of the texts that search (both texts of a pair together).
        preset: The settings to start from. K is scaled by its K, rho1 by its steps.
        passages: Number of passages in the corpus, None if unknown; a small corpus needs a lower K.
        unlabelled: Number of texts without labels, which are queries, too.
    """
    found = [_top_k(examples, preset, passages, unlabelled), _query(words), _rho1(examples, preset), _rho2(preset)]
    reasons = [*(reason for _, reason in found), TEXT]
    if words * TOKENS_PER_WORD + 2 > preset.model.max_length:
        reasons.append(
            f"Texts of {words:.0f} words (about {words * TOKENS_PER_WORD:.0f} tokens) are cut at model.max_length="
            f"{preset.model.max_length}; the paper cuts at 128, IMDB at 512, which costs time; it is left as it is. "
            "model.cut=head+tail reads as many tokens of both ends."
        )
    return Advice([override for override, _ in found if override], reasons)


def paper_top_k(examples: int, *, large: bool = False) -> int:
    """Return K by the paper's rule: 5000 below 5,000 examples, 50 above 100,000, else 500; twice that if large."""
    return (5000, 500, 50)[_size(examples)] * (2 if large else 1)


def _size(examples: int) -> int:
    """The size of a task in the paper's rule: 0 with fewer than 5,000 examples, 2 with more than 100,000, else 1."""
    return (examples >= FEW) + (examples > MANY)


def _top_k(examples: int, preset: Preset, passages: int | None, unlabelled: int) -> tuple[str, str]:
    top_k = paper_top_k(examples, large=preset.name.startswith("large"))
    which = ("fewer than 5,000", "5,000 to 100,000", "more than 100,000")[_size(examples)]
    reason = f"K: {examples:,} training examples are {which}, for which the paper takes K={top_k}"
    if preset.name not in paper_presets():
        top_k = max(1, top_k * preset.retrieve.top_k // 5000)
        reason += f"; preset {preset.name} has {preset.retrieve.top_k} where the paper has 5000, so K={top_k} here"
    most = top_k if passages is None else max(1, passages // (examples + unlabelled))
    if top_k > most:
        top_k = most
        reason += (
            f". But the corpus has {passages:,} passages, so K={top_k}: all texts that search retrieve together "
            "no more than it has, so that retrieval still selects"
        )
    return f"retrieve.top_k={top_k}", f"{reason}."


def _query(words: float) -> tuple[str, str]:
    texts = f"Query: with a median of {words:.0f} words the texts are"
    if words > LONG_WORDS:
        return "retrieve.query=rake", f"{texts} long: their RAKE keywords are searched for (paper, section 3.1)."
    return "retrieve.query=full", f"{texts} short enough (up to {LONG_WORDS}) to search for them whole."


def _rho1(examples: int, preset: Preset) -> tuple[str, str]:
    rule = (999, 19, 1)[_size(examples)]
    reason = (
        f"rho1: for a task of this size the paper's small scale has rho1={rule} external batches for each internal one "
        "(the rule fits six of its eight tasks; HyperPartisan has 99 instead of 999, RCT 3 instead of 1)"
    )
    if preset.name in paper_presets():
        return f"train.rho1={rule}", f"{reason}."
    passes = PAPER_STEPS / (rule + 1) * PAPER_BATCH / examples
    rho1 = min(GRID, key=lambda value: abs(log(_passes(preset, value, examples) / passes)))
    return (
        f"train.rho1={rho1}",
        f"{reason}, which is {passes:.0f} passes over the task; in the {preset.train.steps:,} steps of preset "
        f"{preset.name} rho1={rho1} comes nearest, with {_passes(preset, rho1, examples):.1f}.",
    )


def _passes(preset: Preset, rho1: int, examples: int) -> float:
    """Return how often the examples are seen in the preset's steps."""
    return max(1, preset.train.steps // (rho1 + 1)) * preset.train.internal_batch / examples


def _rho2(preset: Preset) -> tuple[str, str]:
    if preset.name not in paper_presets():
        return "", (
            f"rho2: left at {float(preset.train.rho2):g}, as preset {preset.name} has it; the paper's small scale "
            "takes 20 or 100 and finds little difference between them (Table 6), but trains for much longer."
        )
    return "train.rho2=20", (
        "rho2: the paper takes 20 or 100 at its small scale; 20, 100 and 1000 differ by less than their spread on two "
        "of the three tasks of Table 6, and 0 is lower on all, so 20."
    )


SHARES = (9, 3, 1)  # the part of train in each round: a ninth, a third, all
LEAST = 100  # training examples of a round; with fewer it is left out
KEPT = 3  # one candidate of so many goes on to the next round, which costs three times as much for each
TIMES = (0.2, 0.4, 1, 2)  # what the preset's K is multiplied with
ALONE = "the linear model alone"
VERSION, SAMPLE_VERSION = 4, 1

Row = dict[str, Any]  # of the study: the settings, their score, the difference to the best, the cost


class Trial(NamedTuple):
    """A candidate in a round.

    Attributes:
        setting: The settings of the retrieval; None for the linear model alone.
        part: One of `SHARES`.
        metrics: The metrics of static vectors of its text, mixed with the linear model.
        cost: CPU seconds of retrieving, exporting and learning the vectors; the linear model is the same for all.
    """

    setting: Retrieve | None
    part: int
    metrics: Artifact
    cost: float = 0.0


def overrides_of(setting: Retrieve | None) -> str:
    """The settings of the retrieval, as they are written in run_overrides; `ALONE` for None."""
    values = {} if setting is None else setting.model_dump()
    return " ".join(f"retrieve.{name}={value}" for name, value in values.items()) or ALONE


def tune(
    index: str,
    task: str,
    *,
    preset: str = "pocket",
    overrides: Sequence[str] = (),
    filters: Filters = Filters(),
    root: str | None = None,
) -> str:
    """Search K, query and share of the retrieval for a task, on dev; say which settings are tied, and what to use.

    A candidate's score is the cross-fitted one on dev of static vectors of its text, mixed with the linear model.
    Successive halving (Jamieson and Talwalkar, AISTATS 2016) by thirds: all candidates with a ninth of the training
    examples, the best third of them with a third, the best third of these with all, and the preset's own settings
    beside them. A candidate with too little text is left out. Those in the last round that paired resampling of dev
    does not tell from the best are tied with it. If the settings that the search started from are among them, they are
    recommended, otherwise the tied candidate that took the least CPU time. Test is not looked at. The steps of the
    pipeline make every candidate, so later runs and searches find what was made here.

    Args:
        index: URI of the index.
        task: URI of the task.
        preset: Named settings. Each of 0.2, 0.4, 1 and 2 times their K is tried with both queries and both shares.
        overrides: A setting of the retrieval to start from instead, such as retrieve.top_k=100; may be repeated.
        filters: What subsets leave out.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URI of the study. Its details have ``overrides``, for run_overrides or ``--set``; study.json has all scores.
    """
    base = _start(preset, overrides)
    opened, labelled = Artifact.open(index, "index"), Artifact.open(task, "task")
    root = home(root, [opened, labelled]).root
    left, trials = candidates(base, labelled.details["problem"]), list[Trial]()
    for part in [share for share in SHARES if share == 1 or labelled.counts["train"] >= LEAST * share]:
        if part == 1:
            left = [*dict.fromkeys([*left, base])]
        say(f"tune: {len(left)} candidates with {f'1/{part}' if part > 1 else 'all'} of the training examples")
        sampled = sample(task, part, root) if part > 1 else task
        linear, best_first, lost = baseline(sampled, root=root), list[Trial](), ""
        for number, setting in enumerate(left, 1):
            say(f"tune: candidate {number} of {len(left)}: {overrides_of(setting)}")
            try:
                best_first.append(_trial(setting, part, linear, index, sampled, filters, root))
            except NothingLeft as error:
                lost = f"{overrides_of(setting)} is left out: {error}"
                say(f"warning: {lost}")
        if part == 1 and not best_first:
            raise NothingLeft(f"no candidate is left to compare; {lost}")
        best_first.sort(key=lambda trial: (-trial.metrics.details["dev"], trial.cost))
        left = [trial.setting for trial in best_first[: ceil(len(best_first) / KEPT)] if trial.setting] or left
        trials += best_first
    trials.append(Trial(None, 1, Artifact.open(linear)))
    inputs = {f"metrics-{number:03d}": trial.metrics for number, trial in enumerate(trials)}
    uri = produce(Recipe("study", "tune", VERSION, {"start": base.model_dump()}, inputs), root, _write, trials, base)
    say(terminal(_page(Artifact.open(uri).json("study.json")), styled=False))  # say spells codes out
    return uri


def _start(preset: str, overrides: Sequence[str]) -> Retrieve:
    searched = "tune searches retrieve.top_k, retrieve.query and retrieve.share, by models without a neural network"
    for override in overrides:
        if not override.strip().startswith("retrieve."):
            raise InputError(f"'{override}' has no effect here: {searched}; leave it out, and give it to the run")
    return resolve(preset, overrides).retrieve


def candidates(base: Retrieve, problem: str) -> list[Retrieve]:
    """The settings to try around those of `base`, each once; numbers have no classes to share the passages."""
    sizes = dict.fromkeys(min(max(1, round(times * base.top_k)), MOST_HITS) for times in TIMES)
    shares = (EXAMPLES,) if problem == "regression" else (EXAMPLES, CLASSES)
    found = [Retrieve(top_k=k, query=q, share=s) for k, q, s in product(sizes, ("full", "rake"), shares)]  # type: ignore[arg-type]
    return [*dict.fromkeys([*found, base])]


def _trial(setting: Retrieve, part: int, linear: str, index: str, task: str, filters: Filters, root: str) -> Trial:
    hits = retrieve(index, task, **setting.model_dump(), root=root)
    subset = export(hits, filters=filters, root=root)
    learned = static(task, subset=subset, root=root)
    (mixed,) = mixtures(linear, [learned], root=root)
    costly = [Artifact.open(hits), Artifact.open(subset), Artifact.open(learned).input("model")]
    return Trial(setting, part, Artifact.open(mixed), sum(one.run().get("process_seconds", 0.0) for one in costly))


def sample(task: str, part: int, root: str | None = None) -> str:
    """Keep one of `part` training examples, evenly spaced in the order of their labels; dev and test stay whole.

    Returns:
        The URI of the smaller task.
    """
    given = Artifact.open(task, "task")
    recipe = Recipe("task", "sample", SAMPLE_VERSION, {"part": part}, {"task": given})
    return produce(recipe, root, _sample, given, part)


def _sample(draft: Draft, task: Artifact, part: int) -> None:
    table, label = examples(task), "label" if task.details["labels"] else "target"
    split, labels = table["split"].to_pylist(), table[label].to_pylist()
    train = sorted((row for row, name in enumerate(split) if name == "train"), key=lambda row: labels[row])
    kept = {*train[part // 2 :: part], *(row for row, name in enumerate(split) if name != "train")}
    table = table.take(pa.array(sorted(kept)))
    splits, labels, texts, pairs = (table[name].to_pylist() for name in ("split", label, "text", "text_pair"))
    leaks = find_leaks(splits, labels, texts, list(map(twin_key, texts, pairs)))
    for name, rows in (("examples.parquet", table), ("leaks.parquet", leaks)):
        pq.write_table(rows, draft.folder / name, compression="zstd")
        draft.rows[name] = len(rows)
    draft.counts = {name: splits.count(name) for name in ("train", "dev", "test")} | {"leaks": len(leaks)}
    draft.details = dict(task.details)


def _write(draft: Draft, trials: list[Trial], base: Retrieve) -> None:
    rows = [row for part in reversed(SHARES) for row in _compared([trial for trial in trials if trial.part == part])]
    last = {row["settings"]: row for row in rows if row["part"] == 1}
    linear, start = last.pop(ALONE), last.get(overrides_of(base))
    tied = [row for row in last.values() if row["tied"]]
    chosen = start if start and start["tied"] else min(tied, key=lambda row: row["cpu_seconds"])
    findings = list(_findings(chosen, f"{len(tied)} of {len(last)}", start, linear))
    scored = {row["settings"] for row in rows}
    tried = map(overrides_of, candidates(base, trials[0].metrics.input("task").details["problem"]))
    if empty := [name for name in tried if name not in scored]:
        findings.append(f"Left out, because too little text was found or passed the filters: {'; '.join(empty)}.")
    details = trials[0].metrics.details
    of = f"{details['task']} · {METRIC_NAMES[details['metric']]} on dev"
    study = {"of": of, "overrides": chosen["settings"], "rows": rows, "findings": findings}
    write_pages(draft.folder, "study", "settings of the retrieval", _page(study), study)
    draft.counts = {"candidates": len({row["settings"] for row in rows}) - 1, "tied": len(tied)}
    draft.details = {"overrides": chosen["settings"]}


def _compared(trials: list[Trial]) -> Iterator[Row]:
    """The candidates of a round as plain values, the best first, each with its difference on dev to the best."""
    from tlm.evaluation.report.runs import grouped

    scores = [grouped([trial.metrics])[0].on("dev") for trial in trials]
    for trial, score in zip(trials, scores, strict=True):
        behind = difference(score, scores[0], len(trials) - 1)
        facts = {"settings": overrides_of(trial.setting), "part": trial.part, "cpu_seconds": round(trial.cost, 1)}
        yield facts | {"dev": with_interval(score), "to_best": behind._asdict(), "tied": behind.sign == 0}


def _findings(chosen: Row, tied: str, start: Row | None, linear: Row) -> Iterator[str]:
    """Say what to use, and whether anything was gained by it."""
    use, score = "Keep" if chosen is start else "Use", 100 * chosen["dev"]["mean"]
    yield f"{use} {chosen['settings']}: {score:.1f} on dev, {chosen['cpu_seconds']:.0f} CPU seconds."
    yield f"{tied} candidates of the last round are tied with the best, which means that dev does not tell them apart."
    if chosen is start:
        yield "The settings that the search started from are among them: nothing measurable was gained by others."
    elif start:
        yield f"The settings it started from are behind them ({_points(start)}); of the tied, this took the least time."
    helps = "helps" if linear["to_best"]["high"] < 0 else "does not help measurably"
    yield f"Retrieved text {helps} on dev: against the best, {ALONE} has {_points(linear)} points."
    yield "The best of many scores on dev is partly luck: make a report of the model that you choose, for test."


def _points(row: Row) -> str:
    return f"{signed(100 * row['to_best']['mean'])} ({interval_text(row['to_best'], '{:+.1f} to {:+.1f}')})"


def _page(study: dict[str, Any]) -> list[Block]:
    rows = [
        (
            Span(row["settings"].replace("retrieve.", ""), "code"),
            f"1/{row['part']}" if row["part"] > 1 else "all",
            f"{100 * row['dev']['mean']:.1f} ({interval_text(row['dev'])})",
            _points(row),
            "yes" if row["tied"] else "no",
            f"{row['cpu_seconds']:.0f}" if row["settings"] != ALONE else "–",
        )
        for row in study["rows"]
    ]
    columns = ("settings", "train", "dev", "to the best of the round", Column("tied with it", "left"), "CPU seconds")
    chosen = frozenset(place for place, row in enumerate(study["rows"]) if row["settings"] == study["overrides"])
    note = "Intervals at 95 %; those of differences are corrected for the candidates of a round."
    opened = opening("TLM study", "Settings of the retrieval", study["of"], study["findings"])
    return [*opened, Table(columns, rows, note, chosen)]
