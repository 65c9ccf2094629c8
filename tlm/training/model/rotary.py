"""Rotary positions (Su et al. 2021): queries and keys are turned by angles that grow with the position."""

import torch
from torch import Tensor, nn


class Rotary(nn.Module):
    """Turns queries and keys, pair by pair of their numbers; holds no parameters.

    A pair is turned as a complex number, which is one pass over memory: on a CPU a small model waits for little else.
    `transformers` pairs a head's number i with i + width/2, but complex numbers lie side by side; attention does not
    care for the order of a head's numbers if queries and keys agree.

    Attributes:
        order: In which order to read the rows of the projection to queries, keys and values, so that pairs lie so.
    """

    order: Tensor
    turns: Tensor

    def __init__(self, heads: int, width: int, base: float, positions: int) -> None:
        super().__init__()
        speeds = base ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * speeds
        turn = torch.polar(torch.ones_like(angles), angles)
        turns = torch.stack([turn, turn, torch.ones_like(turn)], dim=1)  # values stay as they are
        self.register_buffer("turns", turns[:, :, None].repeat(1, 1, heads, 1), persistent=False)
        rows = torch.arange(3 * heads * width).view(3, heads, width)
        rows[:2] = rows[:2].view(2, heads, 2, -1).transpose(2, 3).reshape(2, heads, width)
        self.register_buffer("order", rows.flatten(), persistent=False)

    def forward(self, states: Tensor, parts: slice | int = slice(None), positions: Tensor | None = None) -> Tensor:
        """Same shape and type.

        Args:
            states: Queries, keys and values, or those `parts` of them, [B, T, parts, heads, width].
            parts: Which they are; with a number it is one of them, [B, T, heads, width].
            positions: Of the T states in their texts, [B, T]; without, they are 0, 1, …
        """
        turns = self.turns[: states.shape[1], parts] if positions is None else self.turns[:, parts][positions]
        pairs = torch.view_as_complex(states.float().view(*states.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2).to(states.dtype)
