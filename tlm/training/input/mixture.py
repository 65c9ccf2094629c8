"""The mixture of stage 1: which steps are internal (task data), which external (paper, section 3.2)."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Mixture:
    """After rho1 external steps comes one internal step; rho1 = 0 is internal only, ``inf`` external only."""

    rho1: int | Literal["inf"]

    def is_internal(self, step: int) -> bool:
        """Whether `step` (from 0) takes a batch of task data."""
        return self.rho1 != "inf" and (step + 1) % (self.rho1 + 1) == 0

    def internal_before(self, step: int) -> int:
        """Internal steps among 0 … step - 1; with the number of steps: exactly how many there are in all."""
        return 0 if self.rho1 == "inf" else step // (self.rho1 + 1)

    def place(self, step: int) -> int:
        """How many steps of this step's own kind came before it: which of its batches it takes."""
        internal = self.internal_before(step)
        return internal if self.is_internal(step) else step - internal
