"""Steps on a disk that is full at their first page, at their second and so on: the exit code, what is left, the end.

``python -m tests.faults.full_disk DISK STEP=STRIDE...``: DISK is a small file system that nobody else uses. Prints a
row for each step, of which every STRIDE-th page is tried.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults import watched
from tests.faults.chain import MAIN, MOST_LOST, Chain
from tests.faults.child import Both, Ended
from tests.faults.in_parts import full_in_parts
from tests.faults.row import HOME, Row
from tests.faults.tally import tally

PAGE, MEGABYTES = 4096, 64
IN_PARTS = "load-corpus in parts"
MOUNT = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")


def possible() -> bool:
    """Whether a file system can be mounted here, in a namespace of its own."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return subprocess.run([*MOUNT, f"mount -t tmpfs tmpfs {folder}"], capture_output=True).returncode == 0
        except FileNotFoundError:
            return False


def rows(strides: Mapping[str, int]) -> list[Row]:
    """A row for each of these steps, or `IN_PARTS`; every so many pages are tried."""
    with tempfile.TemporaryDirectory() as folder:
        mount = f"mount -t tmpfs -o size={MEGABYTES}m tmpfs {folder}"
        steps = [f"{name}={stride}" for name, stride in strides.items()]
        command = [sys.executable, "-m", "tests.faults.full_disk", folder, *steps]
        done = subprocess.run(
            [*MOUNT, f'{mount} && exec "$@"', "sh", *command], cwd=HOME, stdout=subprocess.PIPE, check=True
        )
    found: list[Row] = json.loads(done.stdout)
    return found


@dataclass(frozen=True)
class Temporary:
    """Prepares a child whose temporary files are on that disk too."""

    folder: Path

    def __call__(self) -> None:
        """In the child."""
        self.folder.mkdir(exist_ok=True)
        tempfile.tempdir = str(self.folder)
        os.environ["TMPDIR"] = tempfile.tempdir


def at_pages(chain: Chain, name: str, disk: Path, stride: int) -> Iterator[str]:
    """With room for no page, for some, for more, until there is enough."""
    for pages in range(0, MEGABYTES * (1 << 20) // PAGE, stride):
        root, log, ballast = chain.root(name, shutil.copy, disk / "root"), chain.fresh(), disk / "ballast"
        before, prepare = state(root), Both(watched.watcher(name, log), Temporary(disk / "tmp"))
        _fill(ballast, pages * PAGE)
        full = chain.run(name, root, prepare)
        ballast.unlink()
        wrong = ""
        if full.code != 0 and not _told(full):
            wrong = f"{name}, {pages} pages: code {full.code}: {full.err[-600:]}"
        elif not before.items() <= state(root).items():
            wrong = f"{name}, {pages} pages: what was there has changed"
        elif full.code != 0:
            wrong = chain.wrong(name, root, chain.run(name, root, prepare))
            if not wrong and watched.lost(log) > MOST_LOST:
                wrong = f"{name}, {pages} pages: {watched.lost(log)} steps were done again"
        chain.drop(root, log, disk / "tmp")
        if full.code == 0:
            break
        yield wrong


def state(root: Path) -> dict[Path, bytes]:
    """All published files."""
    return {path: path.read_bytes() for path in root.glob("[a-z]*/*/**/*") if path.is_file()}


def _told(ended: Ended) -> bool:
    """Whether it says what was missing: room, found out half-way; or, for raw files, before the work."""
    half_way = ended.code == 3 and ("free some" in ended.sentence or "No space left on device" in ended.sentence)
    before = ended.code == 2 and "GB free; free some" in ended.sentence
    return ended.sentence.startswith("tlm: ") and "Traceback" not in ended.err and (half_way or before)


def _fill(ballast: Path, left: int) -> None:
    """Have no more than so many bytes left."""
    free = os.statvfs(ballast.parent).f_bavail * PAGE - left
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free))


def main() -> None:
    disk, *steps = sys.argv[1:]
    strides = {name: int(stride) for name, stride in (step.split("=") for step in steps)}
    needed = MAIN[: max((MAIN.index(name) for name in strides if name in MAIN), default=-1) + 1]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        chain = Chain(Path(folder, "tiny"), needed, "tiny")
        for name, stride in strides.items():
            if name == IN_PARTS:
                outcomes = full_in_parts(Path(disk), Path(folder, "texts"), stride, partial(_leave, Path(disk)))
            else:
                outcomes = at_pages(chain, name, Path(disk), stride)
            found.append(tally(f"disk full at each page: {name}", outcomes))
    print(json.dumps(found))


def _leave(disk: Path, pages: int) -> None:
    """Have no more than so many pages left; -1: all."""
    (disk / "ballast").unlink(missing_ok=True)
    if pages >= 0:
        _fill(disk / "ballast", pages * PAGE)


if __name__ == "__main__":
    main()
