"""Runs that Kubeflow starts by itself, again and again."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kfp_server_api

from pipelines.client.api import Api
from pipelines.client.faults import Unreachable
from pipelines.client.submit import Order, experiment
from pipelines.client.upload import Version, find_pipeline, find_version
from pipelines.compile.compiled import from_api
from pipelines.parameters import check_reachable, declared, read_parameters
from tlm.errors import InputError, Interrupted


def prepare(
    api: Api, pipeline: str, version: str, params: Path | None, changes: Sequence[str]
) -> tuple[Version, dict[str, Any]]:
    """(the uploaded version, parameter values that it takes). Raises InputError."""
    pipeline_id = find_pipeline(api, pipeline)
    found = find_version(api, pipeline_id, version) if pipeline_id else None
    if not found:
        missing = f"version {version} of the pipeline '{pipeline}'" if pipeline_id else f"a pipeline '{pipeline}'"
        raise InputError(f"{api.where.api}: has not {missing}; `upload` it first, or give --pipeline and --version")
    known = declared(from_api(found.pipeline_spec).spec) if found.pipeline_spec else None
    values = read_parameters(params, changes, known)
    check_reachable(values)
    return Version(pipeline_id, str(found.pipeline_version_id)), values


def schedule(api: Api, version: Version, order: Order, cron: str, *, at_once: int = 1) -> str:
    """ID of the recurring run `order.name`; one of that name which differs is replaced, an equal one stays.

    Args:
        api: The API.
        version: What is to run.
        order: Its name and settings.
        cron: When, as `pipelines.client.cron.checked` gives it.
        at_once: Runs that may go on side by side, 1 to 10.
    """
    home = experiment(api, order.experiment)
    jobs = api.schedules
    new = kfp_server_api.V2beta1RecurringRun(
        display_name=order.name,
        experiment_id=home,
        pipeline_version_reference=kfp_server_api.V2beta1PipelineVersionReference(
            pipeline_id=version.pipeline_id, pipeline_version_id=version.version_id
        ),
        runtime_config=order.runtime(),
        service_account=order.service_account or None,
        trigger=kfp_server_api.V2beta1Trigger(cron_schedule=kfp_server_api.V2beta1CronSchedule(cron=cron)),
        max_concurrency=str(at_once),
        no_catchup=True,
        mode="ENABLE",
    )
    old = api.named(jobs.recurring_run_service_list_recurring_runs, "recurring_runs", order.name, experiment_id=home)
    same = [one for one in old if _is_same(one, new) and one.status == "ENABLED"]
    if same:
        sys.stderr.write(f"'{order.name}' is scheduled so already\n")
        made = same[0]
    else:
        try:
            made = api.call(jobs.recurring_run_service_create_recurring_run, new, again=False)
        except Unreachable as error:
            if not error.unsure:
                raise
            raise Interrupted(f"whether '{order.name}' is scheduled is not known, repeat it: {error}") from None
    for one in old:
        if one.recurring_run_id != made.recurring_run_id:
            api.call(jobs.recurring_run_service_delete_recurring_run, one.recurring_run_id)
            sys.stderr.write(f"replaced the recurring run {one.recurring_run_id} of this name\n")
    return str(made.recurring_run_id)


def _is_same(old: kfp_server_api.V2beta1RecurringRun, new: kfp_server_api.V2beta1RecurringRun) -> bool:
    """Whether both start the same; Kubeflow fills in a service account where none was asked for."""
    account = new.service_account or old.service_account
    return _settings(old) == _settings(new) and old.service_account == account


def _settings(job: kfp_server_api.V2beta1RecurringRun) -> tuple[Any, ...]:
    reference, runtime = job.pipeline_version_reference, job.runtime_config
    return (
        job.trigger.cron_schedule.cron if job.trigger and job.trigger.cron_schedule else None,
        reference.pipeline_version_id if reference else None,
        (runtime.parameters if runtime else None) or {},
        (runtime.pipeline_root if runtime else None) or "",
        str(job.max_concurrency),
    )
