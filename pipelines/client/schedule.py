"""Let Kubeflow start runs by itself, again and again."""

from typing import Any

from pipelines.client.api import Api
from pipelines.client.errors import Unanswered
from pipelines.client.submit import experiment
from pipelines.client.upload import find_pipeline, find_version
from pipelines.client.wait import FINAL
from pipelines.compile.compiled import from_api
from pipelines.form.options import Order, Parameters
from pipelines.form.parameters import check_reachable, declared, read_parameters
from tlm.errors import InputError, Interrupted, nearest
from tlm.progress import say

PAGE = 100  # recurring runs that one answer lists


def six_fields(line: str) -> str:
    """Return a cron line as Kubeflow reads it; the API checks its values.

    A line of five fields gets a 0 for the seconds: KFP would read it as second to month, and start at another time.

    Raises:
        InputError: It has another number of fields.
    """
    fields = line.split()
    if len(fields) == 5:
        say(f"read as '0 {' '.join(fields)}'")
        return f"0 {' '.join(fields)}"
    if len(fields) != 6 and not line.startswith("@"):
        raise InputError(
            f"cron line '{line}' has {len(fields)} fields, expected six (second, minute, hour, day, month, weekday),"
            " such as '0 0 3 * * 1' for Mondays at three"
        )
    return " ".join(fields)


def schedule(
    api: Api,
    parameters: Parameters,
    order: Order,
    *,
    name: str,
    pipeline: str,
    version: str,
    cron: str,
    at_once: int = 1,
) -> str:
    """Return the ID of the recurring run `name`; one of that name is replaced if it differs, and kept if it is equal.

    Args:
        api: The API.
        parameters: Values of the pipeline's parameters.
        order: How Kubeflow runs the pipeline.
        name: Name of the recurring run.
        pipeline: Name of the pipeline.
        version: Name of its version.
        cron: When it runs: a line of six fields.
        at_once: Runs that may go on side by side, 1 to 10.

    Raises:
        InputError: The version does not exist or does not take the parameters, or the API refuses the recurring run.
        Interrupted: No answer came, so the recurring run may have been created.
    """
    pipeline_id = find_pipeline(api, pipeline)
    found = find_version(api, pipeline_id, version) if pipeline_id else None
    if not found:
        missing = f"version {version} of the pipeline '{pipeline}'" if pipeline_id else f"a pipeline '{pipeline}'"
        raise InputError(f"{api.url}: does not have {missing}; `upload` it first, or give --pipeline and --version")
    values = read_parameters(**vars(parameters), known=declared(from_api(found.pipeline_spec).spec))
    check_reachable(values)
    experiment_id = experiment(api, order.experiment)
    runtime = {"parameters": values, "pipeline_root": order.pipeline_root}
    wanted = {
        "display_name": name,
        "experiment_id": experiment_id,
        "max_concurrency": str(at_once),
        "pipeline_version_reference": {"pipeline_id": pipeline_id, "pipeline_version_id": found.pipeline_version_id},
        "runtime_config": {key: value for key, value in runtime.items() if value},
        "trigger": {"cron_schedule": {"cron": cron}},
    }
    if order.service_account:
        wanted["service_account"] = order.service_account
    old = api.named(api.client.list_recurring_runs, "recurring_runs", name, experiment_id=experiment_id)
    made = next((job for job in old if _equals(api, job, wanted)), None)
    if made:
        say(f"'{name}' is already scheduled like this")
    else:
        try:
            new = wanted | {"mode": "ENABLE", "no_catchup": True}
            made = api.client.recurring_runs.recurring_run_service_create_recurring_run(new)
        except Unanswered as error:
            raise Interrupted(f"whether '{name}' is scheduled is not known, repeat it: {error}") from None
    for job in old:
        if job.recurring_run_id != made.recurring_run_id:
            say(f"'{name}' is scheduled anew: {_end(api, job)}")
    return str(made.recurring_run_id)


def listed(api: Api) -> list[str]:
    """Return a line for each recurring run: name, when, whether it is on, and its link."""
    runs = recurring_runs(api)
    widths = [max(map(len, column)) for column in zip(*runs, strict=True)]
    return ["  ".join(map(str.ljust, one, widths)).rstrip() for one in runs]


def recurring_runs(api: Api) -> list[tuple[str, str, str, str]]:
    """Return name, cron line, ENABLED or DISABLED, and link of each recurring run, the newest first."""
    found, token = [], ""
    while True:
        page = api.client.list_recurring_runs(token, PAGE, "created_at desc", **api.scope)
        for job in page.recurring_runs or []:
            trigger = job.trigger.cron_schedule if job.trigger else None
            link = api.link(f"recurringrun/details/{job.recurring_run_id}")
            found.append((job.display_name, trigger.cron if trigger else "(no cron line)", job.status or "", link))
        if not (token := page.next_page_token or ""):
            return found


def unschedule(api: Api, name: str) -> None:
    """End the recurring runs of this name in all experiments; runs that have begun go on.

    Raises:
        InputError: There is none of this name.
    """
    old = api.named(api.client.list_recurring_runs, "recurring_runs", name, **api.scope)
    if not old:
        known = sorted({each for each, *_ in recurring_runs(api)})
        raise InputError(f"{api.url}: has no recurring run '{name}'{nearest(name, known)}; `schedule --list` lists all")
    for job in old:
        say(_end(api, job))


def _end(api: Api, job: Any) -> str:
    """Delete a recurring run, or only turn it off while runs that it started go on; returns what was done.

    Workflows belong to the recurring run that started them, and Kubernetes deletes them with it.
    """
    identity, going_on = job.recurring_run_id, _going_on(api, job.recurring_run_id)
    if not going_on:
        api.client.delete_recurring_run(identity)
        return f"deleted the recurring run {identity} called '{job.display_name}'"
    api.client.disable_recurring_run(identity)
    runs = f"{going_on} runs that it started go" if going_on > 1 else "a run that it started goes"
    return (
        f"turned off the recurring run {identity} called '{job.display_name}'; {runs} on, and would be deleted with "
        "it, so delete it when they have ended: `schedule --delete`"
    )


def _going_on(api: Api, identity: str) -> int:
    """How many runs that a recurring run started have not ended."""
    count, token = 0, ""
    while True:
        page = api.client.runs.run_service_list_runs(page_token=token, page_size=PAGE, **api.scope)
        count += sum(run.recurring_run_id == identity and run.state not in FINAL for run in page.runs or [])
        if not (token := page.next_page_token or ""):
            return count


def _equals(api: Api, job: Any, wanted: dict[str, Any]) -> bool:
    """Return whether a recurring run is enabled and has all settings of `wanted`."""
    found = api.http.sanitize_for_serialization(job)
    found["runtime_config"] = {key: value for key, value in found.get("runtime_config", {}).items() if value}
    return job.status == "ENABLED" and wanted.items() <= found.items()
