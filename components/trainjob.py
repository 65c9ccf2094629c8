"""Stage 1 on several nodes: instead of the component `train`, where Kubeflow Trainer is installed."""

from components.base import TRAIN_IMAGE, component


@component(TRAIN_IMAGE)
def train_on_nodes(
    run: str,
    preset: str,
    overrides: str,
    nodes: int,
    gpus: str,
    gpu_type: str,
    cpu: str,
    memory: str,
    node_selector: dict,  # type: ignore[type-arg]
    tolerations: list,  # type: ignore[type-arg]
    root: str,
) -> str:
    """Stage 1 on several nodes at once: start a TrainJob, repeat its log, wait for its checkpoint."""
    from tlm.cluster.trainjob import train_on_nodes
    from tlm.plan import Run

    arm, how = Run.parse(run), {"preset": preset, "overrides": overrides.split(), "root": root}
    pods = {"nodes": nodes, "gpus": int(gpus), "gpu_type": gpu_type, "cpu": cpu, "memory": memory}
    place = {"node_selector": node_selector, "tolerations": tolerations}
    return train_on_nodes(arm.task, tokenizer=arm.tokenizer, subset=arm.subset, seed=arm.seed, **how, **pods, **place)
