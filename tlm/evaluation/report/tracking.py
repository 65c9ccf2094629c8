"""Log a report to MLflow, where ``MLFLOW_TRACKING_URI`` is set: a run for the report, and in it a run for each row.

The client, mlflow-skinny (the extra mlflow), is not in the images: it would add some twenty packages to `tlm-data`.
"""

import os
import time
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores.store import check_url
from tlm.errors import InputError, reason
from tlm.evaluation.pages.text import visible
from tlm.evaluation.report.lineage import flat
from tlm.progress import say

ADDRESS, EXPERIMENT = "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"
# MLflow's own variables, unless they are set: no redirects, no telemetry, and an end where no server answers.
HOW = {
    "MLFLOW_ALLOW_HTTP_REDIRECTS": "false", "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
}  # fmt: skip
KEY, PARENT, NOTE = "tlm.report", "mlflow.parentRunId", "mlflow.note.content"
LONGEST, MOST = 500, 100  # characters of a value, and values of a call, that every server takes
ENDS = {"": "mean", "_low": "low", "_high": "high"}  # of the names of a score and its interval
OF_SETTINGS = ("hits", "subset", "tokens", "checkpoint", "model")


def track(report: Artifact) -> None:
    """Log a report, once, if ``MLFLOW_TRACKING_URI`` names a server or a folder; what goes wrong is a warning."""
    address = os.environ.get(ADDRESS, "")
    if not address:
        return
    scheme, colon, _ = address.partition(":")
    folder = not colon or scheme == "file"
    again = f"the report is finished; repeat the command to log it, or unset {ADDRESS}"
    try:
        if not folder:
            check_url(address, ADDRESS)
        os.environ.update({name: os.environ.get(name, value) for name, value in HOW.items()})
        from mlflow import MlflowClient

        _log(report, MlflowClient(address), local=folder)
    except ImportError:
        say(f"warning: {ADDRESS} is set, but mlflow-skinny is missing: in a checkout, pip install '.[mlflow]'; {again}")
    except Exception as error:  # whatever a client and a server may do
        said = str(InputError(reason(error)))  # which hides passwords
        for part in os.environ.get("MLFLOW_TRACKING_TOKEN", "").split():  # requests shows a token with a line end
            said = said.replace(part, "…")
        say(f"warning: MLflow did not take the report ({said}); {again}")


def _log(report: Artifact, client: Any, *, local: bool) -> None:
    facts = report.json("report.json")
    name, key = os.environ.get(EXPERIMENT) or facts["task"]["name"], report.manifest.key
    found = client.get_experiment_by_name(name)
    experiment = found.experiment_id if found is not None else client.create_experiment(name)
    logged = client.search_runs([experiment], f"tags.`{KEY}` = '{key}'")
    if any(run.info.status == "FINISHED" and PARENT not in run.data.tags for run in logged):
        return say(f"report: MLflow has it already, in the experiment {name}")
    for run in logged:  # of an attempt that was interrupted
        client.delete_run(run.info.run_id)
    tags = {KEY: key, "tlm.version": report.manifest.tool}
    whole = client.create_run(experiment, tags={**tags, NOTE: facts["findings"][0]}, run_name=f"report {key[:12]}").info
    models = {one.manifest.key: one for one in report.lineage() if one.manifest.kind == "model"}
    for row in facts["groups"]:
        run = client.create_run(experiment, tags={**tags, PARENT: whole.run_id}, run_name=row["name"]).info
        _write(client, run.run_id, row, models)
        client.set_terminated(run.run_id)
    if local or whole.artifact_uri.startswith("mlflow-artifacts:"):  # else the server says where else to write
        client.log_text(whole.run_id, report.path("report.html").read_text(encoding="utf-8"), "report.html")
    client.set_terminated(whole.run_id)
    say(f"report: logged to MLflow, in the experiment {name}")


def _write(client: Any, run: str, row: dict[str, Any], models: dict[str, Artifact]) -> None:
    """Log a row of the report: scores with their intervals and costs, the settings of all steps, keys of models."""
    from mlflow.entities import Metric, Param, RunTag

    values = {f"{split}{end}": row[split][at] for split in ("dev", "test") for end, at in ENDS.items()}
    values |= {name: spread["mean"] for name, spread in (row["scores"] | row["cost"]).items()}
    values |= {"parameters": row["parameters"], "mlm_loss": row["mlm_loss"]["mean"]}
    metrics = [Metric(name, value, int(time.time() * 1000), 0) for name, value in values.items() if value is not None]
    settings = {name: row[name] for name in ("arm", "kind", "text", "stage", "seeds")}
    known = [models[key] for key in row["models"] if key in models]
    if known:
        settings |= _settings(known[0])
    params = [Param(name, visible(str(value), LONGEST)) for name, value in [*settings.items()][:MOST]]
    client.log_batch(run, metrics, params, [RunTag("tlm.models", " ".join(row["models"])[:LONGEST])])


def _settings(model: Artifact) -> dict[str, Any]:
    """The settings of the steps that made a model, by step; those of a section as ``train.train.rho1``."""
    found: dict[str, Any] = {}
    for made in (one.manifest for one in model.lineage() if one.manifest.kind in OF_SETTINGS):  # the nearest first
        found = {f"{made.step}.{name}": value for name, value in flat(made.settings)} | found
    return found
