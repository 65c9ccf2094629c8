"""Quotas and limit ranges of the namespace, read before a run.

A pod beyond them is never created, and Argo tries again for as long as the run may take, so the step seems to hang.
https://kubernetes.io/docs/concepts/policy/resource-quotas/, https://kubernetes.io/docs/concepts/policy/limit-range/
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from tlm.errors import InputError, TlmError
from tlm.progress import say
from tlm.runs.api import Api
from tlm.runs.pods import DATA_LIMITS, LEAST, amount
from tlm.settings.options import Pods


def check_quota(pods: Pods, api: Api) -> None:
    """Refuse a run that has a step which the namespace would never admit.

    Args:
        pods: Resources of the pods that train.
        api: Kubernetes API, in the namespace of the run. If this pod may not read quotas, a warning says so.

    Raises:
        InputError: a quota or a limit range is below what one step needs.
    """
    try:
        quotas = _items(api, "resourcequotas")
        ranges = _items(api, "limitranges")
    except TlmError as error:
        say(f"warning: quotas are not checked: {error}")
        return
    limits = {name: max(getattr(pods, name), least, key=_number) for name, least in DATA_LIMITS.items()}
    for name, allowed, needed in [*_beyond_quota(quotas, pods, limits), *_beyond_range(ranges, limits)]:
        raise InputError(
            f"{name} of namespace {api.namespace} allows {allowed}, but one step of this run needs {needed} and would "
            "wait for ever; ask for less (train_cpu, train_memory, train_gpus), or have it raised"
        )
    say(f"quotas of namespace {api.namespace}: every step fits")


def _items(api: Api, kind: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = api.call("GET", f"/api/v1/namespaces/{api.namespace}/{kind}")["items"]
    return items


def _beyond_quota(quotas: list[dict[str, Any]], pods: Pods, limits: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, what is allowed and what one step needs, for each quota that is too low."""
    needs = {f"limits.{name}": limit for name, limit in limits.items()}
    needs |= {f"requests.{name}": least for name, least in LEAST.items()} | LEAST  # a plain name means requests
    needs[f"requests.{pods.gpu_type}"] = pods.gpus
    for quota in quotas:
        for resource, allowed in quota["spec"].get("hard", {}).items():
            if resource in needs and _number(allowed) < _number(needs[resource]):
                yield f"the quota {quota['metadata']['name']}", f"{resource}={allowed}", needs[resource]


def _beyond_range(ranges: list[dict[str, Any]], limits: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the same for each limit range with a maximum below a step's limit."""
    for found in ranges:
        for rule in found["spec"]["limits"]:
            for resource, allowed in rule.get("max", {}).items():
                if rule["type"] in ("Container", "Pod") and _number(allowed) < _number(limits.get(resource, "0")):
                    said = f"at most {resource}={allowed} for a {rule['type'].lower()}"
                    yield f"the limit range {found['metadata']['name']}", said, limits[resource]


def _number(quantity: str) -> Decimal:
    return amount(quantity) or Decimal(0)
