"""Figures of the attention study. Colours as in the report; violet is positional, red vertical, throughout."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tlm.evaluation.pages.plots import COLOURS, INK, MUTED, RULE, STYLE, svg

TONES = {"positional": COLOURS["other-2"][0], "vertical": COLOURS["other-3"][0], "other": RULE}
MID_TONES = {"positional": "#7f78dc", "vertical": "#cf5a4d", "other": "#8b8b93"}  # of pictures: right on light and dark
PLACES = {  # what is stacked, from left: (what it is called, colour, opacity)
    "previous": ("token before", TONES["positional"], 1.0),
    "next": ("token after", TONES["positional"], 0.6),
    "itself": ("itself", MUTED, 0.7),
    "elsewhere": ("another word", RULE, 1.0),
    "period": ("a period", TONES["vertical"], 0.6),
    "special": ("[CLS], [SEP]", TONES["vertical"], 1.0),
}
WIDTH = 7.4  # inches: the page's measure
FEW = 4  # heads of a model: so many maps stand in one row, with their tokens


@mpl.rc_context(STYLE)
def maps(weights: NDArray[Any], tokens: Sequence[str], kinds: Sequence[Sequence[str]]) -> str:
    """Every head's attention on one text: rows ask, columns are asked; the ink tells the head's kind.

    Args:
        weights: [layers, heads, T, T].
        tokens: The T tokens; written where there are few heads.
        kinds: By layer and head.
    """
    layers, heads = weights.shape[:2]
    if layers * heads <= FEW:
        return _few_maps(weights, tokens, kinds)
    size = WIDTH / (heads + 0.4)
    figure, grid = _grid(layers, heads, WIDTH, layers * size + 0.25)
    for layer, head in np.ndindex(layers, heads):
        axes = grid[layer][head]
        _draw(axes, weights[layer, head], kinds[layer][head])
        if layer == 0:
            axes.set_title(str(head + 1), color=MUTED, fontsize=8, pad=2)
        if head == 0:
            axes.set_ylabel(str(layer + 1), color=MUTED, fontsize=8, rotation=0, ha="right", va="center")
    return svg(figure)


def _few_maps(weights: NDArray[Any], tokens: Sequence[str], kinds: Sequence[Sequence[str]]) -> str:
    layers, heads = weights.shape[:2]
    figure, grid = _grid(1, layers * heads, min(WIDTH, 0.7 + 1.72 * layers * heads), 2.1)
    for axes, (layer, head) in zip(grid[0], np.ndindex(layers, heads), strict=True):
        _draw(axes, weights[layer, head], kinds[layer][head])
        kind = "" if kinds[layer][head] == "other" else f": {kinds[layer][head]}"
        axes.set_title(f"layer {layer + 1}, head {head + 1}{kind}", fontsize=8, color=INK, pad=3)
    grid[0][0].set_yticks(range(len(tokens)), [_short(token, 12) for token in tokens], fontsize=4.5, color=INK)
    grid[0][0].tick_params(length=0, pad=1)
    return svg(figure)


@mpl.rc_context(STYLE)
def layers(groups: Sequence[dict[str, Any]], threshold: float) -> str:
    """Each head twice, by layer (the first at the top): its share to neighbours and its share to [CLS], [SEP], periods.

    Shares beyond the threshold are strong dots, those below are pale.
    """
    columns = min(len(groups), 4)
    rows = -(-len(groups) // columns)
    depth = max(len(group["layers"]) for group in groups)
    figure, grid = _grid(rows, columns, WIDTH, rows * (max(0.8, 0.2 * depth) + 0.85))
    for number, axes in enumerate(axes for line in grid for axes in line):
        if number >= len(groups):
            figure.delaxes(axes)
            continue
        group = groups[number]
        for share, kind, shift in (("adjacent", "positional", -0.16), ("vertical", "vertical", 0.16)):
            for strong in (False, True):
                points = [head for head in group["points"] if (head["kind"] == kind) is strong]
                axes.plot(
                    [100 * head[share] for head in points], [head["layer"] + shift for head in points], "o",
                    color=TONES[kind], markersize=5.5 if strong else 4, alpha=0.95 if strong else 0.35,
                    markeredgewidth=0,
                )  # fmt: skip
        axes.axvline(100 * threshold, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
        axes.set_title(_short(group["name"], 26), loc="left", color=INK, fontsize=9.5)
        axes.set_ylim(len(group["layers"]) + 0.6, 0.4)
        axes.set_xlim(-4, 104)
        axes.set_xticks([0, 50, 100 * threshold])
        axes.set_yticks(_few([layer["layer"] for layer in group["layers"]]))
        axes.set_xlabel("% of tokens")
        axes.set_ylabel("layer" if number % columns == 0 else "")
        _plain(axes)
    return svg(figure)


@mpl.rc_context(STYLE)
def places(groups: Sequence[dict[str, Any]]) -> str:
    """Where the maximal attention goes, a bar for each group: shares of all heads and tokens."""
    figure, grid = _grid(1, 1, WIDTH, 0.75 + 0.34 * len(groups))
    axes = grid[0][0]
    for row, group in enumerate(groups):
        left = 0.0
        for name, (label, tone, opacity) in PLACES.items():
            value = 100 * group["share"][name]
            axes.barh(row, value, left=left, height=0.62, color=tone, alpha=opacity, label=label if row == 0 else None)
            left += value
    axes.set_yticks(range(len(groups)), [_short(group["name"], 26) for group in groups], color=INK)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of tokens, over all heads")
    _plain(axes)
    figure.legend(
        loc="outside upper center", ncols=len(PLACES), frameon=False, fontsize=8.5, handlelength=0.9, columnspacing=1.1,
        handletextpad=0.4,
    )  # fmt: skip
    return svg(figure)


def _grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[list[Axes]]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    return figure, [list(line) for line in grid]


def _ink(weights: NDArray[Any], kind: str) -> NDArray[np.uint8]:
    """Attention as opacity, so that the picture stands on any paper; the root lets small weights be seen."""
    opacity = np.sqrt(np.clip(weights, 0.0, 1.0))[..., None]
    colour = np.broadcast_to(np.array(to_rgb(MID_TONES[kind])), (*weights.shape, 3))
    return np.round(255 * np.concatenate([colour, opacity], axis=-1)).astype(np.uint8)


def _draw(axes: Axes, weights: NDArray[Any], kind: str) -> None:
    axes.imshow(_ink(weights, kind), interpolation="nearest", aspect="equal")
    last = len(weights) + 0.7  # a margin, lest the frame hide the columns of [CLS] and [SEP]
    axes.set(xlim=(-1.7, last), ylim=(last, -1.7))
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(visible=True, color=TONES[kind], linewidth=0.8 if kind == "other" else 1.8)


def _plain(axes: Axes) -> None:
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0)


def _few(numbers: list[int]) -> list[int]:
    return numbers if len(numbers) <= 6 else [number for number in numbers if number == 1 or number % 4 == 0]


def _short(name: str, longest: int = 16) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
