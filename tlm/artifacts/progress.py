"""Unfinished work: snapshots under ``progress/<key>/step-N/``, each whole or absent, for a step to go on from."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.digest import signed_json
from tlm.artifacts.home import home
from tlm.artifacts.manifest import MANIFEST, RUN, Manifest, content_digest, seal
from tlm.artifacts.produce import Recipe
from tlm.artifacts.scratch import scratch_folder
from tlm.errors import Damaged
from tlm.progress import say

KEPT = 2


class Progress:
    """Snapshots of the work named `key`; the newest two are kept, so that a damaged one has a predecessor.

    Each names the `inputs` of the work, so that `tlm gc` spares them.
    """

    def __init__(self, key: str, root: str | None, inputs: Mapping[str, Artifact] | None = None) -> None:
        self.inputs = inputs or {}
        self.store = home(root, self.inputs.values())
        self.kind = f"progress/{key}"
        self.damaged: set[str] = set()  # what `latest` passed over; removed when there is a whole one in its place

    @classmethod
    def of(cls, recipe: Recipe, root: str | None) -> "Progress":
        """That of the recipe's result, in the store where the result will be."""
        return cls(recipe.key, root, recipe.inputs)

    def save(self, step: int, fill: Callable[[Path], None], run: dict[str, Any] | None = None) -> None:
        """Publish a snapshot: `fill` writes its files into a folder. Older snapshots but one are removed.

        `run` is for its run.json: facts that are no part of its content, such as the time that it took.
        """
        name = _name(step)
        with scratch_folder(self.store.scratch(), name) as folder:
            fill(folder)
            files = seal(folder, {})
            for entry in files:
                self.store.add(f"{self.kind}/{name}/{entry.name}", folder / entry.name)
        manifest = Manifest(
            kind=self.kind, key=name, content=content_digest(files, {}), step="snapshot", version=1,
            settings={}, inputs={name: artifact.as_input() for name, artifact in self.inputs.items()},
            counts={"step": step}, details={}, files=files,
        )  # fmt: skip
        self.store.write(f"{self.kind}/{name}/{RUN}", signed_json(run or {}))
        self.store.write(f"{self.kind}/{name}/{MANIFEST}", manifest.to_bytes())  # over a damaged one, if one is there
        self.damaged.discard(name)
        whole = [step for step in self._steps() if step not in self.damaged]
        for old in [*whole[:-KEPT], *self.damaged]:
            self._remove(old)
        self.damaged.clear()

    def latest(self, folder: Path) -> int | None:
        """Copy the newest undamaged snapshot's files into `folder` (logical names); its step, or None if there is none.

        A damaged snapshot is passed over with a warning.
        """
        for name in reversed(self._steps()):
            try:
                snapshot = Artifact.find(self.store, self.kind, name)
                if snapshot is None:
                    continue
                files = {entry.logical: snapshot.verified(entry) for entry in snapshot.entries()}
                for logical, source in files.items():
                    (folder / logical).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, folder / logical)
            except Damaged as error:
                self.damaged.add(name)
                say(f"warning: snapshot {name} is passed over: {error}")
            except FileNotFoundError:  # another process that is further removed it meanwhile
                continue
            else:
                return int(name.removeprefix("step-"))
        return None

    def run(self, step: int) -> dict[str, Any]:
        """What `save` was given of the run; {} where that is lost."""
        snapshot = Artifact.find(self.store, self.kind, _name(step))
        return {} if snapshot is None else snapshot.run()

    def clear(self) -> None:
        """Remove all snapshots: the work is finished and published."""
        for stored in list(self.store.list(f"{self.kind}/")):
            self.store.delete(stored.name)

    def _steps(self) -> list[str]:
        names = (stored.name for stored in self.store.list(f"{self.kind}/") if stored.name.endswith(f"/{MANIFEST}"))
        return sorted(name.split("/")[-2] for name in names)

    def _remove(self, step: str) -> None:
        self.store.delete(f"{self.kind}/{step}/{MANIFEST}")  # first: without it the rest does not exist
        for stored in list(self.store.list(f"{self.kind}/{step}/")):
            self.store.delete(stored.name)


def _name(step: int) -> str:
    return f"step-{step:09d}"
