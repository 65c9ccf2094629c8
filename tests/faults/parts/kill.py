"""Killed and begun again: each step at random instants and at every operation on the store, told to end, and twice."""

import itertools
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults import watched
from tests.faults.chain import MAIN, MOST_LOST, SAVE_STEPS, STEPS, Chain
from tests.faults.child import SERVER, Both, Child, Ended
from tests.faults.in_parts import killed_in_parts
from tests.faults.moments import Dying
from tests.faults.row import Row
from tests.faults.tally import tally
from tests.making import fill_folder
from tlm.artifacts.produce import Progress

PATIENCE = 30.0  # seconds after SIGTERM
INSTANTS, TOLD, PAIRS = 32, 8, 8  # for each step
ROUNDS = 200
MIDWAY = 2 * SAVE_STEPS + SAVE_STEPS // 2  # a step at which there are two snapshots


def rows(seconds: int, seed: int) -> Iterator[Row]:
    """All of it, on the pocket model; operations one by one on the tiny one."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        chain = Chain(Path(folder, "pocket"), list(STEPS), "pocket")
        for name in STEPS:
            yield tally(f"SIGKILL at a random time: {name}", at_instants(chain, name, INSTANTS, chance))
        for name in STEPS:
            yield tally(f"SIGTERM at a random time: {name}", told_to_end(chain, name, TOLD, chance))
        for name in STEPS:
            yield tally(f"run twice at the same time: {name}", twice(chain, name, PAIRS, chance))
    with tempfile.TemporaryDirectory() as folder:
        yield tally("SIGKILL at a random time: load-corpus in parts", killed_in_parts(Path(folder), INSTANTS, chance))
    with tempfile.TemporaryDirectory() as folder:
        yield tally("snapshots shared by two processes", shared_snapshots(Path(folder, "shared"), ROUNDS))
        chain = Chain(Path(folder, "tiny"), MAIN, "tiny")
        for name in ("tokenize", "index", "train"):
            yield tally(f"SIGKILL before each store operation: {name}", at_operations(chain, name))
        for name in ("train", "finetune"):
            yield tally(
                f"SIGKILL before each store operation of a resume: {name}", at_operations(chain, name, resuming=True)
            )


def at_instants(chain: Chain, name: str, count: int, chance: random.Random) -> Iterator[str]:
    """Killed once, then let finish; the instants are spread over its whole duration."""
    for number in range(count):
        root, log, _ = struck(chain, name, signal.SIGKILL, (number + chance.random()) / count)
        yield finished(chain, name, root, log, MOST_LOST)


def told_to_end(chain: Chain, name: str, count: int, chance: random.Random) -> Iterator[str]:
    """By SIGTERM: it ends soon, with 143, and what it had done is not done again."""
    for number in range(count):
        root, log, ended = struck(chain, name, signal.SIGTERM, (number + chance.random()) / count)
        if ended.code not in (143, -signal.SIGTERM):  # the latter where it came before the first line of ours
            yield f"{name}: code {ended.code}: {ended.err[-600:]}"
        else:
            yield finished(chain, name, root, log, 0)


def twice(chain: Chain, name: str, count: int, chance: random.Random) -> Iterator[str]:
    """Two of one step in one root, the second one a little later: both end with the same URI and content."""
    for number in range(count):
        root = chain.root(name)
        both = []
        for _ in range(2):
            both.append(Child(chain.command(name, root), chain.fresh()))
            time.sleep(chain.made[name].seconds * (number / count) * chance.random())
        ended = [child.wait() for child in both]
        yield "; ".join(filter(None, [chain.wrong(name, root, one) for one in ended]))
        chain.drop(root)


def shared_snapshots(folder: Path, rounds: int) -> Iterator[str]:
    """Two processes save, find and clear snapshots of the same work; an outcome for each round of both."""
    folder.mkdir(exist_ok=True)
    both = [SERVER.Process(target=_save_and_clear, args=(f"{folder}", rounds, folder / f"{who}")) for who in "ab"]
    for process in both:
        process.start()
    for process, who in zip(both, "ab", strict=True):
        process.join()
        done = int((folder / who).read_text())
        yield from [""] * done + ["it ended with an error"] * (rounds - done)


def _save_and_clear(root: str, rounds: int, told: Path) -> None:
    told.write_text("0")
    for number in range(rounds):
        progress = Progress("work", root)
        with tempfile.TemporaryDirectory() as folder:
            progress.latest(Path(folder))
        for step in range(1, 6):
            progress.save(step, lambda folder, step=step: fill_folder(folder, f"step {step}"))  # type: ignore[misc]
        progress.clear()
        told.write_text(f"{number + 1}")


def at_operations(chain: Chain, name: str, *, resuming: bool = False, stride: int = 1, first: int = 0) -> Iterator[str]:
    """Killed before its first operation on the store, before its second and so on, until one lives to the end.

    With `resuming` it is a run that was killed before and goes on from a snapshot. Tries every `stride`-th operation.
    """
    begin = killed_midway(chain, name) if resuming else None
    for moment in itertools.count(first, stride):
        root, log = chain.root(name), chain.fresh()
        if begin is not None:
            shutil.copytree(begin / "progress", root / "progress")
        ended = chain.run(name, root, Both(watched.watcher(name, log), Dying(moment, root)))
        if ended.code == 0:
            break
        if ended.code != -signal.SIGKILL:
            yield f"{name}: code {ended.code}: {ended.err[-600:]}"
            break
        yield finished(chain, name, root, log, MOST_LOST)
    chain.drop(root, *([begin] if begin else []))


def struck(chain: Chain, name: str, number: int, share: float) -> tuple[Path, Path, Ended]:
    """Root, log and end of a step that got a signal when `share` of its time was over; at the end PATIENCE is over."""
    while True:
        root, log = chain.root(name), chain.fresh()
        child = Child(chain.command(name, root), chain.fresh(), watched.watcher(name, log))
        child.signal(number, share * chain.made[name].seconds)
        ended = child.wait(PATIENCE)
        if ended.code != 0:
            return root, log, ended
        share *= 0.8  # it was quicker this time
        chain.drop(root, log)


def finished(chain: Chain, name: str, root: Path, log: Path, most: int) -> str:
    """What is wrong with the step once it is begun again; at `most` so many steps of training may be done again."""
    ended = chain.run(name, root, watched.watcher(name, log))
    wrong = chain.wrong(name, root, ended)
    if not wrong and name in watched.STAGES:
        if watched.facts(f"{root}/{chain.made[name].place}", log) != chain.made[name].facts:
            wrong = f"{name}: optimizer, weights or curve differ"
        if watched.lost(log) > most:
            wrong = f"{name}: {watched.lost(log)} steps were done again"
    chain.drop(root, log)
    return wrong


def killed_midway(chain: Chain, name: str) -> Path:
    """A root in which a step of training was killed when it had two snapshots."""
    root, log = chain.root(name), chain.fresh()
    ended = chain.run(name, root, watched.watcher(name, log, MIDWAY))
    assert ended.code == -signal.SIGKILL, ended.err
    return root
