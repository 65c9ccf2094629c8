"""Reading a trained model: class logits of texts, without gradients."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from tlm.training.input.batches import collate
from tlm.training.input.texts import Texts
from tlm.training.model.encoder import Encoder, to_device

BATCH_TOKENS = 8192


@torch.no_grad()
def class_logits(model: Encoder, texts: Texts, rows: NDArray[np.int64], device: torch.device) -> NDArray[np.float32]:
    """Logits of the texts `rows`, [n, labels], in that order. `model` is left in the mode it was in."""
    training = model.training
    model.eval()
    logits = np.zeros((len(rows), len(model.body.config["id2label"])), dtype=np.float32)
    for places in by_length(texts.lengths[rows]):
        inputs = to_device(collate(texts, rows[places]), device)
        _, found = model(inputs, inputs.ids, tokens=False, classes=True)
        logits[places] = found.float().cpu().numpy()
    model.train(training)
    return logits


def by_length(lengths: NDArray[np.int32]) -> Iterator[NDArray[np.int64]]:
    """Places 0 … n-1 in batches of similar length, of at most `BATCH_TOKENS` padded tokens (or of one text)."""
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    start = 0
    while start < len(order):
        stop = start + max(1, BATCH_TOKENS // int(lengths[order[start]]))
        yield order[start:stop]
        start = stop
