"""Wait until a run has ended, through outages of the API and changes of the token.

The API's own list of tasks has no reasons, so they are read from Argo's workflow, which it hands out with a run.
"""

import base64
import gzip
import json
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import urllib3

from pipelines.client import CONNECT, Api, ApiError
from tlm.errors import InputError, Interrupted
from tlm.progress import say

SIGTERM = "(exit code 143)"
STOPPED = f"its pod was stopped {SIGTERM}, as when a node is drained; start the run again: finished steps are found"
TRACEBACK = "Traceback (most recent call last):"

LOG_LINES = 20  # the most that are shown
_LOG_TIMEOUT = 15.0  # seconds
_NO_LOG = ("<!doctype", "<html", '{"error_message"')
# What KFP's launcher and Argo's executor write around a step's own output.
_LAUNCHER = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d|time=\S+ level=|Error: exit status \d+$|\[KFP Executor ")
_GIVEN = re.compile(r"^\[KFP Executor [^\n]*Got executor_input:\n\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_FATAL = re.compile(r"F\d{4} .*?\] (?:.*?\) failed: )?(.+)")  # a driver's error, without the arguments of its call
_COUNT = re.compile(r"\(\d+\)$")  # of an attempt or an iteration, in the name of a node
_EXCEPTION = re.compile(r"(?:tlm\.errors\.\w+: |(?=[\w.]+: ))(.+)")  # the last line of a traceback; ours are sentences


class Failure(NamedTuple):
    """A step that failed, or the driver that KFP runs before it.

    Attributes:
        name: The name of the step or driver, for a sentence.
        of_driver: Whether its driver failed.
        pod: The pod of its last attempt.
        message: What Argo says of that pod, such as "OOMKilled (exit code 137)"; a signal to end is put into words.
        retried: How often it was tried again.
    """

    name: str
    of_driver: bool
    pod: str
    message: str
    retried: int


def failures(api: Api, run_id: str) -> list[Failure]:
    """Return the pods that failed, in order of their start; empty if the API does not have the workflow any more."""
    text = _read(api, f"/apis/v1beta1/runs/{run_id}")
    try:
        workflow = json.loads(json.loads(text)["pipeline_runtime"]["workflow_manifest"])
        name, status = workflow["metadata"]["name"], workflow["status"]
        # Argo compresses the nodes where there are many
        nodes = status.get("nodes") or json.loads(gzip.decompress(base64.b64decode(status["compressedNodes"])))
        return [_failure(name, node, retried) for node, retried in _last_attempts(nodes)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def read_log(api: Api, run_id: str, failure: Failure) -> tuple[list[str], str]:
    """Return what a step itself wrote last, and the error that this ends with, such as ``KeyError: 'x'``.

    Both are empty if the API has no log, the error also if the log ends otherwise.
    """
    text = _read(api, f"/apis/v1alpha1/runs/{run_id}/nodes/{failure.pod}/log")  # if the host is the API server
    if not text:  # if it is the UI
        place = {"podname": failure.pod, "runid": run_id, "podnamespace": api.namespace or "kubeflow"}
        text = _read(api, "/k8s/pod/logs", place)
    lines = _GIVEN.sub("", text).rstrip().splitlines()
    if failure.of_driver:  # all that it writes is for developers of KFP, but for its last error
        errors = [match[1] for match in map(_FATAL.match, lines) if match]
        return [], errors[-1] if errors else ""
    own = [line for line in lines if not _LAUNCHER.match(line)]
    match = _EXCEPTION.fullmatch(own[-1]) if TRACEBACK in own else None
    return own[-LOG_LINES:], match[1] if match else ""


def _last_attempts(nodes: dict[str, Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """The pods that failed and were not tried again, in order of their start, and how often each had been."""
    retry_of: dict[str, dict[str, Any]] = {}  # the node that stands for all attempts of a pod, by each attempt
    for node in nodes.values():
        if node["type"] == "Retry":
            retry_of |= dict.fromkeys(node.get("children", []), node)
    for identity, node in sorted(nodes.items(), key=lambda item: item[1].get("startedAt") or ""):
        if node["type"] == "Pod" and node["phase"] in ("Failed", "Error"):
            retry = retry_of.get(identity, {"children": [identity], "phase": "Failed"})
            if retry["phase"] != "Succeeded" and retry["children"][-1] == identity:
                yield node, len(retry["children"]) - 1


def _failure(workflow: str, node: dict[str, Any], retried: int) -> Failure:
    parts = [_COUNT.sub("", part) for part in node["name"].split(".")]
    named = [part for part in parts if part != "executor"]
    step = named[-1].removesuffix("-driver")
    is_driver = step != named[-1]
    pod = f"{workflow}-{node['templateName']}-{node['id'].rpartition('-')[2]}"
    said = (node.get("message") or "").removeprefix("main: ").strip(" .")
    message = STOPPED if said.endswith(SIGTERM) else said
    return Failure(f"the driver of {step}" if is_driver else step, is_driver, pod, message, retried)


def _read(api: Api, path: str, query: dict[str, str] | None = None) -> str:
    pool = api.http.rest_client.pool_manager
    timeout = urllib3.Timeout(connect=CONNECT, read=min(_LOG_TIMEOUT, api.call_timeout))
    try:
        token = api.http.configuration.get_api_key_with_prefix("authorization")
        headers = {"authorization": token} if token else {}
        answer = pool.request("GET", api.url + path, fields=query, headers=headers, timeout=timeout, retries=False)
    except (urllib3.exceptions.HTTPError, ApiError):
        return ""
    text = answer.data.decode("utf-8", errors="replace")
    # without a log, the API server answers 200 with an error, and the UI's server with its page
    return "" if answer.status != 200 or text.lstrip().lower().startswith(_NO_LOG) else text


FINAL = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")


class RunFailed(InputError):
    """The run failed: a step did, or the cluster lost a pod that nobody retries."""


def wait_for(api: Api, run_id: str, *, timeout: float, poll_seconds: float) -> None:
    """Return when the run has succeeded.

    Args:
        api: The API.
        run_id: The run.
        timeout: Seconds to wait at most.
        poll_seconds: Seconds between two looks at the run.

    Raises:
        RunFailed: The run failed.
        InputError: The run was terminated or is gone.
        Interrupted: The run goes on, but the time is over or the API is lost.
    """
    goes_on = f"run {run_id} goes on: see {api.link(f'runs/details/{run_id}')}, or wait again with `wait {run_id}`"
    try:
        run = _ended(api, run_id, timeout, poll_seconds)
    except (ApiError, TimeoutError) as error:
        if isinstance(error, ApiError) and error.status == 404:
            raise InputError(f"run {run_id} does not exist (any more); its ID is part of its link in the UI") from None
        raise Interrupted(f"{error}; {goes_on}") from None
    except KeyboardInterrupt:
        raise Interrupted(f"no longer waiting; {goes_on}") from None
    if run.state == "SUCCEEDED":
        return
    where = api.link(f"runs/details/{run_id}")
    if _terminated(run):
        raise InputError(f"run {run_id} was terminated; see {where}")
    if run.state == "FAILED":
        raise RunFailed(_run_failure(api, run))
    raise InputError(f"run {run_id} ended {run.state}; see {where}")


def _ended(api: Api, run_id: str, timeout: float, poll_seconds: float) -> Any:
    """Return the run in its final state. Raises TimeoutError, or an ApiError that waiting does not cure."""
    deadline, state, trouble = time.monotonic() + timeout, "", ""
    while True:
        try:
            run = api.client.get_run(run_id)
        except ApiError as error:
            is_renewed = error.status == 401 and api.token.file
            if not (error.may_pass or is_renewed):
                raise
            if not trouble:
                say(f"{error}; the run goes on, still waiting for it")
            trouble = str(error)
        else:
            if trouble:
                say("the API answers again")
            if run.state and run.state != state:
                say(run.state)
            state, trouble = run.state or state, ""
            if state in FINAL:
                return run
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(trouble or f"still {state or 'PENDING'} after {timeout:g} seconds")
        time.sleep(min(poll_seconds, left))


def _run_failure(api: Api, run: Any) -> str:
    """Return a sentence that says why a run failed, and show the end of the log of the step that failed first."""
    sentence, reasons = f"run {run.run_id} FAILED", [run.error.message if run.error else ""]
    if failed := failures(api, run.run_id):
        first = failed[0]
        lines, error = read_log(api, run.run_id, first)
        if lines:
            say("\n".join((f"the last lines of {first.name}:", *(f"    {line}" for line in lines))))
        # each name once: a step in a loop may fail several times
        sentence += f" at {', '.join(dict.fromkeys(one.name for one in failed))}"
        tried = f"tried {first.retried + 1} times" if first.retried else ""
        reasons = [error or first.message, *reasons, tried]
    if any(reasons):
        sentence += f": {'; '.join(filter(None, reasons))}"
    return f"{sentence}; see {api.link(f'runs/details/{run.run_id}')}"


def _terminated(run: Any) -> bool:
    """Whether somebody ended the run; the API calls it failed then, and has CANCELING before that in its history."""
    return run.state == "CANCELED" or "CANCELING" in [status.state for status in run.state_history or []][-2:]
