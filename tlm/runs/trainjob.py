"""The step `train` on several nodes: a TrainJob of Kubeflow Trainer does the work, this process follows it.

The TrainJob is named after the key of the result, so there is never more than one for the same work: a repetition
adopts one that still runs, and resumes from the last snapshot of one that has ended.
"""

import os
import time
from collections.abc import Iterator
from importlib.resources import files
from string import Template
from typing import Any

import yaml

from tlm.artifacts.artifact import home
from tlm.artifacts.produce import finished
from tlm.errors import InputError, Interrupted, TlmError
from tlm.progress import say
from tlm.runs import pods as every
from tlm.runs.plan import PlannedRun
from tlm.runs.pods import KFP_POD, Api, Refused
from tlm.settings import presets
from tlm.settings.options import Pods
from tlm.training.distributed.process import Stop, stopping
from tlm.training.stages import checkpoint_recipe


def train_on_nodes(run: PlannedRun, *, nodes: int = 2, pods: Pods = Pods(), root: str | None = None) -> str:
    """Train stage 1 on several nodes, by a TrainJob of Kubeflow Trainer 2.2 or later.

    The checkpoint is the one that `tlm train` makes. This must run in a pod of the cluster.

    Args:
        run: The run, loaded.
        nodes: How many pods train together, one on each node.
        pods: Their resources.
        root: Store to write to, which holds all inputs; on S3, because all nodes write to it.

    Raises:
        InputError: the settings cannot work, Trainer is missing, access is denied, or training raised it.
        Interrupted: a pod died, or somebody deleted the TrainJob; repeating resumes from the last snapshot.
        Terminated: SIGTERM arrived; the TrainJob was deleted, and its pods save their state.
    """
    settings = presets.resolve(**run.settings())
    recipe = checkpoint_recipe(run.task, run.tokenizer, run.subset, settings, run.seed, root, run.start)
    if uri := finished(recipe, root):
        say("train: already there, nothing to do")
        return uri
    place = home(root, recipe.inputs.values()).root
    if not place.startswith("s3://"):
        raise InputError(f"root '{place}' is a folder of one node; give one on S3 (s3://bucket/prefix)")
    command = ["tlm", "train", run.task, "--tokenizer", run.tokenizer, "--preset", run.preset, "--seed", str(run.seed)]
    for option, uri in (("--subset", run.subset), ("--start", run.start)):
        command += [option, uri] if uri else []
    command += [part for override in run.overrides.split() for part in ("--set", override)]
    command += ["--gpus", pods.gpus, "--root", place]
    api = Api.of_pod()
    if api is None:
        start = "must be started from a pod of the cluster, with a service account that may create TrainJobs"
        raise InputError(f"there is no Kubernetes API here: training on several nodes {start}")
    follow(api, train_job(f"tlm-{recipe.key}", command, pods, nodes, own_image(api)))
    if uri := finished(recipe, root):
        return uri
    raise Interrupted(f"the TrainJob is gone, and no checkpoint is under {place}; look at its pods, then repeat")


def train_job(name: str, command: list[str], pods: Pods, nodes: int, image: str) -> dict[str, Any]:
    """Return the TrainJob `name`, which runs `command` in pods under the pipeline's own security settings."""
    text = files("tlm.runs").joinpath("trainjob.yaml").read_text(encoding="utf-8")
    shared = {name: getattr(every, name) for name in ("USER", "SCRATCH", "SHARED_MEMORY")}
    job: dict[str, Any] = yaml.safe_load(Template(text).substitute(shared))
    job["metadata"]["name"] = name
    resources = {"cpu": pods.cpu, "memory": pods.memory} | ({pods.gpu_type: pods.gpus} if int(pods.gpus) else {})
    settings = [_variable(key, "configMapKeyRef", every.CONFIG_MAP) for key in every.S3_ADDRESSES]
    secrets = [_variable(key, "secretKeyRef", every.S3_SECRET) for key in every.S3_KEYS]
    job["spec"]["trainer"] = {
        "image": image,
        "command": command[:1],
        "args": command[1:],
        "env": settings + secrets,
        "numNodes": nodes,
        "numProcPerNode": max(1, int(pods.gpus)),
        "resourcesPerNode": {"requests": resources, "limits": dict(resources)},
    }
    (replicated,) = job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    if pods.node_selector:
        pod["nodeSelector"] = pods.node_selector
    if pods.tolerations:
        pod["tolerations"] = [{name: _whole(value) for name, value in each.items()} for each in pods.tolerations]
    return job


def _variable(key: str, source: str, name: str) -> dict[str, Any]:
    """An environment variable from a ConfigMap or Secret; optional, as with workload identity there are no keys."""
    return {"name": key, "valueFrom": {source: {"name": name, "key": key, "optional": True}}}


def _whole(value: Any) -> Any:
    """Undo what KFP does to whole numbers within lists: it passes them on as floats."""
    return int(value) if isinstance(value, float) else value


STEP, NODE = "main", "node"  # the containers: of a step, as Argo names it, and of a TrainJob


def own_image(api: Api) -> str:
    """Return the image of this pod's step as the pipeline names it, with its digest."""
    pod = os.environ.get(KFP_POD) or os.environ.get("HOSTNAME", "")
    containers = api.call("GET", f"/api/v1/namespaces/{api.namespace}/pods/{pod}")["spec"]["containers"]
    return str(next((each for each in containers if each["name"] == STEP), containers[0])["image"])


POLL_SECONDS = 5.0
START_MINUTES = 60.0  # how long pods may wait to be scheduled and started
DELETION_SECONDS = 600.0  # pods save their state before they end
TAIL = 20  # lines of the log of a pod that died
JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs"
JOB_LABEL, INDEX_LABEL = "jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-completion-index"


def follow(api: Api, job: dict[str, Any]) -> None:
    """Run `job` until it is complete or gone, and delete it in any case. A running job of the same name is adopted.

    Args:
        api: Kubernetes API, in the namespace of the job.
        job: The TrainJob, from `train_job`.

    Raises:
        InputError: the API refused a call, or training failed with exit code 2 (its log says why).
        Interrupted: training failed otherwise, or did not start in time.
        Terminated: SIGTERM or Ctrl-C arrived.
    """
    with stopping() as stop:
        follower = _Follower(api, job, stop)
        follower.submit()
        try:
            follower.wait()
        finally:
            follower.clean_up()


class _Follower:
    def __init__(self, api: Api, job: dict[str, Any], stop: Stop) -> None:
        self.api, self.job, self.stop = api, job, stop
        self.name: str = job["metadata"]["name"]
        self.title = f"TrainJob {api.namespace}/{self.name}"
        self.jobs = JOBS.format(api.namespace)
        self.pods = f"/api/v1/namespaces/{api.namespace}/pods"
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
                if "exceeded quota" in str(refused):  # by other TrainJobs, which end
                    self._say_once("waiting: the quota of the namespace allows no further TrainJob now")
                    deadline = time.monotonic() + DELETION_SECONDS
                    self._pause()
                    continue
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

    def wait(self) -> None:
        """Return once the job is complete, or gone: an equal run deletes it, too, when it sees the end first."""
        deadline = time.monotonic() + START_MINUTES * 60
        while True:
            job = self._get()
            if job is None or "deletionTimestamp" in job["metadata"]:
                say(f"{self.title} was deleted by somebody else")
                return
            found = self.api.call("GET", self.pods, labelSelector=f"{JOB_LABEL}={self.name}")["items"]
            pods = sorted(found, key=lambda pod: (_index(pod), pod["metadata"].get("creationTimestamp", "")))
            for pod in pods:
                self._look_at(pod)
            if end := _end(job):
                if end["type"] == "Complete":
                    return
                raise self._failure(f"{end.get('reason', '')}: {end.get('message', '')}".strip(" :"))
            if self._input_refused():
                raise self._failure("a restart of its pods would not help")
            if waiting := _waiting(pods, job["spec"]["trainer"]["numNodes"]):  # an adopted job may have other nodes
                self._say_once(f"waiting: {waiting}")
                if time.monotonic() > deadline:
                    raise Interrupted(f"{self.title} did not start in {START_MINUTES:g} minutes: {waiting}")
            else:
                deadline = time.monotonic() + START_MINUTES * 60
            self._pause(f"; {self.title} is deleted, its pods save their state")

    def clean_up(self) -> None:
        """Delete the job and its pods."""
        try:
            self._delete()
        except TlmError as error:
            say(f"warning: {self.title} could not be deleted: {error}")

    def _pause(self, consequence: str = "") -> None:
        if self.stop.wait(POLL_SECONDS):
            error = self.stop.error()
            raise error(f"stopped by {error.by}{consequence}; repeat to resume")

    def _get(self) -> Any:
        return self.api.call("GET", f"{self.jobs}/{self.name}", absent_ok=True)

    def _delete(self) -> None:
        self.api.call("DELETE", f"{self.jobs}/{self.name}", absent_ok=True, propagationPolicy="Foreground")

    def _look_at(self, pod: dict[str, Any]) -> None:
        """Relay the log of the first pod, and remember how containers ended.

        Kubernetes restarts them a few times, and then removes the pods.
        """
        name, is_first = pod["metadata"]["name"], _index(pod) == 0
        if is_first and pod["status"].get("phase") in ("Running", "Succeeded", "Failed"):
            for line in self._new_lines(name):
                self.last_line = line
                say(line)
        for state, query in _terminations(pod):
            key = (name, state.get("finishedAt", ""))
            if state["exitCode"] and key not in self.deaths:
                self.deaths[key] = state
                say(f"{self.title}: {name} ended with code {_code(state)}")
                if not is_first:  # the log of the first pod is relayed anyway
                    say("\n".join(self._new_lines(name, tailLines=str(TAIL), **query)))

    def _new_lines(self, pod: str, **query: str) -> list[str]:
        if last := self.last_stamp.get(pod, ""):
            query["sinceTime"] = last
        try:
            text = self.api.text(f"{self.pods}/{pod}/log", container=NODE, timestamps="true", **query)
        except (Refused, Interrupted):  # no log yet, or no longer, or the node does not answer at the moment
            return []
        stamped = [line.partition(" ") for line in text.splitlines()]
        new = [(stamp, line) for stamp, _, line in stamped if stamp > last]
        if new:
            self.last_stamp[pod], _ = new[-1]
        return [line for _, line in new]

    def _input_refused(self) -> bool:
        return any(state["exitCode"] == InputError.exit_code for state in self.deaths.values())

    def _failure(self, reason: str) -> TlmError:
        codes = ", ".join(sorted({_code(state) for state in self.deaths.values()}))
        ends = f"; exit codes of its pods: {codes}" if codes else ""
        last = f"; its last line: {self.last_line}" if self.last_line else ""
        error = InputError if self._input_refused() else Interrupted
        return error(f"{self.title} failed ({reason}){ends}{last}; fix that, then repeat to resume")

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


def _waiting(pods: list[dict[str, Any]], nodes: int) -> str:
    """Say why a pod of the job does not run yet; empty if all run, one on each of so many nodes."""
    for pod in pods:
        name, status = pod["metadata"]["name"], pod["status"]
        if status.get("phase", "Pending") == "Pending":
            states = [container["state"].get("waiting") or {} for container in status.get("containerStatuses", [])]
            reasons = [f"{state['reason']} {state.get('message', '')}".strip() for state in states if "reason" in state]
            unmet = [each for each in status.get("conditions", []) if each["status"] == "False"]
            reasons += [each["message"] for each in unmet if each.get("message")]
            return f"{name}: {reasons[0]}" if reasons else f"{name} is pending"
    return "" if len(pods) >= nodes else f"{len(pods)} of {nodes} pods exist"
