"""The command `gpu`: what an hour of a GPU is to bring, in pieces of minutes, each kept when it is done."""

import gc
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from research.benchmarks import __main__ as benchmarks
from research.benchmarks import kept, page
from research.benchmarks.machine import revision
from research.benchmarks.row import Result
from research.gpu import correct, speed
from research.gpu.pack import FOLDER, PARTS
from research.gpu.piece import piece
from research.gpu.stand import Stand
from research.gpu.trained import ROW, how_far
from research.paper.results import FOLDER as RESULTS
from tlm.errors import InputError
from tlm.progress import say
from tlm.runs.plan import PlannedRun

SPEED = "training_gpu"
LARGE = "small-scierc"
STOP_SECONDS = 60.0  # for a snapshot of BERT-base, and for what is still computed
POLL_SECONDS = 0.5
LARGE_SECONDS, REHEARSAL_SECONDS = 240.0, 120.0  # of training BERT-base, from the start of its process


class Measurement(NamedTuple):
    """A piece that is done at once.

    Attributes:
        row: Row of the benchmarks that it is kept with.
        name: Of the piece.
        minutes: It is not begun with less time left.
        measure: What it finds.
    """

    row: str
    name: str
    minutes: float
    measure: Callable[[Stand], list[Result]]


MEASUREMENTS = (
    Measurement(ROW, "losses", 2.0, correct.same_losses),
    Measurement(SPEED, "speed-BERT-base", 3.0, partial(speed.beside_others, name="BERT-base")),
    Measurement(SPEED, "speed-mini", 2.5, partial(speed.beside_others, name="mini")),
    Measurement(ROW, "levers-BERT-base", 3.0, partial(speed.levers, name="BERT-base")),
    Measurement(ROW, "levers-mini", 2.5, partial(speed.levers, name="mini")),
    Measurement(ROW, "processes", 1.5, correct.one_process_a_gpu),
)


def gpu(
    *,
    minutes: float = 9.0,
    device: str = "cuda",
    folder: str = FOLDER,
    results: str = RESULTS,
    at_once: int = 3,
    only: str = "",
    commit: str = "",
    archive: str = "",
) -> str:
    """Measure correctness, speed and quality on a GPU; run it again to measure what is missing.

    Losses beside the CPU's, speed beside the authors' way and Hugging Face's Trainer, each technique for GPUs; then
    trainings of `mini` and of a published model; last, how far BERT-base gets in four minutes. Trainings that are
    stopped resume next time. Data come from `gpu-pack`; parts whose archive is not there are left out.

    Args:
        minutes: Minutes after which to stop.
        device: cuda or cuda:N; cpu rehearses everything with tiny models, whose numbers mean nothing.
        folder: Folder of the archives, where trainings work, too.
        results: Folder of the results; BENCHMARKS.md beside it is written anew.
        at_once: Trainings that share the GPU.
        only: Beginnings of the names of the pieces to measure, separated by commas; empty for all.
        commit: Commit of the code, where there is no git.
        archive: Archive (tar.gz) of the results, written anew whenever a piece is done: a machine that is taken away
            may give back only that.

    Raises:
        InputError: there is no such device, no data, or no folder for the archive.
    """
    end, code = time.monotonic() + 60 * minutes, commit or revision(Path(__file__).parents[2])
    stand, numbers = Stand(device, folder), Path(results) / kept.NUMBERS
    around = Path(archive).resolve().parents
    if archive and (not around[0].is_dir() or Path(results).resolve() in around):
        raise InputError(f"archive is {archive}; expected a file in a folder that exists, outside of {results}")
    planned = {f"{part}-{run.arm}-{run.seed}": run for part in PARTS for run in stand.runs(part)}
    if not planned:
        raise InputError(f"{folder} has no archive of `gpu-pack`; make them where the data are, and copy them")
    numbers.mkdir(parents=True, exist_ok=True)
    here = MEASUREMENTS if stand.runs("mini") else ()  # its text is what they measure on
    save = partial(_archive, Path(results), Path(archive)) if archive else _nothing
    for one in (one for one in here if _missing(numbers / one.row, one.name, only)):
        if time.monotonic() + 60 * one.minutes * (not stand.rehearsal) < end:
            _measure(one, stand, numbers, code)
            save()
    waiting = {name: run for name, run in planned.items() if _missing(numbers / ROW, name, only)}
    _train_all(waiting, [stand.device, results, code], end, at_once, save)
    if here and _missing(numbers / ROW, LARGE, only):
        _large(stand, numbers, code, end)
    page.write(
        Path(results).parent / benchmarks.PAGE.name, numbers, [benchmarks.load(name) for name in benchmarks.ROWS]
    )
    save()
    rows = {one.name: one.row for one in here} | dict.fromkeys([*planned, *([LARGE] if here else [])], ROW)
    names = [name for name in rows if _wanted(name, only)]
    left = [name for name in names if _missing(numbers / rows[name], name, only)]
    return f"{len(names) - len(left)} of {len(names)} pieces are kept; left: {', '.join(left) or 'none'}"


def _measure(one: Measurement, stand: Stand, numbers: Path, code: str) -> None:
    """Measure and keep a piece. A fault of one must not cost the minutes of the others: it is said, and left."""
    import torch

    say(f"gpu: {one.name}")
    try:
        kept.keep(piece(one.name, one.measure(stand), stand.device, code), numbers / one.row)
    except Exception:
        traceback.print_exc()
    gc.collect()
    torch.cuda.empty_cache()  # for the processes of trainings; without a GPU, nothing


def _missing(folder: Path, name: str, only: str) -> bool:
    return _wanted(name, only) and not (folder / f"{name}.json").exists()


def _wanted(name: str, only: str) -> bool:
    beginnings = [one.strip() for one in only.split(",")]
    return name.startswith(tuple(filter(None, beginnings)) or "")


def _archive(results: Path, archive: Path) -> None:
    """Write the archive, whole or not at all; trainings may write results meanwhile."""
    part = archive.with_name(f".{archive.name}.part")
    try:
        with tarfile.open(part, "w:gz") as tar:
            tar.add(results, results.name)
        part.replace(archive)
    except OSError as error:
        say(f"gpu: {archive} was not written ({error})")


def _nothing() -> None: ...


def _train_all(
    waiting: dict[str, PlannedRun], more: list[str], end: float, at_once: int, save: Callable[[], None] = _nothing
) -> None:
    """Train some at a time, each in a process, until all are done or time is up; what is stopped is saved."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    names = iter(waiting)
    try:
        while time.monotonic() < end:
            for name in [name for name, child in running.items() if child.poll() is not None]:
                del running[name]
                save()
            while len(running) < at_once and (one := next(names, None)):
                say(f"gpu: {one}")
                command = [sys.executable, "-m", "research.gpu.trained", one, str(waiting[one]), *more]
                running[one] = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            if not running:
                return
            time.sleep(POLL_SECONDS)
    finally:
        for child in running.values():
            child.terminate()
        for child in running.values():
            with suppress(subprocess.TimeoutExpired):
                child.wait(STOP_SECONDS)
            child.kill()


def _large(stand: Stand, numbers: Path, code: str, end: float) -> None:
    """Train BERT-base as the paper's small scale does for some minutes, and keep how far it came."""
    until = time.monotonic() + (REHEARSAL_SECONDS if stand.rehearsal else LARGE_SECONDS)
    if until > end:
        return
    preset, overrides = ("tiny", "train.steps=100000") if stand.rehearsal else (LARGE, "")
    run = stand.first._replace(preset=preset, overrides=overrides)
    _train_all({LARGE: run}, [stand.device, str(numbers.parent), code], until, 1)
    if found := how_far(run, LARGE, stand.device):
        kept.keep(piece(LARGE, found, stand.device, code), numbers / ROW)
