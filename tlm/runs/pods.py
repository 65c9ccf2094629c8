"""A client of the Kubernetes API for a step's own pod, and the resources of training pods.

Resources are checked before a run, also against the namespace's quotas and limit ranges. A pod beyond them is never
created, and Argo tries again for as long as the run may take, so the step seems to hang.
https://kubernetes.io/docs/concepts/policy/resource-quotas/, https://kubernetes.io/docs/concepts/policy/limit-range/
Quantities are those of Kubernetes (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).

The official client of the API is not in the images: it would add twelve packages for six kinds of call.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from urllib3 import BaseHTTPResponse, PoolManager
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from tlm.artifacts.stores.store import trusting
from tlm.errors import InputError, Interrupted, TlmError
from tlm.progress import say
from tlm.settings.options import Pods

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
KFP_POD = "KFP_POD_NAME"  # names a step's pod; only pods of Kubeflow Pipelines have it
PASSING = (429, 500, 502, 503, 504)
# For about a minute, which is enough for an API server to be replaced.
RETRY = Retry(7, status_forcelist=PASSING, allowed_methods=None, backoff_factor=0.5, raise_on_status=False)
CALL_SECONDS = 30.0


class Refused(InputError):
    """The API answered with an error.

    Attributes:
        status: HTTP status of the answer.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Api:
    """A client of the Kubernetes API, in one namespace.

    Attributes:
        url: Address of the API server, without a path.
        account: Folder of the service account: ``token``, ``ca.crt``, ``namespace``.
        namespace: Namespace to work in.
    """

    url: str
    account: Path
    namespace: str

    @classmethod
    def of_pod(cls, account: Path = SERVICE_ACCOUNT) -> "Api | None":
        """Return a client of the cluster that this pod runs in; None outside of a cluster."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        namespace = account / "namespace"
        if not host or not namespace.exists():
            return None
        address = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        return cls(address, account, namespace.read_text(encoding="utf-8").strip())

    def call(self, method: str, path: str, body: Any = None, *, absent_ok: bool = False, **query: str) -> Any:
        """Call the API, with retries, and return the JSON of its answer; with `absent_ok`, None for a 404.

        Raises:
            Refused: the API answered with an error.
            Interrupted: there was no answer for about a minute.
        """
        answer = self._request(method, path, RETRY, query, body)
        if absent_ok and answer.status == 404:
            return None
        return json.loads(self._checked(answer, method, path))

    def text(self, path: str, **query: str) -> str:
        """Return the answer to a GET as text (a log), without retries. Raises as `call` does."""
        return self._checked(self._request("GET", path, False, query), "GET", path).decode(errors="replace")

    def _request(self, method: str, path: str, retries: Retry | bool, query: Any, body: Any = None) -> BaseHTTPResponse:
        headers, token = {"Accept": "*/*"}, self.account / "token"
        if token.exists():  # read for each call, because Kubernetes replaces it every hour
            headers["Authorization"] = f"Bearer {token.read_text(encoding='utf-8').strip()}"
        given = {"fields": query or None, "json": body, "headers": headers}
        try:
            return self._pool.request(method, f"{self.url}{path}", retries=retries, **given)
        except HTTPError as error:
            why = getattr(error, "reason", error)
            raise Interrupted(f"the Kubernetes API at {self.url} does not answer ({why}); repeat") from None

    def _checked(self, answer: BaseHTTPResponse, method: str, path: str) -> bytes:
        if answer.status < 400:
            return answer.data
        message = ""
        with suppress(ValueError, KeyError, TypeError):
            message = f" ({json.loads(answer.data)['message']})"
        advice = {
            401: "the pod's token is not accepted; repeat the step",
            403: f"give the pod's service account the roles in k8s/base, in namespace {self.namespace}",
            404: "check that Kubeflow Trainer 2.2 or later is installed",
        }.get(answer.status, "fix that, then repeat")
        raise Refused(answer.status, f"{method} {path} was answered with {answer.status}{message}; {advice}")

    @cached_property
    def _pool(self) -> PoolManager:
        authority = self.account / "ca.crt"
        return PoolManager(ssl_context=trusting(authority if authority.exists() else None), timeout=CALL_SECONDS)


LEAST = {"cpu": "1", "memory": "2Gi"}  # what a training pod requests, and the largest other steps do; limits are higher
DATA_LIMITS = {"cpu": "4", "memory": "8Gi"}  # of the largest steps that do not train
A_GPU = {"cpu": (2, ""), "memory": (8, "Gi")}  # the least for each GPU, whose process makes batches and loads CUDA

# Those of every pod that trains.
USER = 65532
CONFIG_MAP = "tlm"
S3_ADDRESSES = ("AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "TLM_HTTP_HOSTS", "TLM_BUCKETS")
S3_SECRET, S3_KEYS = "tlm-s3", ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
SCRATCH, SHARED_MEMORY = "100Gi", "2Gi"

_QUANTITY = re.compile(r"\+?(\d+\.?\d*|\.\d+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d+))?", re.ASCII)
_POWERS = {suffix: Decimal(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", "k", *"MGTPE"), -3)}
_POWERS |= {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)}
_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")
_OPERATORS, _EFFECTS = ("", "Equal", "Exists"), ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_WORD = "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"  # of labels and resources
_DOMAIN = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_QUALIFIED = rf"({_DOMAIN}(\.{_DOMAIN})*/)?{_WORD}"


def check_lasting(name: str, place: str) -> None:
    """Raise InputError for a folder that ends with this pod of Kubeflow: what lies in /tmp, as relative paths do."""
    path = place.removeprefix("file://")
    if KFP_POD in os.environ and "://" not in path and Path(path).absolute().is_relative_to(tempfile.gettempdir()):
        raise InputError(f"{name} is '{place}', a folder that ends with this pod; give s3://bucket/prefix")


def check_pods(pods: Pods) -> None:
    """Raise InputError for resources that no training pod can have, by the names of a pipeline's parameters."""
    for fault in _faults(pods):
        raise InputError(f"train_{fault}")


def _faults(pods: Pods) -> Iterator[str]:
    """Yield what is wrong with the resources; after the first fault, the rest cannot be judged."""
    amounts = {name: _amount(name, getattr(pods, name)) for name in LEAST}
    for name, least in LEAST.items():
        if amounts[name] < _amount(name, least):
            yield f"{name} is {getattr(pods, name)}; expected {least} or more, which is what a training pod requests"
    if not re.fullmatch(r"[0-9]+", pods.gpus):
        yield f"gpus is '{pods.gpus}'; expected a whole number, 0 or more"
    if "/" not in pods.gpu_type or not re.fullmatch(_QUALIFIED, pods.gpu_type):
        yield f"gpu_type is '{pods.gpu_type}'; expected the name of a resource, such as nvidia.com/gpu"
    for name, (each, unit) in A_GPU.items():
        least = f"{int(pods.gpus) * each}{unit}"
        if amounts[name] < _amount(name, least):
            expected = f"train_{name}={least} or more, {each}{unit} for each GPU"
            yield f"{name} is {getattr(pods, name)} and train_gpus {pods.gpus}; expected {expected}"
    for key, value in pods.node_selector.items():
        if not isinstance(value, str):
            yield f"node_selector: label {key} is {value!r}; expected text, in quotes"
        elif not (re.fullmatch(_QUALIFIED, key) and re.fullmatch(f"({_WORD})?", value)):
            yield f"node_selector: '{key}: {value}' is no label of a node; see kubectl get nodes -L KEY"
    for toleration in pods.tolerations:
        if not isinstance(toleration, dict) or not toleration or toleration.keys() - _TOLERATION:
            known = ", ".join(sorted(_TOLERATION))
            yield f"tolerations: {toleration!r} is no toleration; expected an object with some of {known}"
        elif expected := _expected(toleration):
            yield f"tolerations: {toleration!r} is refused by Kubernetes; expected {expected}"


def _expected(toleration: dict[str, Any]) -> str:
    """What Kubernetes expects of a toleration that it refuses; "" of any other."""
    key, operator, value, effect, seconds = (toleration.get(name, "") for name in _TOLERATION)
    texts = isinstance(key, str) and isinstance(value, str)
    valid = texts and re.fullmatch(f"({_QUALIFIED})?", key) and re.fullmatch(f"({_WORD})?", value)
    rules = {
        f"an operator {' or '.join(_OPERATORS[1:])}": operator in _OPERATORS,
        f"an effect {', '.join(_EFFECTS[1:])}": effect in _EFFECTS,
        "a key and a value that are text, as of a label": valid,
        "no value where the operator is Exists": not (operator == "Exists" and value),
        "the operator Exists where there is no key": bool(key) or operator == "Exists",
        "the effect NoExecute beside tolerationSeconds": seconds == "" or effect == _EFFECTS[-1],
        "tolerationSeconds as a whole number": seconds == "" or (type(seconds) in (int, float) and seconds % 1 == 0),
    }
    return next((rule for rule, holds in rules.items() if not holds), "")


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


def check_quota(pods: Pods, api: Api) -> None:
    """Refuse a run that has a step which the namespace would never admit.

    Args:
        pods: Resources of the pods that train.
        api: Kubernetes API, in the namespace of the run. If this pod may not read quotas, a warning says so.

    Raises:
        InputError: a quota or a limit range is below what one step needs.
    """
    place = f"/api/v1/namespaces/{api.namespace}"
    try:
        quotas, ranges = (api.call("GET", f"{place}/{kind}")["items"] for kind in ("resourcequotas", "limitranges"))
    except TlmError as error:
        say(f"warning: quotas are not checked: {error}")
        return
    needs = {f"requests.{name}": least for name, least in LEAST.items()} | LEAST  # a plain name means requests
    needs[f"requests.{pods.gpu_type}"] = pods.gpus
    for name, least in DATA_LIMITS.items():
        needs[f"limits.{name}"] = max(getattr(pods, name), least, key=_number)
    for rule, resource, most, words in _rules(quotas, ranges):
        if resource in needs and _number(most) < _number(needs[resource]):
            raise InputError(
                f"{rule} of namespace {api.namespace} allows {words}, but one step of this run needs {needs[resource]} "
                "and would wait for ever; ask for less (train_cpu, train_memory, train_gpus), or have it raised"
            )
    say(f"quotas of namespace {api.namespace}: every step fits")


def _rules(quotas: list[dict[str, Any]], ranges: list[dict[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    """Yield of each rule for every pod: its name, a resource as quotas name it, the most of it, and that in words."""
    for quota in quotas:
        if not quota["spec"].keys() & {"scopes", "scopeSelector"}:  # else it holds for some pods
            for resource, most in quota["spec"].get("hard", {}).items():
                yield f"the quota {quota['metadata']['name']}", resource, most, f"{resource}={most}"
    for limit_range in ranges:
        for rule in limit_range["spec"]["limits"]:
            if rule["type"] in ("Container", "Pod"):
                for resource, most in rule.get("max", {}).items():
                    words = f"at most {resource}={most} for a {rule['type'].lower()}"
                    yield f"the limit range {limit_range['metadata']['name']}", f"limits.{resource}", most, words


def _number(quantity: str) -> Decimal:
    return amount(quantity) or Decimal(0)
