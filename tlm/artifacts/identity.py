"""Which store this is, however its root is spelt: for servers that several stores share."""

import os
import secrets

from tlm.artifacts.digest import canonical_json, value_sha256
from tlm.artifacts.stores.store import Store

IDENTITY = "store.json"  # at the root


def identity(store: Store) -> str:
    """Return a digest (24 hex digits) of the store's place and of a random number that is kept in it.

    The place alone would not do, since two machines may each have a folder of that name; nor would the number alone,
    since a store can be copied.
    """
    if store.read(IDENTITY) is None:
        store.create(IDENTITY, canonical_json({"id": secrets.token_hex(16)}) + b"\n")
    place = store.root if "://" in store.root else os.path.realpath(store.root)
    return value_sha256([place, (store.read(IDENTITY) or b"").decode(errors="replace")])[:24]
