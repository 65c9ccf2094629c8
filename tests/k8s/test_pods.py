"""The compiled pipeline's pods: what they ask for fits the manifests, and they meet the restricted profile."""

import copy
import importlib
import pkgutil
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
import yaml
from kfp.dsl.python_component import PythonComponent

import components
import research.components
from components.base import TRAIN_IMAGE
from pipelines.compiled import compile_text
from pipelines.steps import LONG
from tests.k8s import policies, tools
from tlm.runs.pods import amount
from tlm.runs.trainjob import train_job
from tlm.settings.options import Pods

Pipeline = list[dict[str, Any]]
KNOWN_FILES = {"/tmp", "/dev/shm", "/etc/tlm/elasticsearch", "/etc/tlm/elasticsearch-reader", "/etc/tlm/model-registry"}


@pytest.fixture(scope="module")
def compiled() -> Pipeline:
    return list(yaml.safe_load_all(compile_text()))


@pytest.fixture(scope="module")
def manifests() -> list[policies.Resource]:
    return list(yaml.safe_load_all(tools.build(tools.ROOT / "k8s/overlays/kind")))


def pods(pipeline: Pipeline) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, container and settings of each step's pod."""
    intermediate, platform = pipeline
    settings = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for name, executor in intermediate["deploymentSpec"]["executors"].items():
        yield name.removeprefix("exec-"), executor["container"], settings.get(name, {})


def restricted(pipeline: Pipeline) -> Iterator[str]:
    """No root, no privilege, no host; KFP itself drops all capabilities, forbids escalation and sets seccomp."""
    for name, _, pod in pods(pipeline):
        context = pod.get("securityContext", {})
        if context.get("runAsNonRoot") is not True or int(context.get("runAsUser", 0)) == 0:
            yield f"{name} may run as root"
        if context.keys() - {"runAsUser", "runAsGroup", "runAsNonRoot"}:
            yield f"{name} changes more of its security context"
        if pod.keys() & {"hostPathMounts", "hostPathMount", "hostNetwork"}:
            yield f"{name} uses the host"


def exact_image(pipeline: Pipeline) -> Iterator[str]:
    for name, container, pod in pods(pipeline):
        if not policies.EXACT.match(container["image"]):
            yield f"{name} has the image {container['image']}"
        if str(pod.get("imagePullPolicy", "IfNotPresent")).lower() == "always":
            yield f"{name} is pulled always"


def limited(pipeline: Pipeline) -> Iterator[str]:
    """Requests and limits of CPU and memory, a bound on scratch space and on time."""
    for name, container, pod in pods(pipeline):
        wanted = {f"resource{what}{which}" for what in ("Cpu", "Memory") for which in ("Request", "Limit")}
        if missing := wanted - container.get("resources", {}).keys():
            yield f"{name} lacks {sorted(missing)}"
        volumes = pod.get("emptyDirMounts", [])
        if not any(volume["mountPath"] == "/tmp" for volume in volumes) or not all(v.get("sizeLimit") for v in volumes):
            yield f"{name} has no bounded /tmp"
        if not int(pod.get("activeDeadlineSeconds", 0)):
            yield f"{name} may run for ever"


def secrets_by_name(pipeline: Pipeline) -> Iterator[str]:
    """Only the secrets that the examples make, none of them required, and none as a parameter or a plain variable."""
    examples = yaml.safe_load_all((tools.ROOT / "k8s/examples/secrets.yaml").read_text())
    keys = {secret["metadata"]["name"]: set(secret["stringData"]) for secret in examples}
    keys["tlm-s3"] |= {"AWS_SESSION_TOKEN"}
    for name, container, pod in pods(pipeline):
        for use in [*pod.get("secretAsEnv", []), *pod.get("secretAsVolume", [])]:
            used = {pair["secretKey"] for pair in use.get("keyToEnv", [])}
            if use["secretName"] not in keys or not used <= keys[use["secretName"]]:
                yield f"{name} wants {sorted(used)} of the secret {use['secretName']}, which nobody makes"
            if not use.get("optional"):
                yield f"{name} does not start without the secret {use['secretName']}"
            if use.get("mountPath", "/tmp") not in KNOWN_FILES:
                yield f"{name} has a secret at {use['mountPath']}"
        for variable in container.get("env", []):
            if policies.SECRET_WORD.search(variable["name"]):
                yield f"{name} has {variable['name']} as a plain variable"
    for name in pipeline[0]["root"].get("inputDefinitions", {}).get("parameters", {}):
        if policies.SECRET_WORD.search(name.replace("tokenizer", "")):
            yield f"the parameter {name} looks like a secret"


def labelled(pipeline: Pipeline) -> Iterator[str]:
    """The labels that the network policies, and the disruption budget, select by."""
    for name, _, pod in pods(pipeline):
        labels = pod.get("podMetadata", {}).get("labels", {})
        if labels != {**policies.OURS, "app.kubernetes.io/component": name}:
            yield f"{name} has the labels {labels}"


CHECKS = (restricted, exact_image, limited, secrets_by_name, labelled)
SETTINGS = (1, "platforms", "kubernetes", "deploymentSpec", "executors", "exec-train")
CONTAINER = (0, "deploymentSpec", "executors", "exec-train", "container")
PLANTED = [
    (restricted, (*SETTINGS, "securityContext", "runAsUser"), "0"),
    (restricted, (*SETTINGS, "securityContext", "runAsNonRoot"), False),
    (restricted, (*SETTINGS, "hostPathMounts"), [{"path": "/"}]),
    (exact_image, (*CONTAINER, "image"), "ghcr.io/tlm-kubeflow/tlm-train:latest"),
    (exact_image, (*CONTAINER, "image"), "ghcr.io/tlm-kubeflow/tlm-train"),
    (exact_image, (*SETTINGS, "imagePullPolicy"), "Always"),
    (limited, (*CONTAINER, "resources"), {"resourceCpuLimit": "1"}),
    (limited, (*SETTINGS, "emptyDirMounts"), [{"mountPath": "/tmp"}]),
    (limited, (*SETTINGS, "activeDeadlineSeconds"), "0"),
    (secrets_by_name, (*SETTINGS, "secretAsEnv", 0, "secretName"), "other"),
    (secrets_by_name, (*SETTINGS, "secretAsEnv", 0, "optional"), False),
    (secrets_by_name, (*CONTAINER, "env"), [{"name": "API_KEY", "value": "1"}]),
    (secrets_by_name, (0, "root", "inputDefinitions", "parameters", "s3_secret_key"), {"parameterType": "STRING"}),
    (labelled, (*SETTINGS, "podMetadata", "labels"), {}),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_our_pods_hold(check, compiled):
    assert len(list(pods(compiled))) > 10
    assert list(check(compiled)) == []


@pytest.mark.parametrize(("check", "path", "value"), PLANTED, ids=lambda part: getattr(part, "__name__", None))
def test_a_planted_violation_is_found(check, path, value, compiled):
    broken = copy.deepcopy(compiled)
    inner: Any = broken
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert list(check(broken))


def test_every_check_has_a_planted_violation():
    assert {check for check, *_ in PLANTED} == set(CHECKS)


def test_the_pipelines_names_are_those_of_the_manifests(compiled, manifests):
    maps = {one["metadata"]["name"]: set(one["data"]) for one in manifests if one["kind"] == "ConfigMap"}
    for _, _, pod in pods(compiled):
        for use in pod.get("configMapAsEnv", []):
            assert maps[use["configMapName"]] <= {pair["configMapKey"] for pair in use["keyToEnv"]}
            assert use["optional"]


def test_every_pod_is_under_the_network_policy(compiled):
    cluster = {policies.named(one): one for one in yaml.safe_load_all(tools.build(tools.ROOT / "k8s/overlays/cluster"))}
    steps = cluster["NetworkPolicy tlm-steps"]["spec"]["podSelector"]["matchLabels"].items()
    labels = [pod["podMetadata"]["labels"] for _, _, pod in pods(compiled)]
    assert all(steps <= one.items() for one in labels)


# What Kubernetes (one node), Kubeflow Pipelines 2.17.0 and ECK request on kind, added up on such a cluster.
OTHERS = {"cpu": Decimal("1.724"), "memory": Decimal(4) * 1024**3}
RUNNER = {"cpu": Decimal(4), "memory": Decimal(16) * 1024**3}  # GitHub's ubuntu-24.04


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_any_two_steps_run_at_once_on_githubs_runner(compiled, manifests, resource):
    """With Elasticsearch and all that is there anyway; more steps wait for their turn."""
    (elasticsearch,) = (one for one in manifests if one["kind"] == "Elasticsearch")
    (nodes,) = elasticsearch["spec"]["nodeSets"]
    (container,) = nodes["podTemplate"]["spec"]["containers"]
    name = f"resource{resource.title()}Request"
    steps = sorted(amount(one["resources"][name]) for _, one, _ in pods(compiled))
    used = OTHERS[resource] + nodes["count"] * amount(container["resources"]["requests"][resource])
    assert used + sum(steps[-2:]) <= RUNNER[resource]


def of_the_train_image() -> set[str]:
    """The names of the components that run in the image with torch."""
    packages = (components, research.components)
    names = [f"{one.__name__}.{found.name}" for one in packages for found in pkgutil.iter_modules(one.__path__)]
    modules = map(importlib.import_module, names)
    found = {one for module in modules for one in vars(module).values() if isinstance(one, PythonComponent)}
    return {one.name for one in found if one.component_spec.implementation.container.image == TRAIN_IMAGE}


def test_no_training_step_is_drained():
    """A new component of the train image is added to the budget, or here if it does not train."""
    cluster = {policies.named(one): one for one in yaml.safe_load_all(tools.build(tools.ROOT / "k8s/overlays/cluster"))}
    selector = cluster["PodDisruptionBudget tlm-training"]["spec"]["selector"]
    assert selector["matchLabels"] == policies.OURS
    (kept,) = selector["matchExpressions"]
    assert (kept["key"], kept["operator"]) == ("app.kubernetes.io/component", "In")
    assert set(kept["values"]) == of_the_train_image() - {"models", "embed"}
    assert set(LONG) <= set(kept["values"])
    trainjob = train_job("tlm-1", ["tlm"], Pods(), 2, "image:1")
    assert trainjob["metadata"]["labels"]["app.kubernetes.io/component"] in kept["values"]  # and its pods
