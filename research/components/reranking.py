"""Component of the pipeline `rerank`: passages chosen by their influence on a trained model."""

from typing import NamedTuple

from components.base import TRAIN_IMAGE, component


@component(TRAIN_IMAGE)
def rerank(report: str, seeds: str, preset: str, overrides: str, gpus: str, train_gpus: str, root: str) -> NamedTuple(  # type: ignore[valid-type]
    "Reranked",
    [("Output", list[dict[str, str]]), ("baseline", str), ("models", list[str])],  # kfp.local loops over Output alone
):
    """Choose text by influence on BM25's first model of a report; list the runs on it, and what they compare with."""
    from research.rerank.reranked import plan_reranked
    from tlm.runs.plan import on_pods

    how = {"preset": preset, "overrides": overrides, "device": "auto" if int(gpus) else "cpu"}
    runs, linear, models = plan_reranked(report, seeds, **how, root=root)
    return on_pods(runs, train_gpus), linear, models
