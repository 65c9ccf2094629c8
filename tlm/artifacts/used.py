"""When an artifact was last used: a small file beside its manifest, whose age tells `tlm gc` what runs rely on."""

import time
from contextlib import suppress

from tlm.artifacts.store import Store
from tlm.errors import TlmError

USED = "used.json"
SECONDS = 3600.0  # a note as young as that is not written again


def note_use(store: Store, folder: str) -> None:
    """Note that the artifact in `folder` (``<kind>/<key>``) is used now; no error if the store cannot be written to."""
    name = f"{folder}/{USED}"
    with suppress(TlmError, OSError):
        noted = max((stored.modified for stored in store.list(name)), default=0.0)
        if time.time() - noted > SECONDS:
            store.write(name, time.strftime('{"used":"%Y-%m-%dT%H:%M:%SZ"}\n', time.gmtime()).encode())
