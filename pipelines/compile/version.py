"""What this state of the code is called: version and git revision, as the images and the uploaded pipeline are."""

from tlm import __version__
from tlm.errors import InputError
from tlm.revision import revision


def version_name() -> str:
    """``<version>-<short revision>``, with ``-dirty`` behind it where files differ from the commit.

    Raises:
        InputError: this is no git checkout.
    """
    found = revision()
    if not found:
        raise InputError("the git revision cannot be read here: name the version with --version")
    return f"{__version__}-{found}"
