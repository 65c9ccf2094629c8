"""Component of the pipeline `rerank`: passages chosen by their influence on a trained model."""

from typing import NamedTuple

from components.base import TRAIN_IMAGE, component


@component(TRAIN_IMAGE)
def rerank(report: str, seeds: str, preset: str, overrides: str, gpus: str, root: str) -> NamedTuple(  # type: ignore[valid-type]
    "Reranked",
    [("Output", list[str]), ("baseline", str), ("models", list[str])],  # kfp.local loops over Output alone
):
    """Choose text by influence on BM25's first model of a report; list the runs on it, and what they compare with."""
    from research.rerank.reranked import plan_reranked

    device = "auto" if int(gpus) else "cpu"
    return plan_reranked(report, seeds, preset=preset, overrides=overrides, device=device, root=root)
