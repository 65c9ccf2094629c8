"""Stage 1 on several nodes with Kubeflow Trainer, in place of the component `train`."""

from components.base import TRAIN_IMAGE, component


@component(TRAIN_IMAGE)
def train_on_nodes(
    run: str,
    nodes: int,
    gpus: str,
    gpu_type: str,
    cpu: str,
    memory: str,
    node_selector: dict[str, str],
    tolerations: list[dict[str, str]],
    root: str,
) -> str:
    """Stage 1 on several nodes: start a TrainJob, show its log, and wait for its checkpoint."""
    from tlm.cluster.trainjob import train_on_nodes
    from tlm.plan import Run

    arm = Run.parse(run)
    pods = {"nodes": nodes, "gpus": int(gpus), "gpu_type": gpu_type, "cpu": cpu, "memory": memory}
    how = {**pods, "node_selector": node_selector, "tolerations": tolerations, "root": root}
    return train_on_nodes(arm.task, **arm.inputs(), **arm.settings(), **how) if "1" in arm.stages else arm.start
