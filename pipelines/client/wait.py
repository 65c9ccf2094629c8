"""Wait until a run has ended, through outages of the API and changes of the token."""

import time
from typing import Any

from pipelines.client.api import Api
from pipelines.client.errors import ApiError
from pipelines.client.failure import failures, read_log
from tlm.errors import InputError, Interrupted
from tlm.progress import say

FINAL = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")
LOG_LINES = 20


class RunFailed(InputError):
    """The run failed: a step did, or the cluster lost a pod that nobody retries."""


def wait(api: Api, run_id: str, *, timeout: float, poll_seconds: float) -> None:
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
    goes_on = f"run {run_id} goes on: see {api.link(f'runs/details/{run_id}')}, or wait on with `wait {run_id}`"
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
        raise RunFailed(_failure(api, run))
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
                say(f"{error}; the run goes on, and so does waiting")
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


def _failure(api: Api, run: Any) -> str:
    """Return a sentence that says why a run failed, and show the end of the log of the step that failed first."""
    at, reasons = "", [run.error.message if run.error else ""]
    if steps := failures(api, run.run_id):
        first = steps[0]
        log = read_log(api, run.run_id, first, LOG_LINES)
        if log.lines:
            say("\n".join((f"the last lines of {first.name}:", *(f"    {line}" for line in log.lines))))
        at = f" at {', '.join(step.name for step in steps)}"
        tried = f"tried {first.retried + 1} times" if first.retried else ""
        reasons = [log.error or first.message, *reasons, tried]
    said = "; ".join(filter(None, reasons))
    where = api.link(f"runs/details/{run.run_id}")
    return f"run {run.run_id} FAILED{at}{f': {said}' if said else ''}; see {where}"


def _terminated(run: Any) -> bool:
    """Whether somebody ended the run; the API calls it failed then, and has CANCELING before that in its history."""
    last = [status.state for status in run.state_history or []][-2:]
    return run.state == "CANCELED" or "CANCELING" in last
