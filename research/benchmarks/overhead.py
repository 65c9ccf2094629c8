"""The overhead of the pipeline beside the work: empty steps under `kfp.local`, set up as ours is."""

import io
import os
import sys
import tempfile
from contextlib import chdir, redirect_stdout

from research.benchmarks.measure import child, compare
from research.benchmarks.row import Result, Row, limit, need

SECONDS = 0.5
FEW = 2


def run(quick: bool) -> list[Result]:
    """The difference between a long pipeline and a short one, by the steps that it has more."""
    need("kfp", "docker")
    many = 6 if quick else 22
    sides = {"many": child(empty_steps, many), "few": child(empty_steps, FEW)}
    measured = compare(sides, repeats=1 if quick else 5)
    pairs = zip(measured.costs["many"], measured.costs["few"], strict=True)
    each = sorted((long.wall - short.wall) / (many - FEW) for long, short in pairs)
    note = f"A pipeline of {many} steps less one of {FEW}; {each[0]:.2f} to {each[-1]:.2f} s a step."
    return [limit("an empty step", each[len(each) // 2], "s", SECONDS, note)]


def empty_steps(count: int) -> None:
    """A pipeline of `count` steps that do nothing, one after the other, each a process."""
    from kfp import dsl, local

    image = f"python:{sys.version_info.major}.{sys.version_info.minor}"  # not used: steps are subprocesses

    @dsl.component(base_image=image, install_kfp_package=False)  # type: ignore[untyped-decorator]
    def empty(after: str) -> str:
        return after

    @dsl.pipeline(name="empty")  # type: ignore[untyped-decorator]
    def steps() -> None:
        last = "begin"
        for _ in range(count):
            last = empty(after=last).output

    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(io.StringIO()):
        local.init(runner=local.SubprocessRunner(use_venv=False), raise_on_error=True)
        steps()


ROW = Row(
    name="overhead",
    stage="pipeline overhead",
    against="a bound",
    target=f"at most {SECONDS:g} s a step besides the work",
    what="A chain of steps that return their input, under `kfp.local`'s subprocess runner without virtual "
    "environments, as `python -m pipelines.run local` runs our steps. This includes starting Python for each "
    "step.",
    run=run,
    packages=("kfp",),
)
