"""What stage 1 of a preset comes to before it runs, by the paper's way of counting."""

from typing import NamedTuple

from tlm.settings import Preset


class Stage1(NamedTuple):
    """Batches of each kind, and tokens with all padding: every text counts as its full length."""

    external_batches: int
    internal_batches: int
    padded_tokens: int

    def flops(self, parameters: float) -> float:
        """The paper's rule (section 4.1, Table 2): 6 · parameters · padded tokens."""
        return 6 * parameters * self.padded_tokens


def stage1_cost(preset: Preset) -> Stage1:
    """Batches and tokens of stage 1 with external data; its internal texts are as long as `model.max_length`."""
    train = preset.train
    internal = 0 if train.rho1 == "inf" else train.steps // (train.rho1 + 1)
    external = train.steps - internal
    tokens = external * train.external_batch * train.external_length
    return Stage1(external, internal, tokens + internal * train.internal_batch * preset.model.max_length)
