"""Held-out masked-language-model loss: how well stage 1 knows the language of texts that it never saw."""

import torch
import torch.nn.functional as F

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.training.device import resolve_device
from tlm.training.input.batches import Masking, collate
from tlm.training.input.examples import Examples
from tlm.training.input.rng import HELD_OUT, generator
from tlm.training.input.tokenize import tokenize
from tlm.training.model import build
from tlm.training.model.encoder import to_device
from tlm.training.scoring import by_length

DRAWS = 8  # masks for each text: their mean moves little from one seed to another
SHARE = 0.15


@torch.no_grad()
def masked_lm_loss(
    checkpoint: Artifact, task: Artifact, split: str, device: str, root: str | None = None
) -> float | None:
    """Mean cross entropy, in nats, of masked tokens in the texts of a split; None for a model that predicts no tokens.

    The masks (15 %, 80/10/10) are the same for all models with one vocabulary, so that arms and seeds compare.
    The tokens of the texts are found or made by `tokenize` with this `root`.

    Raises:
        InputError: the task has no such examples or no words in them, or the device is not here.
    """
    place = torch.device(resolve_device(device))
    if not checkpoint.entries(build.MLM_HEAD):
        return None
    tokenizer = checkpoint.input("task_tokens").input("tokenizer")
    tokens = Artifact.open(tokenize(task.uri, tokenizer.uri, root=root))
    model = build.load(checkpoint.path("model"), checkpoint.path(build.MLM_HEAD)).to(place).eval()
    examples = Examples.open(task, tokens, build.text_length(model.body.config))
    texts, rows = examples.texts, examples.rows(split)
    masking = Masking(SHARE, model.body.config["vocab_size"], texts.special.mask, texts.special.ids)
    total, count = 0.0, 0
    for draw in range(DRAWS):
        for number, places in enumerate(by_length(texts.lengths[rows])):
            batch = masking(collate(texts, rows[places]), generator(0, HELD_OUT, draw, number))
            inputs = to_device(batch, place)
            logits, _ = model(inputs, inputs.corrupted, tokens=True, classes=False)
            assert inputs.targets is not None
            total += float(F.cross_entropy(logits.float(), inputs.targets, reduction="sum"))
            count += batch.masked
    if count == 0:
        raise InputError(f"the {split} texts of {task.uri} have no token to predict; expected texts with words")
    return total / count
