"""The model card that goes with a model."""

from typing import Any

_CARD = """---
library_name: transformers
pipeline_tag: text-classification
tags: [tlm, text-classification]
---
# {name}

A text {kind}, {origin}

## Use
```python
from transformers import pipeline

classify = pipeline("text-classification", model="<this folder>")
classify({example}, truncation=True, max_length={max_length})
```
Texts longer than {max_length} tokens are cut.{preparation}

## What it was trained on
- task: {name}, {train:,} training examples; {output}
- passages: {passages}
- seed {seed}
- stage 1: {stage1_steps:,} steps, {stage1_flops:.3g} FLOPs; stage 2: {steps:,} steps, {flops:.3g} FLOPs{taught}

## How good it is
{metric} on dev: {best:.4f}, after step {best_step:,} of stage 2. That is the best of {evaluations} scores, so somewhat
too high; the scores on test are in the `metrics` artifact of the run that made this model.

## Limits
It knows {knows}
else; on other kinds of text its probabilities mean little.
"""

_PREPARATION = """ The model was trained on texts that begin with the spans that they mark;
`tlm predict` prepares them so, and with `transformers` alone this does:
```python
MARKS = {marks}


def prepared(text):
    places = []
    for opening, closing in MARKS:
        start = text.find(opening)
        stop = text.find(closing, start + len(opening))
        if start >= 0 and stop >= 0:
            places.append((start, stop + len(closing)))
    if not places:
        return text
    first, last = min(start for start, _ in places), max(stop for _, stop in places)
    return f"{{text[first:last]}} . {{text}}"
```"""

_TAUGHT = """
- in stage 2, its labels were what a teacher ({teacher}) answered to the training texts and to {taught_passages:,}
  passages; it has its teacher's errors, too"""

_ARMS = {
    "bm25": "retrieved by BM25 with the training texts as queries",
    "random": "drawn at random from the corpus",
    "dsir": "drawn from the corpus so that their words are distributed as the training texts' (DSIR)",
    "classifier": "those of the corpus that a linear model takes for training texts",
    "dense": "retrieved with the training texts as queries, by the similarity of vectors",
    "hybrid": "retrieved with the training texts as queries, by BM25 and the similarity of vectors",
    "rerank": "retrieved by BM25, and of these the ones with most influence on the task's loss (ISS)",
    "multi-task": "retrieved by BM25 with the training texts of several tasks, which shared stage 1, as queries",
    "task-only": "none; stage 1 had the task's own texts alone",
    "plm": "none beside those of the published model",
    "plm-mlm": "none beside those of the published model and, in stage 1, the task's own",
    "plm-bm25": "those of the published model, and those retrieved by BM25 with the training texts as queries",
    "plm-random": "those of the published model, and some drawn at random from the corpus",
}
_TASK_S_TEXTS = "the language and the labels of the task's training texts, with their errors and biases, and nothing"
_ITS_TEXTS = "the labels of the task's training texts, and the language that the published model learned, and nothing"
_TLM = """trained from scratch by task-driven language modeling (TLM, Yao et al., arXiv 2111.04130): the
passages of a general corpus that matter to the task were retrieved, and a {architecture} model of {parameters:,}
parameters learned from them and from the task's own texts together (stage 1), then from the task alone (stage 2)."""
_PUBLISHED = """made of a published {architecture} model of {parameters:,} parameters, fine-tuned for the task
(stage 2){before}. What its pre-training cost is not counted here."""


def model_card(task: dict[str, Any], facts: dict[str, Any]) -> str:
    """The text of README.md.

    Args:
        task: Details of the task artifact, and ``train``: how many training examples.
        facts: What stage 2 knows: arm, seed, parameters, architecture, max_length, best, best_step,
            evaluations, steps, flops, stage1_steps, stage1_flops; marks, where spans are put first in each text; of a
            student, teacher and taught_passages.
    """
    classes = task["labels"]
    single = task["problem"] == "classification"
    published = facts["arm"].startswith("plm")
    marks = facts["marks"]
    before = "" if facts["arm"] == "plm" else " after it was trained on with more text (stage 1)"
    return _CARD.format(
        knows=_ITS_TEXTS if published else _TASK_S_TEXTS,
        origin=(_PUBLISHED if published else _TLM).format(before=before, **facts),
        name=task["name"],
        preparation=_PREPARATION.format(marks=[list(pair) for pair in marks]) if marks else "",
        train=task["train"],
        metric=task["metric"],
        kind="classifier" if single else "regressor",
        output=f"{len(classes)} classes: {', '.join(classes)}" if single else "the output is a number",
        example='{"text": "…", "text_pair": "…"}' if task["pair"] else '"…"',
        passages=_ARMS.get(facts["arm"], facts["arm"]),
        taught=_TAUGHT.format(**facts) if "teacher" in facts else "",
        **{name: value for name, value in facts.items() if name not in ("arm", "architecture", "parameters")},
    )
