"""The pipeline on this machine: the Kubeflow DAG itself, its steps as subprocesses or in containers."""

import contextlib
import copy
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kfp import local as kfp_local
from kfp.dsl.base_component import BaseComponent

from pipelines.compile.images import load_images, with_images
from pipelines.local.transcript import Transcript, open_log
from pipelines.named import build
from tlm.artifacts.artifact import Artifact
from tlm.errors import TlmError

AT_ONCE = 2  # kfp.local runs so many iterations of a ParallelFor side by side
OUTPUTS = Path("local_outputs")
AGAIN = "mend what it says, then repeat the command: finished steps are not repeated"


class StepFailed(TlmError):
    """A step ended with an error, which it has said itself."""

    def __init__(self, text: str, resumable: bool) -> None:
        super().__init__(text)
        self.exit_code = 3 if resumable else 2


def run(parameters: dict[str, Any], images: Path | None = None, network: str = "bridge", name: str = "tlm") -> None:
    """Run to the report, print its table and where it is. Raises StepFailed; a repetition goes on where this ended.

    Args:
        parameters: Values of pipeline parameters; those that are missing have defaults for one machine.
        images: File with the images' references: the steps run in containers, and corpus, task and store are on S3.
        network: The containers' Docker network.
        name: Which pipeline.
    """
    values = {"index_engine": "embedded", "store_root": "artifacts"} | parameters
    os.environ.setdefault("TLM_THREADS", str(max(1, (os.cpu_count() or 1) // AT_ONCE)))
    with _steps(_without_retries(build(name)), values, images, network) as pipeline:
        report = _run_pipeline(pipeline, values)
    artifact = Artifact.open(report, "report")
    headline, results, *_ = artifact.path("report.md").read_text(encoding="utf-8").split("\n## ")
    sys.stdout.write(f"\n{headline}\n## {results}\nReport: {artifact.path('report.html')}\n{report}\n")


def _without_retries(pipeline: BaseComponent) -> BaseComponent:
    """A copy in which a step fails at once: retries are for lost pods, and kfp.local waits a minute for two of them."""
    changed = copy.deepcopy(pipeline)
    graph = changed.component_spec.implementation.graph
    for component in (graph.root, *graph.components.values()):
        for step in component.dag.tasks.values():
            step.ClearField("retry_policy")
    return changed


@contextlib.contextmanager
def _steps(
    pipeline: BaseComponent, values: dict[str, Any], images: Path | None, network: str
) -> Iterator[BaseComponent]:
    """The pipeline, and kfp.local told how to run its steps."""
    outputs = OUTPUTS.absolute()
    if images is None:
        kfp_local.init(runner=kfp_local.SubprocessRunner(use_venv=False), pipeline_root=str(outputs))
        yield pipeline
        return
    from pipelines.local import containers

    pipeline = with_images(pipeline, load_images(images))
    containers.check(values)
    with containers.hardened_runner(outputs / "containers", network) as runner:
        kfp_local.init(runner=runner, pipeline_root=str(outputs / "containers"))
        yield pipeline


def _run_pipeline(pipeline: BaseComponent, values: dict[str, Any]) -> str:
    """URI of the report."""
    warnings.filterwarnings("ignore", message=".*custom or non-Python base image")
    warnings.filterwarnings("ignore", message=".*have no effect in the current local runner")
    log = open_log(OUTPUTS.absolute(), time.strftime("%Y%m%d-%H%M%S"))
    transcript = Transcript(log)
    with log, contextlib.redirect_stdout(transcript):  # type: ignore[type-var]
        try:
            report = pipeline(**values).output
        except RuntimeError as error:
            raise _failed(transcript, log.name) from error
    if transcript.fault:  # kfp.local takes a container that it can no longer ask for its exit code as a success
        raise _failed(transcript, log.name)
    return str(report)


def _failed(transcript: Transcript, log: str) -> StepFailed:
    said = f"a step failed (its sentence stands above, all output in {log}); {AGAIN}"
    return StepFailed(said, resumable=transcript.fault != "InputError")
