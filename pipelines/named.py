"""The pipelines by name."""

import importlib
from typing import Any

from tlm.errors import InputError, nearest

MODULES = {name: f"pipelines.{name}" for name in ("tlm", "shallow", "ablation", "multitask")}


def build(name: str, nodes: int = 1) -> Any:
    """Return the pipeline called `name`; `nodes` is the number of machines that stage 1 of each run trains on.

    Raises:
        InputError: There is no pipeline of that name.
    """
    if name not in MODULES:
        raise InputError(f"pipeline '{name}' is unknown{nearest(name, MODULES)}")
    return importlib.import_module(MODULES[name]).build(nodes)
