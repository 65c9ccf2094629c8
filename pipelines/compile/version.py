"""The name of this state of the code, for images and uploaded pipelines: version and git revision."""

from tlm import __version__
from tlm.errors import InputError
from tlm.revision import revision


def version_name() -> str:
    """Return ``<version>-<short revision>``, followed by ``-dirty`` if files differ from the commit.

    Raises:
        InputError: This is no git checkout.
    """
    found = revision()
    if not found:
        raise InputError("the git revision cannot be read here: name the version with --version")
    return f"{__version__}-{found}"
