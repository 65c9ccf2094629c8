"""Following a TrainJob: create it or find it, repeat the first pod's log, wait for the end, clean up."""

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from tlm.cluster.job import NODE
from tlm.cluster.kube import Api, Refused
from tlm.errors import InputError, Interrupted, TlmError
from tlm.progress import say
from tlm.training.distributed.signals import Stop, stopping

LOOK_SECONDS = 5.0
GONE_SECONDS = 600.0  # pods that are told to end save their state first
OVERLAP_SECONDS = 30  # of two reads of a log, for clocks that differ
TAIL = 20
JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs"
OF_JOB, INDEX = "jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-completion-index"


def follow(api: Api, job: dict[str, Any], start_minutes: float, look_seconds: float = LOOK_SECONDS) -> None:
    """Run `job` to its end and delete it, whatever that end is; one of its name that runs already is adopted.

    Raises:
        InputError: the API refused, or training failed with exit code 2 (its log says why).
        Interrupted: training failed otherwise, did not begin in `start_minutes`, or the job was deleted by others.
        Terminated: SIGTERM or Ctrl-C arrived.
    """
    watch = _Watch(api, job, look_seconds)
    with stopping() as stop:
        watch.stop = stop
        try:
            watch.submit()
            watch.to_the_end(start_minutes * 60)
        finally:
            watch.clean_up()


class _Watch:
    def __init__(self, api: Api, job: dict[str, Any], look_seconds: float) -> None:
        self.api, self.job, self.look_seconds = api, job, look_seconds
        self.name: str = job["metadata"]["name"]
        self.title = f"TrainJob {api.namespace}/{self.name}"
        self.jobs = JOBS.format(api.namespace)
        self.pods = f"/api/v1/namespaces/{api.namespace}/pods"
        self.stop = Stop()
        self.submitted = False
        self.read_until: dict[str, str] = {}  # by pod: the time of the last line that was repeated
        self.read_at: dict[str, float] = {}
        self.deaths: dict[tuple[str, str], dict[str, Any]] = {}  # by pod and time
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.said = ""

    def submit(self) -> None:
        """Create the job; one that runs is adopted, one that ended or is being deleted is waited away first."""
        deadline = time.monotonic() + GONE_SECONDS
        while not self.submitted:
            try:
                self.api.call("POST", self.jobs, self.job)
                say(f"{self.title}: created")
                self.submitted = True
            except Refused as refused:
                if refused.status != 409:
                    raise
                self._take_or_remove(deadline)

    def _take_or_remove(self, deadline: float) -> None:
        there = self._get()
        if there is None:
            return
        if "deletionTimestamp" in there["metadata"]:
            self._say("one of this name is being deleted; waiting until its pods have saved their state")
        elif _ended(there):
            self._delete()
        else:
            say(f"{self.title}: runs already; following it")
            self.submitted = True
            return
        if time.monotonic() > deadline:
            raise Interrupted(f"{self.title} is still being deleted; look at its pods, then repeat")
        self._pause()

    def to_the_end(self, start_seconds: float) -> None:
        """Until the job is complete."""
        deadline = time.monotonic() + start_seconds
        while True:
            there = self._get()
            if there is None or "deletionTimestamp" in there["metadata"]:
                raise Interrupted(f"{self.title} was deleted by somebody else; repeat to go on from the last snapshot")
            pods = self._pods()
            self._repeat_log(pods)
            self._notice_deaths(pods)
            ended = _ended(there)
            if ended is not None and ended["type"] == "Complete":
                return
            if ended is not None:
                raise self._failure(f"{ended.get('reason', '')}: {ended.get('message', '')}".strip(" :"))
            if InputError.exit_code in (state["exitCode"] for state in self.deaths.values()):
                raise self._failure("Kubernetes would start its pods again in vain")
            waiting = _waiting(pods) if pods else "no pods yet"
            if waiting:
                self._say(f"waiting: {waiting}")
                if time.monotonic() > deadline:
                    raise Interrupted(f"{self.title} did not start in {start_seconds / 60:g} minutes: {waiting}")
            else:
                deadline = time.monotonic() + start_seconds
            self._pause()

    def clean_up(self) -> None:
        """Delete the job and its pods, if it is ours."""
        if not self.submitted:
            return
        try:
            self._delete()
        except TlmError as error:
            say(f"warning: {self.title} could not be deleted: {error}")

    def _pause(self) -> None:
        if self.stop.wait(self.look_seconds):
            deleted = f"; {self.title} is deleted, its pods save their state" if self.submitted else ""
            error = self.stop.error()
            raise error(f"stopped by {error.by}{deleted}; repeat to go on")

    def _get(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.api.call("GET", f"{self.jobs}/{self.name}")
        except Refused as refused:
            if refused.status == 404:
                return None
            raise
        return found

    def _delete(self) -> None:
        try:
            self.api.call("DELETE", f"{self.jobs}/{self.name}", propagationPolicy="Foreground")
        except Refused as refused:
            if refused.status != 404:
                raise

    def _pods(self) -> list[dict[str, Any]]:
        """In the order of their nodes, and where one was replaced, of their age."""
        found: list[dict[str, Any]] = self.api.call("GET", self.pods, labelSelector=f"{OF_JOB}={self.name}")["items"]
        return sorted(found, key=lambda pod: (_index(pod), pod["metadata"].get("creationTimestamp", "")))

    def _repeat_log(self, pods: list[dict[str, Any]]) -> None:
        for pod in pods:
            if _index(pod) == 0 and pod["status"].get("phase") in ("Running", "Succeeded", "Failed"):
                for line in self._new_lines(pod["metadata"]["name"]):
                    self.tail.append(line)
                    say(line)

    def _new_lines(self, pod: str, **query: str) -> list[str]:
        since = round(time.monotonic() - self.read_at[pod]) + OVERLAP_SECONDS if pod in self.read_at else 0
        query |= {"sinceSeconds": str(since)} if since else {}
        try:
            text = self.api.text(f"{self.pods}/{pod}/log", container=NODE, timestamps="true", **query)
        except (Refused, Interrupted):  # not there yet, no longer there, or its node does not answer now
            return []
        self.read_at[pod] = time.monotonic()
        stamped = [line.partition(" ") for line in text.splitlines()]
        new = [(stamp, line) for stamp, _, line in stamped if stamp > self.read_until.get(pod, "")]
        if new:
            self.read_until[pod] = new[-1][0]
        return [line for _, line in new]

    def _notice_deaths(self, pods: list[dict[str, Any]]) -> None:
        """Remember how containers ended: Kubernetes starts them again a few times, and then removes the pods."""
        for pod in pods:
            name = pod["metadata"]["name"]
            for state, before in _ends(pod):
                key = (name, state.get("finishedAt", ""))
                if key in self.deaths or not state["exitCode"]:
                    continue
                self.deaths[key] = state
                say(f"{self.title}: {name} ended with code {_code(state)}")
                if _index(pod) > 0:  # the first one's log is repeated anyway
                    again = {"previous": "true"} if before else {}
                    say("\n".join(self._new_lines(name, tailLines=str(TAIL), **again)))

    def _failure(self, reason: str) -> TlmError:
        codes = ", ".join(sorted({_code(state) for state in self.deaths.values()}))
        ends = f"; exit codes of its pods: {codes}" if codes else ""
        last = f"; its last line: {self.tail[-1]}" if self.tail else ""
        sentence = f"{self.title} failed ({reason}){ends}{last}; mend that, then repeat to go on"
        refused = InputError.exit_code in (state["exitCode"] for state in self.deaths.values())
        return InputError(sentence) if refused else Interrupted(sentence)

    def _say(self, message: str) -> None:
        if message != self.said:
            self.said = message
            say(f"{self.title}: {message}")


def _ended(job: dict[str, Any]) -> dict[str, Any] | None:
    """The condition that says how the job ended, if it did."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            found: dict[str, Any] = condition
            return found
    return None


def _index(pod: dict[str, Any]) -> int:
    labels = pod["metadata"].get("labels", {}) | pod["metadata"].get("annotations", {})
    return int(labels.get(INDEX, 0))


def _ends(pod: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
    """How its container ended, and whether that was before it was started again."""
    for container in pod["status"].get("containerStatuses", []):
        if container["name"] == NODE:
            for place, before in (("lastState", True), ("state", False)):
                state = container.get(place, {}).get("terminated")
                if state:
                    yield state, before


def _code(state: dict[str, Any]) -> str:
    return f"{state['exitCode']} {state.get('reason', '')}".strip()


def _waiting(pods: list[dict[str, Any]]) -> str:
    """Why the job's pods do not run yet; empty if they do."""
    for pod in pods:
        if pod["status"].get("phase", "Pending") != "Pending":
            continue
        name = pod["metadata"]["name"]
        for container in pod["status"].get("containerStatuses", []):
            state = container["state"].get("waiting") or {}
            if state.get("reason"):
                return f"{name}: {state['reason']} {state.get('message', '')}".strip()
        for condition in pod["status"].get("conditions", []):
            if condition["status"] == "False" and condition.get("message"):
                return f"{name}: {condition['message']}"
        return f"{name} is pending"
    return ""
