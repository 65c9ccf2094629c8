"""Build the TrainJob that Kubeflow Trainer runs (API v1alpha1, as of Trainer 2.3)."""

from typing import Any

from tlm.options import Pods

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
