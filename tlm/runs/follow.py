"""Follow a TrainJob: create or adopt it, relay the first pod's log, wait for its end, and delete it.

The official client is not in the images: it would add twelve packages for six kinds of call.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from urllib3 import BaseHTTPResponse, PoolManager
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from tlm.errors import InputError, Interrupted, TlmError
from tlm.progress import say
from tlm.training.distributed.process import Stop, stopping

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PASSING = (429, 500, 502, 503, 504)
# For about a minute, which is enough for an API server to be replaced.
RETRY = Retry(7, status_forcelist=PASSING, allowed_methods=None, backoff_factor=0.5, raise_on_status=False)
STEP, NODE = "main", "node"  # the containers: of a step, as Argo names it, and of a TrainJob
CALL_SECONDS = 30.0


class Refused(InputError):
    """The API answered with an error.

    Attributes:
        status: HTTP status of the answer.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Api:
    """A client of the Kubernetes API, in one namespace.

    Attributes:
        url: Address of the API server, without a path.
        account: Folder of the service account: ``token``, ``ca.crt``, ``namespace``.
        namespace: Namespace to work in.
    """

    url: str
    account: Path
    namespace: str

    @classmethod
    def of_pod(cls, account: Path = SERVICE_ACCOUNT) -> "Api":
        """Return a client of the cluster that this pod runs in. Raises InputError outside of a cluster."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        namespace = account / "namespace"
        if not host or not namespace.exists():
            raise InputError(
                "there is no Kubernetes API here: training on several nodes must be started from a pod of the cluster, "
                "with a service account that may create TrainJobs"
            )
        address = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        return cls(address, account, namespace.read_text(encoding="utf-8").strip())

    def call(self, method: str, path: str, body: Any = None, *, absent_ok: bool = False, **query: str) -> Any:
        """Call the API, with retries, and return the JSON of its answer; with `absent_ok`, None for a 404.

        Raises:
            Refused: the API answered with an error.
            Interrupted: there was no answer for about a minute.
        """
        answer = self._request(method, path, RETRY, query, body)
        if absent_ok and answer.status == 404:
            return None
        return json.loads(self._checked(answer, method, path))

    def text(self, path: str, **query: str) -> str:
        """Return the answer to a GET as text (a log), without retries. Raises as `call` does."""
        return self._checked(self._request("GET", path, False, query), "GET", path).decode(errors="replace")

    def _request(self, method: str, path: str, retries: Retry | bool, query: Any, body: Any = None) -> BaseHTTPResponse:
        headers, token = {"Accept": "*/*"}, self.account / "token"
        if token.exists():  # read for each call, because Kubernetes replaces it every hour
            headers["Authorization"] = f"Bearer {token.read_text(encoding='utf-8').strip()}"
        given = {"fields": query or None, "json": body, "headers": headers}
        try:
            return self._pool.request(method, f"{self.url}{path}", retries=retries, **given)
        except HTTPError as error:
            why = getattr(error, "reason", error)
            raise Interrupted(f"the Kubernetes API at {self.url} does not answer ({why}); repeat") from None

    def _checked(self, answer: BaseHTTPResponse, method: str, path: str) -> bytes:
        if answer.status < 400:
            return answer.data
        message = ""
        with suppress(ValueError, KeyError, TypeError):
            message = f" ({json.loads(answer.data)['message']})"
        advice = {
            401: "the pod's token is not accepted; repeat the step",
            403: f"give the pod's service account the role tlm-trainjob in namespace {self.namespace}",
            404: "check that Kubeflow Trainer 2.2 or later is installed",
        }.get(answer.status, "fix that, then repeat")
        raise Refused(answer.status, f"{method} {path} was answered with {answer.status}{message}; {advice}")

    @cached_property
    def _pool(self) -> PoolManager:
        return PoolManager(ca_certs=str(self.account / "ca.crt"), timeout=CALL_SECONDS)


def own_image(api: Api) -> str:
    """Return the image of this pod's step as the pipeline names it, with its digest."""
    pod = os.environ.get("KFP_POD_NAME") or os.environ.get("HOSTNAME", "")
    containers = api.call("GET", f"/api/v1/namespaces/{api.namespace}/pods/{pod}")["spec"]["containers"]
    return str(next((each for each in containers if each["name"] == STEP), containers[0])["image"])


POLL_SECONDS = 5.0
START_MINUTES = 60.0  # how long pods may wait to be scheduled and started
DELETION_SECONDS = 600.0  # pods save their state before they end
TAIL = 20  # lines of the log of a pod that died
JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs"
JOB_LABEL, INDEX_LABEL = "jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-completion-index"


def follow(api: Api, job: dict[str, Any]) -> None:
    """Run `job` to its end and delete it, however it ends. A running job of the same name is adopted.

    Args:
        api: Kubernetes API, in the namespace of the job.
        job: The TrainJob, from `train_job`.

    Raises:
        InputError: the API refused a call, or training failed with exit code 2 (its log says why).
        Interrupted: training failed otherwise, did not start in time, or somebody else deleted the job.
        Terminated: SIGTERM or Ctrl-C arrived.
    """
    with stopping() as stop:
        follower = _Follower(api, job, stop)
        try:
            follower.submit()
            follower.wait(START_MINUTES * 60)
        finally:
            follower.clean_up()


class _Follower:
    def __init__(self, api: Api, job: dict[str, Any], stop: Stop) -> None:
        self.api, self.job, self.stop = api, job, stop
        self.name: str = job["metadata"]["name"]
        self.title = f"TrainJob {api.namespace}/{self.name}"
        self.jobs = JOBS.format(api.namespace)
        self.pods = f"/api/v1/namespaces/{api.namespace}/pods"
        self.submitted = False
        self.last_stamp: dict[str, str] = {}  # by pod: the time stamp of the last log line that was relayed
        self.deaths: dict[tuple[str, str], dict[str, Any]] = {}  # by pod and time
        self.last_line = self.status = ""

    def submit(self) -> None:
        """Create the job. Adopt one that runs already; first wait until one that has ended is deleted."""
        deadline = time.monotonic() + DELETION_SECONDS
        while True:
            try:
                self.api.call("POST", self.jobs, self.job)
                say(f"{self.title}: created")
                break
            except Refused as refused:
                if refused.status != 409:  # there is one of this name
                    raise
            job = self._get()
            if job is not None and "deletionTimestamp" not in job["metadata"]:
                if not _end(job):
                    say(f"{self.title}: runs already; following it")
                    break
                self._delete()
            self._say_once("a job of this name is being deleted; waiting until its pods have saved their state")
            if time.monotonic() > deadline:
                raise Interrupted(f"{self.title} is still being deleted; look at its pods, then repeat")
            self._pause()
        self.submitted = True

    def wait(self, start_seconds: float) -> None:
        """Return once the job is complete."""
        deadline = time.monotonic() + start_seconds
        while True:
            job = self._get()
            if job is None or "deletionTimestamp" in job["metadata"]:
                raise Interrupted(f"{self.title} was deleted by somebody else; repeat to go on from the last snapshot")
            found = self.api.call("GET", self.pods, labelSelector=f"{JOB_LABEL}={self.name}")["items"]
            pods = sorted(found, key=lambda pod: (_index(pod), pod["metadata"].get("creationTimestamp", "")))
            self._relay_log(pods)
            self._note_deaths(pods)
            end = _end(job)
            if end is not None and end["type"] == "Complete":
                return
            if end is not None:
                raise self._failure(f"{end.get('reason', '')}: {end.get('message', '')}".strip(" :"))
            if self._input_refused():
                raise self._failure("a restart of its pods would not help")
            waiting = _waiting(pods) if pods else "no pods yet"
            if waiting:
                self._say_once(f"waiting: {waiting}")
                if time.monotonic() > deadline:
                    raise Interrupted(f"{self.title} did not start in {start_seconds / 60:g} minutes: {waiting}")
            else:
                deadline = time.monotonic() + start_seconds
            self._pause()

    def clean_up(self) -> None:
        """Delete the job and its pods, if it was created or adopted here."""
        if self.submitted:
            try:
                self._delete()
            except TlmError as error:
                say(f"warning: {self.title} could not be deleted: {error}")

    def _pause(self) -> None:
        if self.stop.wait(POLL_SECONDS):
            deleted = f"; {self.title} is deleted, its pods save their state" if self.submitted else ""
            error = self.stop.error()
            raise error(f"stopped by {error.by}{deleted}; repeat to go on")

    def _get(self) -> Any:
        return self.api.call("GET", f"{self.jobs}/{self.name}", absent_ok=True)

    def _delete(self) -> None:
        self.api.call("DELETE", f"{self.jobs}/{self.name}", absent_ok=True, propagationPolicy="Foreground")

    def _relay_log(self, pods: list[dict[str, Any]]) -> None:
        for pod in pods:
            if _index(pod) == 0 and pod["status"].get("phase") in ("Running", "Succeeded", "Failed"):
                for line in self._new_lines(pod["metadata"]["name"]):
                    self.last_line = line
                    say(line)

    def _new_lines(self, pod: str, **query: str) -> list[str]:
        if last := self.last_stamp.get(pod, ""):
            query["sinceTime"] = last
        try:
            text = self.api.text(f"{self.pods}/{pod}/log", container=NODE, timestamps="true", **query)
        except (Refused, Interrupted):  # no log yet, or no longer, or the node does not answer at the moment
            return []
        new = [line.partition(" ") for line in text.splitlines() if line.partition(" ")[0] > last]
        if new:
            self.last_stamp[pod] = new[-1][0]
        return [line for _, _, line in new]

    def _note_deaths(self, pods: list[dict[str, Any]]) -> None:
        """Remember how containers ended: Kubernetes restarts them a few times, and then removes the pods."""
        for pod in pods:
            name = pod["metadata"]["name"]
            for state, query in _terminations(pod):
                key = (name, state.get("finishedAt", ""))
                if state["exitCode"] and key not in self.deaths:
                    self.deaths[key] = state
                    say(f"{self.title}: {name} ended with code {_code(state)}")
                    if _index(pod) > 0:  # the log of the first pod is relayed anyway
                        say("\n".join(self._new_lines(name, tailLines=str(TAIL), **query)))

    def _input_refused(self) -> bool:
        return any(state["exitCode"] == InputError.exit_code for state in self.deaths.values())

    def _failure(self, reason: str) -> TlmError:
        codes = ", ".join(sorted({_code(state) for state in self.deaths.values()}))
        ends = f"; exit codes of its pods: {codes}" if codes else ""
        last = f"; its last line: {self.last_line}" if self.last_line else ""
        error = InputError if self._input_refused() else Interrupted
        return error(f"{self.title} failed ({reason}){ends}{last}; fix that, then repeat to go on")

    def _say_once(self, status: str) -> None:
        if status != self.status:
            self.status = status
            say(f"{self.title}: {status}")


def _end(job: dict[str, Any]) -> dict[str, Any] | None:
    """Return the condition that says how the job ended, or None while it runs."""
    conditions: list[dict[str, Any]] = job.get("status", {}).get("conditions", [])
    ends = (each for each in conditions if each["type"] in ("Complete", "Failed") and each["status"] == "True")
    return next(ends, None)


def _index(pod: dict[str, Any]) -> int:
    labels = pod["metadata"].get("labels", {}) | pod["metadata"].get("annotations", {})
    return int(labels.get(INDEX_LABEL, 0))


def _terminations(pod: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Yield how the pod's container ended, each time with the log query that gets the log of that container."""
    for container in pod["status"].get("containerStatuses", []):
        if container["name"] == NODE:
            for state, query in (("lastState", {"previous": "true"}), ("state", {})):
                if ended := container.get(state, {}).get("terminated"):
                    yield ended, query


def _code(state: dict[str, Any]) -> str:
    return f"{state['exitCode']} {state.get('reason', '')}".strip()


def _waiting(pods: list[dict[str, Any]]) -> str:
    """Say why a pod of the job does not run yet; empty if all run."""
    for pod in pods:
        name, status = pod["metadata"]["name"], pod["status"]
        if status.get("phase", "Pending") == "Pending":
            states = [container["state"].get("waiting") or {} for container in status.get("containerStatuses", [])]
            reasons = [f"{state['reason']} {state.get('message', '')}".strip() for state in states if "reason" in state]
            unmet = [each for each in status.get("conditions", []) if each["status"] == "False"]
            reasons += [each["message"] for each in unmet if each.get("message")]
            return f"{name}: {reasons[0]}" if reasons else f"{name} is pending"
    return ""
