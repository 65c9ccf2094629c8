"""A pipeline of long steps: ``python -m tests.pipelines_cli.naps FOLDER MARKS`` runs it as `pipelines.run local` does.

Each step that begins leaves a file in the folder MARKS. With IMAGE and NETWORK as further arguments, steps run in
containers, which see FOLDER only.
"""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from kfp import dsl
from kfp import local as kfp_local

from components.base import component
from pipelines import local, run

_, FOLDER, MARKS, *DOCKER = sys.argv


@component(DOCKER[0] if DOCKER else "python")
def nap(number: int, marks: str) -> None:
    """Take a minute."""
    import time
    from pathlib import Path

    Path(marks, str(number)).touch()
    time.sleep(60)


@component(DOCKER[0] if DOCKER else "python")
def last() -> str:
    """Return what the pipeline returns."""
    return "done"


@dsl.pipeline(name="naps")
def naps(marks: str) -> str:
    """Four naps, two at a time."""
    with dsl.ParallelFor([1, 2, 3, 4], parallelism=2) as number:
        nap(number=number, marks=marks)
    return last().output  # type: ignore[no-any-return]


def run_naps(*_: Any) -> None:
    """In the place of `run_pipeline`."""
    local.OUTPUTS = Path(FOLDER, "outputs")
    plain = nullcontext((kfp_local.SubprocessRunner(use_venv=False), lambda: None))
    with local.hardened_runner(Path(FOLDER), DOCKER[1], False) if DOCKER else plain as (runner, end_steps):
        kfp_local.init(runner=runner, pipeline_root=FOLDER)
        local._run_pipeline(naps, {"marks": MARKS}, end_steps)


if __name__ == "__main__":
    local.run_pipeline = run_naps
    sys.argv[1:] = ["local"]
    run.main()
