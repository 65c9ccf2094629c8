"""Random numbers without state: each draw is a function of (seed, purpose, index), so resuming needs no replay."""

import numpy as np

ORDER, MASK, DROPOUT, HELD_OUT, HEADS = range(5)  # purposes
EXTERNAL, INTERNAL, STAGE2, SECOND_TASK = range(4)  # streams of batches; SECOND_TASK + 1 is the third task, and so on
UNLABELLED = 1 << 20  # the stream of texts without labels


def generator(seed: int, purpose: int, *index: int) -> np.random.Generator:
    """The generator for one purpose and index (such as a stream and a step)."""
    return np.random.default_rng([seed, purpose, *index])


def number(seed: int, purpose: int, *index: int) -> int:
    """A seed of 63 bits, for torch."""
    return int(np.random.SeedSequence([seed, purpose, *index]).generate_state(1, np.uint64)[0] >> np.uint64(1))
