"""The step `preflight`: check in seconds what a run relies on, before any work."""

import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import get_args

from tlm.artifacts.artifact import home
from tlm.artifacts.stores import named_root, open_store
from tlm.artifacts.stores.store import Store
from tlm.errors import InputError
from tlm.evaluation.report.since import earlier
from tlm.progress import say
from tlm.retrieval.search.index import EngineName, check_index_name
from tlm.runs.pods import DATA_LIMITS, KFP_POD, Api, check_lasting, check_pods, check_quota
from tlm.runs.registry import Registry, check_model_name
from tlm.settings.options import Pods

GIB = 1024**3
PRIVILEGES = ("create_index", "create_doc", "read", "maintenance", "view_index_metadata", "manage")


def preflight(
    *, engine: EngineName = "embedded", free_gib: float = 1.0, registry: str = "", root: str | None = None
) -> None:
    """Check the store, the disk and, if the run uses them, Elasticsearch and a model registry; print what was found.

    Args:
        engine: The engine that the run will use: embedded or elasticsearch.
        free_gib: Free disk space that steps need for downloads and unfinished files, in GiB.
        registry: Address of the model registry that the run will use, http(s)://host:port; empty without one.
        root: Store that the run will write to; by default TLM_ROOT, else ./artifacts.
    """
    store = open_store(root)
    _check_store(store)
    _check_disk(store.scratch(), free_gib)
    if engine == "elasticsearch":
        _check_elasticsearch()
    if registry:
        Registry(registry).check()
        say(f"model registry {registry}: answers")


def check_run(
    pods: Pods,
    engine: EngineName = "embedded",
    registry: str = "",
    root: str | None = None,
    against: str = "",
    network: bool = True,
    index: str = "",
    model: str = "",
) -> None:
    """Check training pods as `submit` does, because a form in a browser passes its parameters unchecked; then the rest.

    In a pod of a cluster, the quotas of its namespace are checked, too.

    Args:
        pods: Resources of the pods that train.
        engine: As `preflight` has it, like the rest.
        registry: Address of the model registry.
        root: Store of the run.
        against: URI of the report, or of the metrics, that the run's report compares with; "" for none.
        network: Whether the run trains networks. Otherwise it has no training pods, and quotas are compared with its
            other steps alone.
        index: Name of the index in Elasticsearch; "" for the default.
        model: Name of the registered model; "" for the task's.
    """
    check_pods(pods)
    check_names(engine, index, model)
    check_lasting("store_root", named_root(root) or "")
    if KFP_POD in os.environ and (api := Api.of_pod()):
        check_quota(pods if network else Pods(cpu=DATA_LIMITS["cpu"], memory=DATA_LIMITS["memory"]), api)
    if against:
        home(root, earlier(against))
    preflight(engine=engine, registry=registry, root=root)


def check_names(engine: str, index: str, model: str) -> None:
    """Raise InputError for an unknown engine, or for a name that no index or no registered model can have."""
    if engine not in (known := get_args(EngineName)):
        raise InputError(f"engine '{engine}' is unknown; expected {' or '.join(known)}")
    check_index_name(index)
    check_model_name(model)


def _check_store(store: Store) -> None:
    """Create a file twice, the way manifests are created: the second time must change nothing."""
    name = f"preflight/{secrets.token_hex(8)}"
    try:
        created = store.create(name, b"tlm")
    except OSError as error:
        raise InputError(f"store {store.root} cannot be written to: {error.strerror}; name another one") from None
    if not created and store.read(name) != b"tlm":  # else the answer was lost, and the request repeated
        raise InputError(f"{store.root}: a new file was refused as if it existed already; is the store read-only?")
    try:
        if store.create(name, b"tlm again"):
            say(f"warning: {store.root} ignores If-None-Match: run no step twice at the same time on this store")
        if store.read(name) is None:
            raise InputError(f"{store.root}: a new file cannot be read back; the keys need s3:GetObject there")
        any(store.list(name))  # snapshots are listed; and who may not list, Amazon refuses to say that a file is absent
    finally:
        store.delete(name)
    say(f"store {store.root}: can be written to")


def _check_disk(folder: Path, free_gib: float) -> None:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    for place in {existing, Path(tempfile.gettempdir())}:
        free = shutil.disk_usage(place).free / GIB
        if free < free_gib:
            raise InputError(f"{place} has {free:.1f} GiB free, but {free_gib:g} GiB are needed; free or add some")
        say(f"disk {place}: {free:,.0f} GiB free")


def _check_elasticsearch() -> None:
    """Check the key that fills the index, the key that searches it, and the nodes of older indices."""
    from tlm.retrieval.search import elastic_client
    from tlm.retrieval.search.elastic_build import OURS, with_idle_nodes

    client = elastic_client.connect(at_once=True)
    elastic_client.check_privileges(client, OURS, PRIVILEGES, "the roles publisher and writer")
    own = os.environ.get(elastic_client.SECRET, "")
    reader = f"{own}-reader"  # mounted in this step's pod only; steps that search would fail hours later
    if own and Path(reader).is_dir():
        os.environ[elastic_client.SECRET] = reader
        try:
            of_reader = elastic_client.connect(at_once=True)
            elastic_client.check_privileges(of_reader, OURS, ("read", "view_index_metadata"), "the role reader")
        finally:
            os.environ[elastic_client.SECRET] = own
    say(f"Elasticsearch: may create and fill indices '{OURS}'")
    for index, nodes in with_idle_nodes(client).items():
        idle = f"{', '.join(nodes)} of Elasticsearch's data nodes have no shard of '{index}' and do not search it"
        advice = "it was made for fewer nodes, so remove it there, and the next run makes it again with more shards"
        say(f"warning: {idle}; {advice}")
