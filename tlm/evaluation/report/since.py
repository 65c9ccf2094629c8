"""What changed since an earlier report: data, settings, answers on the test texts that both have, and who is ahead.

The two sides are the recommended models. Scores, intervals and probabilities are of all seeds of each; single answers
are those of the run that is the best on dev, which is the one that `tlm register` registers. The earlier model is not
run again. Texts that either side also has in train are left out. What is right is what today's test says: an answer
with a class that is gone is wrong, unless all texts of that class have one and the same other label now.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tlm.artifacts.artifact import Artifact, follow
from tlm.data.passages import evenly
from tlm.data.tasks.examples import changes, in_both, read_splits, texts_of
from tlm.data.tasks.metrics import Array, Split
from tlm.errors import InputError
from tlm.evaluation.pages.blocks import Block, Column, Heading, Quote, Row, Span, Table, Text
from tlm.evaluation.pages.text import visible
from tlm.evaluation.predict.models import recommended_by
from tlm.evaluation.report.findings import interval_text, points, score_text
from tlm.evaluation.report.lineage import compared, flat, plain
from tlm.evaluation.report.runs import Group, ScoredModel, grouped
from tlm.evaluation.score.intervals import Arm, Predictions, differences, with_interval

BEFORE, NOW = "before", "now"
PROBLEMS = ("classification", "regression")  # that can be compared
MOST_CLASSES, MOST_ANSWERS, MOST_NAMED, LONGEST_TEXT = 20, 10, 5, 240
ANSWER = ("kind", "text", "label", BEFORE, NOW)  # of an answer that is shown
Since = dict[str, Any]


def earlier(against: str) -> list[Artifact]:
    """The metrics of the model that an earlier report recommends, of all its seeds; or the earlier metrics themselves.

    Args:
        against: URI of the report or of the metrics.

    Raises:
        InputError: it has nothing that could be compared.
    """
    opened = Artifact.open(against, "report", "metrics")
    metrics, best = [opened], opened
    if opened.manifest.kind == "report":
        metrics, best = compared(opened), recommended_by(opened)[0]
    if (problem := metrics[0].input("task").details["problem"]) not in PROBLEMS:
        raise InputError(f"{against} is of '{problem}'; only answers of {' or '.join(PROBLEMS)} can be compared")
    seeds_of_each = ([run.artifact for run in group.runs] for group in grouped(metrics))
    seeds = next(runs for runs in seeds_of_each if best.manifest.key in [run.manifest.key for run in runs])
    return sorted(seeds, key=lambda artifact: artifact.content)


def since(now: Group, before: Group) -> Since:
    """Compare the recommended models of two reports, and the data and settings that they are from.

    Raises:
        InputError: the tasks are of different kinds, or have no text in common.
    """
    ours, theirs = (group.runs[0].artifact.input("task") for group in (now, before))
    if len(problems := {task.details["problem"] for task in (ours, theirs)}) > 1:
        raise InputError(f"{theirs.uri} and {ours.uri} are of {' and '.join(sorted(problems))}; compare two of a kind")
    data = changes(theirs, ours)
    if not data["shared"]:
        raise InputError(f"{theirs.uri} and {ours.uri} have no text in common; compare with an earlier version of it")
    test, old_test = (read_splits(task, "test")["test"] for task in (ours, theirs))
    both = in_both(old_test, test)
    new = ~(test.copied[both[:, 0]] | old_test.copied[both[:, 1]])
    rows, old_rows = both[new].T
    renamed = _renamed(now, before, rows, old_rows)
    return {
        "names": {BEFORE: before.name, NOW: now.name},
        "data": data | {side: {visible(label, 60): n for label, n in data[side].items()} for side in ("came", "went")},
        "settings": _settings(before, now),
        "renamed": {visible(old, 60): visible(new, 60) for old, new in renamed.items()},
        "tests": {BEFORE: len(old_test.texts), NOW: len(test.texts), "both": len(both), "compared": len(rows)},
        **(_compared(now, before, rows, old_rows, test, renamed) if len(rows) else {}),
    }


def _renamed(now: Group, before: Group, rows: Array, old_rows: Array) -> dict[str, str]:
    """What the labels that are gone are called now: those whose texts in both tests have one and the same label."""
    labels, old_labels = (group.runs[0].values["labels"] for group in (now, before))
    if not labels:
        return {}
    gold, old_gold = (group.on("test").splits[0].gold for group in (now, before))
    names: dict[str, set[str]] = {}
    for old, new in sorted(set(zip(old_gold[old_rows].tolist(), gold[rows].tolist(), strict=True))):
        names.setdefault(old_labels[old], set()).add(labels[new])
    return {old: new for old, (new, *others) in names.items() if old not in labels and not others}


def _settings(before: Group, now: Group) -> list[dict[str, str]]:
    """The settings in which the two models differ, those of the steps before them included."""
    old, new = (_settings_of(group.runs[0]) for group in (before, now))
    names = [name for name in dict.fromkeys([*new, *old]) if old.get(name) != new.get(name)]
    return [{"name": name, BEFORE: old.get(name, "–"), NOW: new.get(name, "–")} for name in names]


def _settings_of(run: ScoredModel) -> dict[str, str]:
    """The settings of a model, its text, and what it chose on dev; of a mixture, also those of its members."""
    corpus = follow(run.subset, "hits", "index", "corpus") or follow(run.subset, "corpus")
    facts = {"arm": run.values["arm"], "stage": run.values["stage"]}
    facts |= {f"{one.manifest.kind}, passages": f"{one.details['passages']:,}" for one in (corpus, run.subset) if one}
    facts |= {f"chosen {name}": plain(value) for name, value in flat(run.values.get("chosen") or {})}
    facts |= run.settings()
    for member in run.members:
        for name, value in _settings_of(member).items():
            facts[f"{visible(member.artifact.details['arm'], 40)}: {name}"] = value
    return facts


def _compared(
    now: Group, before: Group, rows: Array, old_rows: Array, test: Split, renamed: Mapping[str, str]
) -> Since:
    """Scores and answers on the rows of today's test that the earlier test has, too."""
    labels, old_labels = (group.runs[0].values["labels"] for group in (now, before))
    (ours,), (theirs,) = now.on("test").splits, before.on("test").splits
    answers = {NOW: ours.predicted[:, rows], BEFORE: theirs.predicted[:, old_rows]}
    names = None
    if labels:  # answers are places in `names`: the labels of now, then the labels that are gone
        names = [*labels, *(label for label in old_labels if label not in {*labels, *renamed})]
        places = np.array([names.index(renamed.get(label, label)) for label in old_labels])
        answers[BEFORE] = places[answers[BEFORE]]
    gold, groups = ours.gold[rows], np.unique(ours.group[rows], return_inverse=True)[1]
    arms, best = {}, {}
    for side, group in ((NOW, now), (BEFORE, before)):
        predictions = Predictions(ours.metric, gold, answers[side], groups, len(labels or ()))
        arms[side] = Arm((predictions,), group.on("test").fixed, group.draws)
        best[side] = answers[side][group.best_on_dev]
    texts = [" ⁄ ".join(filter(None, text)) for text in texts_of(test)]
    return {
        "scores": {side: with_interval(arm) for side, arm in arms.items()},
        "difference": differences(arms, [(NOW, BEFORE)])[0],
        **_answers(gold, best[BEFORE], best[NOW], names, [texts[row] for row in rows]),
    }


def _answers(gold: Array, before: Array, now: Array, names: list[str] | None, texts: list[str]) -> Since:
    """The answers that changed: how many, by kind and by class, and some of them."""
    if names is None:
        moved, further = ~np.isclose(before, now), np.abs(now - gold) > np.abs(before - gold)
        kinds = {"further from the target": moved & further, "closer to the target": moved & ~further}
    else:
        was_right, is_right = before == gold, now == gold
        kinds = {"right to wrong": was_right & ~is_right, "wrong to right": ~was_right & is_right}
        kinds["wrong to another wrong one"] = ~was_right & ~is_right & (before != now)
    sides = [[visible(names[one], 60) if names else f"{one:.4g}" for one in side] for side in (gold, before, now)]
    rows = [(kind, row) for kind, mask in kinds.items() for row in np.flatnonzero(mask).tolist()]
    changed = [(kind, visible(texts[row], LONGEST_TEXT), *(side[row] for side in sides)) for kind, row in rows]
    return {
        "changed": {kind: int(mask.sum()) for kind, mask in kinds.items()},
        "classes": _by_class(sides[0], kinds) if names else [],
        "answers": [dict(zip(ANSWER, changed[place], strict=True)) for place in evenly(len(changed), MOST_ANSWERS)],
    }


def _by_class(gold: list[str], kinds: dict[str, Array]) -> list[dict[str, Any]]:
    """The classes with the most changed answers."""
    counts = {kind: Counter(gold[row] for row in np.flatnonzero(mask)) for kind, mask in kinds.items()}
    chosen = sum(counts.values(), Counter[str]()).most_common(MOST_CLASSES)
    return [{"label": one, "texts": gold.count(one), **{way: counts[way][one] for way in kinds}} for one, _ in chosen]


def finding(found: Since) -> str:
    """Say in a sentence or two what changed."""
    named = found["names"]
    data = f"Since the last report, {_data_in_words(found) or 'the data are the same'}."
    if not (fair := found["tests"]["compared"]):
        return f"{data} Apart from texts in train, they share no test text, so the answers cannot be compared."
    verdict = {NOW: "is ahead of", BEFORE: "is behind"}.get(found["difference"]["ahead"], "against")
    models = f"the new model ({named[NOW]}) {verdict} the earlier one ({named[BEFORE]})"
    much, changed = points(found["difference"]), _in_words(found["changed"])
    texts = f"the {fair:,} test texts that both have, and neither has in train"
    return f"{data} On {texts}, {models}: {much}. Answers that changed: {changed}."


def _in_words(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "none"


def _data_in_words(found: Since) -> str:
    """What changed in texts and labels; "" if nothing did."""
    data = found["data"]
    names = {"added": "texts more", "removed": "texts fewer", "relabelled": "with another label"}
    counts = {split["split"]: {names[way]: split[way] for way in names} for split in data["splits"]}
    parts = [f"{split} has {_in_words(changed)}" for split, changed in counts.items() if any(changed.values())]
    return "; ".join([*parts, *_labels_in_words(found)])


def _labels_in_words(found: Since) -> Iterator[str]:
    came, went, renamed = found["data"]["came"], found["data"]["went"], found["renamed"]
    kinds = {"new labels": [label for label in came if label not in renamed.values()]}
    kinds["labels that are gone"] = [label for label in went if label not in renamed]
    kinds["renamed or merged labels"] = [f"{old} is now {new}" for old, new in renamed.items()]
    for kind, labels in kinds.items():
        if labels:
            more = ["…"] if len(labels) > MOST_NAMED else []
            yield f"{kind}: {', '.join(labels[:MOST_NAMED] + more)}"


def section(found: Since, metric: str) -> Iterator[Block]:
    """What changed, as a section of the page; scores are of this metric."""
    yield Heading("Since the last report")
    columns = {"before": BEFORE, "now": NOW, "added": "added", "moved": "of these, from another split"}
    columns |= {"removed": "removed", "relabelled": "with another label"}
    data = found["data"]
    rows: list[Row] = [(one["split"], *(f"{one[name]:,}" for name in columns)) for one in data["splits"]]
    said = "; ".join(["Texts are compared as they are, both of a pair together", *_labels_in_words(found)])
    if _data_in_words(found):
        yield Table(["Texts", *columns.values()], rows, f"{said}.")
    settings: list[Row] = [tuple(Quote.of(one[name]) for name in ("name", BEFORE, NOW)) for one in found["settings"]]
    if settings:
        yield Table(["Setting", Column(BEFORE, "words"), Column(NOW, "words")], settings)
    else:
        yield Text("The recommended models have the same settings.", "small")
    if found["tests"]["compared"]:
        yield from _compared_section(found, metric)


def _compared_section(found: Since, metric: str) -> Iterator[Block]:
    tests, models, scores = found["tests"], found["names"], found["scores"].items()
    rows: list[Row] = [(Span(models[side]), side, score_text(score), interval_text(score)) for side, score in scores]
    of = f"On the {tests['compared']:,} test texts that both have, of {tests[BEFORE]:,} before and {tests[NOW]:,} now"
    if copied := tests["both"] - tests["compared"]:
        of += f" ({copied:,} more are in train as well, before or now)"
    note = f"{of}, by today’s labels: {points(found['difference'])}. The earlier model was not run again."
    yield Table(["Recommended", Column("report", "left"), metric, "95 % interval"], rows, note)
    yield Heading("Answers that changed", 3)
    yield Text(f"{_in_words(found['changed'])}, in the runs of each side that are the best on dev.", "small")
    if found["classes"]:
        names = ("texts", *found["changed"])
        rows = [(Span(one["label"]), *(f"{one[name]:,}" for name in names)) for one in found["classes"]]
        yield Table(["Class", *names], rows, f"The classes with the most changes, at most {MOST_CLASSES}.")
    if found["answers"]:
        shown: list[Row] = [(one["kind"], *(Quote.of(one[name]) for name in ANSWER[1:])) for one in found["answers"]]
        note = f"{len(shown)} of {sum(found['changed'].values()):,}, evenly spaced through them, not hand-picked."
        columns = (Column(name, "words") for name in ANSWER[1:])
        yield Table(["Changed", *columns], shown, note)
