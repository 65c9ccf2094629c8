"""Fixtures of the pipeline's tests: programs run as people run them, in their own processes."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_module(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``python -m module arguments…`` in `tmp_path`; it must end with `code`."""
    return partial(run_in, tmp_path)


def run_in(
    folder: Path, module: str, *arguments: object, code: int = 0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What `run_module` does, in another folder: for what several tests share."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == code, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done
