"""The influence of passages on a task: inner products of gradients (ISS, arXiv 2305.12816).

A small step that lowers a passage's masked-LM loss lowers the task's loss, too, as far as the two gradients have the
same direction. Their inner product is the derivative of the passage's loss along the gradient of the task's. Two passes
without gradients, a small step to either side, give that for every passage.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from tlm.data.ranges import by_length
from tlm.progress import track
from tlm.training.classification import MASK_SHARE
from tlm.training.device import to_device
from tlm.training.input.batches import HELD_OUT, Masking, collate, generator
from tlm.training.input.texts import Examples, Texts
from tlm.training.model.encoder import Encoder
from tlm.training.model.losses import classification_loss

STEP = 1e-3  # the small step, as a share of the length of all weights
DRAWS = 2  # masks of each passage
PASSES = 2 * DRAWS  # over all passages: a step to either side, with each mask

Gradient = dict[str, Tensor]


def task_gradient(model: Encoder, examples: Examples, device: torch.device) -> Gradient:
    """The gradient of the mean classification loss over the training examples, by the name of the weights.

    Only weights that the masked-LM loss reads, too: not those of the classification head.
    """
    rows = examples.rows("train")
    model.zero_grad()
    for indices in by_length(examples.texts.lengths[rows]):
        inputs = to_device(collate(examples.texts, rows[indices], examples.labels), device)
        loss = classification_loss(model, inputs).total
        (loss * len(indices) / len(rows)).backward()  # type: ignore[no-untyped-call]
    heads = model.body.head_names
    found = {name: weights.grad for name, weights in model.body.named_parameters() if not name.startswith(heads)}
    return {name: gradient.detach().clone() for name, gradient in found.items() if gradient is not None}


@torch.no_grad()
def influences(
    model: Encoder, texts: Texts, gradient: Gradient, device: torch.device, seed: int
) -> NDArray[np.float64]:
    """The inner product of each passage's gradient with that of the task, [n]; 0 for one without a token to predict.

    The loss of a passage is the mean over its masked tokens; `seed` decides which these are.
    """
    norm = float(torch.linalg.vector_norm(torch.stack([part.norm() for part in gradient.values()])))
    if not norm:
        return np.zeros(len(texts))
    weights: Gradient = dict(model.body.named_parameters())
    size = float(torch.linalg.vector_norm(torch.stack([weights[name].norm() for name in gradient])))
    step = STEP * size
    losses: list[NDArray[np.float64]] = []
    for direction in (1, -1):
        with moved(weights, gradient, direction * step / norm):
            label = f"measuring influence, step {len(losses) + 1} of 2"
            losses.append(_losses(model, texts, device, seed, label))
    return (losses[0] - losses[1]) / (2 * step) * norm


@contextmanager
def moved(weights: dict[str, Tensor], gradient: Gradient, factor: float) -> Iterator[None]:
    """Add a multiple of the gradient to the weights inside a ``with`` block."""
    before = {name: weights[name].clone() for name in gradient}
    for name, part in gradient.items():
        weights[name].add_(part, alpha=factor)
    try:
        yield
    finally:
        for name, values in before.items():
            weights[name].copy_(values)


def _losses(model: Encoder, texts: Texts, device: torch.device, seed: int, label: str) -> NDArray[np.float64]:
    """The mean masked-LM loss of each text over its masked tokens, [n]."""
    masking = Masking(MASK_SHARE, model.body.config["vocab_size"], texts.special)
    total, count = np.zeros(len(texts)), np.zeros(len(texts))
    batches = list(by_length(texts.lengths))
    model.eval()
    for number, rows in enumerate(track(batches, label, len(batches), "batches")):
        for draw in range(DRAWS):
            batch = masking(collate(texts, rows), generator(seed, HELD_OUT, draw, number))
            if not batch.of_masked:
                continue
            inputs = to_device(batch, device)
            logits, _ = model(inputs, inputs.corrupted, tokens=True, classes=False)
            found = F.cross_entropy(logits, inputs.targets, reduction="none").cpu().numpy()
            of_row = batch.positions // batch.ids.shape[1]
            total[rows] += np.bincount(of_row, found, minlength=len(rows))
            count[rows] += batch.masked_by_row()
    return total / np.maximum(count, 1)
