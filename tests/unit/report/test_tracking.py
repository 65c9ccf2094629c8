"""MLflow where it cannot be had: the report is made all the same, and one sentence says what to do.

`tests/servers/test_mlflow.py` is the same with a server.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.toys import make, read_json
from tests.unit.evaluation.test_mix import Store
from tlm.artifacts.artifact import Artifact
from tlm.evaluation.report.report import report
from tlm.evaluation.report.tracking import ADDRESS, track

AGAIN = "the report is finished; repeat the command to log it, or unset MLFLOW_TRACKING_URI\n"


@pytest.fixture(autouse=True)
def no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import of mlflow fails, as it does where it is not installed."""
    monkeypatch.setitem(sys.modules, "mlflow", None)


@pytest.fixture
def some_report(tmp_path: Path) -> Artifact:
    return Artifact.open(make("report", tmp_path / "root", lambda draft: None, {}))


def test_a_report_without_the_client_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ADDRESS, "https://127.0.0.1:1")
    store = Store(tmp_path / "store")
    written = Artifact.open(report([store.baseline, store.static], root=str(store.root)))
    assert len(read_json(written, "report.json")["groups"]) == 2
    missing = "mlflow-skinny is missing: in a checkout, pip install '.[mlflow]'"
    assert capsys.readouterr().err.endswith(f"warning: {ADDRESS} is set, but {missing}; {AGAIN}")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://user:secret@192.0.2.1:5000", "MLFLOW_TRACKING_URI is http://…@192.0.2.1:5000: without TLS anybody"),
        ("https://169.254.169.254", "an address where clouds serve credentials"),
        ("databricks://user:secret@host", "MLFLOW_TRACKING_URI is 'databricks://…@host'; expected https://host:port"),
        ("http://[bad", "MLFLOW_TRACKING_URI is 'http://[bad'; expected https://host:port"),
    ],
)
def test_servers_that_may_not_be_used_are_not_called(
    address: str, said: str, some_report: Artifact, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ADDRESS, address)
    track(some_report)
    err = capsys.readouterr().err
    assert said in err
    assert err.endswith(AGAIN)
    assert "secret" not in err


def test_a_token_that_the_client_shows_is_not_shown(
    some_report: Artifact, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As requests does with one that has a line end."""

    def refused(_: str) -> None:
        raise ValueError("return character(s) in header value: 'Bearer token\\nnekot\\n'")

    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=refused))
    monkeypatch.setenv(ADDRESS, "https://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "token\nnekot\n")
    track(some_report)
    assert "did not take the report (return character(s) in header value: 'Bearer …\\n…" in capsys.readouterr().err


def test_without_an_address_nothing_is_said(
    some_report: Artifact, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(ADDRESS, raising=False)
    track(some_report)
    assert not capsys.readouterr().err
