"""What an attention head looks at: the two kinds of heads of the paper's section 4.4.1 (Figure 3).

A head looks, for each token, at the key that gets the most attention. A head is

* **positional** if for at least 90 % of the tokens this key is a neighbour, the token before or after. (Voita et al.
  2019, "Analyzing Multi-Head Self-Attention", ask for one fixed offset, in practice -1 or +1; the paper asks for
  adjacent tokens.)
* **vertical** if for more than 90 % of the tokens it is [CLS], [SEP] or a period, which shows as columns. (Kovaleva
  et al. 2019, "Revealing the Dark Secrets of BERT": such heads may carry little information about the text.)

[CLS] and [SEP] count as keys but not as queries, because they stand for no word; padding counts as neither. Keys that
tie for the maximum share the token equally, so a head with uniform attention is of neither kind. A token beside
[CLS], [SEP] or a period may count for both kinds.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

PLACES = ("previous", "next", "itself", "special", "period", "elsewhere")  # exclusive: the first that fits
SHARES = ("adjacent", "vertical", *PLACES)
KINDS = ("positional", "vertical", "other")

Bools = NDArray[np.bool_]


def looks(weights: NDArray[Any], special: Bools, period: Bools) -> NDArray[np.float64]:
    """Count how many tokens of a text look where, for each head.

    Args:
        weights: Attention without padding, [..., T, T]: rows are queries, columns are keys.
        special: Whether a token is [CLS] or [SEP], [T].
        period: Whether a token is a period, [T].

    Returns:
        [..., 8] in the order of `SHARES`: ``adjacent`` is previous + next; ``vertical`` counts [CLS], [SEP] and periods
        wherever they stand; the others are exclusive and add up to the number of query tokens.
    """
    queries = np.flatnonzero(~special)
    rows = weights[..., queries, :]
    best = (rows == rows.max(axis=-1, keepdims=True)).astype(np.float64)
    best /= best.sum(axis=-1, keepdims=True)
    offset = np.arange(len(special)) - queries[:, None]
    conditions = [offset == -1, offset == 1, offset == 0, special[None], period[None]]
    place = np.select(conditions, list(range(5)), default=PLACES.index("elsewhere"))  # [queries, T]
    counts = [np.where(place == number, best, 0.0).sum(axis=(-1, -2)) for number in range(len(PLACES))]
    vertical = best[..., special | period].sum(axis=(-1, -2))
    return np.stack([counts[0] + counts[1], vertical, *counts], axis=-1)


def kind_of(shares: dict[str, float], threshold: float) -> str:
    """The kind of a head with these shares of tokens, which are named as in `SHARES`."""
    if shares["adjacent"] >= threshold:
        return "positional"
    return "vertical" if shares["vertical"] > threshold else "other"
