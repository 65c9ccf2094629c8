"""A client of the Kubernetes API for a step's own pod.

The official client is not in the images: it would add twelve packages for six kinds of call.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from urllib3 import BaseHTTPResponse, PoolManager
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from tlm.artifacts.stores.store import trusting
from tlm.errors import InputError, Interrupted

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
