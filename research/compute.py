"""The number of tasks from which one published model, fine-tuned for each, costs less than TLM for each."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from research.paper.tables import data
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores.local import here, write_whole
from tlm.errors import InputError
from tlm.evaluation.pages.text import power
from tlm.evaluation.report.findings import best_on_dev, finished
from tlm.evaluation.report.lineage import compared
from tlm.evaluation.report.runs import Group, Summary, grouped
from tlm.evaluation.score.baseline import EMBEDDINGS
from tlm.evaluation.score.intervals import difference
from tlm.evaluation.score.mix import ENCODER
from tlm.retrieval.subset.export import PUBLISHED

UNCOUNTED = "without the pretraining of a model to start from"
SIMILAR = 0.01  # scores that differ by less are similar, unless an interval says that they differ


def compute(report: str, *, to: str = "score-and-compute.svg") -> str:
    """Draw score against compute for the arms of a report, beside the paper's models.

    Also says from how many tasks a published model in the report costs less, pretraining included.

    Args:
        report: URI of a report whose runs are still there.
        to: The SVG file to write.
    """
    from research.score_and_compute import Point, published, score_against_compute

    opened = Artifact.open(report, "report")
    shown = opened.json("report.json")
    arms = []
    for summary in shown["groups"]:
        scores = [100 * score for score in summary["test"]["values"]]
        arms.append(Point(summary["name"], _flops(summary), scores, summary["role"]))
    if not any(arm.flops for arm in arms):
        raise InputError(f"{report}: no arm of this report has FLOPs, which only encoders have")
    groups = grouped(compared(opened))
    started = any(_started(group) for group in groups)
    drawn = score_against_compute(
        arms, published(), f"{shown['task']['metric_name']} on test", UNCOUNTED if started else ""
    )
    write_whole(here(to), drawn)
    return "\n".join([f"{to} has the picture.", *told(break_even(groups, finished(shown["groups"])))])


def _started(group: Group) -> bool:
    """Whether its encoder began with a published or another model, whose own training is not in its FLOPs."""
    published = any(kind in group.row.kind for kind in (PUBLISHED, EMBEDDINGS))
    return published or (group.runs[0].checkpoint is not None and _continued(group))


def _flops(summary: Mapping[str, Any]) -> float:
    """Mean FLOPs by the paper's rule; 0 for a model that is no encoder."""
    return summary["cost"]["paper_flops"]["mean"] or 0.0


def tasks_to_break_even(pretraining: float, tlm: float, fine_tuning: float) -> float:
    """N = pretraining / (TLM - fine-tuning): with more tasks, the published model has cost less.

    Corpus, index and retrieval have no tensors, so they add no FLOPs to either side.

    Args:
        pretraining: FLOPs of the published model, spent once.
        tlm: FLOPs of both stages for a task.
        fine_tuning: FLOPs of fine-tuning the published model for a task.

    Returns:
        The number of tasks; infinite if TLM costs no more for a task than fine-tuning does.
    """
    return pretraining / (tlm - fine_tuning) if tlm > fine_tuning else math.inf


def break_even(groups: Sequence[Group], summaries: Sequence[Summary]) -> list[dict[str, Any]]:
    """The best encoder that was trained from scratch, beside each published model whose pretraining is known.

    Args:
        groups: The groups of a report's runs.
        summaries: The summaries of the groups that can be compared.

    Returns:
        For each pair: names, scores, FLOPs by the paper's rule, whether scores are similar, and the number of tasks;
        None for that if there is none, or if scores are not similar.
    """
    named = {group.name: group for group in groups}
    encoders = [summary for summary in summaries if summary["cost"]["paper_flops"]["mean"] is not None]
    scratch = [summary for summary in encoders if summary["kind"] == ENCODER and not _continued(named[summary["name"]])]
    if not scratch:
        return []
    tlm, known, rows = best_on_dev(scratch), _known(), []
    for plm in encoders:
        alone = (plm["kind"], plm["text"]) == (PUBLISHED, "")
        pretrained = known.get(_name(named[plm["name"]])) if alone else None
        if pretrained is None:
            continue
        gain = difference(named[tlm["name"]].on("test"), named[plm["name"]].on("test"))
        similar = not gain.sign and abs(gain.mean) < SIMILAR
        count = tasks_to_break_even(pretrained["flops"], _flops(tlm), _flops(plm))
        rows.append(
            {
                "tlm": tlm["name"],
                "published": plm["name"],
                "pretrained": pretrained["name"],
                "scores": [tlm["test"]["mean"], plm["test"]["mean"]],
                "flops": {"pretraining": pretrained["flops"], "tlm": _flops(tlm), "fine_tuning": _flops(plm)},
                "similar": similar,
                "tasks": math.ceil(count) if similar and math.isfinite(count) else None,
            }
        )
    return rows


def told(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A sentence for each row."""
    for row in rows:
        ours, theirs = (f"{100 * score:.1f}" for score in row["scores"])
        flops = {name: power(value) for name, value in row["flops"].items()}
        first = f"{row['tlm']} ({ours}, {flops['tlm']} FLOPs)"
        paid = f"fine-tuning {flops['fine_tuning']}, pretraining {row['pretrained']} {flops['pretraining']}"
        beside = f"{first} beside {row['published']} ({theirs}; {paid}, the paper’s Table 2)"
        if not row["similar"]:
            yield f"The scores are not similar, so there is no number of tasks to break even: {beside}."
        elif row["tasks"] is None:
            yield f"Pretraining never breaks even for {beside}: training from scratch costs no more than fine-tuning."
        else:
            yield f"From {row['tasks']:,} tasks on, pretraining once costs fewer FLOPs, by the paper’s rule: {beside}."


def _known() -> dict[str, dict[str, Any]]:
    """The published models whose pretraining the paper counts, by the end of their names on the Hugging Face Hub."""
    return {name: model for model in data("published.toml")["model"] for name in model.get("hub", ())}


def _name(group: Group) -> str:
    checkpoint = group.runs[0].checkpoint
    return "" if checkpoint is None else str(checkpoint.manifest.settings.get("name", ""))


def _continued(group: Group) -> bool:
    """Whether stage 1 began with another model, whose own cost is not counted."""
    checkpoint = group.runs[0].checkpoint
    return checkpoint is None or "start" in checkpoint.manifest.inputs
