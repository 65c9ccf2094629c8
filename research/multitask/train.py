"""The step `train-multitask`: stage 1 of one encoder for several tasks, with a classification head for each."""

from collections.abc import Sequence

from research.multitask.plan import TOGETHER
from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Draft, Recipe
from tlm.data.tasks.examples import one_label_each
from tlm.data.tasks.labelled import UNLABELLED
from tlm.errors import InputError
from tlm.retrieval.subset.protected import check_protected
from tlm.settings import presets
from tlm.settings.options import NOT_NEGATIVE, Compute
from tlm.training.distributed.launch import train_together
from tlm.training.input.tokenize import tokenize
from tlm.training.stages import VERSION, checkpoint_recipe, rows_of


def train_multitask(
    tasks: list[str],
    *,
    tokenizer: str,
    subset: str = "",
    preset: str = "pocket",
    overrides: Sequence[str] = (),
    seed: int = 0,
    compute: Compute = Compute(),
    root: str | None = None,
) -> str:
    """Train one encoder from scratch for several tasks together, with a classification head for each (stage 1).

    Internal batches take the tasks in turn. `finetune` then takes the checkpoint for any of the tasks, or for another
    one. Saves its state while it works, also on SIGTERM, SIGHUP and Ctrl-C. Repeat the command to continue from there.

    Args:
        tasks: URIs of the tasks.
        tokenizer: URI of the tokenizer.
        subset: URI of the subset, merged from the tasks' own. Without one, all steps train on the tasks' own texts.
        preset: Named settings; `tlm show` lists them. Their steps are those of all tasks together.
        overrides: A setting to change, such as train.steps=10000; may be repeated.
        seed: For weights, order, masks and dropout.
        compute: Where to train, and how often to save the state.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    arguments = {**locals(), "tasks": list(tasks)}
    NOT_NEGATIVE.check("seed", seed)
    settings, opened = presets.resolve(preset, overrides), [Artifact.open(uri, "task") for uri in tasks]
    root = home(root, opened).root
    _check_tasks(opened)
    alone = checkpoint_recipe(tasks[0], tokenizer, subset, settings, seed, root)
    inputs, how = dict(alone.inputs), alone.inputs["task_tokens"].manifest.settings
    if subset:
        check_protected(Artifact.open(subset, "subset"), *opened[1:])
    for number, task in enumerate(opened[1:], start=1):
        inputs[f"task-{number}"] = task
        inputs[f"task_tokens-{number}"] = Artifact.open(tokenize(task.uri, tokenizer, **how, root=root))
    recipe = Recipe("checkpoint", "train-multitask", VERSION, {**alone.settings, "arm": TOGETHER}, inputs)

    def write(draft: Draft) -> None:
        from research.multitask.joint import Together
        from tlm.training.joint import train_jointly

        train_jointly(draft, recipe, settings, compute, root, Together)
        draft.run |= presets.named(preset, overrides)

    return train_together(recipe, root, write, train_multitask, arguments, rows_of(recipe))


def _check_tasks(tasks: list[Artifact]) -> None:
    """Raise InputError where there is no task, two have the same name, or one has no training examples."""
    if not tasks:
        raise InputError("no task is given; expected the URIs of the tasks to train for")
    known: dict[str, str] = {}
    for task in tasks:
        name, uri = str(task.details["name"]), task.uri
        one_label_each(task, "train-multitask")
        if task.counts.get(UNLABELLED):
            raise InputError(f"{uri} has texts without labels, which train for one task alone; load it without them")
        if name in known:
            raise InputError(f"{known[name]} and {uri} are both called '{name}'; give each task once, by its own name")
        known[name] = uri
        if not task.counts["train"]:
            raise InputError(f"{uri} has no train examples; stage 1 needs them, give load-task such a file")
