"""Wait until a run has ended, whatever happens to the API and to the token meanwhile."""

import sys
import time
from typing import Any

from pipelines.client.api import Api
from pipelines.client.failure import failed_steps, tail_of_log
from pipelines.client.faults import ApiError, Elsewhere, NotFound, Unauthorized, Unreachable
from tlm.errors import InputError, Interrupted

FINAL = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")
LOG_LINES = 20


def wait(api: Api, run_id: str, *, timeout: float, every: float) -> None:
    """Return when the run has succeeded.

    Args:
        api: The API.
        run_id: The run.
        timeout: Seconds to wait at most.
        every: Seconds between two looks.

    Raises:
        InputError: the run failed, was cancelled or is gone.
        Interrupted: it goes on, but the time is over or the API is lost.
    """
    try:
        run = _ended(api, run_id, time.monotonic() + timeout, timeout, every)
    except KeyboardInterrupt:
        raise Interrupted(_goes_on(api, run_id, "no longer waiting")) from None
    if run.state != "SUCCEEDED":
        raise InputError(_failure(api, run))


def _ended(api: Api, run_id: str, deadline: float, timeout: float, every: float) -> Any:
    """The run in its final state."""
    state, trouble = "", ""
    while True:
        try:
            run = api.once(api.runs.run_service_get_run, run_id)
        except NotFound:
            raise InputError(f"run {run_id} is not there (any more); its ID is part of its link in the UI") from None
        except (Unreachable, Unauthorized, Elsewhere) as error:
            if not trouble:
                _tell(f"{error}; the run goes on, and so does waiting")
            trouble = str(error)
            if isinstance(error, Unauthorized) and not api.token.file:  # it will not get better by itself
                raise Interrupted(_goes_on(api, run_id, trouble)) from None
        except ApiError as error:
            raise Interrupted(_goes_on(api, run_id, str(error))) from None
        else:
            if trouble:
                _tell("the API answers again")
            trouble = ""
            if run.state and run.state != state:
                _tell(run.state)
            state = run.state or state
            if state in FINAL:
                return run
        left = deadline - time.monotonic()
        if left <= 0:
            raise Interrupted(_goes_on(api, run_id, trouble or f"still {state or 'PENDING'} after {timeout:g} seconds"))
        time.sleep(min(every, left))


def _goes_on(api: Api, run_id: str, why: str) -> str:
    return f"{why}; run {run_id} goes on: see {api.link(f'runs/details/{run_id}')}, or wait on with `wait {run_id}`"


def _failure(api: Api, run: Any) -> str:
    """One sentence about a run that did not succeed; the tail of the first failed step's log goes before it."""
    where = api.link(f"runs/details/{run.run_id}")
    if run.state != "FAILED":
        return f"run {run.run_id} ended {run.state}: see {where}"
    steps = failed_steps(run)
    for step in steps[:1]:
        lines = tail_of_log(api, run, step, LOG_LINES)
        if lines:
            _tell("\n".join((f"the last lines of {step}:", *(f"    {line}" for line in lines))))
    at = f" at {', '.join(steps)}" if steps else ""
    said = f" ({run.error.message})" if run.error and run.error.message else ""
    return f"run {run.run_id} FAILED{at}{said}: see {where}"


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
