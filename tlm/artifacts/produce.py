"""Make artifacts. A recipe determines the key of its result, so finished work is found and never done twice."""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from tlm import __version__
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.digest import signed_json, value_sha256
from tlm.artifacts.home import home
from tlm.artifacts.kinds import ArtifactKind
from tlm.artifacts.manifest import MANIFEST, RUN, FileEntry, Manifest, content_digest, seal
from tlm.artifacts.stores.scratch import scratch_folder
from tlm.artifacts.stores.store import Store
from tlm.artifacts.told import tell
from tlm.errors import Damaged
from tlm.progress import say
from tlm.spending import Spending, process_seconds

P = ParamSpec("P")


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a result; its hash is the key of the artifact.

    Attributes:
        kind: Kind of the artifact, one of `tlm.artifacts.kinds`.
        step: Name of the step that makes it.
        version: Version of the step's method; raised when the step writes something else than before.
        settings: Settings that change the result, as JSON values.
        inputs: Input artifacts by name; only their content counts, not where they are stored.
    """

    kind: ArtifactKind
    step: str
    version: int
    settings: dict[str, Any]
    inputs: dict[str, Artifact] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key, 24 hex digits: the name of the result's folder."""
        contents = {name: artifact.content for name, artifact in self.inputs.items()}
        return value_sha256([self.kind, self.step, self.version, self.settings, contents])[:24]


@dataclass
class Draft:
    """An artifact that is being made.

    Attributes:
        folder: Where the step writes the files.
        counts: Numbers for users, by name; not part of the content.
        details: Facts that later steps need; part of the content.
        rows: Row counts of files, by name.
        published: Files that other steps have put into the folder of the artifact already.
        run: Facts about this run (device, threads) for run.json; not part of the content.
        spending: Seconds and joules that the step spends.
    """

    folder: Path
    counts: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    published: list[FileEntry] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    spending: Spending = field(default_factory=Spending)


def produce(
    recipe: Recipe, root: str | None, write: Callable[Concatenate[Draft, P], None], *given: P.args, **named: P.kwargs
) -> str:
    """Return the URI of the recipe's result: found if it is finished, else made by `write` and published.

    It is stored at `root`, else at ``TLM_ROOT``, else where the inputs are; all inputs must be in that store. Data
    files are published first, the manifest last and only if there is none yet. If two processes make the same result,
    the first one wins and both return the same URI.

    Raises:
        InputError: an input is missing, or the store cannot be used.
    """
    store = home(root, recipe.inputs.values())
    found = _find(store, recipe)
    if found is not None:
        found.note_use()
        say(f"{recipe.step}: already there, nothing to do")
        tell(found)
        return found.uri
    started, used = time.time(), process_seconds()
    with scratch_folder(store.scratch(), f"{recipe.kind}-{recipe.key}") as folder:
        draft = Draft(folder)
        with draft.spending:
            write(draft, *given, **named)
        draft.run["process_seconds"] = round(process_seconds() - used, 3)
        made = _publish(store, recipe, draft, started)
    tell(made)
    return made.uri


def finished(recipe: Recipe, root: str | None) -> str | None:
    """Return the URI of the recipe's result if it is already where `produce` would publish it, else None."""
    found = _find(home(root, recipe.inputs.values()), recipe)
    return None if found is None else found.uri


def _find(store: Store, recipe: Recipe) -> Artifact | None:
    """Return the recipe's result if it exists. A damaged manifest is moved aside, so the result is made again."""
    try:
        return Artifact.find(store, recipe.kind, recipe.key)
    except Damaged as error:
        name = f"{recipe.kind}/{recipe.key}/{MANIFEST}"
        damaged = store.read(name)
        if damaged is not None:  # else another process has just renamed it
            say(f"warning: {error}; it is renamed to {MANIFEST}.damaged, and {recipe.step} makes the artifact again")
            store.write(f"{name}.damaged", damaged)
            store.delete(name)
        return None


def _publish(store: Store, recipe: Recipe, draft: Draft, started: float) -> Artifact:
    place = f"{recipe.kind}/{recipe.key}"
    own = seal(draft.folder, draft.rows)
    files = sorted([*own, *draft.published], key=lambda entry: entry.name)
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
    for entry in own:
        store.add(f"{place}/{entry.name}", draft.folder / entry.name)
    if store.read(f"{place}/{MANIFEST}") is None:
        run = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
            **draft.spending.facts(),
            "host": platform.node(),
            "python": platform.python_version(),
            "tlm": __version__,
            **draft.run,
        }
        store.write(f"{place}/{RUN}", signed_json(run))
    if store.create(f"{place}/{MANIFEST}", manifest.to_bytes()):
        return Artifact(store, manifest)
    winner = Artifact.open(f"{store.root}/{place}")
    if winner.content != manifest.content:
        say(f"warning: {winner.uri} was published meanwhile with other content; that one is kept")
    return winner
