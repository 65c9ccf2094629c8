"""The step `finetune`: stage 2, the classifier alone (paper, section 3.3)."""

from tlm import presets
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.home import home
from tlm.artifacts.produce import Draft, Recipe
from tlm.errors import InputError
from tlm.training.distributed.launch import Command, train_together
from tlm.training.effective import finetune_settings
from tlm.training.input.tokenize import tokenize

VERSION = 2


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
    gpus: int = 0,
    root: str | None = None,
) -> str:
    """Fine-tune a stage-1 checkpoint on the task alone and keep the weights that are best on dev (stage 2).

    Saves its state while it works, also on SIGTERM and Ctrl-C, and goes on from there when it is repeated.

    Args:
        checkpoint: URI of the checkpoint.
        task: URI of the task.
        preset: Named settings, as a rule those of stage 1; `tlm show` lists them.
        overrides: Settings to change, such as finetune.lr=1e-4.
        seed: For the fresh head, order and dropout; -1: that of the checkpoint.
        device: Where to compute: auto, cpu, cuda or cuda:N, mps.
        save_steps: Save the state every so many steps; 0: not by steps.
        save_minutes: Save the state every so many minutes; 0: not by time.
        gpus: How many GPUs of this machine to train on; fewer are an error. 0: all that there are, or the CPU.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    given = dict(locals())
    start, examples = Artifact.open(checkpoint, "checkpoint"), Artifact.open(task, "task")
    settings = presets.resolve(preset, overrides).finetune
    numbers = {"seed": (seed, -1), "save_steps": (save_steps, 0), "save_minutes": (save_minutes, 0), "gpus": (gpus, 0)}
    for name, (value, least) in numbers.items():
        if value < least:
            raise InputError(f"{name} is {value}; expected {least} or more")
    for split in ("train", "dev"):
        if not examples.counts[split]:
            raise InputError(
                f"{examples.uri} has no {split} examples; stage 2 needs them, give load-task such a file or share"
            )
    root = home(root, [start, examples]).root
    tokenizer = start.input("task_tokens").input("tokenizer")
    tokens = Artifact.open(tokenize(examples.uri, tokenizer.uri, root=root))
    facts = {"arm": start.details["arm"], "seed": start.details["seed"] if seed < 0 else seed}
    inputs = {"checkpoint": start, "task": examples, "task_tokens": tokens}
    resolved = {**facts, "finetune": finetune_settings(settings)}
    recipe = Recipe("model", "finetune", VERSION, settings=resolved, inputs=inputs)

    def write(draft: Draft) -> None:
        from tlm.training import stage2
        from tlm.training.checkpoint import Snapshots

        snapshots = Snapshots(recipe, root, save_steps, save_minutes, draft.spending)
        stage2.write(draft, inputs, settings, facts, device, snapshots)
        draft.run |= presets.named(preset, overrides)

    return train_together(recipe, root, write, Command("tlm.training.finetune:finetune", given))
