"""Advice on K, rho1 and rho2 for a task: the paper's rule for K, and its Table B.1 for the others."""

from math import log
from statistics import median
from typing import NamedTuple

from tlm.artifacts.artifact import Artifact
from tlm.data.passages import count
from tlm.errors import InputError
from tlm.progress import say
from tlm.retrieval.search.query import LONG_WORDS
from tlm.settings.presets import paper_presets, resolve
from tlm.settings.sections import Preset

FEW, MANY = 5_000, 100_000  # training examples; the limits of the paper's rule
TOKENS_PER_WORD = 1.3  # of English in a vocabulary of BERT's size, special tokens aside
GRID = (1, 3, 7, 19, 99, 499, 999, 1999)  # the paper's values of rho1
TEXT = (
    "Text: the arm bm25; none of random, dsir, classifier, dense, hybrid and rerank has a significantly higher score, "
    "on SciERC at three shares of text on topic and on ACL-ARC at one (research/RESULTS.md); all but random "
    "take longer. The cost of choosing text was compared in CPU time, not FLOPs."
)
PAPER_STEPS, PAPER_BATCH = 150_000, 256  # of the small scale, which the rule for rho1 is taken from


class Advice(NamedTuple):
    """Settings for a task, with reasons.

    Attributes:
        overrides: Settings to change, as ``section.name=value``.
        reasons: A sentence for each of them.
    """

    overrides: list[str]
    reasons: list[str]


def advise_command(task: str, *, preset: str = "pocket", corpus: str = "") -> str:
    """Print what the paper would choose for a task: K, query, rho1 and rho2, with the reasons.

    The reasons go to stderr. The last line on stdout can be given to the pipeline as run_overrides; the override
    ``auto`` makes the pipeline do the same.

    Args:
        task: URI of the task.
        preset: Named settings to start from; `tlm show` lists them.
        corpus: URI of the corpus or its index; a small corpus needs a lower K. Empty: its size is not considered.
    """
    advice = advice_for(task, resolve(preset), corpus)
    for reason in advice.reasons:
        say(f"- {reason}")
    return " ".join(advice.overrides)


def advice_for(task: str, preset: Preset, corpus: str = "") -> Advice:
    """Return what the paper would choose for a task.

    Args:
        task: URI of the task.
        preset: The settings to start from.
        corpus: URI of the corpus or its index; "" if there is none yet.

    Raises:
        InputError: the task has no training examples.
    """
    from tlm.data.tasks.examples import examples

    labelled = Artifact.open(task, "task")
    rows = [row for row in examples(labelled).to_pylist() if row["split"] == "train"]
    if not rows:
        raise InputError(f"{labelled.uri} has no training examples; expected at least one")
    words = median(count(f"{row['text']} {row['text_pair'] or ''}".rstrip()) for row in rows)
    details = Artifact.open(corpus, "corpus", "index").details if corpus else {}
    return advise(len(rows), words, preset, details.get("passages", details.get("documents")))


def advise(examples: int, words: float, preset: Preset, passages: int | None = None) -> Advice:
    """Return what the paper would choose for a task.

    Args:
        examples: Number of training examples.
        words: Median number of words of a training text (both texts of a pair together).
        preset: The settings to start from. K is scaled by its K, rho1 by its steps.
        passages: Number of passages in the corpus, None if unknown; a small corpus needs a lower K.
    """
    found = [_top_k(examples, preset, passages), _query(words), _rho1(examples, preset), _rho2(preset)]
    reasons = [*(reason for _, reason in found), TEXT]
    if words * TOKENS_PER_WORD + 2 > preset.model.max_length:
        reasons.append(
            f"Texts of {words:.0f} words (about {words * TOKENS_PER_WORD:.0f} tokens) are cut at model.max_length="
            f"{preset.model.max_length}; the paper cuts at 128, IMDB at 512, which costs time; it is left as it is. "
            "model.cut=head+tail reads as many tokens of both ends."
        )
    return Advice([override for override, _ in found if override], reasons)


def paper_top_k(examples: int, *, large: bool = False) -> int:
    """Return K by the paper's rule: 5000 below 5,000 examples, 50 above 100,000, else 500; twice that if large."""
    return (5000 if examples < FEW else 50 if examples > MANY else 500) * (2 if large else 1)


def _top_k(examples: int, preset: Preset, passages: int | None) -> tuple[str, str]:
    top_k = paper_top_k(examples, large=preset.name.startswith("large"))
    which = "fewer than 5,000" if examples < FEW else "more than 100,000" if examples > MANY else "5,000 to 100,000"
    reason = f"K: {examples:,} training examples are {which}, for which the paper takes K={top_k}"
    if preset.name not in paper_presets():
        top_k = max(1, top_k * preset.retrieve.top_k // 5000)
        reason += f"; preset {preset.name} has {preset.retrieve.top_k} where the paper has 5000, so K={top_k} here"
    if passages is not None and top_k > max(1, passages // examples):
        top_k = max(1, passages // examples)
        reason += (
            f". But the corpus has {passages:,} passages, so K={top_k}: all examples together retrieve no more "
            "than it has, so that retrieval still selects"
        )
    return f"retrieve.top_k={top_k}", f"{reason}."


def _query(words: float) -> tuple[str, str]:
    texts = f"Query: with a median of {words:.0f} words the texts are"
    if words > LONG_WORDS:
        return "retrieve.query=rake", f"{texts} long: their RAKE keywords are searched for (paper, section 3.1)."
    return "retrieve.query=full", f"{texts} short enough (up to {LONG_WORDS}) to search for them whole."


def _rho1(examples: int, preset: Preset) -> tuple[str, str]:
    rule = 999 if examples < FEW else 1 if examples > MANY else 19
    said = (
        f"rho1: for a task of this size the paper's small scale has rho1={rule} external batches for each internal one "
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
    """Return how often the examples are seen in the preset's steps."""
    return max(1, preset.train.steps // (rho1 + 1)) * preset.train.internal_batch / examples


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
