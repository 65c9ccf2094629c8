"""Resources of training pods, checked before a run, and the TrainJob that Kubeflow Trainer runs (v1alpha1).

Quantities are those of Kubernetes (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).
"""

import re
from decimal import Decimal
from typing import Any

from tlm.errors import InputError
from tlm.settings.options import Pods

LEAST = {"cpu": "1", "memory": "2Gi"}  # what a training pod requests; its limits cannot be lower
A_GPU = {"cpu": (2, ""), "memory": (8, "Gi")}  # the least for each GPU, whose process makes batches and loads CUDA

_QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)(?:([numkMGTPE]|[KMGTPE]i)|e([+-]?\d+))?", re.ASCII)
_POWERS = {suffix: Decimal(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", "k", *"MGTPE"), -3)}
_POWERS |= {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)}
_TOLERATION = {"key", "operator", "value", "effect", "tolerationSeconds"}


def check_pods(pods: Pods) -> None:
    """Raise InputError for resources that no training pod can have, by the names of a pipeline's parameters."""
    amounts = {name: _amount(name, getattr(pods, name)) for name in LEAST}
    for name, least in LEAST.items():
        if amounts[name] < _amount(name, least):
            raise InputError(
                f"train_{name} is {getattr(pods, name)}; expected {least} or more, which is what a training "
                "pod requests"
            )
    if not re.fullmatch(r"[0-9]+", pods.gpus):
        raise InputError(f"train_gpus is '{pods.gpus}'; expected a whole number, 0 or more")
    if not pods.gpu_type.strip():
        raise InputError("train_gpu_type is empty; expected the name of a resource, such as nvidia.com/gpu")
    for name, (each, unit) in A_GPU.items():
        least = f"{int(pods.gpus) * each}{unit}"
        if amounts[name] < _amount(name, least):
            raise InputError(
                f"train_{name} is {getattr(pods, name)} and train_gpus {pods.gpus}; expected train_{name}={least} or "
                f"more, {each}{unit} for each GPU"
            )
    for key, value in pods.node_selector.items():
        if not isinstance(value, str):
            raise InputError(f"train_node_selector: label {key} is {value!r}; expected text, in quotes")
    for toleration in pods.tolerations:
        if not isinstance(toleration, dict) or not toleration or toleration.keys() - _TOLERATION:
            raise InputError(
                f"train_tolerations: {toleration!r} is no toleration; expected an object with some of "
                f"{', '.join(sorted(_TOLERATION))}"
            )


def _amount(name: str, value: str) -> Decimal:
    found = amount(value)
    if found is None:
        raise InputError(f"train_{name} is '{value}'; expected a Kubernetes quantity, such as {getattr(Pods(), name)}")
    return found


def amount(quantity: str) -> Decimal | None:
    """The number that a quantity such as 500m or 16Gi stands for; None if it is none."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    return Decimal(number) * (Decimal(10) ** int(exponent) if exponent else _POWERS[suffix or ""])


API_VERSION = "trainer.kubeflow.org/v1alpha1"
MANAGER = "tlm/trainjob"  # Trainer records who patches a runtime
USER = 65532
RUNTIME, NODE = "torch-distributed", "node"  # a ClusterTrainingRuntime, its replicated job and container
SERVICE_ACCOUNT = "tlm-runner"
LABELS = {"app.kubernetes.io/name": "tlm", "app.kubernetes.io/component": "train"}
CONFIG_MAP = "tlm"
S3_ADDRESSES = ("AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "TLM_HTTP_HOSTS", "TLM_BUCKETS")
S3_SECRET, S3_KEYS = "tlm-s3", ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
SCRATCH, SHARED_MEMORY = "100Gi", "2Gi"
GRACE_SECONDS = 300  # to save a large model's state; Trainer 2.2 ignores the field and gives 30


def train_job(name: str, command: list[str], pods: Pods, nodes: int, image: str) -> dict[str, Any]:
    """Return the TrainJob `name`, which runs `command` in pods under the pipeline's own security settings."""
    resources = {"cpu": pods.cpu, "memory": pods.memory} | ({pods.gpu_type: pods.gpus} if int(pods.gpus) else {})
    trainer = {
        "image": image,
        "command": command[:1],
        "args": command[1:],
        "numNodes": nodes,
        "numProcPerNode": max(1, int(pods.gpus)),
        "resourcesPerNode": {"requests": resources, "limits": dict(resources)},
        "env": [
            *(_variable(key, "configMapKeyRef", CONFIG_MAP) for key in S3_ADDRESSES),
            *(_variable(key, "secretKeyRef", S3_SECRET) for key in S3_KEYS),
        ],
    }
    template = {"spec": {"template": {"metadata": {"labels": LABELS}, "spec": _pod(pods)}}}
    replicated = {"replicatedJobs": [{"name": NODE, "template": template}]}
    patch = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": replicated}}}
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": {"name": name, "labels": LABELS},
        "spec": {"runtimeRef": {"name": RUNTIME}, "trainer": trainer, "runtimePatches": [patch]},
    }


def _variable(key: str, source: str, name: str) -> dict[str, Any]:
    """An environment variable from a ConfigMap or Secret; optional, as with workload identity there are no keys."""
    return {"name": key, "valueFrom": {source: {"name": name, "key": key, "optional": True}}}


def _pod(pods: Pods) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "serviceAccountName": SERVICE_ACCOUNT,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsUser": USER, "runAsGroup": USER, "runAsNonRoot": True, "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": NODE,
                "volumeMounts": [
                    {"name": "scratch", "mountPath": "/tmp"}, {"name": "shared-memory", "mountPath": "/dev/shm"},
                ],
                "securityContext": {
                    "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": SCRATCH}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}},
        ],
    }  # fmt: skip
    if pods.node_selector:
        pod["nodeSelector"] = pods.node_selector
    if pods.tolerations:
        pod["tolerations"] = [{name: _whole(value) for name, value in each.items()} for each in pods.tolerations]
    return pod


def _whole(value: Any) -> Any:
    """Undo what KFP does to whole numbers within lists: it passes them on as floats."""
    return int(value) if isinstance(value, float) else value
