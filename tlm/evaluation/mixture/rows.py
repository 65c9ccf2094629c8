"""The mixtures that a pipeline makes of its models, to be rows of its report."""

from tlm.artifacts.artifact import Artifact
from tlm.evaluation.mixture.step import mix
from tlm.evaluation.score.baseline import STATIC


def mixtures(baseline: str, metrics: list[str], *, root: str | None = None) -> list[str]:
    """Mix each model with the linear model, and each encoder also with the static model of its text.

    Where the text was drawn, that is the static model of the encoder's own draw, which has its seed.

    Args:
        baseline: URI of the linear model's metrics.
        metrics: URIs of the metrics of static models and encoders. A run that ended after stage 1 is not mixed.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.

    Returns:
        URIs of the mixtures' metrics.
    """
    found = {uri: Artifact.open(uri, "metrics").details for uri in metrics}
    static = {(one["arm"], one["seed"]): uri for uri, one in found.items() if one["stage"] == STATIC}
    parts = []
    for uri, details in found.items():
        if details["stage"] != "stage 1":
            parts.append([uri, baseline])
            arm, seed = f"{STATIC}-{details['arm']}", details["seed"]
            if own := static.get((arm, seed), static.get((arm, 0))):
                parts.append([uri, own, baseline])
    return [mix(members, root=root) for members in parts]
