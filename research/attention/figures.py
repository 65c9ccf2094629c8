"""Figures of the attention study, in the report's colours. Violet is positional and red is vertical throughout."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array
from numpy.typing import NDArray

from research.retrieval.figures import name_rows
from tlm.evaluation.pages.blocks import COLOURS, INK, MUTED
from tlm.evaluation.pages.plots import STYLE, WIDTH, panels, plain_rows, short, svg

TONES = {"positional": COLOURS["other-2"][0], "vertical": COLOURS["other-3"][0], "other": COLOURS["rule"][0]}
MAP_TONES = {"positional": "#7f78dc", "vertical": "#cf5a4d", "other": "#8b8b93"}  # readable on light and dark pages
PLACES = {  # the parts of a stacked bar from left to right: (label, colour, opacity)
    "previous": ("token before", TONES["positional"], 1.0),
    "next": ("token after", TONES["positional"], 0.6),
    "itself": ("itself", MUTED, 0.7),
    "elsewhere": ("another word", TONES["other"], 1.0),
    "period": ("a period", TONES["vertical"], 0.6),
    "special": ("[CLS], [SEP]", TONES["vertical"], 1.0),
}
FEW = 4  # up to this number of heads, the maps stand in one row and show the tokens


@mpl.rc_context(STYLE)
def maps(weights: NDArray[Any], tokens: Sequence[str], kinds: Sequence[Sequence[str]]) -> str:
    """Draw every head's attention on one text: rows are queries, columns are keys, the colour is the head's kind.

    Args:
        weights: Attention, [layers, heads, T, T].
        tokens: The T tokens; shown if there are few heads.
        kinds: Kind of each head, by layer and head.
    """
    layers, heads = weights.shape[:2]
    few = layers * heads <= FEW
    if few:
        figure, grid = panels(min(WIDTH, 0.7 + 1.72 * layers * heads), 2.1, columns=layers * heads)
    else:
        figure, grid = panels(WIDTH, layers * (WIDTH / (heads + 0.4)) + 0.25, layers, heads)
    for axes, (layer, head) in zip(grid, np.ndindex(layers, heads), strict=True):
        kind = kinds[layer][head]
        _draw(axes, weights[layer, head], kind)
        if few:
            ending = "" if kind == "other" else f": {kind}"
            axes.set_title(f"layer {layer + 1}, head {head + 1}{ending}", fontsize=8, color=INK, pad=3)
        elif layer == 0:
            axes.set_title(str(head + 1), color=MUTED, fontsize=8, pad=2)
        if head == 0 and not few:
            axes.set_ylabel(str(layer + 1), color=MUTED, fontsize=8, rotation=0, ha="right", va="center")
    if few:
        grid[0].set_yticks(range(len(tokens)), [short(token, 12) for token in tokens], fontsize=4.5, color=INK)
        grid[0].tick_params(pad=1)
    return svg(figure)


@mpl.rc_context(STYLE)
def layers(groups: Sequence[dict[str, Any]], threshold: float) -> str:
    """Draw each head by layer, the first layer at the top: its shares to neighbours and to [CLS], [SEP] and periods.

    Shares beyond the threshold are strong dots, those below are pale.
    """
    columns = min(len(groups), 4)
    rows = -(-len(groups) // columns)
    depth = max(len(group["layers"]) for group in groups)
    figure, grid = panels(WIDTH, rows * (max(0.8, 0.2 * depth) + 0.85), rows, columns)
    for unused in grid[len(groups) :]:
        figure.delaxes(unused)
    for number, (axes, group) in enumerate(zip(grid, groups, strict=False)):
        for share, kind, shift in (("adjacent", "positional", -0.16), ("vertical", "vertical", 0.16)):
            for strong, size, opacity in ((False, 4, 0.35), (True, 5.5, 0.95)):
                heads = [head for head in group["points"] if (head["kind"] == kind) is strong]
                x, y = [100 * head[share] for head in heads], [head["layer"] + shift for head in heads]
                axes.plot(x, y, "o", color=TONES[kind], markersize=size, alpha=opacity, markeredgewidth=0)
        axes.axvline(100 * threshold, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
        axes.set_title(short(group["name"], 26), loc="left", color=INK, fontsize=9.5)
        last = len(group["layers"])
        shown = [layer for layer in range(1, last + 1) if last <= 6 or layer == 1 or layer % 4 == 0]
        axes.set(xticks=[0, 50, 100 * threshold], yticks=shown, xlim=(-4, 104), ylim=(last + 0.6, 0.4))
        axes.set(xlabel="% of tokens", ylabel="layer" if number % columns == 0 else "")
        plain_rows(axes)
    return svg(figure)


@mpl.rc_context(STYLE)
def places(groups: Sequence[dict[str, Any]]) -> str:
    """Draw where the maximal attention goes, one bar for each group: shares of all heads and tokens."""
    figure, [axes] = panels(WIDTH, 0.75 + 0.34 * len(groups))
    for row, group in enumerate(groups):
        left = 0.0
        for name, (label, tone, opacity) in PLACES.items():
            value = 100 * group["share"][name]
            axes.barh(row, value, left=left, height=0.62, color=tone, alpha=opacity, label=label if row == 0 else None)
            left += value
    name_rows(axes, [group["name"] for group in groups], len(groups))
    axes.set(xlim=(0, 100), xlabel="% of tokens, over all heads")
    spacing = {"handlelength": 0.9, "columnspacing": 1.1, "handletextpad": 0.4}
    figure.legend(loc="outside upper center", ncols=len(PLACES), frameon=False, fontsize=8.5, **spacing)
    return svg(figure)


def _draw(axes: Axes, weights: NDArray[Any], kind: str) -> None:
    opacity = np.sqrt(np.clip(weights, 0.0, 1.0))  # the root makes small weights visible
    pixels = to_rgba_array(MAP_TONES[kind], opacity.ravel()).reshape(*weights.shape, 4)
    axes.imshow(pixels, interpolation="nearest", aspect="equal")
    last = len(weights) + 0.7  # a margin, so that the frame does not hide the columns of [CLS] and [SEP]
    axes.set(xlim=(-1.7, last), ylim=(last, -1.7), xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set(visible=True, color=TONES[kind], linewidth=0.8 if kind == "other" else 1.8)
