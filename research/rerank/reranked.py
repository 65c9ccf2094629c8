"""The arm `rerank`: after a run, its first model of BM25's text chooses text, and new models are trained on that."""

from collections.abc import Mapping, Sequence
from typing import Any

from research.rerank.rerank import Device, rerank
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.report.lineage import compared
from tlm.evaluation.score.baseline import ARM
from tlm.evaluation.score.mix import PARTS
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.subset.export import export
from tlm.runs.plan import PlannedRun, advised, parse_seeds
from tlm.settings.options import Filters
from tlm.settings.sections import MOST_HITS
from tlm.settings.selectors import RERANKED
from tlm.training.input.tokenize import tokenize_all

DEEPER = 3  # times K: how many of BM25's passages there are to choose from, for each example


def plan_reranked(
    report: str, seeds: str, *, preset: str, overrides: str, device: Device = "auto", root: str | None = None
) -> tuple[list[str], str, list[str]]:
    """Let the first model of BM25's text that a report compares choose text by influence, and plan runs on that.

    Args:
        report: URI of the report.
        seeds: Seeds of the runs, comma-separated.
        preset: Named settings; those of the report's runs make the comparison fair.
        overrides: Settings that replace those of the preset, separated by spaces.
        device: Where to compute: "cpu", "cuda", or "auto" for a GPU if there is one.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        A `PlannedRun` as a string for each seed, the URI of the linear model's metrics, and those of the report's other
        models that are no mixtures.

    Raises:
        InputError: the report has no linear model, or none that was trained on BM25's text.
    """
    parse_seeds(seeds)
    if not report:
        raise InputError("compared_with is empty; expected the URI of the report of a run with the arm bm25")
    found = compared(Artifact.open(report, "report"))
    linear = [run.uri for run in found if run.details.get("arm") == ARM]
    if not linear:
        raise InputError(f"{report} does not compare with the linear model; give the report of a run of the pipeline")
    models = [run for run in found if run.uri not in linear and PARTS not in run.details["arm"]]
    subset = Artifact.open(reranked(models, device=device, root=root))
    hits = subset.input("hits")
    task, tokenizer = hits.input("task").uri, hits.input("checkpoint").input("task_tokens").input("tokenizer").uri
    *_, chosen, _ = advised(task, preset, overrides.split(), hits.input("index").uri)
    tokenize_all([subset.uri], tokenizer, preset=preset, overrides=chosen.split(), root=root)
    runs = [PlannedRun(RERANKED, seed, task, tokenizer, subset.uri, preset, chosen) for seed in parse_seeds(seeds)]
    return [str(run) for run in runs], linear[0], [model.uri for model in models]


def reranked(runs: Sequence[Artifact], *, device: Device = "auto", root: str | None = None) -> str:
    """Choose as many passages as BM25's subset has, filtered as these were, with the model of the lowest seed.

    Args:
        runs: Metrics of trained models, those of BM25's text among them.
        device: Where to compute: "cpu", "cuda", or "auto" for a GPU if there is one.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        The URI of the subset.

    Raises:
        InputError: there is no model of BM25's text.
    """
    trained = [run for run in runs if run.details["arm"] == "bm25" and run.details["stage"] == "stage 2"]
    if not trained:
        raise InputError("rerank chooses text with a model that was trained on BM25's, and there is none; train bm25")
    checkpoint = min(trained, key=lambda run: run.details["seed"]).input("model").input("checkpoint")
    few = checkpoint.input("subset_tokens").input("data")
    hits = few.input("hits")
    asked = {name: hits.details[name] for name in ("query", "share") if name in hits.details}
    deeper = min(DEEPER * hits.details["top_k"], MOST_HITS)
    more = retrieve(hits.input("index").uri, hits.input("task").uri, **asked, top_k=deeper, root=root)
    filters = filters_of(few.manifest.settings)
    chosen = rerank(
        checkpoint.uri, export(more, filters=filters, root=root), same_size_as=few.uri, device=device, root=root
    )
    return export(chosen, filters=filters, root=root)


def filters_of(settings: Mapping[str, Any]) -> Filters:
    """The filters of a subset, by its settings."""
    on = {name: value for name, value in settings.items() if value is not None}
    return Filters("jaccard" in on, "overlap_share" in on, **on)
