"""The step `baseline`: tf-idf and a linear model, tuned on dev; the honest yardstick of every report."""

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.evaluation.score.record import scored

VERSION = 2


def baseline(task: str, *, seed: int = 0, root: str | None = None) -> str:
    """Score tf-idf with logistic regression (ridge for float targets) on a task.

    The features, the regularisation and the class weights are tuned on dev; the chosen model learned from the
    training examples only, as the others do; test is read once.

    Args:
        task: URI of the task.
        seed: Recorded beside the scores; the solvers are deterministic and draw nothing.
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
    model = tune(splits["train"], splits["dev"], task.details["metric"], task.details["labels"])
    predictions = [model.predict(splits[name]) for name in ("dev", "test")]
    identity = {"arm": "baseline", "seed": seed, "stage": "baseline", "mlm_loss": None}
    write_metrics(draft, task, predictions, identity, {"chosen": model.chosen, "tried": model.tried, "cost": {}})
