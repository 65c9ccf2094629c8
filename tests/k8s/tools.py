"""Programs that check manifests, scripts and workflows: exact versions, fetched once into the tests' cache folder."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.conftest import missing
from tests.servers.programs import Missing, cache_folder, place

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5@v5.8.1"
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
# Whose resources we make: the module that publishes their definitions, and where in it they are.
DEFINITIONS = {
    "github.com/elastic/cloud-on-k8s/v3@v3.5.0": "config/crds/v1/resources/elasticsearch.k8s.elastic.co_*.yaml",
    "github.com/external-secrets/external-secrets@v1.3.2": "config/crds/bases/external-secrets.io_externalsecrets.yaml",
    "github.com/kserve/kserve@v0.20.0": "config/crd/full/serving.kserve.io_inferenceservices.yaml",
    "github.com/kubeflow/trainer/v2@v2.3.0": "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
}


def run(program: str, *arguments: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of the Python packages' programs, or kustomize or actionlint, in the repository's root."""
    command, environment = _found(program)
    return subprocess.run(
        [*command, *map(str, arguments)], cwd=ROOT, env=environment, input=stdin, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip


@cache
def build(folder: Path) -> str:
    """The YAML that kustomize makes of a folder."""
    done = run("kustomize", "build", folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def definitions() -> list[Path]:
    """Files with the CustomResourceDefinitions of all kinds that are not Kubernetes' own."""
    with or_missing():
        return [file for module, pattern in DEFINITIONS.items() for file in sorted(_module(module).glob(pattern))]


@cache
def _found(program: str) -> tuple[list[str], dict[str, str]]:
    with or_missing():
        if program in ("kustomize", "actionlint"):
            target = KUSTOMIZE if program == "kustomize" else ACTIONLINT
            return [str(_go_program(program, target))], {**os.environ}
        folder = packages(HERE / ("requirements-checkov.txt" if program == "checkov" else "requirements.txt"))
        environment = {**os.environ, "PYTHONPATH": str(folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        if program == "python":
            return [sys.executable], environment
        file = folder / "bin" / program
        with file.open("rb") as content:
            script = content.read(2) == b"#!"  # its first line names the folder that it was installed from
        return [sys.executable, str(file)] if script else [str(file)], environment


@contextmanager
def or_missing() -> Iterator[None]:
    """Skip the test, or fail it in CI, where a program cannot be had."""
    try:
        yield
    except Missing as error:
        missing(str(error))


def _go_program(name: str, target: str) -> Path:
    def make(folder: Path) -> None:
        _call(["go", "install", target], f"{name}: install Go", GOBIN=str(folder), GOFLAGS="-trimpath")

    return _whole(f"{name}-{target.rpartition('@')[2]}", make) / name


def _module(target: str) -> Path:
    """The folder of a Go module's source, in Go's own cache."""
    answer = _call(["go", "mod", "download", "-json", target], f"{target}: install Go")
    return Path(json.loads(answer)["Dir"])


def packages(file: Path) -> Path:
    """A folder with the packages of a requirements file; in no environment, because their pins differ from ours."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12]

    def make(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip"] if _has_pip() else [_uv(), "pip"]
        options = ["--quiet", "--target", str(folder), "--requirement", str(file)]
        _call([*pip, "install", *options], f"{file.name}: pip could not install it; is there a package index?")

    return _whole(f"{file.stem}-{python}-{digest}", make)


def _has_pip() -> bool:
    return subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0


def _uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        raise Missing("linters: this Python has neither pip nor uv beside it")
    return found


def _whole(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` in the cache, filled by `make` under another name first, so that it appears whole."""
    with place(name) as target:
        if not target.exists():
            part = Path(tempfile.mkdtemp(dir=cache_folder()))
            try:
                make(part)
                part.chmod(0o755)
                part.replace(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return target


def _call(command: Sequence[str], advice: str, **environment: str) -> str:
    try:
        done = subprocess.run(
            command, cwd=cache_folder(), env={**os.environ, **environment}, check=True, capture_output=True, text=True,
            timeout=600,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise Missing(f"{advice} ({' '.join(error.stderr.split())[-300:]})") from None
    except (OSError, subprocess.SubprocessError):
        raise Missing(advice) from None
    return done.stdout
