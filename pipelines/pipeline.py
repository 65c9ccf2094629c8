"""The decorator that makes a Kubeflow pipeline of a function with groups of parameters."""

from collections.abc import Callable
from functools import cache
from typing import Any

from docstring_parser import parse
from kfp import dsl

from pipelines.form.options import ONE_OF_EACH, Machines
from tlm.command import descriptions, flat


def pipeline(name: str, display_name: str, **given: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turn a function into one that returns the pipeline for a number of machines.

    The arguments of the function are `machines`, those in `given`, groups of parameters, and single parameters.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @cache
        def build(machines: Machines = ONE_OF_EACH) -> Any:
            steps = flat(function, form=True, machines=machines, **given)
            # the form in the UI shows names only, so the description says what the parameters mean
            lines = [f"- `{parameter}`: {meaning}" for parameter, meaning in descriptions(steps).items()]
            description = "\n".join([parse(steps.__doc__ or "").short_description or "", "", "Parameters:", "", *lines])
            several = [f"{count} {what.replace('_', ' ')}" for what, count in vars(machines).items() if count > 1]
            suffix = "".join(f"-{words.replace(' ', '-')}" for words in several)
            shown = f"{display_name} on {' and '.join(several)}" if several else display_name
            about = {"name": name + suffix, "display_name": shown, "description": description}
            # no pipeline_config: KFP 2.16 does not know its fields, and then ignores limits and secrets, too
            return dsl.pipeline(**about)(steps)

        return build

    return decorate
