"""Start a run of a compiled pipeline."""

import time
from collections.abc import Mapping
from typing import Any

import kfp_server_api

from pipelines.client.api import Api
from pipelines.client.errors import ApiError
from pipelines.compile.compiled import Compiled
from pipelines.form.options import Order
from tlm.errors import InputError, Interrupted
from tlm.progress import say


def submit(api: Api, pipeline: Compiled, values: Mapping[str, Any], order: Order, name: str = "") -> str:
    """Return the ID of the new run.

    Raises:
        InputError: The API refuses it or cannot be reached.
        Interrupted: No answer came, so the run may have begun.
    """
    name = name or f"{pipeline.name} {time.strftime('%Y-%m-%d %H:%M:%S')}"
    runtime = {"parameters": dict(values), "pipeline_root": order.pipeline_root or None}
    run = kfp_server_api.V2beta1Run(
        experiment_id=experiment(api, order.experiment),
        display_name=name,
        pipeline_spec=pipeline.document(),
        runtime_config=kfp_server_api.V2beta1RuntimeConfig(**runtime),
        service_account=order.service_account or None,
    )
    try:
        return str(api.client.runs.run_service_create_run(run).run_id)
    except ApiError as error:
        if error.status:
            raise
        raise Interrupted(f"whether a run began is not known, look for '{name}' in the UI: {error}") from None


def experiment(api: Api, name: str) -> str:
    """Return the ID of the experiment of this name, which is created if there is none."""

    def find() -> Any:
        listed = api.client.experiments.experiment_service_list_experiments
        return next(iter(api.named(listed, "experiments", name, **api.scope)), None)

    def create() -> Any:
        new = {"display_name": name, **api.scope}
        made = api.client.experiments.experiment_service_create_experiment(new)
        say(f"created the experiment '{name}'")
        return made

    found = api.find_or_create(find, create)
    if found.storage_state == "ARCHIVED":
        raise InputError(f"the experiment '{name}' is archived: restore it in the UI, or give another --experiment")
    return str(found.experiment_id)
