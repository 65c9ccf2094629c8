"""The errors of calls to Kubeflow Pipelines, each in one sentence that says what to do."""

import json

from kfp_server_api import ApiException
from urllib3 import exceptions as http

from tlm.errors import InputError


class ApiError(InputError):
    """The API did not do what it was asked to do."""


class Unreachable(ApiError):
    """There was no answer, or the server failed; it may recover."""


class Unanswered(Unreachable):
    """There was no answer from the API, so the request may have been carried out."""


class Unauthorized(ApiError):
    """The token is missing, wrong or expired."""


class Elsewhere(ApiError):
    """Something else than the API answered: a login page, a proxy."""


class NotFound(ApiError):
    """The API does not have what it was asked for."""


class Conflict(ApiError):
    """Something of this name exists already."""


def from_connection(host: str, error: http.HTTPError) -> ApiError:
    """Return the error for a connection that failed."""
    reason = error.reason if isinstance(error, http.MaxRetryError) and error.reason else error
    if isinstance(reason, http.SSLError):
        return ApiError(f"{host}: its certificate is not trusted ({_brief(str(reason))}); name its CA with --ca-file")
    if isinstance(reason, http.NameResolutionError):
        return Unreachable(f"{host}: there is no host of this name; check --host")
    if isinstance(reason, http.NewConnectionError):
        said = str(reason).rpartition("] ")[2]
        return Unreachable(f"{host}: cannot be reached ({said}); check --host, or start the port-forward")
    if isinstance(reason, http.ConnectTimeoutError):
        return Unreachable(f"{host}: cannot be reached (no connection in time); check --host")
    if isinstance(reason, http.ReadTimeoutError):
        return Unanswered(f"{host}: did not answer in time; is the API server well? see --call-timeout")
    said = _brief(str(reason.args[-1] if reason.args else reason))
    return Unanswered(f"{host}: the connection broke ({said}); repeat the command")


def from_answer(host: str, error: ApiException, token: str) -> ApiError:
    """Return the error for an answer with another status than 2xx; `token` says where the token came from."""
    said, code = _message(error)
    if error.status == 401:
        if token:
            return Unauthorized(
                f"{host}: does not accept the token from {token} (401): make a new one, for its audience"
            )
        return Unauthorized(f"{host}: asks for a token (401): give --token-file FILE, or set KFP_EXISTING_TOKEN")
    if 300 <= error.status < 400:
        target = (error.headers or {}).get("location", "another page")
        return Elsewhere(f"{host}: redirects to {target}, perhaps a login; give that address, or --token-file")
    if error.status == 403:
        return ApiError(f"{host}: forbids it (403): {said}; ask for the right, or give another --namespace or token")
    if error.status == 404 and code is None:
        return Elsewhere(f"{host}: is not the API of Kubeflow Pipelines 2 (404 {said}); check --host")
    if error.status == 404:
        return NotFound(f"{host}: {said}")
    if error.status == 409:
        return Conflict(f"{host}: one of this name exists, but is not listed (409 {said}); give another name")
    if error.status >= 500 or error.status in (408, 429):
        kind = Unanswered if code is None else Unreachable  # a proxy may have lost the answer
        return kind(f"{host}: answered {error.status} ({said}); look at the API server's log")
    return ApiError(f"{host}: refuses it ({error.status}): {said}")


def _message(error: ApiException) -> tuple[str, int | None]:
    """Return the message of an answer and its gRPC code; the code is None if the answer is not from the API."""
    try:
        body = json.loads(error.body or "")
    except ValueError:
        page = "<" in (error.body or "<")
        return _brief(str(error.reason if page else error.body)), None
    if not isinstance(body, dict):
        return _brief(str(body)), None
    details = [detail for detail in body.get("details") or [] if isinstance(detail, dict)]
    public = [detail["message"] for detail in details if "message" in detail]
    said = (public or [body.get("message") or body.get("error_message") or error.reason])[0]
    return _brief(str(said)), body.get("code", 0)


def _brief(text: str) -> str:
    words = " ".join(text.split()).rstrip(".")
    return words if len(words) <= 300 else words[:299] + "…"
