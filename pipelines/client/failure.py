"""Find the steps of a run that failed, and the end of their logs."""

import re
from collections.abc import Iterator
from typing import Any

import kfp_server_api
import urllib3

from pipelines.client.api import CONNECT, Api
from pipelines.client.errors import ApiError
from pipelines.compile.compiled import from_api

_LOG_TIMEOUT = 15.0  # seconds
_TEMPLATES = ("retry-system-container-impl", "system-container-impl")  # KFP's names for what runs a step
_NO_LOG = ("<!doctype", "<html", '{"error_message"')


def failed_steps(run: kfp_server_api.V2beta1Run) -> list[str]:
    """Return the names of the failed steps in order of their start, without groups of steps (loops, the root)."""
    known = from_api(run.pipeline_spec).steps()
    names = []
    for task in sorted(_failed(run), key=_began):
        name = re.sub(r"(-driver|\(\d+\))+$", "", task.display_name or "")
        if name in known or (not known and name not in ("", "root", "executor")):
            names.append(name)
    return list(dict.fromkeys(names))


def tail_of_log(api: Api, run: kfp_server_api.V2beta1Run, step: str, lines: int) -> list[str]:
    """Return the last lines of the step's log; empty if the API does not have them."""
    for pod in _pods(run, step):
        text = _read(api, f"/apis/v1alpha1/runs/{run.run_id}/nodes/{pod}/log", {})  # if the host is the API server
        if not text:  # if it is the UI
            place = {"runid": run.run_id, "podnamespace": api.namespace or "kubeflow"}
            text = _read(api, "/k8s/pod/logs", {"podname": pod} | place)
        if text:
            return text.rstrip().splitlines()[-lines:]
    return []


def _read(api: Api, path: str, query: dict[str, str]) -> str:
    pool = api.http.rest_client.pool_manager
    timeout = urllib3.Timeout(connect=CONNECT, read=min(_LOG_TIMEOUT, api.call_timeout))
    try:
        headers = {"authorization": f"Bearer {api.token.read()}"} if api.token.source else {}
        url = api.url + path
        answer = pool.request("GET", url, fields=query, headers=headers, timeout=timeout, retries=False)
    except (urllib3.exceptions.HTTPError, ApiError):
        return ""
    text = answer.data.decode("utf-8", errors="replace")
    # without a log, the API server answers 200 with an error, and the UI's server with its page
    return "" if answer.status != 200 or text.lstrip().lower().startswith(_NO_LOG) else text


def _pods(run: kfp_server_api.V2beta1Run, step: str) -> Iterator[str]:
    """Return the possible names of the pods of the failed step, the last attempt first.

    The API lists the nodes of Argo's workflow as `child_tasks`: those of a step are its `executor`, those of an
    executor that is retried are its attempts. A pod has the name of its node, with the template's name inside.
    """
    failed = _failed(run)
    executors = [task for task in failed if task.display_name == "executor" and task.child_tasks]
    for task in (task for task in failed if task.display_name == step):
        if task.pod_name:
            yield task.pod_name
        nearest = sorted(executors, key=lambda executor: abs(_began(executor) - _began(task)))[:1]
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
