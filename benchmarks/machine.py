"""What the numbers were measured on."""

import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from tlm.training.cores import cores


def machine() -> dict[str, str]:
    """Processor, cores that we may use, memory, system, Python, and the threads that numerical libraries were given."""
    return {
        "processor": _processor(),
        "cores": str(cores()),
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
    """Installed versions of distributions; those that are not installed are left out."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
