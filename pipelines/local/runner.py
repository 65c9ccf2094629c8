"""Run a pipeline on this machine: the same DAG as on Kubeflow, with its steps as subprocesses or in containers."""

import contextlib
import copy
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from kfp import local as kfp_local
from kfp.dsl.base_component import BaseComponent

from pipelines.compile.compiled import build
from pipelines.compile.images import load_images, with_images
from pipelines.form.options import ONE_OF_EACH, Machines
from pipelines.form.parameters import check_reachable
from pipelines.local.transcript import Transcript
from tlm.artifacts.artifact import Artifact
from tlm.errors import TlmError
from tlm.training.distributed.cards import LOCKS

AT_ONCE = 2  # iterations of a ParallelFor that kfp.local runs side by side
OUTPUTS = Path("local_outputs")
AGAIN = "fix what it says, then repeat the command: finished steps are not repeated"


class StepFailed(TlmError):
    """A step failed, and its error has been shown."""

    def __init__(self, text: str, resumable: bool) -> None:
        super().__init__(text)
        self.exit_code = 3 if resumable else 2


def run(
    parameters: dict[str, Any],
    images: Path | None = None,
    network: str = "bridge",
    name: str = "tlm",
    machines: Machines = ONE_OF_EACH,
) -> None:
    """Run a pipeline, print the table of its report and where the report is. A repeated call resumes a failed run.

    Args:
        parameters: Values of pipeline parameters; index and store default to local ones.
        images: File with references of the images; with it, steps run in containers, and all data are on S3.
        network: The Docker network of the containers.
        name: Which pipeline.
        machines: How many pods share the work of a step.

    Raises:
        StepFailed: A step failed.
    """
    os.environ.setdefault("TLM_THREADS", str(max(1, (os.cpu_count() or 1) // AT_ONCE)))
    pipeline, outputs = _without_retries(build(name, machines)), OUTPUTS.absolute()
    os.environ.setdefault(LOCKS, str(outputs / "gpus"))
    defaults = {"index_engine": "embedded", "store_root": "artifacts"}
    values = {name: value for name, value in defaults.items() if name in pipeline.component_spec.inputs} | parameters
    running: Any = contextlib.nullcontext(kfp_local.SubprocessRunner(use_venv=False))
    if images:
        from pipelines.local.containers import hardened_runner

        pipeline, outputs = with_images(pipeline, load_images(images)), outputs / "containers"
        check_reachable(values, "containers", "s3://")
        running = hardened_runner(outputs, network, values.get("train_gpus", "0") != "0")
    with running as runner:
        kfp_local.init(runner=runner, pipeline_root=str(outputs))
        report = _run_pipeline(pipeline, values)
    artifact = Artifact.open(report, "report")
    headline, results, *_ = artifact.path("report.md").read_text(encoding="utf-8").split("\n## ")
    sys.stdout.write(f"\n{headline}\n## {results}\nReport: {artifact.path('report.html')}\n{report}\n")


def _without_retries(pipeline: BaseComponent) -> BaseComponent:
    """Return a copy without retries: they are for lost pods, and kfp.local would wait a minute for two of them."""
    changed = copy.deepcopy(pipeline)
    graph = changed.component_spec.implementation.graph
    for component in (graph.root, *graph.components.values()):
        for step in component.dag.tasks.values():
            step.ClearField("retry_policy")
    return changed


def _run_pipeline(pipeline: BaseComponent, values: dict[str, Any]) -> str:
    """Return the URI of the report. Raises StepFailed."""
    warnings.filterwarnings("ignore", message=".*custom or non-Python base image")
    warnings.filterwarnings("ignore", message=".*have no effect in the current local runner")
    file, report, failure = OUTPUTS.absolute() / f"{time.strftime('%Y%m%d-%H%M%S')}.log", "", None
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as log:
        transcript = Transcript(log)
        with contextlib.redirect_stdout(transcript):  # type: ignore[type-var]
            try:
                report = str(pipeline(**values).output)
            except RuntimeError as error:
                failure = error
    if failure or transcript.fault:  # if kfp.local cannot get a container's exit code, it takes it for a success
        said = f"a step failed (its error is shown above, all output is in {file}); {AGAIN}"
        raise StepFailed(said, resumable=transcript.fault != "InputError") from failure
    return report
