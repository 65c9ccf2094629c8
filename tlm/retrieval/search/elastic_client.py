"""Connect to Elasticsearch: a client from the environment, retries while the server is busy, errors in one sentence.

The server's address is never part of an artifact. It comes from the environment: ``TLM_ELASTICSEARCH_URL``, and if
needed ``TLM_ELASTICSEARCH_API_KEY_FILE`` (a file with an encoded API key) and ``TLM_ELASTICSEARCH_CA_FILE`` (a PEM
file). Files ``api-key`` and ``ca.crt`` in the folder ``TLM_ELASTICSEARCH_SECRET`` (a mounted secret) do the same.
"""

import gc
import logging
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from elastic_transport import ConnectionError as NoConnection
from elastic_transport import ConnectionTimeout, TlsError, Transport, TransportApiResponse, TransportError
from elasticsearch import ApiError, Elasticsearch
from elasticsearch.serializer import JsonSerializer
from pydantic_core import from_json

from tlm.artifacts.stores.store import check_url, tls_cure, trusting
from tlm.errors import InputError, Interrupted, in_pod
from tlm.progress import say

URL = "TLM_ELASTICSEARCH_URL"
API_KEY_FILE = "TLM_ELASTICSEARCH_API_KEY_FILE"
CA_FILE = "TLM_ELASTICSEARCH_CA_FILE"
SECRET = "TLM_ELASTICSEARCH_SECRET"

BUSY = frozenset({429, 502, 503, 504})
NAMELESS = BUSY | {401, 403, 413}  # statuses with which Elasticsearch may answer without its name
NO_SECURITY = (400, 404, 405)  # answers of a server without security when asked about privileges
TRIES = 13  # with the pauses between them a minute or so, which a server in a pod takes to restart
LONGEST_PAUSE_SECONDS = 20.0
REQUEST_SECONDS = 120.0

_VERSIONED = re.compile(r"vnd\.elasticsearch\+|; compatible-with=\d+")
_KEY = re.compile(rb"[A-Za-z0-9+/_-]*={0,2}")  # base64; an empty key is left for the server to refuse

T = TypeVar("T")


def connect(*, at_once: bool = False) -> Elasticsearch:
    """Make a client for the server that the environment names, and make sure that it answers.

    Args:
        at_once: Do not wait for it. In a pod, a step waits: preflight saw the server, so it will be back.

    Raises:
        InputError: a variable is missing or wrong, or no Elasticsearch answers there.
        Interrupted: it stayed away.
    """
    url = os.environ.get(URL, "")
    if not url:
        address = "the address of Elasticsearch, such as http://localhost:9200 (on Kubernetes: in the ConfigMap tlm)"
        raise InputError(f"{URL} is not set; set it to {address}, or choose the engine embedded")
    check_url(url, URL)
    options: dict[str, Any] = {"serializers": {_Reader.mimetype: _Reader()}, "transport_class": _Transport}
    if key := _file(API_KEY_FILE, "api-key"):
        options["api_key"] = _key(key)
    if authority := _file(CA_FILE, "ca.crt"):
        options["ssl_context"] = trusting(authority)
    try:
        # The client's own retries have no pause after a 429 or 503
        client = Elasticsearch(url, request_timeout=REQUEST_SECONDS, max_retries=0, **options)
    except ValueError as error:
        raise InputError(f"{URL} is {url}: {error}") from None
    logging.getLogger("elastic_transport").setLevel(logging.ERROR)  # its warnings are about failures that we handle
    patiently(_meet, client, waits=in_pod() and not at_once)
    return client


class _Reader(JsonSerializer):
    """Parses answers with pydantic's parser, and with the garbage collector off.

    With 100,000 hits the collector takes most of the time and frees nothing; the parser saves a third of the rest.
    """

    def json_loads(self, data: bytes) -> Any:
        """Parse an answer."""
        enabled = gc.isenabled()
        gc.disable()
        try:
            return from_json(data)
        finally:
            if enabled:
                gc.enable()


class _Transport(Transport):
    """Asks in plain JSON, and treats what does not come from Elasticsearch, such as a proxy's page, as no answer.

    The client itself asks for the format of its own version, which older servers refuse. It checks who answered only
    in successes, and only until it has met Elasticsearch.
    """

    def perform_request(self, *arguments: Any, **options: Any) -> TransportApiResponse:
        """Return the answer to a request."""
        options["headers"] = {name: _VERSIONED.sub("", value) for name, value in options["headers"].items()}
        answer = super().perform_request(*arguments, **options)
        status = answer.meta.status
        if answer.meta.headers.get("x-elastic-product") != "Elasticsearch" and status not in NAMELESS:
            raise NoConnection("", (OSError(f"something else answers with {status}, perhaps a proxy"),))
        return answer


def _meet(client: Elasticsearch, waits: bool) -> None:
    try:
        client.indices.exists(index="tlm-none")
    except TlsError as error:
        cure = _cure(f"write the certificate of its authority to a file and set {CA_FILE} to its path", "ca.crt")
        cure = tls_cure(said := _cause(error), cure)
        raise InputError(f"{URL} is {os.environ.get(URL)}, but TLS fails there ({said}); {cure}") from None
    except (NoConnection, ConnectionTimeout) as error:
        if waits:
            raise
        why = f"Elasticsearch does not answer there ({_cause(error)})"
        raise InputError(f"{URL} is {os.environ.get(URL)}, but {why}; start it or correct the address") from None


def check_privileges(client: Elasticsearch, indices: str, privileges: Sequence[str], roles: str) -> None:
    """Check that our key has these privileges on these indices, or that the server has no security.

    Raises:
        InputError: some are missing; `roles` have them.
    """
    wanted = [{"names": [indices], "privileges": list(privileges)}]
    answer = patiently(client.options(ignore_status=NO_SECURITY).security.has_privileges, index=wanted)
    if answer.meta.status in NO_SECURITY:
        return
    if lacking := [name for name in privileges if not answer["index"][indices][name]]:
        lack = f"the API key lacks {', '.join(lacking)} on the indices '{indices}'"
        raise InputError(f"{lack}; create one with {roles} (k8s/elasticsearch)")


def patiently(call: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Return the call's result. While the server is busy or gone, retry with growing random pauses.

    Raises:
        Interrupted: it stayed busy or gone.
        InputError: it refused the request.
    """
    attempt = 0
    while True:
        try:
            return call(*arguments, **options)
        except (ApiError, TransportError) as error:
            may_pass = isinstance(error, TransportError) or error.status_code in BUSY
            if not may_pass or attempt == TRIES - 1:
                raise _explained(error) from None
        _pause(attempt)
        attempt += 1


def until_done(send: Callable[[list[T]], list[T]], items: list[T]) -> list[T]:
    """Send the items; after pauses, send again what the server was too busy for. Return the rest.

    Args:
        send: Sends items, and returns those to send again.
        items: What to send.
    """
    for attempt in range(TRIES):
        if attempt:
            _pause(attempt - 1)
        items = send(items)
        if not items:
            break
    return items


def _pause(attempt: int) -> None:
    """Wait with full jitter: from zero to a bound that doubles with each attempt."""
    if attempt > 1:
        say(f"Elasticsearch is busy or gone; waiting to try again ({attempt + 2} of {TRIES})")
    time.sleep(random.uniform(0, min(LONGEST_PAUSE_SECONDS, 0.25 * 2**attempt)))


def _explained(error: ApiError | TransportError) -> InputError | Interrupted:
    """Return what the client raised as one sentence."""
    if isinstance(error, TransportError):
        gone = f"Elasticsearch at {os.environ.get(URL)} went away ({_cause(error)})"
        return Interrupted(f"{gone}; repeat the command to resume")
    return refusal(error.status_code, f"{error.error}: {reason(error.body)}" if error.body else "no reason")


def refusal(status: int, why: str) -> InputError | Interrupted:
    """Make the error for an HTTP status, of a request or of one item of it, that is not a success."""
    where = f"Elasticsearch at {os.environ.get(URL)}"
    if status == 401:
        cure = _cure(f"write a valid API key to the file that {API_KEY_FILE} names", "api-key")
        return InputError(f"{where} does not accept our credentials ({why}); {cure}")
    if blocked(status, why):
        cure = "free disk space there" if "flood-stage" in why else "lift that block there"
        return Interrupted(f"{where} has blocked this ({why}); {cure}, then repeat the command to resume")
    if status == 403:
        needed = "the roles publisher and writer of k8s/elasticsearch, or all privileges on the indices 'tlm-*'"
        return InputError(f"{where} forbids this ({why}); the API key needs {needed}")
    if status == 404:
        return Interrupted(f"{where} lost the index in the meantime ({why}); repeat the command")
    if status in BUSY:
        lost = "if a node is gone for good, remove the index; " if "missing shards" in why else ""
        return Interrupted(f"{where} stayed too busy ({status} {why}); {lost}repeat the command to resume")
    return InputError(f"{where} refused with {status} ({why})")


def blocked(status: int, why: str) -> bool:
    """Return whether an index is blocked, by its owner or by a full disk. With 503, the server is only starting."""
    return "cluster_block_exception" in why and status != 503


def reason(body: Any) -> str:
    """The innermost reason in an error's body, shortened."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        causes = error.get("root_cause") or [error.get("caused_by") or error]
        error = causes[0].get("reason") or causes[0].get("type")
    return str(error)[:300]


def _cure(otherwise: str, name: str) -> str:
    """Say how to replace a missing or wrong file: in a pod, correct the secret that is mounted there."""
    folder = os.environ.get(SECRET)
    if not folder or not in_pod():
        return otherwise
    is_there = "its" if Path(folder, name).is_file() else "it is missing or has no"
    return (
        f"correct the Secret that is mounted at {folder} ({is_there} {name}): tlm-elasticsearch-writer for the steps "
        "preflight and index, tlm-elasticsearch-reader for others; k8s/elasticsearch/create-keys.sh makes both"
    )


def _file(variable: str, name: str) -> Path | None:
    """Return the file that `variable` names, or else the file `name` of the mounted secret, or None."""
    given, folder = os.environ.get(variable), os.environ.get(SECRET)
    if given:
        if not Path(given).is_file():
            raise InputError(f"{variable} is '{given}'; there is no such file")
        return Path(given)
    return Path(folder, name) if folder and Path(folder, name).is_file() else None


def _key(file: Path) -> str:
    """Read the API key. Content that is not a key is not shown, as it may be another secret."""
    key = file.read_bytes().strip()
    if not _KEY.fullmatch(key):
        raise InputError(f"{file} holds no API key; expected the key's 'encoded' form, one line of base64")
    return key.decode()


def _cause(error: TransportError) -> str:
    inner = error.errors[0] if error.errors else error.__cause__
    return str(inner or error)[:300]
