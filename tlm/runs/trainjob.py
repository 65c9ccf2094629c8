"""The step `train` on several nodes: a TrainJob of Kubeflow Trainer does the work, this process follows it.

The TrainJob is named after the key of the result, so there is never more than one for the same work: a repetition
adopts one that still runs, and resumes from the last snapshot of one that has ended.
"""

from tlm.artifacts.artifact import home
from tlm.artifacts.produce import finished
from tlm.errors import InputError, Interrupted, refuse_negative
from tlm.progress import say
from tlm.runs.follow import Api, follow, own_image
from tlm.runs.pods import train_job
from tlm.settings.options import Pods
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
    follow(api, train_job(f"tlm-{recipe.key}", command, pods, nodes, own_image(api)))
    uri = finished(recipe, root)
    if uri is None:
        raise Interrupted(f"the TrainJob ended without a checkpoint under {place}; look at its pods, then repeat")
    return uri
