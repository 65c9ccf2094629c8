"""The addresses of Kubeflow Pipelines, and the token to send there."""

import os
from pathlib import Path

from kfp.client.token_credentials_base import TokenCredentialsBase
from kfp_server_api import Configuration

from pipelines.client.errors import ApiError
from tlm.artifacts.stores.endpoints import check_url
from tlm.errors import InputError

IN_CLUSTER = "http://ml-pipeline.kubeflow.svc.cluster.local:8888"
PROJECTED_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")  # the path in kfp's documentation
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
TOKEN_VARIABLE = "KFP_EXISTING_TOKEN"  # as in kfp's own command line


def find(host: str, ui_host: str = "") -> tuple[str, str]:
    """Return the base URLs of the API and of the UI; that of the UI is empty if only the API is known.

    Without a host, inside a cluster, the API is the service in KFP's own manifests.

    Raises:
        InputError: There is no address, it is no URL, or connecting to it is not allowed.
    """
    if not host and "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise InputError("no address of Kubeflow Pipelines: give --host http://…, or set KF_PIPELINES_ENDPOINT")
    if not host:
        return IN_CLUSTER, ui_host.rstrip("/")
    check_url(host, "--host")
    api = host.rstrip("/").removesuffix("/#")
    return api, (ui_host or api).rstrip("/")


class Token(TokenCredentialsBase):  # type: ignore[misc]
    """A bearer token. A token file is read again for each call, because it is replaced before the token expires.

    Attributes:
        source: The file or variable that the token is in; empty if there is none.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file or (PROJECTED_TOKEN if PROJECTED_TOKEN.exists() else None)
        self.source = str(self.file or (TOKEN_VARIABLE if os.environ.get(TOKEN_VARIABLE) else ""))

    def refresh_api_key_hook(self, config: Configuration) -> None:
        """Put the current token into KFP's configuration, which does this before each call.

        Raises:
            ApiError: The file cannot be read.
        """
        try:
            token = self.file.read_text(encoding="ascii") if self.file else os.environ[TOKEN_VARIABLE]
        except (OSError, UnicodeDecodeError) as error:
            raise ApiError(f"{self.file}: the token cannot be read ({error})", 401) from None
        config.api_key["authorization"] = token.strip()


def own_namespace() -> str:
    """Return the namespace of the pod that this runs in; empty elsewhere."""
    return OWN_NAMESPACE.read_text(encoding="ascii").strip() if OWN_NAMESPACE.exists() else ""
