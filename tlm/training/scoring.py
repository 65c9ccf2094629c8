"""Scoring a model without gradients: class logits of texts, and the masked-language-model loss of held-out texts."""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from tlm.artifacts.artifact import Artifact
from tlm.data.ranges import by_length
from tlm.errors import InputError
from tlm.training.device import resolve_device, to_device
from tlm.training.input.batches import Masking, collate
from tlm.training.input.rng import HELD_OUT, generator
from tlm.training.input.texts import Examples, Texts
from tlm.training.input.tokenize import tokens_for
from tlm.training.model import build
from tlm.training.model.encoder import Encoder

MASK_DRAWS = 8  # masks for each text: enough for their mean to differ little between seeds
MASK_SHARE = 0.15


@torch.no_grad()
def class_logits(model: Encoder, texts: Texts, rows: NDArray[np.int64], device: torch.device) -> NDArray[np.float32]:
    """Logits of the texts `rows`, [n, labels], in that order. `model` keeps its mode (train or eval)."""
    training = model.training
    model.eval()
    logits = np.zeros((len(rows), len(model.body.config["id2label"])), dtype=np.float32)
    for indices in by_length(texts.lengths[rows]):
        inputs = to_device(collate(texts, rows[indices]), device)
        _, found = model(inputs, inputs.ids, tokens=False, classes=True)
        logits[indices] = found.float().cpu().numpy()
    model.train(training)
    return logits


@torch.no_grad()
def masked_lm_loss(
    checkpoint: Artifact, task: Artifact, split: str, device: str, root: str | None = None
) -> float | None:
    """Mean cross entropy, in nats, of masked tokens in the texts of a split; None for a model without an MLM head.

    The masks (15 %, 80/10/10) are the same for all models with the same vocabulary, so that arms and seeds compare.
    The tokens of the texts are found or made by `tokenize` with this `root`.

    Raises:
        InputError: the task has no such examples, or no words in them, or the device is not there.
    """
    torch_device = torch.device(resolve_device(device))
    if not checkpoint.entries(build.MLM_HEAD):
        return None
    tokens = tokens_for(checkpoint, task, root)
    model = build.load(checkpoint.path("model"), checkpoint.path(build.MLM_HEAD)).to(torch_device).eval()
    examples = Examples.open(task, tokens, build.text_length(model.body.config))
    texts, rows = examples.texts, examples.rows(split)
    masking = Masking(MASK_SHARE, model.body.config["vocab_size"], texts.special.mask, texts.special.ids)
    total, count = 0.0, 0
    for draw in range(MASK_DRAWS):
        for number, indices in enumerate(by_length(texts.lengths[rows])):
            batch = masking(collate(texts, rows[indices]), generator(0, HELD_OUT, draw, number))
            inputs = to_device(batch, torch_device)
            logits, _ = model(inputs, inputs.corrupted, tokens=True, classes=False)
            assert inputs.targets is not None
            total += float(F.cross_entropy(logits.float(), inputs.targets, reduction="sum"))
            count += batch.masked
    if count == 0:
        raise InputError(f"the {split} texts of {task.uri} have no token to predict; expected texts with words")
    return total / count
