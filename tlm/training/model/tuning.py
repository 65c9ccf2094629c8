"""What a step does only on a GPU, where it saves time. No loss changes by more than rounding.

Nothing here was measured before there was a GPU: `python -m research gpu` measures a step with and without each.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Tuning:
    """The habits of a step on one kind of device.

    Attributes:
        length_multiple: Batches with padding are as wide as a multiple of this: fewer shapes, aligned attention masks.
        vocabulary_multiple: The logits of tokens are as many as a multiple of this: aligned matrix products.
        pinned: Batches are copied from page-locked memory; from other memory the copy waits for the device.
        ahead: A thread makes the next batch while a step runs, mostly in the backward pass, which leaves Python free.
    """

    length_multiple: int = 1
    vocabulary_multiple: int = 1
    pinned: bool = False
    ahead: bool = False


PLAIN = Tuning()
GPU = Tuning(length_multiple=8, vocabulary_multiple=64, pinned=True, ahead=True)
OF_KIND = {"cuda": GPU}  # which is patched to measure or test other habits


def tuning(device: torch.device) -> Tuning:
    """The habits on a device."""
    return OF_KIND.get(device.type, PLAIN)


@contextmanager
def tf32() -> Iterator[None]:
    """Let a GPU round the factors of fp32 products to TF32 in the block; elsewhere nothing changes."""
    products = torch.backends.cuda.matmul
    before, products.allow_tf32 = products.allow_tf32, True
    try:
        yield
    finally:
        products.allow_tf32 = before
