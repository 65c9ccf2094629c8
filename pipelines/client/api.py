"""Calls of the Kubeflow Pipelines API (v2beta1), each in bounded time."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import kfp_server_api
import urllib3

from pipelines.client import address, faults
from pipelines.client.faults import Elsewhere, Unreachable
from tlm.errors import InputError

CONNECT = 5.0  # seconds
PAUSES = (1.0, 3.0)  # seconds before the second and the third try


class Api:
    """The API's services, as `kfp_server_api` has them, and who calls them.

    `kfp.Client` is not used: its constructor may hang, and its wait never returns for a cancelled run.
    """

    def __init__(
        self, where: address.Address, token: address.Token, *, ca_file: Path | None = None, call_timeout: float = 30.0
    ) -> None:
        self.where, self.token, self.call_timeout = where, token, call_timeout
        self.namespace = ""
        self.client = kfp_server_api.ApiClient(self._configuration(ca_file))
        self.health = kfp_server_api.HealthzServiceApi(self.client)
        self.experiments = kfp_server_api.ExperimentServiceApi(self.client)
        self.runs = kfp_server_api.RunServiceApi(self.client)
        self.pipelines = kfp_server_api.PipelineServiceApi(self.client)
        self.uploads = kfp_server_api.PipelineUploadServiceApi(self.client)
        self.schedules = kfp_server_api.RecurringRunServiceApi(self.client)

    def _configuration(self, ca_file: Path | None) -> kfp_server_api.Configuration:
        configuration = kfp_server_api.Configuration(host=self.where.api)
        configuration.retries = urllib3.Retry(total=0, redirect=False)  # ours is `call`
        configuration.ssl_ca_cert = str(ca_file) if ca_file else None
        if self.token.source:
            configuration.api_key["authorization"] = ""
            configuration.api_key_prefix["authorization"] = "Bearer"
            configuration.refresh_api_key_hook = self._refresh
        return configuration

    def _refresh(self, configuration: kfp_server_api.Configuration) -> None:
        configuration.api_key["authorization"] = self.token.read()

    def settle(self, namespace: str) -> None:
        """Greet the API, and keep the namespace if it has several users; raises InputError where one is needed."""
        health = self.call(self.health.healthz_service_get_healthz)
        if health.multi_user:
            self.namespace = namespace or address.own_namespace()
            if not self.namespace:
                raise InputError(f"{self.where.api}: has several users: say whose namespace with --namespace")

    def call(self, function: Callable[..., Any], *arguments: Any, again: bool = True, **options: Any) -> Any:
        """The answer; a server at fault gets three tries, unless the call is not to arrive twice (``again=False``).

        Raises:
            ApiError: one of `pipelines.client.faults`.
        """
        for pause in PAUSES:
            try:
                return self.once(function, *arguments, **options)
            except Unreachable as error:
                if not (again or error.unsent):
                    raise
            time.sleep(pause)
        return self.once(function, *arguments, **options)

    def once(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """The answer to a single try. Raises ApiError."""
        try:
            answer = function(*arguments, _request_timeout=(CONNECT, self.call_timeout), **options)
        except kfp_server_api.ApiException as error:
            raise faults.from_answer(self.where.api, error, self.token.source) from None
        except urllib3.exceptions.HTTPError as error:
            raise faults.from_connection(self.where.api, error) from None
        except kfp_server_api.OpenApiException:  # ours: a wrong argument
            raise
        except (TypeError, ValueError) as error:  # an answer that fits no model
            raise Elsewhere(f"{self.where.api}: answers nonsense ({error}); check --host") from None
        kind = self.client.last_response.urllib3_response.headers.get("content-type", "")
        if not kind.startswith("application/json"):
            raise Elsewhere(
                f"{self.where.api}: answers with {kind or 'nothing'}, not as the API does; check --host and the token"
            )
        return answer

    def named(self, function: Callable[..., Any], field: str, name: str, **options: Any) -> list[Any]:
        """Everything of a list that has this display name, newest first; `field` is the answer's list."""
        equals = kfp_server_api.V2beta1Predicate(operation="EQUALS", key="display_name", string_value=name)
        condition = self.client.sanitize_for_serialization(kfp_server_api.V2beta1Filter(predicates=[equals]))
        answer = self.call(
            function,
            filter=quote(json.dumps(condition)),  # the server takes one layer of quotes off itself
            sort_by="created_at desc",
            page_size=100,
            **options,
        )
        return list(getattr(answer, field) or [])

    def link(self, page: str) -> str:
        """Where people see `page` of the UI."""
        return self.where.link(page, self.namespace)
