"""A small step to make artifacts with, and damage to do to them, for the tests of artifacts and stores.

``python -m tests.making ROOT`` does some work in processes of which each is killed a moment later than the one before:
at its first wait for the disk or call to the server, at its second, … until one lives to the end.
"""

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import boto3

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Progress, Recipe, produce

FILES = ("numbers.txt", "more.parquet", "model/config.json", "model/deep/weights.bin")


def recipe(version: int = 1, **settings: object) -> Recipe:
    return Recipe("hits", "count", version, {"upto": 100, **settings})


def fill_folder(folder: Path, text: str = "as ordered", names: Iterable[str] = FILES) -> None:
    """Two files at the top, a folder with one inside another."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}: {text}\n" * 50)


def fill(draft: Draft, text: str = "as ordered") -> None:
    """Files and facts of every sort."""
    fill_folder(draft.folder, text)
    draft.rows["numbers.txt"] = 50
    draft.counts["numbers"] = 100
    draft.details["largest"] = 99
    draft.run["threads"] = 1


def make(root: str, write: Callable[[Draft], None] = fill, **settings: object) -> Artifact:
    """Make (or find) the artifact under `root`."""
    return Artifact.open(produce(recipe(**settings), root, write), "hits")


def flip(data: bytes) -> bytes:
    """One bit in the middle differs."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def truncate(data: bytes) -> bytes:
    return data[:-9]


def everything(artifact: Artifact) -> dict[str, bytes]:
    """All files of an artifact by logical name, read as readers do: verified."""
    return {entry.logical: artifact.verified(entry).read_bytes() for entry in artifact.entries()}


def expected(text: str = "as ordered", names: Iterable[str] = FILES) -> dict[str, bytes]:
    """What `everything` gives for what `fill` wrote."""
    return {name: (f"{name}: {text}\n" * 50).encode() for name in names}


def files_in(folder: Path) -> dict[str, bytes]:
    """The files below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def leftovers(scratch: Path) -> list[Path]:
    """What lies in a store's scratch folder."""
    return sorted(scratch.rglob("*")) if scratch.exists() else []


def die_at(moment: int) -> None:
    """Kill this process at its `moment`-th wait for the disk or call to the server, counted from 0."""
    count = itertools.count()

    def pass_or_die(*_: object, **__: object) -> None:
        if next(count) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    sync, replace = os.fsync, os.replace
    os.fsync = lambda handle: (pass_or_die(), sync(handle))[1]
    os.replace = lambda source, target: (pass_or_die(), replace(source, target))[1]
    boto3.setup_default_session()
    boto3.DEFAULT_SESSION.events.register("before-send.s3", pass_or_die)


def work(root: str) -> None:
    """An artifact, and snapshots of unfinished work."""
    make(root)
    progress = Progress("work", root)
    for step in (1, 2, 3):
        progress.save(step, lambda folder, step=step: fill_folder(folder, f"step {step}", FILES[1:3]))


def main() -> None:
    """Do the work under ROOT/0, ROOT/1, …, each in a child that dies a moment later, until one lives to the end."""
    for moment in itertools.count():
        child = os.fork()
        if child == 0:
            die_at(moment)
            work(f"{sys.argv[1]}/{moment}")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(moment, os.waitstatus_to_exitcode(status))
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            break


if __name__ == "__main__":
    main()
