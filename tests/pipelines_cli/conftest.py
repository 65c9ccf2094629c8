"""Fixtures: the program in this process (importing kfp costs seconds), and the stand-in of the API."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pipelines import client, run
from pipelines.compiled import compile_text
from tests.pipelines_cli.standin import StandIn

GOLDEN = Path(__file__).parents[1] / "golden"


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No address or token from this machine's environment, and short pauses."""
    for name in (
        *("KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT", "KF_PIPELINES_SA_TOKEN_PATH", "KFP_EXISTING_TOKEN"),
        *("KF_PIPELINES_DEFAULT_EXPERIMENT_NAME", "KUBERNETES_SERVICE_HOST", "TLM_IMAGES"),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(client, "RETRIES", client.RETRIES.new(backoff_factor=0.02))


@pytest.fixture
def api() -> Iterator[StandIn]:
    """Not Kubeflow; see its module."""
    standin = StandIn()
    yield standin
    standin.down()


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """``python -m pipelines.run arguments…`` without a new process."""

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["pipelines.run", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run.main()
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture
def ask(cli: Callable[..., Done], api: StandIn, compiled: Path) -> Callable[..., Done]:
    """A command to the stand-in; those that take a pipeline get the compiled one, which saves time."""

    def call(command: str, *arguments: object) -> Done:
        file = ("--file", compiled) if command in ("submit", "upload") else ()
        return cli(command, "--host", api.url, *file, *arguments)

    return call


@pytest.fixture(scope="session")
def text() -> str:
    """Our compiled pipeline."""
    return compile_text()


@pytest.fixture
def compiled(text: str, tmp_path: Path) -> Path:
    """Our compiled pipeline in a file."""
    path = tmp_path / "tlm.yaml"
    path.write_text(text)
    return path
