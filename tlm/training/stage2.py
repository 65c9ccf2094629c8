"""The step `finetune`: stage 2, the classifier alone (paper, section 3.3). It is imported without torch."""

from tlm import presets
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.home import home
from tlm.artifacts.produce import Draft, Recipe
from tlm.errors import InputError, refuse_negative
from tlm.retrieval.subset.protected import warn_of
from tlm.training.distributed.launch import place, train_together
from tlm.training.input.tokenize import tokens_for

VERSION = 3


def finetune(
    checkpoint: str,
    task: str,
    *,
    preset: str,
    overrides: list[str] = (),  # type: ignore[assignment]
    seed: int = -1,
    device: str = "auto",
    save_steps: int = 0,
    save_minutes: float = 5.0,
    gpus: int = -1,
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
        device: Where to compute: auto, cpu, cuda or cuda:N, mps.
        save_steps: Save the state every so many steps; 0: not by steps.
        save_minutes: Save the state every so many minutes, first after one; 0: not by time.
        gpus: How many GPUs of this machine to train on at most; fewer are an error. Each takes 32 rows of a batch or
            more. 0: the CPU; -1: all of them, or the CPU.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    device = place(device, gpus)
    arguments = dict(locals())
    start, examples = Artifact.open(checkpoint, "checkpoint"), trainable(task)
    settings = presets.resolve(preset, overrides).finetune
    if seed < -1:
        raise InputError(f"seed is {seed}; expected -1 or more")
    refuse_negative(save_steps=save_steps, save_minutes=save_minutes)
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

        snapshots = Snapshots(recipe, root, save_steps, save_minutes, draft.spending)
        fine_tune(draft, recipe, settings, device, snapshots)
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
