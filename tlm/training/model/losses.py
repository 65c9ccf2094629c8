"""The losses of both stages (paper, section 3.2) and of a student: what a part of a batch adds to that of the whole."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tlm.training.model.encoder import Encoder, Inputs

TINY = 1e-12  # the smallest probability whose logarithm is taken


class Losses(NamedTuple):
    """`total` is minimised; `mlm` and `ce` are its parts (0 where they are not computed)."""

    total: Tensor
    mlm: Tensor
    ce: Tensor


def external_loss(model: Encoder, inputs: Inputs) -> Losses:
    """The masked-language-model loss on external data: a mean over the predicted tokens."""
    assert inputs.corrupted is not None
    token_logits, _ = model(inputs, inputs.corrupted, tokens=True, classes=False)
    mlm = _token_loss(token_logits, inputs)
    return Losses(mlm, mlm.detach(), torch.zeros_like(mlm))


def with_zero_gradients(losses: Losses, parameters: Iterable[Tensor]) -> Losses:
    """The same losses, which give `parameters` gradients of zero rather than none: the optimizer then updates them.

    The released code does this to its head: ``cls_prediction_scores.sum() * 0.0`` is a part of its external loss.
    """
    return losses._replace(total=losses.total + sum(0.0 * parameter.sum() for parameter in parameters))


def internal_loss(model: Encoder, inputs: Inputs, rho2: float, normalised: bool, mask_internal: bool) -> Losses:
    """The joint loss on task data: rho2·MLM + CE.

    Args:
        model: The model.
        inputs: A batch of task data with labels.
        rho2: Weight of the masked-language-model loss.
        normalised: Divide by rho2 + 1, as the released code does; the paper's formula does not.
        mask_internal: Classify the masked text, as the released code does; otherwise the text without masks.
    """
    assert inputs.corrupted is not None
    if mask_internal:
        token_logits, class_logits = model(inputs, inputs.corrupted, tokens=True, classes=True)
    else:
        token_logits, _ = model(inputs, inputs.corrupted, tokens=True, classes=False)
        _, class_logits = model(inputs, inputs.ids, tokens=False, classes=True)
    mlm, ce = _token_loss(token_logits, inputs), _class_loss(class_logits, inputs)
    total = (rho2 * mlm + ce) / (rho2 + 1) if normalised else rho2 * mlm + ce
    return Losses(total, mlm.detach(), ce.detach())


def classification_loss(model: Encoder, inputs: Inputs) -> Losses:
    """The loss of stage 2: classification alone, on text without masks."""
    _, class_logits = model(inputs, inputs.ids, tokens=False, classes=True)
    ce = _class_loss(class_logits, inputs)
    return Losses(ce, torch.zeros_like(ce), ce.detach())


def distillation_loss(model: Encoder, inputs: Inputs, temperature: float) -> Losses:
    """The loss of a student: cross entropy with a teacher's probabilities, both at a temperature (arXiv 1503.02531).

    It is multiplied by the squared temperature, so that gradients keep their size. For regression, the squared
    distance from the teacher's number.

    Args:
        model: The student.
        inputs: A batch whose labels are what the teacher answered.
        temperature: Probabilities p become p^(1/T), normalised; logits are divided by T.
    """
    _, logits = model(inputs, inputs.ids, tokens=False, classes=True)
    assert inputs.labels is not None
    if inputs.labels.dim() == 1:
        loss = _class_loss(logits, inputs)
    else:
        taught = torch.softmax(inputs.labels.clamp_min(TINY).log() / temperature, dim=1)
        summed = F.cross_entropy(logits.float() / temperature, taught, reduction="sum")
        loss = temperature**2 * summed / inputs.of_rows
    return Losses(loss, torch.zeros_like(loss), loss.detach())


def _token_loss(logits: Tensor, inputs: Inputs) -> Tensor:
    """Cross entropy, summed over this part, divided by the tokens to predict in the whole batch (at least 1)."""
    found: Tensor = _CrossEntropy.apply(logits.float(), inputs.targets)  # type: ignore[no-untyped-call]
    return found / max(1, inputs.of_masked)


class _CrossEntropy(torch.autograd.Function):
    """The sum of `F.cross_entropy`, with a gradient that takes three passes over the logits instead of five."""

    @staticmethod
    def forward(context: Any, logits: Tensor, targets: Tensor) -> Tensor:
        targets = targets[:, None]
        log_probabilities = F.log_softmax(logits, dim=-1)
        context.save_for_backward(log_probabilities, targets)
        return -log_probabilities.gather(1, targets).sum()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        log_probabilities, targets = context.saved_tensors
        result = log_probabilities.exp()
        result.scatter_add_(1, targets, result.new_full((), -1.0).expand(targets.shape))
        return result.mul_(gradient), None


def _class_loss(logits: Tensor, inputs: Inputs) -> Tensor:
    """Cross entropy, or squared error for regression; summed over this part, divided by the rows of the whole batch.

    Of several labels, the binary cross entropies of a text are added up: the log-likelihood of its labels.
    """
    assert inputs.labels is not None
    if inputs.labels.dim() == 2:
        return F.binary_cross_entropy_with_logits(logits.float(), inputs.labels, reduction="sum") / inputs.of_rows
    if inputs.labels.is_floating_point():
        return F.mse_loss(logits[:, 0].float(), inputs.labels, reduction="sum") / inputs.of_rows
    return F.cross_entropy(logits.float(), inputs.labels, reduction="sum") / inputs.of_rows
