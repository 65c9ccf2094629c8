"""The programs behind real servers: fetched once into a cache folder (``TLM_TEST_CACHE``, else ``~/.cache/tlm-tests``).

`Missing` says in one line what to install.
"""

import fcntl
import os
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ELASTICSEARCH, ELASTICSEARCH_8 = "9.5.0", "8.19.8"
VERSITYGW = "1.8.0"
JAVA_AT_LEAST = 21
NOBODY = 65534


class Missing(Exception):
    """A server can be neither reached nor started here; the text says what to install or set."""


def cache_folder() -> Path:
    """Where fetched programs are kept between test runs."""
    folder = Path(os.environ.get("TLM_TEST_CACHE") or Path.home() / ".cache" / "tlm-tests")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def place(name: str) -> Iterator[Path]:
    """The path of `name` in the cache; of processes that want to fill it, all but one wait."""
    with (cache_folder() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache_folder() / name


def elasticsearch_zip(version: str = ELASTICSEARCH) -> Path:
    """Elasticsearch as it is installed for integration tests."""
    name = f"elasticsearch-{version}.zip"
    artifact = f"org.elasticsearch.distribution.integ-test-zip:elasticsearch:{version}:zip"
    return _fetched(
        name,
        "Elasticsearch: install Maven and a JDK 21 or later, or set TLM_TEST_ELASTICSEARCH_URL",
        lambda folder: ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"],
        {},
    )


def versitygw() -> Path:
    """An S3 gateway in one file."""
    return _fetched(
        "versitygw",
        "S3: install Go, or set TLM_TEST_S3_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        lambda _: ["go", "install", f"github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW}"],
        {"GOFLAGS": "-trimpath"},
    )


def _fetched(name: str, advice: str, command: Callable[[Path], list[str]], environment: dict[str, str]) -> Path:
    """The file `name` in the cache; `command` puts it into a folder of its own first, so that it appears whole."""
    with place(name) as target:
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=cache_folder()) as part:
                folder = Path(part)
                try:
                    env = {**os.environ, "GOBIN": part, **environment}
                    subprocess.run(command(folder), cwd=part, env=env, check=True, capture_output=True, timeout=600)
                except (OSError, subprocess.SubprocessError):
                    raise Missing(advice) from None
                (folder / name).replace(target)
    return target


def java_home() -> Path:
    """A Java that is new enough."""
    given = [Path(os.environ[name]) for name in ("ES_JAVA_HOME", "JAVA_HOME") if os.environ.get(name)]
    system = [*Path("/usr/lib/jvm").glob("*"), *Path("/Library/Java/JavaVirtualMachines").glob("*/Contents/Home")]
    for home in [*given, *sorted(system)]:
        with suppress(OSError):
            version = re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text(), re.MULTILINE)
            if version and int(version[1]) >= JAVA_AT_LEAST:
                return home
    raise Missing(
        f"Elasticsearch: install a JDK {JAVA_AT_LEAST} or later (JAVA_HOME), or set TLM_TEST_ELASTICSEARCH_URL"
    )


def unpack(archive: Path, folder: Path) -> Path:
    """The installation in `folder`."""
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    home = next(folder.glob("elasticsearch-*"))
    for script in (home / "bin").iterdir():
        script.chmod(0o755)  # zipfile drops permissions
    return home


def own(folder: Path) -> None:
    """Give the folder to the user that the server runs as: Elasticsearch refuses to run as root."""
    if os.getuid() == 0:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
