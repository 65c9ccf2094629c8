"""Snapshots of unfinished training: all that the next step depends on, so that resuming is bit-equal.

Batches, masks and dropout are functions of (seed, step), so there is no random state to keep.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from tlm.artifacts.produce import Recipe
from tlm.artifacts.progress import Progress
from tlm.artifacts.stores.scratch import scratch_folder
from tlm.errors import Interrupted
from tlm.progress import say
from tlm.spending import UNKNOWN, Amount, Spending
from tlm.training.curve import Curve
from tlm.training.distributed.group import World
from tlm.training.model.tensors import read_tensors, write_tensors
from tlm.training.optimizer import AdamW

TENSORS, FACTS = "state.safetensors", "state.json"


@dataclass
class Best:
    """The best weights so far: after which step, with which score on dev."""

    step: int
    score: float
    weights: dict[str, Tensor]


@dataclass
class State:
    """Training after `step` steps."""

    model: nn.Module
    optimizer: AdamW
    curve: Curve
    step: int = 0
    best: Best | None = None

    def write(self, folder: Path) -> None:
        """Write safetensors and JSON into `folder`."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for name, moments in self.optimizer.moments.items():
            tensors |= {f"optimizer.{name}.{key}": value for key, value in moments.items()}
        tensors |= {f"curve.{name}": value for name, value in self.curve.tensors().items()}
        facts: dict[str, float] = {"step": self.step}
        if self.best is not None:
            tensors |= {f"best.{name}": value for name, value in self.best.weights.items()}
            facts |= {"best_step": self.best.step, "best_score": self.best.score}
        write_tensors(tensors, folder / TENSORS)
        (folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")

    def read(self, folder: Path) -> None:
        """Become what `write` wrote."""
        tensors, facts = read_tensors(folder / TENSORS), json.loads((folder / FACTS).read_text(encoding="utf-8"))
        self.model.load_state_dict(_under("model", tensors))
        for place, value in _under("optimizer", tensors).items():
            name, _, key = place.rpartition(".")
            device = self.optimizer.parameters[name].device
            self.optimizer.moments.setdefault(name, {})[key] = value.to(device)
        self.curve.restore(_under("curve", tensors))
        self.step = facts["step"]
        if "best_step" in facts:
            self.best = Best(facts["best_step"], facts["best_score"], _under("best", tensors))

    def share(self, world: World) -> None:
        """Have all processes of `world` begin at the same step, with the first one's weights and moments.

        Curve and best weights are the first one's alone.
        """
        facts = world.tell({"step": self.step, "moments": list(self.optimizer.moments)})
        self.step = facts["step"]
        for name in facts["moments"]:
            self.optimizer.begin(name)
        for tensors in (self.model.state_dict(), *(self.optimizer.moments[name] for name in facts["moments"])):
            for name in sorted(tensors):
                world.copy(tensors[name])


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): value for name, value in tensors.items() if name.startswith(f"{prefix}.")}


class Snapshots:
    """Saves the state of the work on a recipe every so many steps or minutes (0: never), and finds it again.

    What the work has spent goes with each snapshot, and from there into `spending` of the attempt that goes on.
    """

    def __init__(
        self,
        recipe: Recipe,
        root: str | None,
        every_steps: int,
        every_minutes: float,
        spending: Spending | None = None,
    ) -> None:
        self.progress, self.spending = Progress.of(recipe, root), spending or Spending(())
        self.every_steps, self.every_seconds = every_steps, every_minutes * 60
        self._saved = time.monotonic()

    def resume(self, state: State) -> None:
        """Set `state` to the newest undamaged snapshot, if there is one."""
        with scratch_folder(self.progress.store.scratch(), "resume") as folder:
            step = self.progress.latest(folder)
            if step is not None:
                state.read(folder)
                told = self.progress.run(step).get("spent")
                self.spending.before = UNKNOWN if told is None else {name: Amount(*pair) for name, pair in told.items()}
                say(f"goes on after step {step:,}")

    def due(self, step: int) -> bool:
        """Whether `step` is one after which to save."""
        return self.every_steps > 0 and step % self.every_steps == 0

    def late(self) -> bool:
        """Whether the minutes are over after which to save: by the clock of the process that saves."""
        return 0 < self.every_seconds <= time.monotonic() - self._saved

    def save(self, state: State) -> None:
        """Save. Raises Interrupted if that fails (a full disk): the snapshot before this one stands."""
        try:
            self.progress.save(state.step, state.write, {"spent": self.spending.total()})
        except OSError as error:
            what = f"the snapshot after step {state.step:,} could not be written ({error})"
            raise Interrupted(f"{what}; mend that, then repeat the command") from None
        self._saved = time.monotonic()
