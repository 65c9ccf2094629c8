"""The step `train` on several nodes: a TrainJob of Kubeflow Trainer does the work, this process follows it.

The TrainJob is named after the key of the result, so there is never more than one for the same work: a repetition
adopts one that still runs, and resumes from the last snapshot of one that has ended.
"""

from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

import yaml

from tlm.artifacts.artifact import home
from tlm.artifacts.produce import finished
from tlm.errors import InputError, Interrupted, refuse_negative
from tlm.progress import say
from tlm.runs import pods as every
from tlm.runs.api import Api
from tlm.runs.follow import follow, own_image
from tlm.settings.options import Pods
from tlm.training.stages import checkpoint_recipe


def train_on_nodes(
    task: str,
    *,
    tokenizer: str,
    subset: str = "",
    start: str = "",
    preset: str = "pocket",
    overrides: Sequence[str] = (),
    seed: int = 0,
    nodes: int = 2,
    pods: Pods = Pods(),
    root: str | None = None,
) -> str:
    """Train stage 1 on several nodes, by a TrainJob of Kubeflow Trainer 2.2 or later.

    The checkpoint is the one that `tlm train` makes. This must run in a pod of the cluster.

    Args:
        task: URI of the task.
        tokenizer: URI of the tokenizer.
        subset: URI of the subset; empty: the task-only arm.
        start: URI of the checkpoint that training starts from; empty: fresh weights.
        preset: Named settings.
        overrides: Settings to change.
        seed: Random seed of weights, order, masks and dropout.
        nodes: How many pods train together, one on each node.
        pods: Their resources.
        root: Store to write to, which holds all inputs; on S3, because all nodes write to it.

    Raises:
        InputError: the settings cannot work, Trainer is missing, access is denied, or training raised it.
        Interrupted: a pod died, or somebody deleted the TrainJob; repeating resumes from the last snapshot.
        Terminated: SIGTERM arrived; the TrainJob was deleted, and its pods save their state.
    """
    refuse_negative(gpus=int(pods.gpus))
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
    command += ["--gpus", pods.gpus, "--root", place]
    api = Api.of_pod()
    if api is None:
        raise InputError(
            "there is no Kubernetes API here: training on several nodes must be started from a pod of the cluster, "
            "with a service account that may create TrainJobs"
        )
    follow(api, train_job(f"tlm-{recipe.key}", command, pods, nodes, own_image(api)))
    uri = finished(recipe, root)
    if uri is None:
        raise Interrupted(f"the TrainJob ended without a checkpoint under {place}; look at its pods, then repeat")
    return uri


def train_job(name: str, command: list[str], pods: Pods, nodes: int, image: str) -> dict[str, Any]:
    """Return the TrainJob `name`, which runs `command` in pods under the pipeline's own security settings."""
    text = files("tlm.runs").joinpath("trainjob.yaml").read_text(encoding="utf-8")
    shared = {name: getattr(every, name) for name in ("USER", "SCRATCH", "SHARED_MEMORY")}
    job: dict[str, Any] = yaml.safe_load(Template(text).substitute(shared))
    job["metadata"]["name"] = name
    resources = {"cpu": pods.cpu, "memory": pods.memory} | ({pods.gpu_type: pods.gpus} if int(pods.gpus) else {})
    settings = [_variable(key, "configMapKeyRef", every.CONFIG_MAP) for key in every.S3_ADDRESSES]
    secrets = [_variable(key, "secretKeyRef", every.S3_SECRET) for key in every.S3_KEYS]
    job["spec"]["trainer"] = {
        "image": image,
        "command": command[:1],
        "args": command[1:],
        "env": settings + secrets,
        "numNodes": nodes,
        "numProcPerNode": max(1, int(pods.gpus)),
        "resourcesPerNode": {"requests": resources, "limits": dict(resources)},
    }
    (replicated,) = job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    if pods.node_selector:
        pod["nodeSelector"] = pods.node_selector
    if pods.tolerations:
        pod["tolerations"] = [{name: _whole(value) for name, value in each.items()} for each in pods.tolerations]
    return job


def _variable(key: str, source: str, name: str) -> dict[str, Any]:
    """An environment variable from a ConfigMap or Secret; optional, as with workload identity there are no keys."""
    return {"name": key, "valueFrom": {source: {"name": name, "key": key, "optional": True}}}


def _whole(value: Any) -> Any:
    """Undo what KFP does to whole numbers within lists: it passes them on as floats."""
    return int(value) if isinstance(value, float) else value
