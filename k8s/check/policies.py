"""Check what the network policies let through and what they stop: ``python -m k8s.check.policies``.

Starts a few small pods, tries every connection in `CONNECTIONS` from inside of them, prints each with what was wanted,
and deletes the pods. A connection that must fail counts only if the same server answers somebody else; otherwise it is
*not checked*, as is one to a server that is not installed. Fails if a connection is not as wanted. Needs kubectl, with
the right to create pods and a namespace. From the environment:

* ``NAMESPACE``: of the runs [kubeflow]
* ``IMAGES``: file that `make images` wrote, for an image with Python [build/images.json]
* ``OUTSIDE``: a server outside of the cluster, HOST:PORT, which a step must not reach; at port 443 it may, for S3
  [example.org:80]
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

NAMESPACE = os.environ.get("NAMESPACE", "kubeflow")
ELSEWHERE = "tlm-check-policies"  # a namespace of our own
PORT = 8000  # where each of our pods listens
CONFIG_MAP = "tlm"
ELASTICSEARCH, S3 = "https://tlm-es-http.tlm.svc:9200", "https://s3.amazonaws.com"  # without an address in it
OURS = "app.kubernetes.io/name"
# name → (namespace, labels)
PODS = {
    "step": (NAMESPACE, {OURS: "tlm", "app.kubernetes.io/component": "index"}),
    "preflight": (NAMESPACE, {OURS: "tlm", "app.kubernetes.io/component": "preflight"}),
    "training": (NAMESPACE, {OURS: "tlm", "app.kubernetes.io/component": "train"}),
    "training-2": (NAMESPACE, {OURS: "tlm", "app.kubernetes.io/component": "train"}),
    "neighbour": (NAMESPACE, {}),
    "foreigner": (ELSEWHERE, {}),
    "step-elsewhere": (ELSEWHERE, {OURS: "tlm"}),
    "elasticsearch-node": (
        "tlm",
        {"elasticsearch.k8s.elastic.co/cluster-name": "tlm"},
    ),  # of its policy, not its Service
}
LISTEN = f"import http.server as h; h.ThreadingHTTPServer(('', {PORT}), h.BaseHTTPRequestHandler).serve_forever()"
TRY = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def answers(place):
    try:
        socket.create_connection(place, timeout=4).close()
        return True
    except OSError:
        return False
places = json.loads(sys.argv[1])
with ThreadPoolExecutor() as pool:
    print(json.dumps(list(pool.map(answers, places))))
"""


class Connection(NamedTuple):
    """From one of `PODS` to a server, whether it must succeed, and which pod shows that the server is there at all."""

    source: str
    server: str
    allowed: bool = True
    witness: str = ""


def refused(servers: str, *sources: str, witness: str = "neighbour") -> Iterator[Connection]:
    """Yield the connections from each source to each server, which must fail."""
    for source in sources:
        for server in servers.split():
            yield Connection(source, server, False, witness)


CONNECTIONS = [
    *(
        Connection("step", server)
        for server in ("s3", "kfp-api", "kfp-grpc", "metadata", "elasticsearch", "kubernetes")
    ),
    *(Connection("training", server) for server in ("s3", "kfp-api", "metadata", "kubernetes", "training-2")),
    Connection("preflight", "model-registry", witness="neighbour"),
    Connection("step-elsewhere", "elasticsearch"),
    Connection("elasticsearch-node", "elasticsearch"),
    *refused("database page neighbour foreigner outside node-metadata model-registry", "step"),
    *refused("foreigner outside node-metadata", "training"),
    *refused("step training", "neighbour", "foreigner", "preflight", witness="itself"),
    *refused("step preflight", "training", witness="itself"),
    *refused("elasticsearch", "neighbour", "foreigner", witness="step"),
    *refused("foreigner kubernetes outside", "elasticsearch-node"),
    *refused("elasticsearch-node", "step", "neighbour", witness="itself"),
]


def addresses() -> dict[str, tuple[str, int]]:
    """Where the servers are: those of KFP by their names, the store and Elasticsearch as the ConfigMap says."""
    settings = json.loads(kubectl("get", "configmap", CONFIG_MAP, "-o", "json", "-n", NAMESPACE))["data"]
    kfp = {"kfp-api": ("ml-pipeline", 8888), "kfp-grpc": ("ml-pipeline", 8887), "page": ("ml-pipeline-ui", 80)}
    kfp |= {"metadata": ("metadata-grpc-service", 8080), "database": ("mysql", 3306)}
    kfp |= {"model-registry": ("model-registry-service", 8080)}
    outside, _, port = os.environ.get("OUTSIDE", "example.org:80").rpartition(":")
    return {name: (f"{service}.kubeflow.svc", port) for name, (service, port) in kfp.items()} | {
        "s3": place(settings.get("AWS_ENDPOINT_URL_S3", S3)),
        "elasticsearch": place(settings.get("TLM_ELASTICSEARCH_URL", ELASTICSEARCH)),
        "kubernetes": ("kubernetes.default.svc", 443),
        "node-metadata": ("169.254.169.254", 80),
        "outside": (outside, int(port)),
    }


def place(url: str) -> tuple[str, int]:
    """Return the host and the port of an address."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def pod(name: str, image: str) -> dict[str, Any]:
    """Return a pod that listens, and that the profile `restricted` allows; the node tries again if its start fails."""
    namespace, labels = PODS[name]
    own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    sizes = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "128Mi"}}
    container = {"name": "main", "image": image, "command": ["python3", "-c", LISTEN]}
    container |= {"imagePullPolicy": "IfNotPresent", "securityContext": own, "resources": sizes}
    user = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [container], "securityContext": user, "automountServiceAccountToken": False}
    spec |= {"restartPolicy": "Always", "terminationGracePeriodSeconds": 0}
    metadata = {"name": f"{ELSEWHERE}-{name}", "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def kubectl(*arguments: str, given: str | None = None) -> str:
    """Run kubectl and return what it prints; its messages go to ours. Ends the program if it fails."""
    done = subprocess.run(["kubectl", *arguments], input=given, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"kubectl {' '.join(arguments[:3])} … failed")
    return done.stdout


def start(image: str) -> dict[str, tuple[str, int]]:
    """Start the pods whose namespace exists, and return where each listens."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}}
    kubectl("apply", "-f", "-", given=json.dumps(namespace))
    wanted = {space for space, _ in PODS.values()}
    spaces = {space for space in wanted if kubectl("get", "namespace", space, "--ignore-not-found")}
    names = [name for name, (space, _) in PODS.items() if space in spaces]
    kubectl("apply", "-f", "-", given="\n---\n".join(json.dumps(pod(name, image)) for name in names))
    found = {}
    for name in names:
        named = (f"pod/{ELSEWHERE}-{name}", "-n", PODS[name][0])
        kubectl("wait", *named, "--for", "condition=Ready", "--timeout=180s")
        found[name] = (kubectl("get", *named, "-o", "jsonpath={.status.podIP}"), PORT)
    return found


def stop() -> None:
    """Delete the pods and the namespace."""
    for name, (space, _) in PODS.items():
        kubectl("delete", f"pod/{ELSEWHERE}-{name}", "-n", space, "--ignore-not-found", "--wait=false")
    kubectl("delete", "namespace", ELSEWHERE, "--ignore-not-found", "--wait=false")


def tried(pods: dict[str, tuple[str, int]], servers: dict[str, tuple[str, int]]) -> dict[tuple[str, str], bool]:
    """Return whether a server answers a pod, for those in `CONNECTIONS` that are there, and for their witnesses."""
    places = servers | pods
    pairs = [(each.source, each.server) for each in CONNECTIONS]
    pairs += [(witness_of(each), each.server) for each in CONNECTIONS if each.witness]
    wanted: dict[str, list[str]] = {}
    for source, server in dict.fromkeys(pairs):
        if source in pods and server in places:
            wanted.setdefault(source, []).append(server)

    def ask(source: str) -> list[bool]:
        inside = json.dumps([places[server] for server in wanted[source]])
        command = ("exec", f"{ELSEWHERE}-{source}", "-n", PODS[source][0], "--", "python3", "-c", TRY, inside)
        answers: list[bool] = json.loads(kubectl(*command))
        return answers

    with ThreadPoolExecutor() as pool:
        found = dict(zip(wanted, pool.map(ask, wanted), strict=True))
    return {(source, server): found[source][at] for source in wanted for at, server in enumerate(wanted[source])}


def witness_of(connection: Connection) -> str:
    """Return the pod that shows that the connection's server is there; empty if it needs none."""
    return connection.server if connection.witness == "itself" else connection.witness


def judged(connection: Connection, answers: dict[tuple[str, str], bool]) -> str:
    """Return *as wanted*, *wrong* or *not checked* for a connection."""
    answer = answers.get((connection.source, connection.server))
    there = answers.get((witness_of(connection), connection.server))
    if answer is None or (connection.witness and not answer and not there):
        return "not checked"
    return "as wanted" if answer is connection.allowed else "wrong"


def main() -> None:
    """Try everything, print a line for each connection and the counts."""
    images = json.loads(Path(os.environ.get("IMAGES", "build/images.json")).read_text())
    image = next(made for made in images.values() if "tlm-data" in made)
    servers = addresses()
    try:
        answers = tried(start(image), servers)
    finally:
        stop()
    verdicts = [judged(each, answers) for each in CONNECTIONS]
    for (source, server, allowed, _), verdict in zip(CONNECTIONS, verdicts, strict=True):
        print(f"{verdict:11}  {source:18} {'must reach' if allowed else 'must not reach':14} {server}")
    counts = {verdict: verdicts.count(verdict) for verdict in ("as wanted", "wrong", "not checked")}
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if counts["wrong"] and not any(
        verdict == "as wanted" for each, verdict in zip(CONNECTIONS, verdicts, strict=True) if not each.allowed
    ):
        print("no connection was stopped: this cluster's network does not enforce policies")
    sys.exit(1 if counts["wrong"] else 0)


if __name__ == "__main__":
    main()
