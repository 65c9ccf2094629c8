"""Start a run of the compiled pipeline."""

import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import kfp_server_api

from pipelines.client.api import Api
from pipelines.client.faults import Conflict, Unreachable
from pipelines.compile.compiled import Compiled
from tlm.errors import InputError, Interrupted


class Order(NamedTuple):
    """How a pipeline is to run."""

    parameters: Mapping[str, Any]
    experiment: str = "tlm"
    name: str = ""
    pipeline_root: str = ""
    service_account: str = ""

    def runtime(self) -> kfp_server_api.V2beta1RuntimeConfig:
        """Parameters and the place of KFP's own artifacts."""
        return kfp_server_api.V2beta1RuntimeConfig(
            parameters=dict(self.parameters), pipeline_root=self.pipeline_root or None
        )


def submit(api: Api, pipeline: Compiled, order: Order) -> str:
    """ID of the new run.

    Raises:
        InputError: the API refuses it or cannot be reached.
        Interrupted: no answer came, so that the run may have begun.
    """
    name = order.name or f"{pipeline.name} {time.strftime('%Y-%m-%d %H:%M:%S')}"
    run = kfp_server_api.V2beta1Run(
        experiment_id=experiment(api, order.experiment),
        display_name=name,
        pipeline_spec=pipeline.document(),
        runtime_config=order.runtime(),
        service_account=order.service_account or None,
    )
    try:
        return str(api.call(api.runs.run_service_create_run, run, again=False).run_id)
    except Unreachable as error:
        if not error.unsure:
            raise
        raise Interrupted(f"whether a run began is not known, look for '{name}' in the UI: {error}") from None


def experiment(api: Api, name: str) -> str:
    """ID of the experiment of this name, which is made if there is none."""
    scope = {"namespace": api.namespace} if api.namespace else {}

    def find() -> list[Any]:
        return api.named(api.experiments.experiment_service_list_experiments, "experiments", name, **scope)

    found = find()
    if not found:
        new = kfp_server_api.V2beta1Experiment(display_name=name, **scope)
        try:
            found = [api.call(api.experiments.experiment_service_create_experiment, new)]
            sys.stderr.write(f"made the experiment '{name}'\n")
        except Conflict:  # another one was quicker, or our first try had arrived
            found = find()
    if not found:
        raise InputError(f"the experiment '{name}' exists but is not listed: give another --experiment")
    if found[0].storage_state == "ARCHIVED":
        raise InputError(f"the experiment '{name}' is archived: restore it in the UI, or give another --experiment")
    return str(found[0].experiment_id)


def without_cache(pipeline: Compiled) -> Compiled:
    """The same pipeline with Kubeflow's cache off in every task."""
    for _, task in pipeline.tasks():
        task["cachingOptions"] = {}
    return pipeline
