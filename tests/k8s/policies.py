"""What our manifests must hold: each policy is a function from resources to sentences, one for each violation."""

import re
from collections.abc import Callable, Iterator
from typing import Any

Resource = dict[str, Any]
Policy = Callable[[list[Resource]], Iterator[str]]
SHARED = "kubeflow"  # the namespace of the runs: KFP's, or a profile's; not ours
OURS = {"app.kubernetes.io/name": "tlm"}
EXACT = re.compile(r"^(?:[^\s@]+@sha256:[0-9a-f]{64}|[^\s:@]+(?::\d+/[^\s:@]+)?:(?!latest$)[\w.-]+)$")
PLACEHOLDER = re.compile(r"^<[a-z][^<>]*>$")
SECRET_WORD = re.compile(r"password|passwd|secret|token|api.?key|private.?key|access.?key", re.IGNORECASE)
RESTRICTED_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
HARMLESS_LIMITS = {"type", "defaultRequest"}


def no_secret_data(resources: list[Resource]) -> Iterator[str]:
    """Secrets hold placeholders, and nothing else holds what looks like a secret."""
    for resource in resources:
        values = {**resource.get("data", {}), **resource.get("stringData", {})}
        if resource["kind"] == "Secret":
            yield from (f"{named(resource)} has data: {name}" for name, value in values.items() if not _empty(value))
        elif resource["kind"] == "ConfigMap":
            yield from (f"{named(resource)} has {name}" for name in values if SECRET_WORD.search(name))


def exact_images(resources: list[Resource]) -> Iterator[str]:
    """Every image has an exact tag or a digest, and Elasticsearch an exact version."""
    for resource in resources:
        for path, value in walk(resource):
            if path[-1] == "image" and isinstance(value, str) and not EXACT.match(value):
                yield f"{named(resource)} has the image '{value}'"
        if resource["kind"] == "Elasticsearch" and not re.fullmatch(r"\d+\.\d+\.\d+", str(resource["spec"]["version"])):
            yield f"{named(resource)} has no exact version"


def least_privilege(resources: list[Resource]) -> Iterator[str]:
    """Roles of one namespace, without wildcards; secrets only by name; nobody's default account gets any."""
    for resource in resources:
        if resource["kind"] in ("ClusterRole", "ClusterRoleBinding"):
            yield f"{named(resource)} reaches beyond a namespace"
        for rule in resource.get("rules", []):
            if "*" in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]:
                yield f"{named(resource)} has a wildcard"
            if "secrets" in rule["resources"] and (not rule.get("resourceNames") or rule["verbs"] != ["get"]):
                yield f"{named(resource)} may do more with secrets than get some by name"
            if {"pods/exec", "pods/attach", "serviceaccounts/token"} & set(rule["resources"]):
                yield f"{named(resource)} may act as somebody else"
        for subject in resource.get("subjects", []):
            if subject["name"] == "default" or subject["kind"] != "ServiceAccount":
                yield f"{named(resource)} gives rights to {subject['kind']} {subject['name']}"


def leaves_others_alone(resources: list[Resource]) -> Iterator[str]:
    """In a namespace that is not ours nothing changes for other pods."""
    for resource in resources:
        if resource["kind"] == "Namespace" and resource["metadata"]["name"] == SHARED:
            yield f"{named(resource)} is not ours to change"
        if resource["metadata"].get("namespace") != SHARED:
            continue
        selector = resource.get("spec", {}).get("podSelector", resource.get("spec", {}).get("selector", {}))
        if resource["kind"] in ("NetworkPolicy", "PodDisruptionBudget") and not _selects_ours(selector):
            yield f"{named(resource)} selects pods that are not ours"
        if resource["kind"] == "ResourceQuota":
            for name in resource["spec"]["hard"]:
                if not name.startswith("count/") and not re.match(r"requests\.[a-z0-9.-]+\.[a-z]+/", name):
                    yield f"{named(resource)} counts {name}: pods that name none would be refused"
        if resource["kind"] == "LimitRange":
            for limit in resource["spec"]["limits"]:
                yield from (f"{named(resource)} sets {name}" for name in sorted(set(limit) - HARMLESS_LIMITS))


def our_namespaces_are_guarded(resources: list[Resource]) -> Iterator[str]:
    """Namespaces that we make enforce Pod Security baseline and warn of restricted, and each has network policies."""
    guarded = {resource["metadata"].get("namespace") for resource in resources if resource["kind"] == "NetworkPolicy"}
    for resource in resources:
        if resource["kind"] == "Namespace":
            labels = resource["metadata"].get("labels", {})
            for mode, level in (("enforce", "baseline"), ("warn", "restricted")):
                if labels.get(f"pod-security.kubernetes.io/{mode}") != level:
                    yield f"{named(resource)} does not {mode} {level}"
            if resource["metadata"]["name"] not in guarded:
                yield f"{named(resource)} has no network policy"


def both_directions(resources: list[Resource]) -> Iterator[str]:
    """Network policies speak of both directions, and let nobody in or out by an empty rule."""
    for resource in resources:
        if resource["kind"] == "NetworkPolicy":
            spec = resource["spec"]
            if set(spec.get("policyTypes", [])) != {"Ingress", "Egress"}:
                yield f"{named(resource)} leaves a direction open"
            for direction, peer in (("ingress", "from"), ("egress", "to")):
                if any(not rule.get(peer) for rule in spec.get(direction, [])):
                    yield f"{named(resource)} has {direction} for everybody"


def elasticsearch_is_hardened(resources: list[Resource]) -> Iterator[str]:
    """Elasticsearch's pods meet the restricted profile as far as ECK leaves it to us, with limits, TLS and disks."""
    for resource in (resource for resource in resources if resource["kind"] == "Elasticsearch"):
        if resource["spec"].get("http", {}).get("tls", {}).get("selfSignedCertificate", {}).get("disabled"):
            yield f"{named(resource)} has no TLS"
        for nodes in resource["spec"]["nodeSets"]:
            pod = nodes["podTemplate"]["spec"]
            context = pod.get("securityContext", {})
            if not context.items() >= RESTRICTED_POD.items() or not context.get("runAsUser"):
                yield f"{named(resource)} does not meet the restricted profile"
            if pod.get("automountServiceAccountToken") is not False:
                yield f"{named(resource)} has a token of the Kubernetes API"
            for container in [*pod.get("initContainers", []), *pod["containers"]]:
                if container.get("securityContext", {}).get("privileged"):
                    yield f"{named(resource)} has a privileged container"
                if not {"cpu", "memory"} <= set(container.get("resources", {}).get("limits", {})):
                    yield f"{named(resource)} has no limits"
            if not nodes.get("volumeClaimTemplates"):
                yield f"{named(resource)} has no disk"
            if any(
                name.startswith("xpack.security") and str(value) == "False" for name, value in nodes["config"].items()
            ):
                yield f"{named(resource)} turns security off"


POLICIES: tuple[Policy, ...] = (
    no_secret_data,
    exact_images,
    least_privilege,
    leaves_others_alone,
    our_namespaces_are_guarded,
    both_directions,
    elasticsearch_is_hardened,
)


def named(resource: Resource) -> str:
    """Kind and name, for people."""
    return f"{resource['kind']} {resource['metadata']['name']}"


def walk(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Everything inside `value`, with the path to it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key), inner
        yield from walk(inner, (*path, key))


def _empty(value: Any) -> bool:
    return not value or bool(PLACEHOLDER.match(str(value)))


def _selects_ours(selector: dict[str, Any]) -> bool:
    return bool(selector.get("matchLabels", {}).items() >= OURS.items())
