"""The pipeline on this machine: the Kubeflow DAG itself, its steps as subprocesses."""

import os
from pathlib import Path
from typing import Any

from kfp import local as kfp_local

from pipelines.tlm import tlm
from tlm.artifacts.artifact import Artifact
from tlm.errors import TlmError
from tlm.progress import say

AT_ONCE = 2  # kfp.local runs so many iterations of a ParallelFor side by side


class StepFailed(TlmError):
    """A step ended with an error, which it has said itself."""

    exit_code = 3


def run(parameters: dict[str, Any]) -> None:
    """Run to the report, print its table and where it is. Raises StepFailed; a repetition goes on where this ended."""
    values = {"index_engine": "embedded", "store_root": "artifacts"} | parameters
    if "://" not in values["store_root"]:
        values["store_root"] = str(Path(values["store_root"]).absolute())
    os.environ.setdefault("TLM_THREADS", str(max(1, (os.cpu_count() or 1) // AT_ONCE)))
    kfp_local.init(
        runner=kfp_local.SubprocessRunner(use_venv=False),
        pipeline_root=str(Path("local_outputs").absolute()),
    )
    try:
        report = tlm(**values).output
    except Exception as error:
        raise StepFailed(f"{error}; see above what the step said, then repeat the command to go on") from error
    _show(report)


def _show(uri: str) -> None:
    artifact = Artifact.open(uri, "report")
    say("")
    print(artifact.path("report.md").read_text(encoding="utf-8").split("\n## ")[0])
    print(f"Report: {artifact.path('report.html')}")
    print(uri)
