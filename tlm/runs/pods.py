"""Resources of training pods, checked before a run, and what all of these pods have.

Quantities are those of Kubernetes (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).
"""

import re
from decimal import Decimal

from tlm.errors import InputError
from tlm.settings.options import Pods

LEAST = {"cpu": "1", "memory": "2Gi"}  # what a training pod requests, and the largest other steps do; limits are higher
DATA_LIMITS = {"cpu": "4", "memory": "8Gi"}  # of the largest steps that do not train
A_GPU = {"cpu": (2, ""), "memory": (8, "Gi")}  # the least for each GPU, whose process makes batches and loads CUDA

_QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)(?:([numkMGTPE]|[KMGTPE]i)|e([+-]?\d+))?", re.ASCII)
_POWERS = {suffix: Decimal(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", "k", *"MGTPE"), -3)}
_POWERS |= {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)}
_TOLERATION = {"key", "operator", "value", "effect", "tolerationSeconds"}


def check_pods(pods: Pods) -> None:
    """Raise InputError for resources that no training pod can have, by the names of a pipeline's parameters."""
    amounts = {name: _amount(name, getattr(pods, name)) for name in LEAST}
    for name, least in LEAST.items():
        if amounts[name] < _amount(name, least):
            found = f"train_{name} is {getattr(pods, name)}"
            raise InputError(f"{found}; expected {least} or more, which is what a training pod requests")
    if not re.fullmatch(r"[0-9]+", pods.gpus):
        raise InputError(f"train_gpus is '{pods.gpus}'; expected a whole number, 0 or more")
    if not pods.gpu_type.strip():
        raise InputError("train_gpu_type is empty; expected the name of a resource, such as nvidia.com/gpu")
    for name, (each, unit) in A_GPU.items():
        least = f"{int(pods.gpus) * each}{unit}"
        if amounts[name] < _amount(name, least):
            raise InputError(
                f"train_{name} is {getattr(pods, name)} and train_gpus {pods.gpus}; expected train_{name}={least} or "
                f"more, {each}{unit} for each GPU"
            )
    for key, value in pods.node_selector.items():
        if not isinstance(value, str):
            raise InputError(f"train_node_selector: label {key} is {value!r}; expected text, in quotes")
    for toleration in pods.tolerations:
        if not isinstance(toleration, dict) or not toleration or toleration.keys() - _TOLERATION:
            known = ", ".join(sorted(_TOLERATION))
            raise InputError(
                f"train_tolerations: {toleration!r} is no toleration; expected an object with some of {known}"
            )


def _amount(name: str, value: str) -> Decimal:
    found = amount(value)
    if found is None:
        raise InputError(f"train_{name} is '{value}'; expected a Kubernetes quantity, such as {getattr(Pods(), name)}")
    return found


def amount(quantity: str) -> Decimal | None:
    """The number that a quantity such as 500m or 16Gi stands for; None if it is none."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    return Decimal(number) * (Decimal(10) ** int(exponent) if exponent else _POWERS[suffix or ""])


# Those of every pod that trains.
USER = 65532
CONFIG_MAP = "tlm"
S3_ADDRESSES = ("AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "TLM_HTTP_HOSTS", "TLM_BUCKETS")
S3_SECRET, S3_KEYS = "tlm-s3", ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
SCRATCH, SHARED_MEMORY = "100Gi", "2Gi"
