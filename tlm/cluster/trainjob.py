"""The step `train` on several nodes: a TrainJob of Kubeflow Trainer does it, this process looks on.

Its name is that of the result, so there is never more than one for the same work: a repetition finds the one that
runs, and goes on where one that ended was.
"""

from typing import Any

from tlm.artifacts.home import home
from tlm.artifacts.produce import finished
from tlm.cluster.follow import follow
from tlm.cluster.job import Pods, train_job
from tlm.cluster.kube import Api, own_image
from tlm.errors import InputError, Interrupted
from tlm.progress import say
from tlm.training.stage1 import checkpoint_recipe


def train_on_nodes(
    task: str,
    *,
    tokenizer: str,
    subset: str = "",
    start: str = "",
    preset: str = "pocket",
    overrides: list[str] = (),  # type: ignore[assignment]
    seed: int = 0,
    nodes: int = 2,
    gpus: int = 1,
    gpu_type: str = "nvidia.com/gpu",
    cpu: str = "4",
    memory: str = "16Gi",
    node_selector: dict[str, str] | None = None,
    tolerations: list[dict[str, Any]] | None = None,
    runtime: str = "torch-distributed",
    service_account: str = "tlm-runner",
    image: str = "",
    start_minutes: float = 60.0,
    root: str | None = None,
) -> str:
    """Train stage 1 on several nodes at once, by a TrainJob of Kubeflow Trainer 2.2 or later.

    It is the same work, and the same checkpoint, as `tlm train` makes. To be called in a pod of the cluster.

    Args:
        task: URI of the task.
        tokenizer: URI of the tokenizer.
        subset: URI of the subset; empty: the task-only arm.
        start: URI of the checkpoint that it begins with; empty: fresh weights.
        preset: Named settings.
        overrides: Settings to change.
        seed: For weights, order, masks and dropout.
        nodes: How many pods train together.
        gpus: GPUs of each; 0 trains on CPUs.
        gpu_type: Their resource name.
        cpu: CPUs of each.
        memory: Memory of each.
        node_selector: Labels of the nodes to train on.
        tolerations: Taints that the pods tolerate.
        runtime: The ClusterTrainingRuntime.
        service_account: That of the pods.
        image: The train image; empty: that of the pod we are in.
        start_minutes: How long the pods may wait for nodes and images.
        root: Store to write to, which holds all inputs; on S3, because all nodes write there.

    Raises:
        InputError: settings that cannot work, no Trainer, no rights; or what training itself raised.
        Interrupted: a pod died, or somebody deleted the TrainJob; repeating goes on from the last snapshot.
        Terminated: SIGTERM arrived; the TrainJob was deleted, and its pods save their state.
    """
    if nodes < 1 or gpus < 0:
        raise InputError(f"nodes is {nodes} and gpus {gpus}; expected at least one node, and no fewer than 0 GPUs")
    recipe = checkpoint_recipe(task, tokenizer, subset, preset, overrides, seed, root, start=start)
    uri = finished(recipe, root)
    if uri is not None:
        say("train: already there, nothing to do")
        return uri
    place = home(root, recipe.inputs.values()).root
    if not place.startswith("s3://"):
        raise InputError(f"root '{place}' is a folder of one node; give one on S3 (s3://bucket/prefix)")
    command = ["tlm", "train", task, "--tokenizer", tokenizer, "--preset", preset, "--seed", str(seed)]
    command += [*(("--subset", subset) if subset else ()), *(("--start", start) if start else ())]
    command += [part for override in overrides for part in ("--set", override)]
    command += ["--gpus", str(gpus), "--root", place]
    api = Api.of_pod()
    pods = Pods(
        image or own_image(api), nodes, gpus, gpu_type, cpu, memory, service_account,
        node_selector or {}, tolerations or [],
    )  # fmt: skip
    follow(api, train_job(f"tlm-{recipe.key}", command, pods, runtime), start_minutes)
    uri = finished(recipe, root)
    if uri is None:
        raise Interrupted(f"the TrainJob ended without a checkpoint under {place}; look at its pods, then repeat")
    return uri
