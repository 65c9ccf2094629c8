"""Kubeflow pipelines: the decorator that makes one of a function with groups of parameters; and all of them by name."""

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from docstring_parser import parse
from kfp import dsl

from pipelines.grouped import ungrouped
from pipelines.resources import LIFETIME
from tlm.command import descriptions
from tlm.errors import InputError, nearest

MODULES = {name: f"pipelines.{name}" for name in ("tlm", "shallow", "ablation", "multitask")}


def pipeline(name: str, display_name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turn a function into one that returns the pipeline for a number of nodes (machines that stage 1 trains on).

    The arguments of the function are `nodes`, groups of parameters, and single parameters.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @cache
        def build(nodes: int = 1) -> Any:
            steps = ungrouped(function, prefixed=True, nodes=nodes)
            # the form in the UI shows names only, so the description says what the parameters mean
            lines = [f"- `{parameter}`: {meaning}" for parameter, meaning in descriptions(steps).items()]
            description = "\n".join([parse(steps.__doc__ or "").short_description or "", "", "Parameters:", "", *lines])
            suffix, on_nodes = (f"-{nodes}-nodes", f" on {nodes} nodes") if nodes > 1 else ("", "")
            about = {"name": name + suffix, "display_name": display_name + on_nodes, "description": description}
            return dsl.pipeline(**about, pipeline_config=LIFETIME)(steps)

        return build

    return decorate


def build(name: str, nodes: int = 1) -> Any:
    """Return the pipeline called `name`; `nodes` is the number of machines that stage 1 of each run trains on.

    Raises:
        InputError: There is no pipeline of that name.
    """
    if name not in MODULES:
        raise InputError(f"pipeline '{name}' is unknown{nearest(name, MODULES)}")
    return importlib.import_module(MODULES[name]).build(nodes)
