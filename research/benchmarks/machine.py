"""The machine and the packages that the numbers were measured on."""

import os
import platform
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from joblib import cpu_count


def machine() -> dict[str, str]:
    """Processor, cores that we may use, memory, system, Python, and the threads that numerical libraries were given."""
    return {
        "processor": _processor(),
        "cores": str(cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": platform.platform(aliased=True, terse=True),
        "python": platform.python_version(),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
    }


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of the distributions that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def revision(folder: Path) -> str:
    """The commit of a checkout, with ``-dirty`` where its files differ from it; "unknown" where there is none.

    The page and the results do not count: benchmarks write them, and the next row would be dirty.
    """
    try:
        commit = _git(folder, "describe", "--always", "--exclude", "*")
        changed = _git(
            folder, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!research/*.md", ":!research/results"
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}-dirty" if changed else commit


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
