"""The resources of training pods, checked before a run: Kubernetes refuses a limit below the request, and a step waits.

Quantities are those of Kubernetes (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tlm.errors import InputError

LEAST = {"cpu": "1", "memory": "2Gi"}  # what a training pod requests; its limits cannot be lower
EXAMPLES = {"cpu": "4", "memory": "16Gi"}

_QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)(?:([numkMGTPE]|[KMGTPE]i)|e([+-]?\d+))?", re.ASCII)
_POWERS = {suffix: Decimal(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", "k", *"MGTPE"), -3)}
_POWERS |= {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)}
_TOLERATION = {"key", "operator", "value", "effect", "tolerationSeconds"}


def check_pods(given: Mapping[str, Any], prefix: str = "train_") -> None:
    """Raise InputError for resources that no training pod can have.

    Args:
        given: Some of cpu, memory, gpus, gpu_type, node_selector and tolerations; others are ignored.
        prefix: What the names of these parameters begin with, for the message.
    """
    for name, least in LEAST.items():
        if name in given:
            found = amount(str(given[name]))
            if found is None:
                raise InputError(
                    f"{prefix}{name} is '{given[name]}'; expected a Kubernetes quantity, such as {EXAMPLES[name]}"
                )
            if found < (amount(least) or 0):
                raise InputError(
                    f"{prefix}{name} is {given[name]}; expected {least} or more, which is what a training pod requests"
                )
    if not re.fullmatch(r"[0-9]+", str(given.get("gpus", "0"))):
        raise InputError(f"{prefix}gpus is '{given['gpus']}'; expected a whole number, 0 or more")
    if not str(given.get("gpu_type", "nvidia.com/gpu")).strip():
        raise InputError(f"{prefix}gpu_type is empty; expected the name of a resource, such as nvidia.com/gpu")
    for key, value in given.get("node_selector", {}).items():
        if not isinstance(value, str):
            raise InputError(f"{prefix}node_selector: label {key} is {value!r}; expected text, in quotes")
    for toleration in given.get("tolerations", []):
        if not isinstance(toleration, dict) or not toleration or toleration.keys() - _TOLERATION:
            raise InputError(
                f"{prefix}tolerations: {toleration!r} is no toleration; expected an object with some of "
                f"{', '.join(sorted(_TOLERATION))}"
            )


def amount(quantity: str) -> Decimal | None:
    """The number that a quantity such as 500m or 16Gi stands for; None if it is none."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    return Decimal(number) * (Decimal(10) ** int(exponent) if exponent else _POWERS[suffix or ""])
