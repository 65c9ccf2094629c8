"""Heads that are cut out of a model: how few it needs, and what fewer would save.

The importance of a head is the mean size of the derivative of an example's loss by the head's gate, in each layer
relative to its length (Michel et al. 2019, "Are Sixteen Heads Really Better than One?"). The least important heads are
cut out of the matrices, one of each layer excepted; nothing is trained after that. `transformers` cannot load such
models since its version 5, which is why this is a study.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tlm.artifacts.artifact import Artifact
from tlm.data.ranges import CUT, HEAD, by_length
from tlm.data.tasks.metrics import dev_score
from tlm.errors import InputError
from tlm.training.classification import class_logits
from tlm.training.device import to_device
from tlm.training.input.batches import collate
from tlm.training.input.texts import Examples
from tlm.training.model import build
from tlm.training.model.bert import BertBody, BertLayer
from tlm.training.model.encoder import Encoder
from tlm.training.model.losses import classification_loss

CPU = torch.device("cpu")
ROUNDS = 3  # of timing, of which the fastest counts
RANDOM = 3  # draws of heads without regard to importance


def by_share(model: str, steps: int) -> Iterator[dict[str, Any]]:
    """Yield, for each of `steps` shares of the heads, the score on dev, texts per CPU second, and scores by chance."""
    trained = Artifact.open(model, "model")
    encoder = build.load(trained.path("model"))
    config, task = encoder.body.config, trained.input("task")
    if not isinstance(encoder.body, BertBody):
        raise InputError(f"{model} is a {config['model_type']}; expected a bert")
    examples = Examples.open(task, trained.input("task_tokens"), build.text_length(config), config.get(CUT, HEAD))
    build.to_standardised(encoder, examples.scale)  # as the targets of its loss are
    important = importance(encoder, examples)
    least = len(important)  # each layer keeps a head
    shares = {max(least, round(important.size * step / steps)) for step in range(1, steps + 1)}
    for count in sorted(shares, reverse=True):
        draws = [
            np.random.default_rng(seed).random(important.shape)
            for seed in range(RANDOM if count < important.size else 0)
        ]
        by_chance = [measured(trained, examples, chosen(draw, count))["dev"] for draw in draws]
        kept = chosen(important, count)
        yield {"heads": int(kept.sum()), **measured(trained, examples, kept, timed=True), "by_chance": by_chance}


def importance(encoder: Encoder, examples: Examples) -> NDArray[np.float64]:
    """The importance of each head for the training examples, [layers, heads]."""
    layers, rows = layers_of(encoder), examples.rows("train")
    total = np.zeros((len(layers), layers[0].heads))
    gates: list[Tensor] = []

    def gate(module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        own = torch.ones(size, layers[0].heads, requires_grad=True)
        gates.append(own)
        states = given[0].view(size, -1, layers[0].heads, given[0].shape[1] // layers[0].heads)
        return ((states * own[:, None, :, None]).view_as(given[0]),)

    hooks = [layer.attention["output"]["dense"].register_forward_pre_hook(gate) for layer in layers]  # type: ignore[index]
    encoder.eval()
    for indices in by_length(examples.texts.lengths[rows]):
        inputs, size = to_device(collate(examples.texts, rows[indices], examples.labels), CPU), len(indices)
        gates.clear()
        mean = classification_loss(encoder, inputs).total
        found = torch.autograd.grad(size * mean, gates)  # an example's gates act on its loss alone
        total += np.stack([one.abs().sum(0).numpy() for one in found])
    for hook in hooks:
        hook.remove()
    lengths: NDArray[np.float64] = np.linalg.norm(total, axis=1, keepdims=True)
    return total / lengths


def layers_of(encoder: Encoder) -> list[BertLayer]:
    """The layers of a BERT."""
    body: Any = encoder.body
    return list(body.layers())


def chosen(important: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    """Which heads are kept, [layers, heads]: the best of each layer, then the best of all."""
    first = np.zeros_like(important)
    first[np.arange(len(important)), important.argmax(axis=1)] = important.max() + 1
    ranks = (-(important + first)).ravel().argsort(kind="stable").argsort()
    return (ranks < max(count, len(important))).reshape(important.shape)


@torch.no_grad()
def cut(encoder: Encoder, kept: NDArray[np.bool_]) -> None:
    """Leave only the heads `kept` in the matrices."""
    for layer, own in zip(layers_of(encoder), kept, strict=True):
        parts: Any = layer.attention
        width = parts["self"]["query"].out_features // layer.heads
        rows = torch.from_numpy(own).repeat_interleave(width)
        for linear in (parts["self"][name] for name in ("query", "key", "value")):
            linear.weight, linear.bias = nn.Parameter(linear.weight[rows]), nn.Parameter(linear.bias[rows])
        output = parts["output"]["dense"]
        output.weight = nn.Parameter(output.weight[:, rows].contiguous())
        layer.heads = int(own.sum())


def measured(
    trained: Artifact, examples: Examples, kept: NDArray[np.bool_], *, timed: bool = False
) -> dict[str, float]:
    """The score on dev with the heads `kept`; if `timed`, dev texts per CPU second, too."""
    encoder, rows = build.load(trained.path("model")), examples.rows("dev")
    cut(encoder, kept)
    seconds = []
    for _ in range(ROUNDS if timed else 1):
        before = time.process_time()
        logits = class_logits(encoder, examples.texts, rows, CPU)
        seconds.append(time.process_time() - before)
    score = dev_score(trained.input("task").details["metric"], examples.labels[rows], logits)
    return {"dev": score, **({"texts_per_cpu_second": len(rows) / min(seconds)} if timed else {})}
