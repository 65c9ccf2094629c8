"""What this state of the code is called: version and git revision, as the images and the uploaded pipeline are."""

import subprocess
from pathlib import Path

from tlm import __version__
from tlm.errors import InputError


def version_name() -> str:
    """``<version>-<short revision>``, with ``-dirty`` behind it where files differ from the commit.

    Raises:
        InputError: this is no git checkout.
    """
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        revision = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        raise InputError("the git revision cannot be read here: name the version with --version") from None
    return f"{__version__}-{revision}"
