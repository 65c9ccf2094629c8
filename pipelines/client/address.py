"""The addresses of Kubeflow Pipelines, and the token to send there."""

import os
from pathlib import Path

from kfp.client.token_credentials_base import TokenCredentialsBase
from kfp_server_api import Configuration

from pipelines.client.errors import Unauthorized
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
    if not host:
        if "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise InputError("no address of Kubeflow Pipelines: give --host http://…, or set KF_PIPELINES_ENDPOINT")
        return IN_CLUSTER, ui_host.rstrip("/")
    for address in filter(None, (host, ui_host)):
        if not address.startswith(("http://", "https://")):
            raise InputError(f"'{address}' is no address of Kubeflow Pipelines: begin it with http:// or https://")
    check_url(host, "--host")
    api = host.rstrip("/").removesuffix("/#")
    return api, (ui_host or api).rstrip("/")


class Token(TokenCredentialsBase):  # type: ignore[misc]
    """A bearer token. A token file is read again for each call, because it is replaced before the token expires."""

    def __init__(self, file: Path | None) -> None:
        self.file = file or (PROJECTED_TOKEN if PROJECTED_TOKEN.exists() else None)
        self.source = str(self.file or (TOKEN_VARIABLE if os.environ.get(TOKEN_VARIABLE) else ""))

    def read(self) -> str:
        """Return the current token. Raises Unauthorized if its file cannot be read."""
        if not self.file:
            return os.environ.get(TOKEN_VARIABLE, "")
        try:
            token = self.file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unauthorized(f"{self.file}: the token cannot be read ({error})") from None
        if not token:
            raise Unauthorized(f"{self.file}: is empty, expected a token")
        return token

    def refresh_api_key_hook(self, config: Configuration) -> None:
        """Put the current token into KFP's configuration, which does this before each call."""
        config.api_key["authorization"] = self.read()


def own_namespace() -> str:
    """Return the namespace of the pod that this runs in; empty elsewhere."""
    return OWN_NAMESPACE.read_text(encoding="ascii").strip() if OWN_NAMESPACE.exists() else ""
