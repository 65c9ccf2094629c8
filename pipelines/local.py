"""The pipeline on this machine: the Kubeflow DAG itself, its steps as subprocesses."""

import contextlib
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from kfp import local as kfp_local

from pipelines.tlm import tlm
from pipelines.transcript import Transcript, open_log
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


def run(parameters: dict[str, Any]) -> None:
    """Run to the report, print its table and where it is. Raises StepFailed; a repetition goes on where this ended."""
    values = {"index_engine": "embedded", "store_root": "artifacts"} | parameters
    os.environ.setdefault("TLM_THREADS", str(max(1, (os.cpu_count() or 1) // AT_ONCE)))
    report = _run_pipeline(values)
    artifact = Artifact.open(report, "report")
    headline, results, *_ = artifact.path("report.md").read_text(encoding="utf-8").split("\n## ")
    sys.stdout.write(f"\n{headline}\n## {results}\nReport: {artifact.path('report.html')}\n{report}\n")


def _run_pipeline(values: dict[str, Any]) -> str:
    """URI of the report."""
    warnings.filterwarnings("ignore", message=".*custom or non-Python base image")
    root = OUTPUTS.absolute()
    kfp_local.init(runner=kfp_local.SubprocessRunner(use_venv=False), pipeline_root=str(root))
    log = open_log(root, time.strftime("%Y%m%d-%H%M%S"))
    transcript = Transcript(log)
    with log, contextlib.redirect_stdout(transcript):  # type: ignore[type-var]
        try:
            return str(tlm(**values).output)
        except RuntimeError as error:
            said = f"a step failed (its sentence stands above, all output in {log.name}); {AGAIN}"
            raise StepFailed(said, resumable=transcript.fault != "InputError") from error
