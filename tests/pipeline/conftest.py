"""Fixtures of the pipeline's tests: programs run as people run them, in their own processes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_module(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``python -m module arguments…`` in `tmp_path`; it must end with `code`."""

    def run(module: str, *arguments: object, code: int = 0, env: dict[str, str] | None = None):  # type: ignore[no-untyped-def]
        command = [sys.executable, "-m", module, *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
        assert done.returncode == code, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done

    return run
