"""What an attention head looks at: the two kinds of heads of the paper's section 4.4.1 (Figure 3).

For every token of a text, the key that gets the most attention is looked at.

* **positional**: for at least 90 % of the tokens that is a neighbour, the token before or after (Voita et al. 2019,
  "Analyzing Multi-Head Self-Attention": there one fixed offset, in practice -1 or +1; the paper: adjacent tokens).
* **vertical**: for more than 90 % of the tokens that is [CLS], [SEP] or a period, which shows as columns
  (Kovaleva et al. 2019, "Revealing the Dark Secrets of BERT": such heads may tell little of the text).

Here [CLS] and [SEP] do not ask, since nobody reads words into them, but they can be looked at; padding does neither.
Keys that share the maximum share the token, so that a head with even attention counts as neither. A token beside
[CLS], [SEP] or a period may count for both shares.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

PLACES = ("previous", "next", "itself", "special", "period", "elsewhere")  # exclusive, the first that fits
SHARES = ("adjacent", "vertical", *PLACES)
Kind = Literal["positional", "vertical", "other"]
KINDS: tuple[Kind, ...] = ("positional", "vertical", "other")

Bools = NDArray[np.bool_]


def looks(weights: NDArray[Any], special: Bools, period: Bools) -> NDArray[np.float64]:
    """How many tokens of one text look where, for each head.

    Args:
        weights: Attention, [..., T, T]: rows ask, columns are asked; no padding in it.
        special: Whether a token is [CLS] or [SEP], [T].
        period: Whether a token is a period, [T].

    Returns:
        [..., 8] in the order of `SHARES`: ``adjacent`` is previous + next, ``vertical`` counts [CLS], [SEP] and periods
        wherever they stand, the others are exclusive and add up to the number of tokens that ask.
    """
    asking = np.flatnonzero(~special)
    rows = weights[..., asking, :]
    best = (rows == rows.max(axis=-1, keepdims=True)).astype(np.float64)
    best /= best.sum(axis=-1, keepdims=True)
    place = _places(asking, special, period)
    counts = [np.where(place == number, best, 0.0).sum(axis=(-1, -2)) for number in range(len(PLACES))]
    vertical = best[..., special | period].sum(axis=(-1, -2))
    return np.stack([counts[0] + counts[1], vertical, *counts], axis=-1)


def kind_of(shares: dict[str, float], threshold: float) -> Kind:
    """The kind of a head with these shares of its tokens (keys as `SHARES`)."""
    if shares["adjacent"] >= threshold:
        return "positional"
    return "vertical" if shares["vertical"] > threshold else "other"


def tally(kinds: Sequence[Kind]) -> dict[str, int]:
    """How many heads of each kind."""
    return {kind: kinds.count(kind) for kind in KINDS}


def _places(asking: NDArray[np.int64], special: Bools, period: Bools) -> NDArray[np.int64]:
    """The ordinal in `PLACES` of every pair of an asking token and a key, [asking, T]."""
    offset = np.arange(len(special))[None, :] - asking[:, None]
    keys = np.where(special, PLACES.index("special"), np.where(period, PLACES.index("period"), len(PLACES) - 1))
    chosen = [offset == -1, offset == 1, offset == 0]
    return np.select(chosen, [0, 1, 2], default=np.broadcast_to(keys, offset.shape))
