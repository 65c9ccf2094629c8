"""More data than the disk has room for: said before the work."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.making import lines
from tlm.data.reading.files import check_room, raw_files
from tlm.errors import InputError

HOME = Path(__file__).parents[2]
MOUNT = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")


def test_more_than_the_disk_has_room_for_is_refused(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    for name, size in (("little.jsonl", 1000), ("too much.jsonl", 2 * free + (1 << 40))):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)  # takes no room itself
    with raw_files([str(tmp_path / "little.jsonl")]) as files:
        check_room(files, tmp_path)
    with (
        raw_files([str(tmp_path)]) as files,
        pytest.raises(InputError, match=r"^the 2 raw files take .* GB free; free"),
    ):
        check_room(files, tmp_path)


def test_it_is_refused_before_anything_is_written(tmp_path):
    """On a file system of 4 MB; nothing else in a namespace of its own is touched."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "c.jsonl").write_text(lines(*(f"{number} {'word ' * 200}" for number in range(6000))))
    try:
        mounted = subprocess.run([*MOUNT, "mount -t tmpfs -o size=4m tmpfs disk"], cwd=tmp_path, check=False)
        possible = mounted.returncode == 0
    except FileNotFoundError:
        possible = False
    if not possible:
        pytest.skip("no small file system can be mounted here: needs unshare and user namespaces")
    command = f"mount -t tmpfs -o size=4m tmpfs disk && {sys.executable} -m tlm.cli load-corpus c.jsonl --root disk; "
    done = subprocess.run(
        [*MOUNT, f"{command} echo $?; find disk -type f | wc -l; df --output=used -B1 disk | tail -n 1"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(HOME)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    code, left, used = map(int, done.stdout.split())
    assert (code, left) == (2, 0), done.stderr
    assert used < 100_000
    assert "the 1 raw files take 0.00" in done.stderr
    assert "GB free; free some space, use another disk or give fewer files" in done.stderr
