"""The step `baseline`: tf-idf and a linear model, tuned on dev; every report compares with it."""

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.evaluation.score.record import scored

VERSION = 3


def baseline(task: str, *, seed: int = 0, root: str | None = None) -> str:
    """Score tf-idf with logistic regression (ridge for float targets) on a task.

    Features, regularisation and class weights are tuned on dev. Like the other models, the chosen one is trained on
    the training examples only. Test is read once.

    Args:
        task: URI of the task.
        seed: Recorded with the scores; it has no effect, because the solvers are deterministic.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    examples = Artifact.open(task, "task")
    recipe = Recipe(
        "metrics", "baseline", VERSION, settings={"seed": seed, **scored(examples)}, inputs={"task": examples}
    )
    return produce(recipe, root, lambda draft: _write(draft, examples, seed))


def _write(draft: Draft, task: Artifact, seed: int) -> None:
    from tlm.evaluation.score.examples import read_splits
    from tlm.evaluation.score.record import write_metrics
    from tlm.evaluation.score.tfidf import tune

    splits = read_splits(task, "train", "dev", "test")
    model, tried = tune(splits["train"], splits["dev"], task.details["metric"], task.details["labels"])
    predictions = [model.predict(splits[name]) for name in ("dev", "test")]
    identity = {"arm": "baseline", "seed": seed, "stage": "baseline", "mlm_loss": None}
    write_metrics(draft, task, predictions, identity, {"chosen": model.setting.describe(), "tried": tried, "cost": {}})
