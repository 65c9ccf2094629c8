"""Predictions as results keep them."""

import numpy as np


def rights(count: int, total: int, seed: int) -> dict[str, str]:
    """`total` examples of the class 1, of which `count`, drawn by `seed`, are predicted right."""
    right = np.zeros(total, int)
    right[np.random.default_rng(seed).permutation(total)[:count]] = 1
    numbers = {"gold": [1] * total, "predicted": right.tolist(), "group": range(total), "copied": [0] * total}
    return {name: " ".join(map(str, values)) for name, values in numbers.items()}
