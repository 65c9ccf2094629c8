"""Which state of the code this is, where it is a git checkout."""

import subprocess
from pathlib import Path


def revision(*options: str) -> str:
    """The checkout's commit, with ``-dirty`` where files differ from it; "" where there is none.

    Args:
        options: More options of ``git describe``, such as ``--abbrev=40``.
    """
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude", "*", *options]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
