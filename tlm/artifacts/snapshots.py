"""Snapshots of unfinished work under ``progress/<key>/step-N/``, each complete or absent, for a step to resume from."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tlm.artifacts.artifact import MANIFEST, RUN, Artifact, Manifest, content_digest, home, remove, seal
from tlm.artifacts.stores.local import scratch_folder
from tlm.artifacts.stores.store import signed_json
from tlm.errors import Damaged
from tlm.progress import say

KEPT = 2


class Progress:
    """Snapshots of the work on one result. The newest two are kept, in case the newest is damaged.

    Each names the inputs of the work, so that `tlm gc` keeps them.

    Attributes:
        kind: Kind of the snapshots as artifacts: ``progress/<key>``.
        store: Store of the snapshots, which is that of the result.
        inputs: Inputs of the work, by name.
        damaged: Snapshots that `latest` skipped; they are removed once there is a newer one.
    """

    def __init__(self, key: str, root: str | None, inputs: Mapping[str, Artifact] | None = None) -> None:
        self.inputs = inputs or {}
        self.store = home(root, self.inputs.values())
        self.kind = f"progress/{key}"
        self.damaged: set[str] = set()

    def save(self, step: int, fill: Callable[[Path], None], run: dict[str, Any] | None = None) -> None:
        """Publish a snapshot and remove all older ones except one.

        Args:
            step: Optimizer steps done.
            fill: Writes the files into the folder that it is given.
            run: Facts for run.json that are not part of the content, such as the time spent.
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
        self.store.write(f"{self.kind}/{name}/{MANIFEST}", manifest.to_bytes())  # replaces a damaged one
        self.damaged.discard(name)
        intact = [each for each in self._steps() if each not in self.damaged]
        for old in [*intact[:-KEPT], *self.damaged]:
            remove(self.store, f"{self.kind}/{old}")
        self.damaged.clear()

    def latest(self, folder: Path) -> int | None:
        """Copy the files of the newest intact snapshot into `folder`, and return its step; None if there is none.

        Damaged snapshots are skipped with a warning.
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
                say(f"warning: snapshot {name} is skipped: {error}")
            except FileNotFoundError:  # another process that is further has just removed it
                continue
            else:
                return int(name.removeprefix("step-"))
        return None

    def run(self, step: int) -> dict[str, Any]:
        """Return the facts about the run that `save` was given; {} if they are lost."""
        snapshot = Artifact.find(self.store, self.kind, _name(step))
        return {} if snapshot is None else snapshot.run()

    def clear(self) -> None:
        """Remove all snapshots, after the result is published."""
        remove(self.store, self.kind)

    def _steps(self) -> list[str]:
        names = (stored.name for stored in self.store.list(f"{self.kind}/") if stored.name.endswith(f"/{MANIFEST}"))
        return sorted(name.split("/")[-2] for name in names)


def _name(step: int) -> str:
    return f"step-{step:09d}"
