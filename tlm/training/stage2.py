"""The step `finetune`: stage 2, the classifier alone (paper, section 3.3). It is imported without torch."""

from tlm.artifacts.artifact import Artifact, home
from tlm.artifacts.produce import Draft, Recipe
from tlm.errors import InputError
from tlm.retrieval.subset.protected import warn_of
from tlm.settings import presets
from tlm.settings.options import Compute
from tlm.training.distributed.launch import train_together
from tlm.training.input.tokenize import tokens_for

VERSION = 3


def finetune(
    checkpoint: str,
    task: str,
    *,
    preset: str,
    overrides: list[str] = (),  # type: ignore[assignment]
    seed: int = -1,
    compute: Compute = Compute(),
    root: str | None = None,
) -> str:
    """Fine-tune a stage-1 checkpoint on the task alone and keep the weights that are best on dev (stage 2).

    Saves its state while it works, also on SIGTERM and Ctrl-C. Repeat the command to continue from there.

    Args:
        checkpoint: URI of the checkpoint.
        task: URI of the task.
        preset: Named settings, usually those of stage 1; `tlm show` lists them.
        overrides: Settings to change, such as finetune.lr=1e-4.
        seed: For the fresh head, order and dropout; -1: that of the checkpoint.
        compute: Where to train, and how often to save the state.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    arguments = dict(locals())
    start, examples = Artifact.open(checkpoint, "checkpoint"), trainable(task)
    settings = presets.resolve(preset, overrides).finetune
    if seed < -1:
        raise InputError(f"seed is {seed}; expected -1 or more")
    warn_of(start, examples)
    root = home(root, [start, examples]).root
    tokens = tokens_for(start, examples, root)
    facts = {"arm": start.details["arm"], "seed": start.details["seed"] if seed < 0 else seed}
    inputs = {"checkpoint": start, "task": examples, "task_tokens": tokens}
    own = settings.for_key({"epochs"} if settings.steps else ())
    recipe = Recipe("model", "finetune", VERSION, settings={**facts, "finetune": own}, inputs=inputs)

    def write(draft: Draft) -> None:
        from tlm.training.checkpoint import Snapshots
        from tlm.training.classification import fine_tune

        snapshots = Snapshots(recipe, root, compute, draft.spending)
        fine_tune(draft, recipe, settings, compute.place, snapshots)
        draft.run |= presets.named(preset, overrides)

    return train_together(recipe, root, write, finetune, arguments, settings.batch)


def trainable(task: str) -> Artifact:
    """Open a task. Raises InputError if it has no train or dev examples."""
    examples = Artifact.open(task, "task")
    for split in ("train", "dev"):
        if not examples.counts[split]:
            raise InputError(
                f"{examples.uri} has no {split} examples; stage 2 needs them, give load-task such a file or share"
            )
    return examples
