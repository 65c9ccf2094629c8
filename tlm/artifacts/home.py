"""The store that a step works in: it holds all of its inputs, and takes its result."""

from collections.abc import Iterable

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.roots import named_root, open_store
from tlm.artifacts.stores.store import Store
from tlm.errors import InputError


def home(root: str | None, inputs: Iterable[Artifact]) -> Store:
    """Return the store at `root`, else at ``TLM_ROOT``, else that of the inputs, else ``./artifacts``.

    Raises:
        InputError: an input, or something that it was made from, is not in that store; or the inputs are in different
            stores and no root is named.
    """
    inputs = list(inputs)
    named = named_root(root)
    store = open_store(root) if named or not inputs else inputs[0].store
    for artifact in inputs:
        if artifact.store.root != store.root:
            if not named:
                raise InputError(
                    f"{inputs[0].uri} and {artifact.uri} lie in different stores; name one that holds both with --root"
                )
            _check_copied(artifact, store)
    return store


def _check_copied(artifact: Artifact, store: Store) -> None:
    """Check that the artifact and all that it was made from are in `store`: this step or a later one needs them."""
    for one in artifact.lineage():
        found = Artifact.find(store, one.manifest.kind, one.manifest.key)
        if found is None or found.content != one.content:
            raise InputError(
                f"{one.uri} is not in {store.root}, where this step looks for its inputs and writes; give --root "
                f"{one.store.root}, or copy it and what it was made from to {store.root}"
            )
