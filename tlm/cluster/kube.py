"""The few Kubernetes API calls that a step needs, made from inside a pod with urllib3 (which boto3 brings anyway).

The official client is not in the images: it would add twelve packages for six kinds of call.
"""

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from urllib3 import BaseHTTPResponse, PoolManager
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from tlm.errors import InputError, Interrupted

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PASSING = (429, 500, 502, 503, 504)
# For about a minute, which is enough for an API server to be replaced.
RETRY = Retry(7, status_forcelist=PASSING, allowed_methods=None, backoff_factor=0.5, raise_on_status=False)
STEP = "main"  # Argo's name for the container of a step
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
    def of_pod(cls, account: Path = SERVICE_ACCOUNT) -> "Api":
        """Return a client of the cluster that this pod runs in. Raises InputError outside of a cluster."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        namespace = account / "namespace"
        if not host or not namespace.exists():
            raise InputError(
                "there is no Kubernetes API here: training on several nodes must be started from a pod of the cluster, "
                "with a service account that may create TrainJobs"
            )
        address = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        return cls(address, account, namespace.read_text(encoding="utf-8").strip())

    def call(self, method: str, path: str, body: Any = None, *, absent_ok: bool = False, **query: str) -> Any:
        """Call the API, with retries, and return the JSON of its answer; with `absent_ok`, None for a 404.

        Raises:
            Refused: the API answered with an error.
            Interrupted: there was no answer for about a minute.
        """
        answer = self._request(method, path, body, query, RETRY)
        if absent_ok and answer.status == 404:
            return None
        return json.loads(self._checked(answer, method, path))

    def text(self, path: str, **query: str) -> str:
        """Return the answer to a GET as text (a log), without retries. Raises as `call` does."""
        return self._checked(self._request("GET", path, None, query, False), "GET", path).decode(errors="replace")

    def _request(
        self, method: str, path: str, body: Any, query: dict[str, str], retries: Retry | bool
    ) -> BaseHTTPResponse:
        headers = {"Accept": "*/*"}
        token = self.account / "token"
        if token.exists():  # read for each call, because Kubernetes replaces it every hour
            headers["Authorization"] = f"Bearer {token.read_text(encoding='utf-8').strip()}"
        try:
            return self._pool.request(
                method, f"{self.url}{path}", fields=query or None, json=body, headers=headers, retries=retries
            )
        except HTTPError as error:
            why = getattr(error, "reason", error)
            raise Interrupted(f"the Kubernetes API at {self.url} does not answer ({why}); repeat") from None

    def _checked(self, answer: BaseHTTPResponse, method: str, path: str) -> bytes:
        if answer.status < 400:
            return answer.data
        try:
            message = f" ({json.loads(answer.data)['message']})"
        except (ValueError, KeyError, TypeError):
            message = ""
        advice = {
            401: "the pod's token is not accepted; repeat the step",
            403: f"give the pod's service account the role tlm-trainjob in namespace {self.namespace}",
            404: "check that Kubeflow Trainer 2.2 or later is installed",
        }.get(answer.status, "fix that, then repeat")
        raise Refused(answer.status, f"{method} {path} was answered with {answer.status}{message}; {advice}")

    @cached_property
    def _pool(self) -> PoolManager:
        return PoolManager(ca_certs=str(self.account / "ca.crt"), timeout=CALL_SECONDS)


def own_image(api: Api) -> str:
    """Return the image of this pod's step as the pipeline names it, with its digest."""
    pod = os.environ.get("KFP_POD_NAME") or os.environ.get("HOSTNAME", "")
    containers = api.call("GET", f"/api/v1/namespaces/{api.namespace}/pods/{pod}")["spec"]["containers"]
    found: str = next((each for each in containers if each["name"] == STEP), containers[0])["image"]
    return found
