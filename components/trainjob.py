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
    from tlm.options import Pods
    from tlm.plan.runs import Run

    arm, pods = Run.parse(run), Pods(cpu, gpu_type, gpus, memory, node_selector, tolerations)
    how = {**arm.inputs(), **arm.settings(), "nodes": nodes, "pods": pods, "root": root}
    return train_on_nodes(arm.task, **how) if "1" in arm.stages else arm.start
