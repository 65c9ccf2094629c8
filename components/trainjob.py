"""Stage 1 on several nodes: instead of the component `train`, where Kubeflow Trainer is installed."""

from components.base import TRAIN_IMAGE, component


@component(TRAIN_IMAGE)
def train_on_nodes(
    run: str,
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
    from tlm.cluster.trainjob import Pods, train_on_nodes
    from tlm.plan import Run

    arm = Run.parse(run)
    pods = Pods(nodes, int(gpus), gpu_type, cpu, memory, node_selector, tolerations)
    how = {**arm.inputs(), **arm.settings(), "pods": pods, "root": root}
    return train_on_nodes(arm.task, **how) if "1" in arm.stages else arm.start
