"""The pipelines there are, by name."""

import importlib
from typing import Any

from tlm.errors import InputError, nearest

MODULES = {"tlm": "pipelines.tlm", "ablation": "pipelines.ablation", "multitask": "pipelines.multitask"}


def build(name: str, nodes: int = 1) -> Any:
    """The pipeline called `name`; `nodes`: machines that each run's stage 1 trains on.

    Raises:
        InputError: there is none of that name.
    """
    if name not in MODULES:
        raise InputError(f"pipeline '{name}' is unknown{nearest(name, MODULES)}")
    return importlib.import_module(MODULES[name]).build(nodes)
