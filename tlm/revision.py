"""The git commit of this code."""

import subprocess
from pathlib import Path


def revision(*options: str) -> str:
    """Return the commit of the git checkout, with ``-dirty`` if files were changed; "" if this is no checkout.

    Args:
        options: More options of ``git describe``, such as ``--abbrev=40``.
    """
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude", "*", *options]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
