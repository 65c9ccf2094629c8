"""Where Kubeflow Pipelines is, and who we are there."""

import os
from pathlib import Path
from typing import NamedTuple

from pipelines.client.faults import Unauthorized
from tlm.artifacts.stores.endpoints import check_url
from tlm.errors import InputError

IN_CLUSTER = "http://ml-pipeline.kubeflow.svc.cluster.local:8888"
PROJECTED_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")  # where kfp's users let the kubelet put it
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
TOKEN_VARIABLE = "KFP_EXISTING_TOKEN"  # the name, as kfp's own command line has it


class Address(NamedTuple):
    """Base URL of the API and of the UI; the UI's is empty where only the API is known."""

    api: str
    ui: str

    def link(self, page: str, namespace: str = "") -> str:
        """Where people see `page`; inside Kubeflow's dashboard (…/pipeline) the namespace is part of it."""
        if self.ui.endswith("/pipeline"):
            dashboard = self.ui.removesuffix("/pipeline").removesuffix("/_")
            return f"{dashboard}/_/pipeline/" + (f"?ns={namespace}" if namespace else "") + f"#/{page}"
        return f"{self.ui}/#/{page}"


def find(host: str, ui_host: str = "") -> Address:
    """The address from the options; inside a cluster the service of KFP's own manifests.

    Raises:
        InputError: there is none, it is no URL, or one that is not to be talked to.
    """
    if not host:
        if "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise InputError("no address of Kubeflow Pipelines: give --host http://…, or set KF_PIPELINES_ENDPOINT")
        return Address(IN_CLUSTER, ui_host.rstrip("/"))
    for address in filter(None, (host, ui_host)):
        if not address.startswith(("http://", "https://")):
            raise InputError(f"'{address}' is no address of Kubeflow Pipelines: begin it with http:// or https://")
    check_url(host, "--host")
    api = host.rstrip("/").removesuffix("/#")
    return Address(api, (ui_host or api).rstrip("/"))


class Token:
    """A bearer token. That of a file is read anew for each call, for it is replaced before it expires."""

    def __init__(self, file: Path | None) -> None:
        self.file = file or (PROJECTED_TOKEN if PROJECTED_TOKEN.exists() else None)
        self._given = "" if self.file else os.environ.get(TOKEN_VARIABLE, "")

    @property
    def source(self) -> str:
        """Where it comes from; empty without a token."""
        return str(self.file) if self.file else TOKEN_VARIABLE if self._given else ""

    def read(self) -> str:
        """The token as it is now. Raises Unauthorized."""
        if not self.file:
            return self._given
        try:
            token = self.file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unauthorized(f"{self.file}: the token cannot be read ({error})") from None
        if not token:
            raise Unauthorized(f"{self.file}: is empty, expected a token")
        return token


def own_namespace() -> str:
    """The namespace of the pod this runs in; empty elsewhere."""
    try:
        return OWN_NAMESPACE.read_text(encoding="ascii").strip()
    except OSError:
        return ""
