"""KFP's own client, with bounded time for each call, retries, and errors in one sentence."""

import json
import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote

import kfp
import kfp_server_api
import urllib3

from pipelines.client import address, errors
from pipelines.client.errors import NOT_THE_API, ApiError
from pipelines.form.options import Connection
from tlm.errors import InputError
from tlm.progress import say

CONNECT = 5.0  # seconds
TRIED = ("2.16.1", "2.17.0")
RETRIES = urllib3.Retry(
    total=2,
    backoff_factor=1.5,
    status_forcelist=(408, 429, 500, 502, 503, 504),
    redirect=False,
    raise_on_status=False,
    respect_retry_after_header=False,
)  # a POST is repeated only if it did not reach the server


class Api:
    """A connection to Kubeflow Pipelines.

    All calls of `client` go through `http.call_api`, which is wrapped here: `client` itself sets no time limits, does
    not retry, and raises errors that are not meant for users. Methods of `client` that print are not used.

    Attributes:
        namespace: Whose runs they are; empty where there is only one user.
        scope: The namespace as an argument of a call; empty where there is only one user.
    """

    def __init__(self, connection: Connection) -> None:
        self.url, self.ui = address.find(connection.host, connection.ui_host)
        self.token, self.call_timeout = address.Token(connection.token_file), connection.call_timeout
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # about the age of the server
            self.client = kfp.Client(
                self.url,
                namespace="unused",  # with a namespace the constructor does not call the server, which could hang
                credentials=self.token if self.token.source else None,
                ssl_ca_cert=str(connection.ca_file) if connection.ca_file else None,
            )
        self.http = self.client.runs.api_client
        self.http.rest_client.pool_manager.connection_pool_kw["retries"] = RETRIES
        self.http.call_api = partial(self._call, self.http.call_api)
        self.namespace = ""
        health = self.client.healthzs.healthz_service_get_healthz()
        _warn_of_version(self.url, json.loads(self.http.last_response.data).get("tag_name", ""))
        if health.multi_user:
            self.namespace = connection.namespace or address.own_namespace()
            if not self.namespace:
                raise InputError(f"{self.url}: has several users: give a namespace with --namespace")
        self.scope = {"namespace": self.namespace} if self.namespace else {}

    def link(self, page: str) -> str:
        """Return the URL of a page of the UI; inside Kubeflow's dashboard (…/pipeline) the namespace is part of it."""
        if self.ui.endswith("/pipeline"):
            dashboard = self.ui.removesuffix("/pipeline").removesuffix("/_")
            return f"{dashboard}/_/pipeline/" + (f"?ns={self.namespace}" if self.namespace else "") + f"#/{page}"
        return f"{self.ui}/#/{page}"

    def named(self, list_all: Callable[..., Any], field: str, name: str, **options: Any) -> list[Any]:
        """Return everything in a list that has this display name, newest first; `field` holds the list."""
        condition = {"predicates": [{"operation": "EQUALS", "key": "display_name", "string_value": name}]}
        encoded = quote(json.dumps(condition))  # the server decodes the filter once more than HTTP does
        answer = list_all(filter=encoded, sort_by="created_at desc", page_size=100, **options)
        return list(getattr(answer, field) or [])

    def find_or_create(self, find: Callable[[], Any], create: Callable[[], Any]) -> Any:
        """Return what `find` finds, or else what `create` creates.

        Somebody else may be faster, and an attempt without an answer may have arrived, so both are tried twice.
        """
        try:
            return find() or create()
        except ApiError as error:
            if error.status != 409 and not error.may_pass:
                raise
            return find() or create()

    def _call(self, call_api: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the answer to a call. Raises ApiError."""
        try:
            answer = call_api(*arguments, **options | {"_request_timeout": (CONNECT, self.call_timeout)})
        except kfp_server_api.ApiException as error:
            raise errors.from_answer(self.url, error, self.token.source) from None
        except urllib3.exceptions.HTTPError as error:
            raise errors.from_connection(self.url, error) from None
        except (TypeError, ValueError) as error:  # an answer that fits no model
            raise ApiError(f"{self.url}: answers something unreadable ({error}){NOT_THE_API}") from None
        kind = self.http.last_response.urllib3_response.headers.get("content-type", "")
        if not kind.startswith("application/json"):
            raise ApiError(f"{self.url}: answers with {kind or 'nothing'}{NOT_THE_API}")
        return answer


def _warn_of_version(url: str, version: str) -> None:
    """Say if the server is older than those that we tried; one that does not know its version is taken for new."""
    found, oldest = (re.match(r"v?(\d+)\.(\d+)", text) for text in (version, TRIED[0]))
    if found and oldest and tuple(map(int, found.groups())) < tuple(map(int, oldest.groups())):
        say(f"warning: {url} is Kubeflow Pipelines {version}; this was tried with {' and '.join(TRIED)}")
