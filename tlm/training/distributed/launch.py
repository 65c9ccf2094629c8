"""Training on all GPUs of a machine, or of several: torchrun starts one process for each.

This module stays light: torch is imported only when there is something to train.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tlm.artifacts.home import home
from tlm.artifacts.produce import Draft, Recipe, finished, produce
from tlm.artifacts.progress import Progress
from tlm.errors import InputError, Interrupted, TlmError
from tlm.progress import say
from tlm.spending import Spending
from tlm.training.cores import cores
from tlm.training.distributed.endings import ENDINGS, Ending
from tlm.training.distributed.process import dying_with_parent
from tlm.training.distributed.signals import Stop, stopping

PROCESSES = "TLM_PROCESSES"
NODES = "PET_NNODES"  # torchrun's own names: Kubeflow Trainer sets them in each pod of a job of several nodes
LOOK_SECONDS = 0.2
SLOW_SECONDS = 60.0  # what torchrun may take to end after it was told to


@dataclass(frozen=True)
class Command:
    """A step as it was called: ``module:function`` and its arguments, for the processes that share its work."""

    step: str
    arguments: dict[str, Any]


def train_together(recipe: Recipe, root: str | None, write: Callable[[Draft], None], command: Command) -> str:
    """As `produce`, with `write` done by as many processes as there are GPUs; snapshots are removed at the end.

    Args:
        recipe: What is trained.
        root: Where to, as `produce` takes it.
        write: Trains; it joins the processes that there are, and the first of them writes.
        command: The step itself, to be called in each process; its arguments ``device`` and ``gpus`` count.

    Raises:
        InputError: fewer GPUs than asked for; or what one of the processes raised.
        Interrupted, Terminated: what they raised, or they died.
    """
    if "RANK" in os.environ:
        return _as_one_of_many(recipe, root, write)
    if finished(recipe, root) is None:
        count = processes(command.arguments["device"], command.arguments["gpus"])
        if count * nodes() > 1:
            _launch(command, count)
            uri = finished(recipe, root)
            if uri is None:
                place = home(root, recipe.inputs.values()).root
                raise InputError(f"root '{place}' is another folder on each node; give one on S3 (s3://…)")
            return uri
    uri = produce(recipe, root, write)
    Progress.of(recipe, root).clear()
    return uri


def processes(device: str, gpus: int) -> int:
    """Processes to start on this machine: ``TLM_PROCESSES``, else one for each GPU.

    Raises:
        InputError: `gpus` are asked for and there are fewer, or the variable is no number.
    """
    given = os.environ.get(PROCESSES)
    if given and not (given.isdecimal() and int(given) > 0):
        raise InputError(f"{PROCESSES} is '{given}'; expected the number of processes to train in")
    if given and gpus == 0:
        return int(given)
    import torch

    there = torch.cuda.device_count()
    if there < gpus:
        reason = "; this image's torch is a build for CPUs" if torch.version.cuda is None else ""
        raise InputError(
            f"{gpus} GPUs were asked for, but torch sees {there} here{reason}: check that the node has them free "
            "(nvidia-smi), that its driver is recent enough for the image's CUDA, and the pod's resource limits"
        )
    if given:
        return int(given)
    return max(1, gpus or there) if device in ("auto", "cuda") else 1


def nodes() -> int:
    """Machines that train together: more than one in a job of Kubeflow Trainer."""
    given = os.environ.get(NODES, "1")
    return int(given) if given.isdecimal() else 1


def _as_one_of_many(recipe: Recipe, root: str | None, write: Callable[[Draft], None]) -> str:
    """What `produce` does, in a process that torchrun started: the first one publishes, the others help."""
    from tlm.training.distributed.group import joined

    uri = finished(recipe, root) or ""
    with joined() as world:
        found = world.tell({"uri": uri})["uri"]  # one answer for all, whoever looked a moment later
        if world.first:
            uri = produce(recipe, root, write)
            Progress.of(recipe, root).clear()
        elif not found:
            draft = Draft(Path(os.devnull), spending=Spending(None if world.local == 0 else ()))
            with draft.spending:
                write(draft)
        world.wait()  # until it is published
    return uri or finished(recipe, root) or ""


def _launch(command: Command, count: int) -> None:
    """Run `command` in `count` processes here (and on the other nodes), to the end."""
    say(f"{count} processes" + (f" on each of {nodes()} nodes" if nodes() > 1 else ""))
    with tempfile.TemporaryDirectory(prefix="tlm-torchrun-") as folder, stopping() as stop:
        endings = Path(folder)
        threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, cores() // count))
        env = {**os.environ, ENDINGS: folder, "OMP_NUM_THREADS": threads}
        with (endings / "torchrun.log").open("wb") as log:  # of torchrun itself: a report that says less than we do
            child = subprocess.Popen(
                _torchrun(command, count, folder),
                env=env,
                stdout=2,
                stderr=log,
                preexec_fn=dying_with_parent(),
                start_new_session=True,
            )
        told: Stop | None = None
        try:
            while child.poll() is None:
                if stop.is_set() and told is None:
                    _tell(child, endings, count, stop.number)
                    told = stop
                _wait(child, LOOK_SECONDS)
        finally:
            _end(child)
        if child.returncode != 0:
            raise _reason(endings, child.returncode, told)


def _torchrun(command: Command, count: int, folder: str) -> list[str]:
    run = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={count}", f"--log-dir={folder}/logs"]
    if nodes() == 1:  # else the environment tells where the others are
        run += ["--standalone", "--local-addr=127.0.0.1"]  # without an address DNS is asked for this pod's name
    return [*run, "-m", "tlm.training.distributed.process", command.step, json.dumps(command.arguments)]


def _tell(child: subprocess.Popen[bytes], endings: Path, count: int, number: int) -> None:
    """Pass a signal on: to the processes themselves, because torchrun would kill them 30 s after telling them."""
    pids = [int(path.suffix[1:]) for path in endings.glob("pid.*")]
    if len(pids) < count:  # nothing was begun
        child.terminate()
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _wait(child: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def _end(child: subprocess.Popen[bytes]) -> None:
    """Leave no process behind, whatever happened."""
    if child.poll() is None:
        child.terminate()
        _wait(child, SLOW_SECONDS)
    if child.poll() is None:
        child.kill()  # its processes die with it
        child.wait()


def _reason(endings: Path, code: int, told: Stop | None) -> TlmError | OSError:
    """The error that ended the training, said by the process that had it first."""
    known = [Ending.read(path) for path in endings.glob("*.json")]
    first = min(known, key=lambda ending: (ending.lost, ending.time), default=None)
    if told and (first is None or first.lost):
        error = told.error()
        return error(f"stopped by {error.by} before there was a step to save; repeat the command to go on")
    if first is not None:
        return first.error()
    log = (endings / "torchrun.log").read_text(encoding="utf-8", errors="replace")
    signals = re.findall(r"^ *exitcode *: -(\d+)", log, re.MULTILINE)  # the last one is the first that there was
    if signals:
        return Interrupted(
            f"a training process was ended by {signal.Signals(int(signals[-1])).name}; if nobody did that, memory "
            "ended: raise the pod's memory limit or lower the batch, then repeat the command to go on"
        )
    last = next((line for line in reversed(log.splitlines()) if line.strip("=- ")), "it said nothing")
    return Interrupted(f"torchrun ended with code {code} ({last.strip()[:300]}); mend that, then repeat the command")
