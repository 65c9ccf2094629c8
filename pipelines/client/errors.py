"""The error of a call to Kubeflow Pipelines: one sentence that says what to do."""

import json
from textwrap import shorten

from kfp_server_api import ApiException
from urllib3 import exceptions as http

from tlm.errors import InputError

NOT_THE_API = ", not as Kubeflow Pipelines 2 does; check --host and the token"
ADVICE = {  # by the status of an answer
    0: NOT_THE_API,
    401: "; give a valid token with --token-file FILE, or in KFP_EXISTING_TOKEN",
    403: "; ask for the right, or give another --namespace or token",
    409: "; give another name",
}
LONGEST = 300  # characters of a message that are shown
SERVER_FAILED = "; look at the API server's log"


class ApiError(InputError):
    """The API did not do what it was asked to do.

    Attributes:
        status: HTTP status of its answer, and 503 if there was no connection; 0 if no answer came from it although the
            request was sent, so that it may have done what it was asked to do.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status

    @property
    def may_pass(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in (0, 408, 429) or self.status >= 500


def from_connection(host: str, error: http.HTTPError) -> ApiError:
    """Return the error for a connection that was not made, or that broke."""
    reason = error.reason if isinstance(error, http.MaxRetryError) and error.reason else error
    unsent = isinstance(reason, http.ConnectTimeoutError | http.SSLError)
    said = shorten(str(reason.args[-1]).rpartition("): ")[2], LONGEST)
    advice = "check --host, --ca-file and --call-timeout, or start the port-forward"
    what = "cannot be reached" if unsent else "did not answer"
    return ApiError(f"{host}: {what} ({said}); {advice}", 503 if unsent else 0)


def from_answer(host: str, error: ApiException, token: str) -> ApiError:
    """Return the error for an answer with another status than 2xx; `token` says where the token came from."""
    said, is_api = _message(error)
    status = error.status if is_api or (400 <= error.status < 500 and error.status != 404) else 0
    sender = f"the token from {token}" if token else "no token"
    call = f" to a call with {sender}" if status == 401 else ""
    advice = ADVICE.get(status, SERVER_FAILED if status >= 500 else "")
    return ApiError(f"{host}: answers {error.status}{call}: {said}{advice}", status)


def _message(error: ApiException) -> tuple[str, bool]:
    """Return the message of an answer, and whether the API wrote it: what stands before it answers without JSON."""
    try:
        body = json.loads(error.body)
        public = [detail["message"] for detail in body.get("details") or [] if "message" in detail]
    except (TypeError, ValueError, AttributeError):
        return str(error.reason), False
    said = [*public, body.get("message") or body.get("error_message") or error.reason][0]
    return shorten(str(said), LONGEST).rstrip("."), True
