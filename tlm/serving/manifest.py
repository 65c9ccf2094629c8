"""The command `manifest`: what Kubernetes needs to serve a model by KServe, as YAML."""

import json
import os
import re
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml

from tlm.artifacts.artifact import Artifact
from tlm.data.marks import SPANS_FIRST
from tlm.errors import InputError
from tlm.evaluation.predict.encoder import ONNX
from tlm.serving.export_onnx import trained_model
from tlm.settings.options import THREADS
from tlm.shallow.folder import CONFIG, FAMILY, config_of

Runtime = Literal["huggingface", "tlm"]
NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")  # KServe makes longer names of it, of at most 63 characters
MOUNTED = "/mnt/models"  # where KServe puts the files of a storageUri
PORT = 8080
POD_LABEL = "serving.kserve.io/inferenceservice"
LOADING_SECONDS = 600  # until then, a pod that loads its model is not taken for a dead one
USER = 65532


def manifest(
    model: str,
    *,
    name: str,
    runtime: Runtime = "huggingface",
    image: str = "",
    service_account: str = "",
    namespace: str = "",
    cpu: str = "1",
    memory: str = "2Gi",
) -> str:
    """Print an InferenceService and a NetworkPolicy, with which KServe serves a model at an address in the cluster.

    KServe copies the model from the store. The address of the files has the digest of their contents in it, so that
    it never changes under a service that runs. Apply it with `tlm manifest … | kubectl apply -f -`.

    Args:
        model: URI of a model on S3, or of its metrics.
        name: Name of the service, and of the model in its paths.
        runtime: What serves: KServe's own runtime for Hugging Face models, or `tlm serve`, which serves every model.
        image: Image of `tlm serve`, for that runtime.
        service_account: Service account with the store's credentials, as KServe's documentation describes them.
        namespace: Namespace of the service; by default that of kubectl.
        cpu: CPU of the pod.
        memory: Memory of the pod.

    Returns:
        Two YAML documents.

    Raises:
        InputError: a name or image that does not fit, a model that is not on S3, or one that the runtime cannot serve.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"name is '{name}'; expected at most 40 lower-case letters, digits and '-', a letter first")
    if (runtime == "tlm") != bool(image):
        raise InputError(f"runtime is {runtime} and image is '{image}'; give an image for tlm, and for tlm alone")
    trained = trained_model(model)
    address = storage_uri(trained)
    resources = {kind: {"cpu": cpu, "memory": memory} for kind in ("requests", "limits")}
    predictor: dict[str, Any] = {"serviceAccountName": service_account} if service_account else {}
    if runtime == "tlm":
        predictor |= _own_pod(name, image, address, resources)
    else:
        predictor["model"] = _hugging_face(trained, name, address, resources)
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    mode = {"annotations": {"serving.kserve.io/deploymentMode": "Standard"}}  # needs neither Knative nor a mesh
    service = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": metadata | mode,
        "spec": {"predictor": predictor},
    }
    return yaml.safe_dump_all([service, _policy(metadata, name)], sort_keys=False).rstrip()


def storage_uri(model: Artifact) -> str:
    """The address of a model's folder in its store. Raises InputError if no cluster can read it there."""
    if not model.uri.startswith("s3://"):
        raise InputError(
            f"{model.uri} is not on S3, where a cluster could read it; run the pipeline with an s3:// root"
        )
    return model.address("model")


def store_port() -> int:
    """The port of the S3 server that boto3 would use."""
    address = urlsplit(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "https://")
    try:
        return address.port or (80 if address.scheme == "http" else 443)
    except ValueError:
        raise InputError(f"the port of {address.geturl()} is no number up to 65535; fix AWS_ENDPOINT_URL_S3") from None


def _hugging_face(model: Artifact, name: str, address: str, resources: dict[str, Any]) -> dict[str, Any]:
    config = config_of(model.path(f"model/{CONFIG}").parent)
    advice = "; use --runtime tlm"
    if FAMILY in config or ONNX in config:
        kind = config.get(FAMILY) or "onnx"
        raise InputError(f"{model.uri} is a model of the family '{kind}', which transformers does not load{advice}")
    if SPANS_FIRST in config:
        raise InputError(f"{model.uri} reads marked spans first, which only `tlm` prepares so{advice}")
    if config.get("problem_type") == "regression":
        raise InputError(f"{model.uri} predicts a number, but KServe's runtime answers with classes{advice}")
    tokenizer = json.loads(model.path("model/tokenizer_config.json").read_text(encoding="utf-8"))
    return {
        "modelFormat": {"name": "huggingface"},
        "protocolVersion": "v1",
        "storageUri": address,
        "args": [
            f"--model_name={name}",
            "--backend=huggingface",
            "--task=sequence_classification",
            "--dtype=float32",
            f"--max_model_len={tokenizer['model_max_length']}",
            "--return_probabilities",
        ],
        "resources": resources,
    }


def _own_pod(name: str, image: str, address: str, resources: dict[str, Any]) -> dict[str, Any]:
    def probe(path: str) -> dict[str, Any]:
        return {"httpGet": {"path": f"/v2/health/{path}", "port": PORT}}

    container = {
        "name": "kserve-container",
        "image": image,
        "command": ["tlm", "serve", MOUNTED],
        "args": ["--host", "0.0.0.0", "--port", f"{PORT}", "--name", name],
        "env": [
            {"name": "STORAGE_URI", "value": address},  # KServe reads it, and mounts the files
            {"name": THREADS, "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},  # in whole CPUs
        ],
        "ports": [{"containerPort": PORT, "protocol": "TCP"}],
        "startupProbe": {**probe("live"), "periodSeconds": 5, "failureThreshold": LOADING_SECONDS // 5},
        "readinessProbe": probe("ready"),
        "livenessProbe": probe("live"),
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }
    pod = {"runAsUser": USER, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "containers": [container],
        "securityContext": pod,
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
    }


def _policy(metadata: dict[str, str], name: str) -> dict[str, Any]:
    """Requests come in at the service's port; out go those for names, and to the store."""
    names = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {**metadata, "name": f"{name}-predictor"},
        "spec": {
            "podSelector": {"matchLabels": {POD_LABEL: name}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"port": PORT, "protocol": "TCP"}]}],
            "egress": [{"ports": names}, {"ports": [{"port": store_port(), "protocol": "TCP"}]}],
        },
    }
