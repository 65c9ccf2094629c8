"""Our manifests hold every policy, and every policy fails on a planted violation."""

import copy
import os
from functools import reduce

import pytest
import yaml

from tests.k8s import policies, tools

BUILT = ["overlays/kind", "overlays/cluster"]


def resources_of(overlay: str) -> list[policies.Resource]:
    examples = (tools.ROOT / "k8s/examples/secrets.yaml").read_text()
    return [*yaml.safe_load_all(tools.build(tools.ROOT / "k8s" / overlay)), *yaml.safe_load_all(examples)]


@pytest.mark.parametrize("policy", policies.POLICIES, ids=lambda policy: policy.__name__)
@pytest.mark.parametrize("overlay", BUILT)
def test_our_manifests_hold(overlay, policy):
    assert list(policy(resources_of(overlay))) == []


def put(resources, where, value):
    """Set a value in the resource that `where` names: "Kind name path to value"."""
    kind, name, *path = where.split(" ")
    resource = next(one for one in resources if (one["kind"], one["metadata"]["name"]) == (kind, name))
    *way, last = [int(part) if part.isdigit() else part for part in path]
    inner = reduce(
        lambda found, key: found.setdefault(key, {}) if isinstance(found, dict) else found[key], way, resource
    )
    inner[last] = value


NODES = "Elasticsearch tlm spec nodeSets 0"
POD = f"{NODES} podTemplate spec"
STEPS = "NetworkPolicy tlm-steps spec"
PLANTED = [
    (policies.no_secret_data, "Secret tlm-s3 stringData AWS_SECRET_ACCESS_KEY", "hunter2"),
    (policies.no_secret_data, "ConfigMap tlm data AWS_SECRET_ACCESS_KEY", "<secret>"),
    (policies.exact_images, "Elasticsearch tlm spec image", "elasticsearch:latest"),
    (policies.exact_images, "Elasticsearch tlm spec image", "registry:5000/elasticsearch"),
    (policies.exact_images, "Elasticsearch tlm spec version", 9.5),
    (policies.least_privilege, "Role tlm-runner rules 0 verbs", ["*"]),
    (policies.least_privilege, "Role tlm-runner rules 1 resources", ["pods/exec"]),
    (policies.least_privilege, "Role tlm-runner rules 3 resourceNames", []),
    (policies.least_privilege, "Role tlm-runner rules 3 verbs", ["get", "list"]),
    (policies.least_privilege, "Role tlm-runner kind", "ClusterRole"),
    (policies.least_privilege, "RoleBinding tlm-runner subjects 0 name", "default"),
    (policies.leaves_others_alone, "Namespace tlm metadata name", "kubeflow"),
    (policies.leaves_others_alone, f"{STEPS} podSelector", {}),
    (policies.leaves_others_alone, "ResourceQuota tlm spec hard limits.memory", "64Gi"),
    (policies.leaves_others_alone, "ResourceQuota tlm spec hard pods", "10"),
    (policies.leaves_others_alone, "LimitRange tlm spec limits 0 default", {"memory": "1Gi"}),
    (policies.our_namespaces_are_guarded, "Namespace tlm metadata labels", {}),
    (policies.our_namespaces_are_guarded, "NetworkPolicy elasticsearch metadata namespace", "elsewhere"),
    (policies.both_directions, f"{STEPS} policyTypes", ["Ingress"]),
    (policies.both_directions, f"{STEPS} egress 0 to", []),
    (policies.elasticsearch_is_hardened, "Elasticsearch tlm spec http tls selfSignedCertificate disabled", True),
    (policies.elasticsearch_is_hardened, f"{POD} securityContext runAsNonRoot", False),
    (policies.elasticsearch_is_hardened, f"{POD} securityContext runAsUser", 0),
    (policies.elasticsearch_is_hardened, f"{POD} automountServiceAccountToken", True),
    (policies.elasticsearch_is_hardened, f"{POD} containers 0 securityContext privileged", True),
    (policies.elasticsearch_is_hardened, f"{POD} containers 0 resources limits", {"cpu": "1"}),
    (policies.elasticsearch_is_hardened, f"{NODES} volumeClaimTemplates", []),
    (policies.elasticsearch_is_hardened, f"{NODES} config xpack.security.enabled", False),
]


@pytest.mark.parametrize(("policy", "where", "value"), PLANTED, ids=lambda part: getattr(part, "__name__", None))
def test_a_planted_violation_is_found(policy, where, value):
    resources = copy.deepcopy(resources_of("overlays/kind"))
    put(resources, where, value)
    assert list(policy(resources))


def test_every_policy_has_a_planted_violation():
    assert {policy for policy, *_ in PLANTED} == set(policies.POLICIES)


def test_the_overlays_differ_where_they_should():
    kind, cluster = ({policies.named(one): one for one in resources_of(overlay)} for overlay in BUILT)
    elastic = "Elasticsearch tlm"
    assert kind[elastic]["spec"]["nodeSets"][0]["count"] == 1
    assert cluster[elastic]["spec"]["nodeSets"][0]["count"] == 3
    assert "AWS_ENDPOINT_URL_S3" not in cluster["ConfigMap tlm"]["data"]
    assert "PodDisruptionBudget tlm-training" in cluster.keys() - kind.keys()


def test_the_base_moves_whole_into_a_profiles_namespace(tmp_path):
    base = os.path.relpath(tools.ROOT / "k8s/base", tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(f"namespace: mine\nresources: [{base}]\n")
    moved = list(yaml.safe_load_all(tools.build(tmp_path.resolve())))
    assert {one["metadata"]["namespace"] for one in moved} == {"mine"}
    (binding,) = [one for one in moved if policies.named(one) == "RoleBinding tlm-runner"]
    assert [subject["namespace"] for subject in binding["subjects"]] == ["mine"]


def test_the_patch_of_retries_keeps_the_rest_of_kfps_configuration(tmp_path):
    """Applied to a ConfigMap such as KFP's: `retryPolicy: OnError` is gone, the other keys are as they were."""
    component = tools.ROOT / "k8s/components/kfp-retries"
    (tmp_path / "retries").mkdir()
    for file in component.iterdir():
        (tmp_path / "retries" / file.name).write_bytes(file.read_bytes())
    stock = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "workflow-controller-configmap", "namespace": "kubeflow"},
        "data": {
            "artifactRepository": "archiveLogs: true\n",
            "workflowDefaults": "spec: {templateDefaults: {retryStrategy: {limit: '2', retryPolicy: OnError}}}\n",
        },
    }
    (tmp_path / "stock.yaml").write_text(yaml.safe_dump(stock))
    (tmp_path / "kustomization.yaml").write_text("resources: [stock.yaml]\ncomponents: [retries]\n")
    data = yaml.safe_load(tools.build(tmp_path))["data"]
    assert data["artifactRepository"] == "archiveLogs: true\n"
    spec = yaml.safe_load(data["workflowDefaults"])["spec"]
    assert spec["templateDefaults"]["retryStrategy"] == {"limit": "0", "retryPolicy": "Always"}
    assert spec["ttlStrategy"] == {"secondsAfterCompletion": 604_800}  # a week
