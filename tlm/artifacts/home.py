"""The store that a step works in: it holds all inputs and takes the result."""

from collections.abc import Iterable

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.roots import DEFAULT_ROOT, named_root, open_store
from tlm.artifacts.stores.store import Store
from tlm.errors import InputError


def home(root: str | None, inputs: Iterable[Artifact]) -> Store:
    """The store at `root`, else at ``TLM_ROOT``, else where the inputs are, else at ``./artifacts``.

    Raises:
        InputError: an input, or something that it was made from, is not in that store; or the inputs lie in different
            stores and no root is named.
    """
    inputs = list(inputs)
    named = named_root(root)
    if named is None:
        _check_together(inputs)
        return inputs[0].store if inputs else open_store(DEFAULT_ROOT)
    store = open_store(named)
    for artifact in inputs:
        if artifact.store.root != store.root:
            _check_copied(artifact, store)
    return store


def _check_together(inputs: list[Artifact]) -> None:
    for other in inputs:
        if other.store.root != inputs[0].store.root:
            raise InputError(
                f"{inputs[0].uri} and {other.uri} lie in different stores; name one that holds both with --root"
            )


def _check_copied(artifact: Artifact, store: Store) -> None:
    """Look for the artifact in `store`, and for all that it was made from: this step or a later one needs it."""
    for one in artifact.lineage():
        found = Artifact.find(store, one.manifest.kind, one.manifest.key)
        if found is None or found.content != one.content:
            raise InputError(
                f"{one.uri} is not in {store.root}, where this step looks for its inputs and writes; give --root "
                f"{one.store.root}, or copy it and what it was made from to {store.root}"
            )
