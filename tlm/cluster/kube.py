"""The few calls to the Kubernetes API that a step needs, from inside a pod. No client library: it would be larger.

The token is read anew for each call, because Kubernetes replaces it every hour.
"""

import json
import os
import random
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tlm.errors import InputError, Interrupted

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TRIES = 8  # in about a minute: an API server that is replaced comes back
PASSING = (429, 500, 502, 503, 504)
STEP = "main"  # what Argo calls the container of a step
CALL_SECONDS = 30.0


class Refused(InputError):
    """The API answered, and did not do it."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Api:
    """Where the API is, who we are (``token``, ``ca.crt`` in `account`), and the namespace that we work in."""

    url: str
    account: Path
    namespace: str

    @classmethod
    def of_pod(cls, account: Path = SERVICE_ACCOUNT) -> "Api":
        """That of the cluster which this pod is in. Raises InputError outside of one."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        try:
            namespace = (account / "namespace").read_text(encoding="utf-8").strip()
        except OSError:
            host = namespace = ""
        if not host:
            raise InputError(
                "there is no Kubernetes API here: training on several nodes is started by a pod of the cluster, "
                "with a service account that may create TrainJobs"
            )
        return cls(f"https://{f'[{host}]' if ':' in host else host}:{port}", account, namespace)

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The answer's JSON.

        Raises:
            Refused: with its status.
            Interrupted: no answer in about a minute.
        """
        return json.loads(self._answer(method, path, body, query, TRIES))

    def text(self, path: str, **query: str) -> str:
        """What GET answers, as text (a log); asked for once."""
        return self._answer("GET", path, None, query, 1).decode("utf-8", errors="replace")

    def _answer(self, method: str, path: str, body: Any, query: dict[str, str], tries: int) -> bytes:
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        for attempt in range(tries):
            try:
                return self._once(method, url, body)
            except urllib.error.HTTPError as error:
                if error.code not in PASSING or attempt == tries - 1:
                    raise _refused(error, method, path, self.namespace) from None
            except OSError as error:  # no connection, a timeout
                if attempt == tries - 1:
                    why = getattr(error, "reason", error)
                    raise Interrupted(f"the Kubernetes API at {self.url} does not answer ({why}); repeat") from None
            time.sleep(random.uniform(0, min(20, 0.5 * 2**attempt)))
        raise AssertionError("unreachable")

    def _once(self, method: str, url: str, body: Any) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "*/*"}
        token = self.account / "token"
        if token.exists():
            headers["Authorization"] = f"Bearer {token.read_text(encoding='utf-8').strip()}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=CALL_SECONDS, context=self._trust) as answer:
            found: bytes = answer.read()
        return found

    @cached_property
    def _trust(self) -> ssl.SSLContext | None:
        authority = self.account / "ca.crt"
        return ssl.create_default_context(cafile=str(authority)) if self.url.startswith("https") else None


def own_image(api: Api) -> str:
    """The image of this pod's step, as its name and digest stand in the pipeline."""
    pod = os.environ.get("KFP_POD_NAME") or os.environ.get("HOSTNAME", "")
    containers = api.call("GET", f"/api/v1/namespaces/{api.namespace}/pods/{pod}")["spec"]["containers"]
    found: str = next((each for each in containers if each["name"] == STEP), containers[0])["image"]
    return found


def _refused(error: urllib.error.HTTPError, method: str, path: str, namespace: str) -> Refused:
    try:
        said = json.loads(error.read()).get("message", "")
    except (ValueError, OSError):
        said = ""
    what = f"{method} {path} was answered with {error.code}" + (f" ({said})" if said else "")
    advice = {
        401: "the pod's token is not accepted; repeat the step",
        403: f"give the pod's service account the role tlm-trainjob in namespace {namespace}",
        404: "check that Kubeflow Trainer 2.2 or later is installed",
    }.get(error.code, "mend that, then repeat")
    return Refused(error.code, f"{what}; {advice}")
