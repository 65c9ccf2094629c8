"""Which step of a run failed, and what it said last."""

import json
import re
from collections.abc import Iterator
from typing import Any

import kfp_server_api
import urllib3

from pipelines.client.api import CONNECT, Api
from pipelines.client.faults import ApiError
from pipelines.compile.compiled import from_api

_LOG_TIMEOUT = 15.0  # seconds: the log is a courtesy
_TEMPLATES = ("retry-system-container-impl", "system-container-impl")  # KFP's names for what runs a step


def failed_steps(run: kfp_server_api.V2beta1Run) -> list[str]:
    """Names of the failed steps, in the order in which they began; groups of steps (loops, the root) are left out."""
    known = from_api(run.pipeline_spec).steps() if run.pipeline_spec else set()
    names = []
    for task in sorted(_failed(run), key=_began):
        name = re.sub(r"(-driver|\(\d+\))+$", "", task.display_name or "")
        if name in known or (not known and name not in ("", "root", "executor")):
            names.append(name)
    return list(dict.fromkeys(names))


def tail_of_log(api: Api, run: kfp_server_api.V2beta1Run, step: str, lines: int) -> list[str]:
    """The last lines of the step's log; empty where the API does not give them."""
    for pod in _pods(run, step):
        text = _read(api, f"/apis/v1alpha1/runs/{run.run_id}/nodes/{pod}/log", {})  # if the host is the API server
        if not text:  # if it is the UI
            place = {"runid": run.run_id, "podnamespace": api.namespace or "kubeflow"}
            text = _read(api, "/k8s/pod/logs", {"podname": pod} | place)
        if text:
            return text.rstrip().splitlines()[-lines:]
    return []


def _read(api: Api, path: str, query: dict[str, str]) -> str:
    pool = api.client.rest_client.pool_manager
    timeout = urllib3.Timeout(connect=CONNECT, read=min(_LOG_TIMEOUT, api.call_timeout))
    try:
        headers = {"authorization": f"Bearer {api.token.read()}"} if api.token.source else {}
        answer = pool.request("GET", api.where.api + path, fields=query, headers=headers, timeout=timeout)
    except (urllib3.exceptions.HTTPError, ApiError):
        return ""
    text = answer.data.decode("utf-8", errors="replace")
    page = "html" in answer.headers.get("content-type", "") or text.lstrip()[:9].lower() in ("<!doctype", "<html>")
    return "" if answer.status != 200 or page or _is_error(text) else text


def _is_error(text: str) -> bool:
    """The API server answers 200 even where it has no log."""
    try:
        body = json.loads(text)
    except ValueError:
        return False
    return isinstance(body, dict) and "error_message" in body


def _pods(run: kfp_server_api.V2beta1Run, step: str) -> Iterator[str]:
    """What the pods of the failed step may be called, the last try first.

    The API tells the nodes of Argo's workflow as `child_tasks`: those of a step are its `executor`, those of an
    executor that is retried are its tries. A pod is called as its node, with the template's name inside.
    """
    failed = _failed(run)
    for task in failed:
        if task.display_name == step and task.pod_name:
            yield task.pod_name
    for task in (task for task in failed if task.display_name == step):
        executors = [one for one in failed if one.display_name == "executor" and one.child_tasks]
        nearest = sorted(executors, key=lambda one: abs(_began(one) - _began(task)))[:1]
        for parent in (*nearest, task):
            for child in reversed(parent.child_tasks or []):
                workflow, _, number = (child.pod_name or "").rpartition("-")
                if workflow:
                    yield from (f"{workflow}-{template}-{number}" for template in _TEMPLATES)


def _failed(run: kfp_server_api.V2beta1Run) -> list[Any]:
    tasks = (run.run_details.task_details if run.run_details else None) or []
    return [task for task in tasks if task.state == "FAILED"]


def _began(task: Any) -> float:
    return float(task.start_time.timestamp()) if task.start_time else 0.0
