"""Reports in a real MLflow server: what is logged, once, and that the report is there whatever the server does.

``TLM_TEST_MLFLOW_URL`` names one; without it, one is started here.
"""

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.k8s import tools
from tests.servers.faulty import RESET, Request, faulty
from tests.servers.servers import Server, free_port, fresh_folder, running
from tests.toys import read_json
from tests.unit.evaluation.test_mix import Store
from tlm.artifacts.artifact import Artifact
from tlm.evaluation.report.report import report
from tlm.evaluation.report.tracking import ADDRESS, HOW, PARENT


@pytest.fixture(scope="module")
def packages() -> Iterator[Path]:
    with tools.or_missing():
        found = tools.packages(Path(__file__).with_name("requirements-mlflow.txt"))
    sys.path.append(str(found))  # behind our own packages
    yield found
    sys.path.remove(str(found))


@pytest.fixture(scope="module")
def url(packages: Path) -> Iterator[str]:
    if given := os.environ.get("TLM_TEST_MLFLOW_URL"):
        yield given
        return
    with fresh_folder() as folder:
        port = free_port()
        place = [f"--backend-store-uri=sqlite:///{folder}/runs.db", f"--artifacts-destination={folder}/files"]
        command = [sys.executable, "-m", "mlflow", "server", f"--port={port}", "--workers=1", *place]
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(packages)}
        address = f"http://127.0.0.1:{port}"
        with running(Server(command, environment, folder, address, f"{address}/health")):
            yield address


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> str:
    """The experiment of a test."""
    found = f"tests/{uuid.uuid4()}"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", found)
    for variable in HOW:
        monkeypatch.delenv(variable, raising=False)
    return found


def runs(url: str, name: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(url)
    experiment = client.get_experiment_by_name(name)
    return [] if experiment is None else list(client.search_runs([experiment.experiment_id]))


def made(store: Store) -> Artifact:
    mixed = store.mixed(store.baseline, store.static).uri
    return Artifact.open(report([store.baseline, store.static, mixed], root=str(store.root)))


def test_a_report_is_a_run_with_a_run_for_each_row_once(
    url: str, name: str, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv(ADDRESS, url)
    written = made(store)
    assert made(store).uri == written.uri
    assert "MLflow has it already" in capsys.readouterr().err
    facts = read_json(written, "report.json")
    (whole,) = (run for run in runs(url, name) if PARENT not in run.data.tags)
    rows = {run.info.run_name: run for run in runs(url, name) if run.data.tags.get(PARENT) == whole.info.run_id}
    assert len(runs(url, name)) == 1 + len(rows) == 1 + len(facts["groups"])
    assert {run.info.status for run in runs(url, name)} == {"FINISHED"}
    assert whole.data.tags["mlflow.note.content"] == facts["findings"][0]
    for row in facts["groups"]:
        metrics, params, tags = (getattr(rows[row["name"]].data, part) for part in ("metrics", "params", "tags"))
        assert metrics["test"] == row["test"]["mean"]
        assert (metrics["dev_low"], metrics["dev_high"]) == (row["dev"]["low"], row["dev"]["high"])
        assert metrics["cpu_seconds"] == row["cost"]["cpu_seconds"]["mean"]
        assert params["arm"] == row["arm"]
        assert (tags["tlm.report"], tags["tlm.models"]) == (written.manifest.key, " ".join(row["models"]))
    assert rows["linear"].data.params["baseline.arm"] == "baseline"
    page = MlflowClient(url).download_artifacts(whole.info.run_id, "report.html", str(store.root))
    assert Path(page).read_bytes() == written.path("report.html").read_bytes()


def test_what_an_interrupted_attempt_left_is_replaced(
    url: str, name: str, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The connection breaks when the second row is to be created; the report is there, and the next attempt logs it."""
    created = 0

    def lost(request: Request) -> int | None:
        nonlocal created
        created += request.path.endswith("/runs/create")
        return RESET if created >= 3 else None

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with faulty(url, lost) as broken:
        monkeypatch.setenv(ADDRESS, broken)
        written = made(store)
    said = capsys.readouterr().err
    assert "warning: MLflow did not take the report" in said
    assert "the report is finished; repeat the command to log it" in said
    assert len(runs(url, name)) == 2
    monkeypatch.setenv(ADDRESS, url)
    assert made(store).uri == written.uri
    assert [run.info.status for run in runs(url, name)] == ["FINISHED"] * 4
