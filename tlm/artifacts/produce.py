"""Making artifacts: a recipe names the result before it exists, so finished work is found and never done twice."""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tlm import __version__
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.digest import signed_json, value_sha256
from tlm.artifacts.home import home
from tlm.artifacts.manifest import MANIFEST, RUN, Manifest, content_digest, seal
from tlm.artifacts.scratch import scratch_folder
from tlm.artifacts.stores.store import Store
from tlm.artifacts.told import tell
from tlm.errors import Damaged, InputError
from tlm.progress import say
from tlm.spending import Spending

KEY_DIGITS = 24


@dataclass(frozen=True)
class Recipe:
    """What decides a result: the step, its version, the settings that change the result, its inputs' content."""

    kind: str
    step: str
    version: int
    settings: dict[str, Any]
    inputs: dict[str, Artifact] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name of the result's folder. Addresses, worker counts and save intervals are not in it."""
        contents = {name: artifact.content for name, artifact in self.inputs.items()}
        return value_sha256([self.kind, self.step, self.version, self.settings, contents])[:KEY_DIGITS]


@dataclass
class Draft:
    """An artifact in the making: files in `folder`, facts in `counts`, `details` (part of content), `run` (not)."""

    folder: Path
    counts: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    spending: Spending = field(default_factory=Spending)


def produce(recipe: Recipe, root: str | None, write: Callable[[Draft], None]) -> str:
    """The URI of the recipe's result: found finished, or made by `write` and published whole.

    It lies at `root`, else at ``TLM_ROOT``, else where the inputs are; the inputs are looked for there before any work.
    Data files go up first, the manifest last and only if there is none yet; of two writers at once the first wins
    and both return the same URI.
    """
    store = home(root, recipe.inputs.values())
    found = _find(store, recipe)
    if found is not None:
        found.note_use()
        say(f"{recipe.step}: already there, nothing to do")
        tell(found)
        return found.uri
    started = time.time()
    with scratch_folder(store.scratch(), f"{recipe.kind}-{recipe.key}") as folder:
        draft = Draft(folder)
        with draft.spending:
            write(draft)
        manifest = _publish(store, recipe, draft, started)
    made = Artifact(store, manifest)
    tell(made)
    return made.uri


def finished(recipe: Recipe, root: str | None) -> str | None:
    """The URI of the recipe's result if it is published, where `produce` would publish it."""
    found = _find(home(root, recipe.inputs.values()), recipe)
    return None if found is None else found.uri


def _find(store: Store, recipe: Recipe) -> Artifact | None:
    """The recipe's result, if it is there. A damaged manifest is moved aside: the result can then be made again."""
    try:
        return Artifact.find(store, recipe.kind, recipe.key)
    except Damaged as error:
        name = f"{recipe.kind}/{recipe.key}/{MANIFEST}"
        damaged = store.read(name)
        if damaged is not None:  # else another process has just moved it
            say(f"warning: {error}; it is moved to {MANIFEST}.damaged, and {recipe.step} makes the artifact again")
            store.write(f"{name}.damaged", damaged)
            store.delete(name)
        return None


def _publish(store: Store, recipe: Recipe, draft: Draft, started: float) -> Manifest:
    place = f"{recipe.kind}/{recipe.key}"
    files = seal(draft.folder, draft.rows)
    manifest = Manifest(
        kind=recipe.kind,
        key=recipe.key,
        content=content_digest(files, draft.details),
        step=recipe.step,
        version=recipe.version,
        settings=recipe.settings,
        inputs={name: artifact.as_input() for name, artifact in recipe.inputs.items()},
        counts=draft.counts,
        details=draft.details,
        files=files,
    )
    for entry in files:
        store.add(f"{place}/{entry.name}", draft.folder / entry.name)
    if store.read(f"{place}/{MANIFEST}") is None:
        store.write(f"{place}/{RUN}", signed_json(_run(draft, started)))
    if store.create(f"{place}/{MANIFEST}", manifest.to_bytes()):
        return manifest
    winner = Artifact.find(store, recipe.kind, recipe.key)
    if winner is None:
        raise InputError(f"{store.root}/{place}: the manifest vanished while it was published; repeat the step")
    if winner.content != manifest.content:
        say(f"warning: {winner.uri} was published meanwhile with other content; that one stands")
    return winner.manifest


def _run(draft: Draft, started: float) -> dict[str, Any]:
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        **draft.spending.facts(),
        "host": platform.node(),
        "python": platform.python_version(),
        "tlm": __version__,
        **draft.run,
    }
