"""What stage 1 of a preset costs, counted the way the paper does, before it runs."""

from typing import NamedTuple

from tlm.settings import Preset


class Stage1(NamedTuple):
    """The size of stage 1.

    Attributes:
        external_batches: Batches of external data.
        internal_batches: Batches of internal data.
        padded_tokens: Tokens of all batches, where each text counts with its maximum length.
    """

    external_batches: int
    internal_batches: int
    padded_tokens: int

    def flops(self, parameters: float) -> float:
        """Return the FLOPs by the paper's rule (section 4.1, Table 2): 6 · parameters · padded tokens."""
        return 6 * parameters * self.padded_tokens


def stage1_cost(preset: Preset) -> Stage1:
    """Return the size of stage 1 with external data; internal texts count as `model.max_length` tokens."""
    train = preset.train
    internal = 0 if train.rho1 == "inf" else train.steps // (train.rho1 + 1)
    external = train.steps - internal
    tokens = external * train.external_batch * train.external_length
    return Stage1(external, internal, tokens + internal * train.internal_batch * preset.model.max_length)
