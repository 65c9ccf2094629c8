"""AdamW (Loshchilov & Hutter 2019) by torch's fused kernel.

`torch.optim` is not used: making its first optimizer imports torch's compiler, which takes longer than starting torch.
"""

import torch
from torch import Tensor, nn

EPSILON = 1e-8


class AdamW:
    """Weight decay for matrices only, not for biases and norms.

    Attributes:
        moments: For each parameter that had a gradient, by name: ``step``, ``exp_avg``, ``exp_avg_sq``.
    """

    def __init__(self, model: nn.Module, weight_decay: float, betas: tuple[float, float]) -> None:
        self.parameters = dict(model.named_parameters())
        self.weight_decay, self.betas = weight_decay, betas
        self.moments: dict[str, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Change the parameters that have a gradient; the gradients are forgotten."""
        with_gradient = [name for name, parameter in self.parameters.items() if parameter.grad is not None]
        for decays in (True, False):
            names = [name for name in with_gradient if (self.parameters[name].ndim > 1) == decays]
            if names:
                self._update(names, lr, self.weight_decay if decays else 0.0)
        for parameter in self.parameters.values():
            parameter.grad = None

    def _update(self, names: list[str], lr: float, weight_decay: float) -> None:
        for name in names:
            self.begin(name)
        parameters: list[Tensor] = [self.parameters[name] for name in names]
        moments = [self.moments[name] for name in names]
        steps = [moment["step"] for moment in moments]
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [moment["exp_avg"] for moment in moments],
            [moment["exp_avg_sq"] for moment in moments],
            [],
            steps,
            lr=lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=weight_decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def begin(self, name: str) -> None:
        """Moments of a parameter that had no gradient before."""
        if name in self.moments:
            return
        parameter = self.parameters[name]
        self.moments[name] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
