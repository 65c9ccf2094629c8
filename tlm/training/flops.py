"""What training costs: floating-point operations of our step on real tokens; checkpoint.py has the paper's estimate."""

from dataclasses import dataclass

from tlm.settings.sections import OWN, Model
from tlm.training.input.batches import Batch

BACKWARD = 3  # forward and backward pass together, in forward passes


@dataclass(frozen=True)
class FlopCount:
    """Counts the operations of a model's matrix products; a multiplication and an addition count as two.

    The count is exact for the encoders written here, which compute only some positions of the last layer (encoder.py).
    For others it is an estimate: that of a BERT of the same shape that computes all positions.

    Attributes:
        model: The shape of the encoder.
        vocab_size: Entries of the vocabulary.
        labels: Classes.
    """

    model: Model
    vocab_size: int
    labels: int

    def of(self, batch: Batch, *, tokens: bool, classes: bool) -> int:
        """The forward and backward pass of `batch`, without padding, that predicts `tokens`, `classes` or both."""
        model, width = self.model, self.model.hidden
        read, lengths = batch.tokens, batch.lengths
        rows, masked = len(lengths) * classes, batch.masked * tokens
        modern = model.architecture == "modernbert"
        matrices = 3 if modern else 2  # of the feed-forward network, which is gated in ModernBERT
        everywhere = (classes and modern) or model.architecture not in OWN
        asking = lengths if everywhere else 1 + batch.masked_by_row() * tokens
        finished = read if everywhere else rows + masked
        projections = 2 * width * width * (read * (3 * model.layers - 1) + int(asking.sum()))
        attention = 2 * 2 * width * int(lengths @ (lengths * (model.layers - 1) + asking))
        after = 2 * width * (width + matrices * model.intermediate) * (read * (model.layers - 1) + finished)
        heads = 2 * width * ((width + self.vocab_size) * masked + (width + self.labels) * rows)
        return BACKWARD * (projections + attention + after + heads)
