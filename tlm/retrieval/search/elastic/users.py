"""Which stores use an index. Stores that share a server also share an index, if corpus, settings and name are equal.

Each store that made or found the index has an alias of its own on it. Of aliases, each can be added and removed by
itself; ``_meta`` can only be replaced as a whole, so that of two stores that add themselves at once one would be lost.
``_meta`` says whether all users are noted: they are not in an index that an earlier version made.
"""

from collections.abc import Mapping
from typing import Any

from tlm.progress import say
from tlm.retrieval.search.elastic.client import connect, patiently

USERS = "tlm-_store-"  # no index is named so: names begin with a letter or digit
NOTED = {"users": "noted"}  # in `_meta` from the beginning on


def alias_of(user: str) -> str:
    """Return the alias of a store (`tlm.artifacts.identity`) on the indices that it uses."""
    return USERS + user


def leave(details: Mapping[str, Any], user: str) -> None:
    """Note that a store no longer uses an index, and remove the index if it was the last.

    An index whose users were not noted from the beginning on is never removed. A store that begins to use the index
    between our last two requests loses it; its step then says that the index is gone, and repeating makes it again.

    Args:
        details: The index (`index.located`); no error if it is gone.
        user: Identity of the store.
    """
    client, index = connect(), details["index"]
    gone = {"remove": {"index": index, "alias": alias_of(user), "must_exist": False}}
    # First we leave, then we look: of two that leave at once, the later one sees that nobody is left
    patiently(client.options(ignore_status=404).indices.update_aliases, actions=[gone])
    for found in patiently(client.indices.get, index=index, ignore_unavailable=True).values():
        noted = NOTED.items() <= found["mappings"].get("_meta", {}).get("tlm", {}).items()
        others = sorted(alias for alias in found["aliases"] if alias.startswith(USERS))
        if others:
            say(f"the index '{index}' stays, as another store uses it ({', '.join(others)})")
        elif not noted:
            say(f"the index '{index}' stays, as it was made before stores were noted; remove it if no store uses it")
        else:
            patiently(client.indices.delete, index=index, ignore_unavailable=True)
