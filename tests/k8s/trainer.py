"""A stand-in for the Kubernetes API with Kubeflow Trainer behind it: only what a step that follows a TrainJob sees.

It is no proof that a real Trainer does the same; what we send is checked against Trainer's own definition elsewhere.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.servers.servers import free_port

HOME = Path(__file__).parents[2]
NAMESPACE = "runs"
JOBS = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"

Answer = tuple[int, Any]


@dataclass
class Trainer:
    """What there is now, what was asked, and what happens at each look at the job."""

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[str, list[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    created: list[dict[str, Any]] = field(default_factory=list)
    faults: list[Answer] = field(default_factory=list)  # given to the next calls, whatever they are
    at_look: list[Callable[[], None]] = field(default_factory=list)  # the last one again and again
    tokens: set[str] = field(default_factory=set)
    lists: dict[str, list[Any]] = field(default_factory=lambda: {"resourcequotas": [], "limitranges": []})

    def answer(self, method: str, url: str, body: Any) -> Answer:
        path, query = urlsplit(url).path, {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()}
        self.asked.append(f"{method} {path}")
        if self.faults:
            return self.faults.pop(0)
        if path == JOBS and method == "POST":
            return self._create(body)
        if path.startswith(f"{JOBS}/"):
            name = path.rpartition("/")[2]
            return self._delete(name, query) if method == "DELETE" else self._get(name)
        if (kind := path.rpartition("/")[2]) in self.lists:
            return 200, {"items": self.lists[kind]}
        if path == PODS:
            (name,) = re.findall(r"^jobset\.sigs\.k8s\.io/jobset-name=(.+)$", query["labelSelector"])
            return 200, {"items": [pod for pod in self.pods if name in self.jobs]}
        if match := re.fullmatch(f"{PODS}/([^/]+)/log", path):
            lines = self.logs.get(match[1])
            if lines is None:
                return 400, {"message": "container is waiting to start"}
            assert (query["container"], query["timestamps"]) == ("node", "true")
            last = lines[-int(query["tailLines"]) :] if "tailLines" in query else lines
            return 200, "".join(f"{line}\n" for line in last)
        if path.startswith(f"{PODS}/"):
            return 200, {"spec": {"containers": [{"name": "wait", "image": "argo"}, {"name": "main", "image": IMAGE}]}}
        return 404, {"message": "no such path"}

    def _create(self, job: dict[str, Any]) -> Answer:
        name = job["metadata"]["name"]
        if name in self.jobs:
            return 409, {"message": f'trainjobs.trainer.kubeflow.org "{name}" already exists'}
        self.created.append(job)
        self.jobs[name] = json.loads(json.dumps(job))
        return 201, job

    def _get(self, name: str) -> Answer:
        if self.at_look and name in self.jobs:
            (self.at_look.pop(0) if len(self.at_look) > 1 else self.at_look[0])()
        return (200, self.jobs[name]) if name in self.jobs else (404, {"message": "not found"})

    def _delete(self, name: str, query: dict[str, str]) -> Answer:
        assert query["propagationPolicy"] == "Foreground"
        return (200, self.jobs.pop(name)) if name in self.jobs else (404, {"message": "not found"})

    # ---- what happens

    def ends(self, kind: str, reason: str = "JobsCompleted", message: str = "") -> None:
        for job in self.jobs.values():
            ended = {"type": kind, "status": "True", "reason": reason, "message": message}
            job["status"] = {"conditions": [{"type": "Suspended", "status": "False"}, ended]}

    def runs(self, *lines: str, **state: Any) -> None:
        """Two pods, with these lines in the first one's log."""
        self.pods = [pod(0, **state), pod(1)]
        stamps = [f"2026-01-01T00:00:{second:02d}.5Z" for second in range(60)]
        self.logs["node-0"] = [f"{stamp} {line}" for stamp, line in zip(stamps, lines, strict=False)]


IMAGE = "registry.example/tlm-train@sha256:" + "0" * 64


def pod(index: int, phase: str = "Running", **status: Any) -> dict[str, Any]:
    """As the API describes a pod of the job."""
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    return {"metadata": {"name": f"node-{index}", "labels": labels}, "status": {"phase": phase, **status}}


def died(place: str, code: int, reason: str) -> list[dict[str, Any]]:
    """A container that ended, now (``state``) or before it was started again (``lastState``)."""
    end = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2026-01-01T00:00:10Z"}}
    return [{"name": "node", "state": {"running": {}}} | {place: end}]


@contextmanager
def serving(trainer: Trainer) -> Iterator[str]:
    """Its URL."""

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(size)) if size else None
            trainer.tokens.add(self.headers.get("Authorization", ""))
            status, answer = trainer.answer(self.command, self.path, body)
            data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _any

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def played(trainer: Trainer, ended: list[tuple[int, str]]) -> None:
    """Do what Trainer does with the job that was created: its command on each node, with torchrun's names."""
    (job,) = trainer.created
    asked = job["spec"]["trainer"]
    assert asked["command"] == ["tlm"]
    command = [sys.executable, "-m", "tlm.cli", *asked["args"]]
    names = {"PET_NNODES": str(asked["numNodes"]), "PET_NPROC_PER_NODE": str(asked["numProcPerNode"])}
    names |= {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port())}
    pipe = subprocess.PIPE
    nodes = [
        subprocess.Popen(command, cwd=HOME, env={**os.environ, **names, "PET_NODE_RANK": str(rank)}, stdout=pipe,
                         stderr=subprocess.STDOUT, text=True)
        for rank in range(asked["numNodes"])
    ]  # fmt: skip
    try:
        texts = [node.communicate(timeout=300)[0] for node in nodes]
    except subprocess.TimeoutExpired:
        for node in nodes:
            node.kill()
        trainer.ends("Failed", "TimeoutExpired")  # or else the test would wait for ever
        raise
    trainer.runs(*texts[0].splitlines())
    ended.extend(zip([node.returncode for node in nodes], texts, strict=True))
    trainer.ends("Complete" if not any(node.returncode for node in nodes) else "Failed")
