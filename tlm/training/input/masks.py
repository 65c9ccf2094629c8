"""Other choices of the tokens to predict: whole words, spans, or rare tokens more often.

Each chooses the share `train.mask_share` of all tokens in expectation. What is chosen together has one fate: all of it
is masked, or replaced, or kept, as in SpanBERT (Joshi et al. 2020).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tlm.artifacts.artifact import Artifact
from tlm.settings.sections import Train
from tlm.training.input.batches import Ints, Masking, Units
from tlm.training.input.texts import Special

LONGEST, ENDS = 10, 0.2  # of a span: tokens, and the chance that it ends after a token (SpanBERT)
ROUNDS = 60  # of a bisection


def masking(
    train: Train, vocab_size: int, special: Special, continues: NDArray[np.bool_], counts: Callable[[], Ints]
) -> Masking:
    """The corruption that the settings ask for.

    Args:
        train: The settings.
        vocab_size: Number of tokens.
        special: Their special ones.
        continues: Which tokens continue a word, as `continuing` finds them.
        counts: Counts how often each token occurs, [vocab_size].
    """
    share: Any = train.mask_share
    if train.masking == "rare":
        share = rare_shares(counts(), special, share)
    choices: dict[str, Units] = {"words": partial(_words, continues), "spans": _spans}
    return Masking(share, vocab_size, special.mask, special.ids, choices.get(train.masking))


def continuing(tokenizer: Artifact, vocab_size: int) -> NDArray[np.bool_]:
    """Which tokens continue a word, [vocab_size]: WordPiece marks these (##), BPE and Unigram mark the others."""
    ids = Tokenizer.from_file(str(tokenizer.path("tokenizer") / "tokenizer.json")).get_vocab()
    marked = any(token.startswith("##") for token in ids)
    found = np.zeros(vocab_size, dtype=bool)
    found[[i for token, i in ids.items() if token.startswith("##" if marked else ("Ġ", "▁")) == marked]] = True
    return found


def rare_shares(counts: Ints, special: Special, share: float) -> NDArray[np.float64]:
    """How often each token is predicted: as 1/√count, and `share` of all tokens; none so often that it is rarely read.

    Args:
        counts: How often each token occurs, [vocabulary].
        special: Tokens that are never predicted.
        share: The mean over all occurrences.
    """
    counts = counts.copy()
    counts[special.ids] = 0
    weights, most = np.maximum(counts, 1) ** -0.5, (1 + share) / 2
    low, high = 0.0, most / weights.min()
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        enough = counts @ np.minimum(most, middle * weights) >= share * counts.sum()
        low, high = (low, middle) if enough else (middle, high)
    found: NDArray[np.float64] = np.minimum(most, high * weights)
    return found


def _apart(candidates: Ints) -> NDArray[np.bool_]:
    """Whether there is no candidate before each one: another text begins, or a special token stands there."""
    return np.asarray(np.diff(candidates, prepend=-1) != 1)


def _words(continues: NDArray[np.bool_], flat: Ints, candidates: Ints, random: np.random.Generator) -> Ints:
    return np.cumsum(~continues[flat[candidates]] | _apart(candidates)) - 1


def _spans(flat: Ints, candidates: Ints, random: np.random.Generator) -> Ints:
    begins = _apart(candidates)
    ends = np.cumsum(np.minimum(random.geometric(ENDS, len(candidates)), LONGEST))
    begins[ends[ends < len(candidates)]] = True
    return np.cumsum(begins) - 1
