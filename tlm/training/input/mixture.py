"""The mixture of stage 1: which steps are internal (task data), which external (paper, section 3.2)."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Mixture:
    """One internal step follows every rho1 external steps.

    Attributes:
        rho1: External steps for each internal one. 0: all steps are internal; ``inf``: all are external.
    """

    rho1: int | Literal["inf"]

    def is_internal(self, step: int) -> bool:
        """Whether `step` (from 0) takes a batch of task data."""
        return self.rho1 != "inf" and (step + 1) % (self.rho1 + 1) == 0

    def internal_before(self, step: int) -> int:
        """How many of the first `step` steps are internal."""
        return 0 if self.rho1 == "inf" else step // (self.rho1 + 1)

    def index(self, step: int) -> int:
        """How many steps of the same kind come before `step`: the number of the batch that it takes."""
        internal = self.internal_before(step)
        return internal if self.is_internal(step) else step - internal
