"""The packages whose text is the demo's: in the versions of ``requirements.txt``, beside the demo, not installed."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

from tlm.errors import InputError
from tlm.progress import say

PINNED = Path(__file__).with_name("requirements.txt")
FOLDER = Path(__file__).with_name("data") / "packages"
# The wheels of pure Python, which are the same everywhere, whatever platform and Python run pip.
ANYWHERE = ("--platform", "any", "--implementation", "py", "--abi", "none", "--python-version", "3.13")
EXACTLY = ("--no-deps", "--only-binary", ":all:", "--require-hashes", *ANYWHERE)


def wheels(folder: Path = FOLDER, pinned: Path = PINNED) -> list[Path]:
    """Return the wheels in the order of `pinned`; if one is not in `folder`, pip downloads it.

    Raises InputError: one is missing, and pip cannot download it.
    """
    hashes = re.findall(r"--hash=sha256:(\w+)", pinned.read_text("utf-8"))
    found = _found(folder)
    if missing := sum(one not in found for one in hashes):
        say(f"downloading {missing} packages to {folder}, to read their documentation")
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--retries", "1")
        done = subprocess.run(
            [*pip, *EXACTLY, "--requirement", pinned, "--dest", folder], stderr=subprocess.PIPE, text=True, check=False
        )
        found = _found(folder)
        if missing := sum(one not in found for one in hashes):
            why = (done.stderr.strip().splitlines() or ["it gives no reason"])[-1]
            raise InputError(
                f"{folder} lacks {missing} of the {len(hashes)} packages of {pinned}, and pip cannot download them "
                f"({why}); repeat this where PyPI or a mirror can be reached, or copy the wheels there"
            )
    return [found[one] for one in hashes]


def _found(folder: Path) -> dict[str, Path]:
    """The wheels in a folder by their digests."""
    return {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in sorted(folder.glob("*.whl"))}
