"""K, rho1 and rho2 for a task of one's own: the paper's rule for K, and what its Table B.1 says of the others."""

from math import log
from typing import NamedTuple

from tlm.presets.cost import stage1_cost
from tlm.presets.published import paper_presets
from tlm.settings import Preset

FEW, MANY = 5_000, 100_000  # training examples; the paper's bounds
LONG_WORDS = 100  # as in tlm/retrieval/search/query.py: longer texts are searched with their RAKE keywords
TOKENS_PER_WORD = 1.3  # of English in a vocabulary of BERT's size, special tokens aside
GRID = (1, 3, 7, 19, 99, 499, 999, 1999)  # the paper's values of rho1
PAPER_STEPS, PAPER_BATCH = 150_000, 256  # of the small scale, where the rule for rho1 was read off


class Advice(NamedTuple):
    """Settings to change, as ``section.name=value``, and sentences that say why."""

    overrides: list[str]
    reasons: list[str]


def advise(examples: int, words: float, preset: Preset, passages: int | None = None) -> Advice:
    """What the paper would choose for a task.

    Args:
        examples: Training examples.
        words: Median words of a training text (both texts of a pair together).
        preset: The settings to start from: their K says what "much" is at that scale, their steps how often the task
            is seen.
        passages: How many the corpus has, where it is known: a small one takes a lower K.
    """
    found = [_top_k(examples, preset, passages), _query(words), _rho1(examples, preset), _rho2(preset)]
    reasons = [reason for _, reason in found]
    if words * TOKENS_PER_WORD + 2 > preset.model.max_length:
        reasons.append(
            f"Texts of {words:.0f} words (about {words * TOKENS_PER_WORD:.0f} tokens) are cut at model.max_length="
            f"{preset.model.max_length}; the paper cuts at 128 but for IMDB (512), which costs time: left as it is."
        )
    return Advice([override for override, _ in found if override], reasons)


def paper_top_k(examples: int, *, large: bool = False) -> int:
    """The paper's rule: 5000 below 5,000 training examples, 50 above 100,000, else 500; doubled at the large scale."""
    return (5000 if examples < FEW else 50 if examples > MANY else 500) * (2 if large else 1)


def _top_k(examples: int, preset: Preset, passages: int | None) -> tuple[str, str]:
    top_k, told = _paper_s(examples, preset)
    most = top_k if passages is None else max(1, passages // examples)
    if top_k > most:
        told += (
            f" But the corpus has {passages:,} passages: K={most}, so that all examples together ask for no more than "
            "it has, and retrieval still chooses."
        )
    return f"retrieve.top_k={min(top_k, most)}", told


def _paper_s(examples: int, preset: Preset) -> tuple[int, str]:
    """K by the paper's rule at the preset's scale, and a sentence that says why."""
    rule = paper_top_k(examples, large=preset.name.startswith("large"))
    which = "fewer than 5,000" if examples < FEW else "more than 100,000" if examples > MANY else "5,000 to 100,000"
    said = f"K: {examples:,} training examples are {which}, for which the paper takes K={rule}"
    if preset.name in paper_presets():
        return rule, f"{said}."
    top_k = max(1, rule * preset.retrieve.top_k // 5000)
    return (
        top_k,
        f"{said}; preset {preset.name} has {preset.retrieve.top_k} where the paper has 5000, so K={top_k} here.",
    )


def _query(words: float) -> tuple[str, str]:
    if words > LONG_WORDS:
        told = f"Query: with {words:.0f} words in the median the texts are long: their RAKE keywords are searched"
        return "retrieve.query=rake", f"{told} (paper, section 3.1)."
    told = f"Query: with {words:.0f} words in the median the texts are short enough to be searched whole"
    return "retrieve.query=full", f"{told} (up to {LONG_WORDS})."


def _rho1(examples: int, preset: Preset) -> tuple[str, str]:
    rule = 999 if examples < FEW else 1 if examples > MANY else 19
    said = (
        f"rho1: for a task of this size the paper's small scale has rho1={rule} external batches for an internal one "
        "(the rule fits six of its eight tasks; HyperPartisan has 99 instead of 999, RCT 3 instead of 1)"
    )
    if preset.name in paper_presets():
        return f"train.rho1={rule}", f"{said}."
    passes = PAPER_STEPS / (rule + 1) * PAPER_BATCH / examples
    rho1 = min(GRID, key=lambda one: abs(log(_passes(preset, one, examples) / passes)))
    return (
        f"train.rho1={rho1}",
        f"{said}, which is {passes:.0f} passes over the task; in the {preset.train.steps:,} steps of preset "
        f"{preset.name} rho1={rho1} comes nearest, with {_passes(preset, rho1, examples):.1f}.",
    )


def _passes(preset: Preset, rho1: int, examples: int) -> float:
    mixed = preset.model_copy(update={"train": preset.train.model_copy(update={"rho1": rho1})})
    return max(1, stage1_cost(mixed).internal_batches) * preset.train.internal_batch / examples


def _rho2(preset: Preset) -> tuple[str, str]:
    if preset.name not in paper_presets():
        return "", (
            f"rho2: left at {float(preset.train.rho2):g}, as preset {preset.name} has it; the paper's small scale "
            "takes 20 or 100 and finds little difference between them (Table 6), but trains for much longer."
        )
    return "train.rho2=20", (
        "rho2: the paper takes 20 or 100 at its small scale; 20, 100 and 1000 differ by less than their spread on two "
        "of the three tasks of Table 6, and 0 is lower on all, so 20."
    )
