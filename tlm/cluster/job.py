"""The TrainJob: what Kubeflow Trainer (v1alpha1, as of Trainer 2.3) is asked to run."""

from dataclasses import dataclass, field
from typing import Any

API_VERSION = "trainer.kubeflow.org/v1alpha1"
MANAGER = "tlm/trainjob"  # whose patches of the runtime these are
USER = 65532
NODE = "node"  # the replicated job and the container of the runtime torch-distributed
CONFIG_MAP = "tlm"
S3_ADDRESSES = ("AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "TLM_HTTP_HOSTS", "TLM_BUCKETS")
S3_SECRET, S3_KEYS = "tlm-s3", ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
SCRATCH, SHARED_MEMORY = "100Gi", "2Gi"
GRACE_SECONDS = 300  # to save a large model's state; Trainer 2.2 does not know the field and leaves it at 30


@dataclass(frozen=True)
class Pods:
    """What each node's pod gets; quantities as Kubernetes writes them.

    Attributes:
        nodes: How many pods.
        gpus: Of each; 0 trains on CPUs.
        gpu_type: Their resource name.
    """

    image: str
    nodes: int
    gpus: int
    gpu_type: str
    cpu: str
    memory: str
    service_account: str
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[dict[str, Any]] = field(default_factory=list)


def train_job(name: str, command: list[str], pods: Pods, runtime: str) -> dict[str, Any]:
    """The resource: `command` in a pod on each node, as hardened as the pipeline's own pods."""
    trainer = {
        "image": pods.image,
        "command": command[:1],
        "args": command[1:],
        "numNodes": pods.nodes,
        "numProcPerNode": max(1, pods.gpus),
        "resourcesPerNode": _resources(pods),
        "env": _environment(),
    }
    patch = {
        "manager": MANAGER,
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [_replicated(pods)]}}},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": {"name": name, "labels": _labels()},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": trainer, "runtimePatches": [patch]},
    }


def _labels() -> dict[str, str]:
    return {"app.kubernetes.io/name": "tlm", "app.kubernetes.io/component": "train"}


def _resources(pods: Pods) -> dict[str, Any]:
    most = {"cpu": pods.cpu, "memory": pods.memory}
    if pods.gpus:
        most[pods.gpu_type] = str(pods.gpus)
    return {"requests": dict(most), "limits": most}


def _environment() -> list[dict[str, Any]]:
    """Addresses and keys, each of which may be missing (workload identity)."""
    addresses = [_from("configMapKeyRef", CONFIG_MAP, key) for key in S3_ADDRESSES]
    return addresses + [_from("secretKeyRef", S3_SECRET, key) for key in S3_KEYS]


def _from(source: str, name: str, key: str) -> dict[str, Any]:
    return {"name": key, "valueFrom": {source: {"name": name, "key": key, "optional": True}}}


def _replicated(pods: Pods) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "serviceAccountName": pods.service_account,
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
    return {"name": NODE, "template": {"spec": {"template": {"metadata": {"labels": _labels()}, "spec": pod}}}}


def _whole(value: Any) -> Any:
    """KFP hands on whole numbers within lists as floats."""
    return int(value) if isinstance(value, float) else value
