"""The score by which stage 2 chooses its best weights on dev."""

from typing import Any

from numpy.typing import NDArray


def dev_score(metric: str, gold: NDArray[Any], logits: NDArray[Any]) -> float:
    """The task's metric of logits [n, labels] against class ordinals or targets [n]; 0 where it is not defined.

    Args:
        metric: ``macro_f1``, ``micro_f1``, ``accuracy``, ``matthews``, ``pearson`` or ``spearman``.
        gold: What is right, [n].
        logits: Of the classes, or the predicted value in one column.
    """
    if metric in ("pearson", "spearman"):
        return _correlation(metric, gold, logits[:, 0])
    from sklearn import metrics

    predicted = logits.argmax(axis=1)
    if metric == "matthews":
        return float(metrics.matthews_corrcoef(gold, predicted))
    if metric == "accuracy":
        return float(metrics.accuracy_score(gold, predicted))
    return float(metrics.f1_score(gold, predicted, average=metric.removesuffix("_f1"), zero_division=0))


def _correlation(metric: str, gold: NDArray[Any], predicted: NDArray[Any]) -> float:
    from scipy import stats

    if len(gold) < 2 or gold.min() == gold.max() or predicted.min() == predicted.max():
        return 0.0
    return float((stats.pearsonr if metric == "pearson" else stats.spearmanr)(gold, predicted).statistic)
