"""Training on all GPUs of one or several machines: torchrun starts one process for each.

torch is imported only when there is something to train.
"""

import fcntl
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tlm.artifacts.artifact import home
from tlm.artifacts.produce import Draft, Progress, Recipe, finished, produce
from tlm.artifacts.spending import Spending
from tlm.artifacts.stores.local import make_folder
from tlm.errors import InputError, Interrupted, TlmError
from tlm.progress import say
from tlm.settings.options import Compute
from tlm.training.distributed.process import ENDINGS, Ending, Stop, dying_with_parent, stopping

PROCESSES = "TLM_PROCESSES"
NODES = "PET_NNODES"  # torchrun's own name; Kubeflow Trainer sets it in each pod of a job of several nodes
ROWS = 32  # of a batch, for each process
POLL_SECONDS = 0.2
END_SECONDS = 60.0  # how long torchrun may take to end after SIGTERM


def train_together(
    recipe: Recipe,
    root: str | None,
    write: Callable[[Draft], None],
    step: Callable[..., str],
    arguments: dict[str, Any],
    rows: int,
) -> str:
    """Do as `produce` does, but run `write` in one process for each GPU; remove the snapshots at the end.

    Args:
        recipe: What is trained.
        root: The store, as `produce` takes it.
        write: Trains. It joins the process group, and rank 0 writes.
        step: The step that calls this function. Each process calls it again.
        arguments: Those of the step. Its ``compute`` decides how many processes there are.
        rows: Texts in a batch; each process takes some of them.

    Raises:
        InputError: fewer GPUs than asked for; or what one of the processes raised.
        Interrupted, Terminated: what one of the processes raised, or one was killed.
    """
    if "RANK" in os.environ:
        return _as_one_of_many(recipe, root, write)
    if finished(recipe, root) is not None:
        return _alone(recipe, root, write)
    compute: Compute = arguments["compute"]
    count = processes(compute, rows)
    with own_cards(compute.place, count):
        if count * nodes() == 1:
            return _alone(recipe, root, write)
        _launch(step, arguments, count)
    uri = finished(recipe, root)
    if uri is None:
        folder = home(root, recipe.inputs.values()).root
        raise InputError(f"root '{folder}' is another folder on each node; give one on S3 (s3://…)")
    return uri


def _alone(recipe: Recipe, root: str | None, write: Callable[[Draft], None]) -> str:
    uri = produce(recipe, root, write)
    Progress(recipe.key, root, recipe.inputs).clear()
    return uri


def filled(rows: int, machines: int = 1) -> int:
    """How many GPUs of each machine a batch of so many rows fills, at least one.

    Each has `ROWS` rows or more: with fewer, GPUs wait for each other most of the time.
    """
    return max(1, rows // (ROWS * machines))


def processes(compute: Compute, rows: int) -> int:
    """Return the number of processes to start on this machine: ``TLM_PROCESSES``, else one for each GPU it fills.

    Args:
        compute: Which GPUs to use at most.
        rows: Texts in a batch, which all nodes share.

    Raises:
        InputError: there are fewer GPUs than are asked for and needed, or the variable is not a number.
    """
    given = os.environ.get(PROCESSES)
    if given and not (given.isdecimal() and int(given) > 0):
        raise InputError(f"{PROCESSES} is '{given}'; expected the number of processes to train in")
    gpus = compute.gpus
    if given and gpus <= 0:
        return int(given)
    import torch

    there, most = torch.cuda.device_count(), filled(rows, nodes())
    if there < min(gpus, most):
        reason = "; this image's torch is a build for CPUs" if torch.version.cuda is None else ""
        raise InputError(
            f"{gpus} GPUs were asked for, but torch sees {there} here{reason}: check that the node has them free "
            "(nvidia-smi), that its driver is recent enough for the image's CUDA, and the pod's resource limits"
        )
    if given:
        return int(given)
    if compute.place not in ("auto", "cuda"):
        return 1
    return min(most, max(1, there if gpus < 0 else gpus))


def nodes() -> int:
    """Return the number of machines that train together: more than one in a job of Kubeflow Trainer."""
    given = os.environ.get(NODES, "1")
    return int(given) if given.isdecimal() else 1


def _as_one_of_many(recipe: Recipe, root: str | None, write: Callable[[Draft], None]) -> str:
    """Do as `produce` does, in a process that torchrun started: rank 0 publishes, the others help."""
    from tlm.training.distributed.group import joined

    uri = finished(recipe, root)
    with joined() as group:
        [found] = group.sum(group.first and uri is not None)  # one answer for all, even if it appeared in between
        if group.first:
            uri = _alone(recipe, root, write)
        elif not found:
            draft = Draft(Path(os.devnull), spending=Spending(None if group.local_rank == 0 else ()))
            with draft.spending:
                write(draft)
        group.wait()  # until it is published
    return uri or finished(recipe, root) or ""


def _launch(step: Callable[..., str], arguments: dict[str, Any], count: int) -> None:
    """Run a step in `count` processes on this machine (and on the other nodes), to the end."""
    from joblib import cpu_count

    say(f"{count} processes" + (f" on each of {nodes()} nodes" if nodes() > 1 else ""))
    with tempfile.TemporaryDirectory(prefix="tlm-torchrun-") as folder, stopping() as stop:
        endings = Path(folder)
        threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, cpu_count() // count))
        env = {**os.environ, ENDINGS: folder, "OMP_NUM_THREADS": threads}
        with (endings / "torchrun.log").open("wb") as log:  # torchrun's own report, which says less than ours
            command, die = _torchrun(step, arguments, count, folder), dying_with_parent()
            child = subprocess.Popen(command, env=env, stdout=2, stderr=log, preexec_fn=die, start_new_session=True)
        passed_on: Stop | None = None
        try:
            while child.poll() is None:
                if stop.is_set() and passed_on is None:
                    _pass_on(child, endings, count, stop.number)
                    passed_on = stop
                _wait(child, POLL_SECONDS)
        finally:
            _end(child)
        if child.returncode != 0:
            raise _reason(endings, child.returncode, passed_on)


def _torchrun(step: Callable[..., str], arguments: dict[str, Any], count: int, folder: str) -> list[str]:
    run = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={count}", f"--log-dir={folder}/logs"]
    if nodes() == 1:  # otherwise the environment says where the other nodes are
        run += ["--standalone", "--local-addr=127.0.0.1"]  # without an address, torchrun looks up this pod's name
    target = f"{step.__module__}:{step.__name__}"
    return [*run, "-m", "tlm.training.distributed.process", target, json.dumps(arguments, default=vars)]


def _pass_on(child: subprocess.Popen[bytes], endings: Path, count: int, number: int) -> None:
    """Pass a signal on to the processes themselves: torchrun would kill them 30 s after its own signal."""
    pids = [int(path.suffix[1:]) for path in endings.glob("pid.*")]
    if len(pids) < count:  # training has not begun
        child.terminate()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait(child: subprocess.Popen[bytes], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Leave no process behind."""
    if child.poll() is None:
        child.terminate()
        _wait(child, END_SECONDS)
    child.kill()  # which ends its processes too; nothing if it has ended
    child.wait()


def _reason(endings: Path, code: int, stop: Stop | None) -> TlmError | OSError:
    """The error that ended the training: that of the process which had it first."""
    known = [Ending(**json.loads(path.read_text(encoding="utf-8"))) for path in endings.glob("*.json")]
    first = min(known, key=lambda ending: (ending.lost, ending.time), default=None)
    if stop and (first is None or first.lost):
        error = stop.error()
        return error(f"stopped by {error.by} before there was a step to save; repeat the command to resume")
    if first is not None:
        return first.error()
    log = (endings / "torchrun.log").read_text(encoding="utf-8", errors="replace")
    signals = re.findall(r"^ *exitcode *: -(\d+)", log, re.MULTILINE)  # the last one in the log came first
    if signals:
        return Interrupted(
            f"a training process was ended by {signal.Signals(int(signals[-1])).name}; if nobody did that, memory "
            "ended: raise the pod's memory limit or lower the batch, then repeat the command to resume"
        )
    last = next((line for line in reversed(log.splitlines()) if line.strip("=- ")), "it said nothing")
    return Interrupted(f"torchrun ended with code {code} ({last.strip()[:300]}); fix that, then repeat the command")


# A step has a GPU while it holds the lock of a file. The lock ends with the process, however that ends.
LOCKS = "TLM_GPU_LOCKS"  # the folder of these files; without it, steps take the GPUs that they see
VISIBLE = "CUDA_VISIBLE_DEVICES"
WAIT_SECONDS = 0.5


@contextmanager
def own_cards(device: str, count: int) -> Iterator[None]:
    """Wait for `count` free GPUs, or all if there are fewer. In the block CUDA sees these alone.

    It does nothing if ``TLM_GPU_LOCKS`` is not set, or if `device` is the CPU or a GPU that somebody chose (cuda:1).
    CUDA must not be in use yet in this process.
    """
    cards = _cards() if count and os.environ.get(LOCKS) and device in ("auto", "cuda") else []
    if not cards:
        yield
        return
    before = os.environ.get(VISIBLE)
    with ExitStack() as locks:
        os.environ[VISIBLE] = ",".join(_taken(cards, min(count, len(cards)), locks))
        try:
            yield
        finally:
            os.environ.pop(VISIBLE, None)
            if before is not None:
                os.environ[VISIBLE] = before


def _cards() -> list[str]:
    """The GPUs that this process may use, by index or UUID."""
    visible = os.environ.get(VISIBLE)
    if visible is not None:
        named = [card.strip() for card in visible.split(",") if card.strip()]
        return list(itertools.takewhile(lambda card: not card.startswith("-"), named))  # from -1 on, none
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def _taken(cards: list[str], count: int, locks: ExitStack) -> list[str]:
    """Lock `count` of these cards, all at the same moment, so that no two steps wait for each other."""
    folder = Path(os.environ[LOCKS])
    make_folder(folder)
    for attempt in itertools.count():
        with ExitStack() as held:
            free = (card for card in cards if _lock(folder / card.replace("/", "-"), held))
            locked = list(itertools.islice(free, count))
            if len(locked) == count:
                locks.push(held.pop_all())
                break
        if attempt == 0:
            say(f"waits for {count} free GPU{'s' if count > 1 else ''}: other steps have them")
        time.sleep(WAIT_SECONDS)
    return locked


def _lock(path: Path, held: ExitStack) -> bool:
    """Whether the file could be locked until the end of `held`."""
    try:
        file = held.enter_context(path.open("a"))
    except PermissionError:  # another user's; in a folder as /tmp, Linux refuses to open for writing what all may write
        file = held.enter_context(path.open())
    with suppress(OSError):  # only its owner may; in the folder of a group, all members need the lock
        path.chmod(path.parent.stat().st_mode & 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
