"""Steps that end badly in one of their processes, for the launcher's tests. They take what every step takes."""

import importlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.errors import InputError, TlmError
from tlm.settings.options import Compute
from tlm.training.distributed.launch import train_together


def second() -> bool:
    return os.environ["RANK"] == "1"


def published(root: str, **_: Any) -> None:
    """The first publishes what the launcher looks for."""
    if not second():
        produce(recipe("published"), root, lambda draft: None)


def refused(**_: Any) -> None:
    """The second says why, the first would wait for an hour."""
    if second():
        raise InputError("row 7 is blue; expected green, paint it")
    time.sleep(3600)


def killed(**_: Any) -> None:
    """As the kernel does when memory ends."""
    if second():
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(3600)


def endless(root: str, **_: Any) -> None:
    """Leaves a file to be seen by."""
    (Path(root) / f"pid.{os.getpid()}").touch()
    time.sleep(3600)


def recipe(step: str) -> Recipe:
    return Recipe("checkpoint", "toy", 1, {"step": step})


def launch(step: str, root: str) -> str:
    """One of these as a step, in as many processes as ``TLM_PROCESSES`` says."""

    def write(draft: Draft) -> None:
        raise AssertionError("this belongs into the processes")

    function = getattr(importlib.import_module("tests.training.steps"), step)  # not __main__, which this file may be
    return train_together(recipe(step), root, write, function, {"compute": Compute("cpu", gpus=0), "root": root}, 2)


if __name__ == "__main__":
    try:
        launch(sys.argv[1], sys.argv[2])
    except TlmError as error:
        print(f"tlm: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
