"""Randomness without state: every draw is a function of (seed, purpose, place), so that resuming needs no replay."""

import numpy as np

ORDER, MASK, DROPOUT, HELD_OUT, HEADS = range(5)
EXTERNAL, INTERNAL, STAGE2 = range(3)  # from 3 on: internal data of a second task, a third …


def generator(seed: int, purpose: int, *place: int) -> np.random.Generator:
    """The generator for one purpose at one place (such as a kind of data and a step)."""
    return np.random.default_rng([seed, purpose, *place])


def number(seed: int, purpose: int, *place: int) -> int:
    """A seed for another library: 63 bits."""
    return int(np.random.SeedSequence([seed, purpose, *place]).generate_state(1, np.uint64)[0] >> np.uint64(1))
