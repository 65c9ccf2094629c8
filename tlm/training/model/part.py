"""Training a part of the weights: the head alone, with all biases (BitFit), or with LoRA.

LoRA is `peft`'s with its defaults, but it changes matrices, where `peft` changes what modules return: our ModernBERT
reads the matrices themselves. (BitFit: Ben Zaken et al., ACL 2022; LoRA: Hu et al., ICLR 2022.)
"""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tlm.errors import InputError
from tlm.progress import say
from tlm.training.input.batches import LOW_RANK, number
from tlm.training.model.encoder import Body

RANK = 8
# Of the operations of a step that trains all weights, about how many ninths one does that trains a part of them.
NINTHS = {"all": 9, "lora": 7, "bias": 6, "head": 3}


class LowRank(nn.Module):
    """The change of a matrix by a product of two thin ones, which is 0 at first."""

    def __init__(self, matrix: Tensor, random: torch.Generator) -> None:
        super().__init__()
        rows, columns = matrix.shape
        self.down, self.up = nn.Parameter(torch.empty(RANK, columns)), nn.Parameter(torch.zeros(rows, RANK))
        nn.init.kaiming_uniform_(self.down, a=5**0.5, generator=random)

    def forward(self, matrix: Tensor) -> Tensor:
        """The changed matrix."""
        return matrix + self.up @ self.down


def train_only(body: Body, part: str, seed: int) -> None:
    """Freeze all weights but the head and `part`, a value of `Finetune.train`; for LoRA, add what is trained.

    Raises InputError if the encoder has no such weights.
    """
    if part == "all":
        return
    for name, one in body.named_parameters():
        one.requires_grad = name.startswith(body.head_names) or (part == "bias" and name.endswith("bias"))
    if part == "lora":
        random = torch.Generator().manual_seed(number(seed, LOW_RANK))
        for module in _projections(body):
            parametrize.register_parametrization(module, "weight", LowRank(module.weight, random))
    trained = {name: one.numel() for name, one in body.named_parameters() if one.requires_grad}
    if part != "head" and all(name.startswith(body.head_names) for name in trained):
        kind = body.config["model_type"]
        raise InputError(f"finetune.train is {part}, and this {kind} has nothing of that kind; set head or all")
    say(f"finetune.train={part}: {sum(trained.values()):,} parameters are trained")


def _projections(body: Body) -> list[nn.Linear]:
    """The projections of attention: queries, keys, values and output, or the matrices that have several of them."""
    return [
        module
        for name, module in body.named_modules()
        if isinstance(module, nn.Linear) and ("attention." in name or "attn." in name)
        if not name.startswith(body.head_names)
    ]


def merge(body: Body) -> None:
    """Add LoRA's changes to the matrices, so that the model is as plain as before `train_only`."""
    for module in list(body.modules()):
        if parametrize.is_parametrized(module):
            parametrize.remove_parametrizations(module, "weight")
