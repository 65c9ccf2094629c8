"""What k8s.check.policies wants of a cluster is what the manifests say, by a second reading of the policies."""

from ipaddress import ip_address, ip_network

import pytest
import yaml

from k8s.check.policies import CONNECTIONS, PODS, PORT, Connection, judged, place, pod
from tests.k8s import tools
from tlm.artifacts.stores.store import FORBIDDEN

KFP = "kubeflow"
ES = {"elasticsearch.k8s.elastic.co/cluster-name": "tlm"}
# the pods behind the Services of KFP's and ECK's manifests, or an address outside of the cluster's network
SERVERS = {
    "s3": (KFP, {"app": "seaweedfs"}, 8333),
    "kfp-api": (KFP, {"app": "ml-pipeline"}, 8888),
    "kfp-grpc": (KFP, {"app": "ml-pipeline"}, 8887),
    "metadata": (KFP, {"component": "metadata-grpc-server"}, 8080),
    "page": (KFP, {"app": "ml-pipeline-ui"}, 3000),
    "database": (KFP, {"app": "mysql"}, 3306),
    "model-registry": (KFP, {"component": "model-registry-server"}, 8080),
    "elasticsearch": ("tlm", ES, 9200),
    "kubernetes": ("172.18.0.2", None, 6443),
    "node-metadata": ("169.254.169.254", None, 80),
    "outside": ("203.0.113.1", None, 80),
    **{name: (space, labels, PORT) for name, (space, labels) in PODS.items()},
}


@pytest.fixture(scope="module")
def policies():
    built = yaml.safe_load_all(tools.build(tools.ROOT / "k8s/overlays/kind"))
    return [one for one in built if one["kind"] == "NetworkPolicy"]


def labels_fit(selector, labels):
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", []))


def peer_fits(peer, own_space, space, labels):
    if labels is None:
        block = peer.get("ipBlock")
        inside = block and ip_address(space) in ip_network(block["cidr"])
        return bool(inside) and not any(ip_address(space) in ip_network(one) for one in block.get("except", []))
    if "ipBlock" in peer:
        return False  # our pods have addresses of the cluster; a CNI need not match a block against them
    spaces = peer.get("namespaceSelector")
    there = space == own_space if spaces is None else labels_fit(spaces, {"kubernetes.io/metadata.name": space})
    return there and labels_fit(peer.get("podSelector", {}), labels)


def way_is_open(policies, way, whose, peer, port):
    """Whether the policies of the pod `whose` let a connection through in one direction."""
    space, labels = whose
    names = {"Ingress": ("ingress", "from"), "Egress": ("egress", "to")}[way]
    ours = [
        one for one in policies
        if one["metadata"]["namespace"] == space and way in one["spec"]["policyTypes"]
        and labels_fit(one["spec"]["podSelector"], labels)
    ]  # fmt: skip
    rules = [rule for one in ours for rule in one["spec"].get(names[0], [])]
    return not ours or any(
        any(peer_fits(each, space, *peer) for each in rule[names[1]])
        and ("ports" not in rule or any(each["port"] == port for each in rule["ports"]))
        for rule in rules
    )


@pytest.mark.parametrize("connection", CONNECTIONS, ids=lambda one: f"{one.source} to {one.server}")
def test_each_connection_is_wanted_as_the_manifests_say(connection, policies):
    source, (space, labels, port) = PODS[connection.source], SERVERS[connection.server]
    out = way_is_open(policies, "Egress", source, (space, labels), port)
    into = labels is None or way_is_open(policies, "Ingress", (space, labels), source, port)
    assert (out and into) == connection.allowed


def test_every_server_that_the_policies_name_is_tried(policies):
    ports = {
        each["port"] for one in policies for rule in one["spec"].get("egress", []) for each in rule.get("ports", [])
    }
    tried = {SERVERS[each.server][2] for each in CONNECTIONS if each.allowed}
    assert ports - tried == {53, 443, 9300}  # DNS, by which all are found; HTTPS, as the API server; between nodes
    assert {each.source for each in CONNECTIONS} | {"training-2"} == set(PODS)


@pytest.mark.parametrize(
    ("allowed", "answers", "witness_sees", "verdict"),
    [
        (True, True, None, "as wanted"),
        (True, False, True, "wrong"),
        (True, False, False, "not checked"),  # the server is not there for anybody
        (True, None, True, "not checked"),
        (False, True, True, "wrong"),
        (False, True, None, "wrong"),
        (False, False, True, "as wanted"),
        (False, False, False, "not checked"),
        (False, None, None, "not checked"),
    ],
)
def test_what_a_connection_shows(allowed, answers, witness_sees, verdict):
    seen = {("step", "page"): answers, ("neighbour", "page"): witness_sees}
    known = {pair: value for pair, value in seen.items() if value is not None}
    assert judged(Connection("step", "page", allowed, "neighbour"), known) == verdict


def test_a_server_that_runs_need_is_missed_without_a_witness():
    assert judged(Connection("step", "s3"), {("step", "s3"): False}) == "wrong"


def test_a_pod_whose_start_failed_is_started_again():
    assert all(pod(name, "tlm-data:1")["spec"]["restartPolicy"] == "Always" for name in PODS)


def test_places_of_servers():
    assert place("https://s3.amazonaws.com") == ("s3.amazonaws.com", 443)
    assert place("http://seaweedfs.kubeflow:9000") == ("seaweedfs.kubeflow", 9000)


def test_the_metadata_services_that_no_setting_may_name_cannot_be_reached_either(policies):
    rules = [rule for one in policies for rule in one["spec"].get("egress", [])]
    blocks = [peer["ipBlock"] for rule in rules for peer in rule.get("to", []) if "ipBlock" in peer]
    wide = [block for block in blocks if block["cidr"] in ("0.0.0.0/0", "::/0")]
    assert wide
    for block in wide:
        version = ip_network(block["cidr"]).version
        assert set(block["except"]) == {str(one) for one in FORBIDDEN if one.version == version}
