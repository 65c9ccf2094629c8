"""A quality classifier: passages that a linear model takes for the task's texts rather than for the corpus's.

As the filters of DCLM (arXiv 2406.11794) and BETR (arXiv 2507.12466) do, but fitted to this one task.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from tlm.artifacts.artifact import Artifact
from tlm.data.passages import sample
from tlm.retrieval.select.features import Scores, counts, scores_of_all

BUCKETS = 1 << 18
OTHERS = 20_000  # passages of the corpus that stand for all


def classifier(corpus: Artifact, texts: Sequence[str], seed: int) -> Scores:
    """The log-odds that each passage is the task's; the passages that it is compared with are drawn by `seed`."""
    others = list(sample(corpus, OTHERS, seed))
    return scores_of_all(corpus, partial(log_odds, fitted(texts, others)), "scoring")


def fitted(texts: Sequence[str], others: Sequence[str]) -> LogisticRegression:
    """A model that tells the task's texts from others; both sides weigh the same."""
    labels = np.repeat([1, 0], [len(texts), len(others)])
    model = LogisticRegression(class_weight="balanced", max_iter=200)
    return model.fit(normalize(counts([*texts, *others], BUCKETS)), labels)


def log_odds(model: LogisticRegression, texts: Sequence[str]) -> Scores:
    """The model's score of each text."""
    if not texts:
        return np.zeros(0)
    found: Scores = model.decision_function(normalize(counts(texts, BUCKETS)))
    return found
