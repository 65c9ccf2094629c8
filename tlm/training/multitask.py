"""The step `train-multitask`: one stage 1 for several tasks (the paper's stated future work).

The tasks share a subset (`merge-subsets`), the encoder and the head that predicts tokens; each has a classification
head of its own. The mixture is that of one task: rho1 external batches go before each internal one, and the internal
batches go round the tasks in turn. So a run of n·S steps gives each task exactly the internal batches that its own run
of S steps would give it: what n runs alone spend, one run spends together, and no task is weighted by its size.
"""

from tlm import presets
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.home import home
from tlm.artifacts.produce import Draft, Recipe
from tlm.errors import InputError
from tlm.training.distributed.launch import Command, train_together
from tlm.training.input.tokenize import tokenize
from tlm.training.joint import check_numbers, checkpoint_recipe

VERSION = 2
ARM = "multi-task"


def train_multitask(
    tasks: list[str],
    *,
    tokenizer: str,
    subset: str = "",
    preset: str = "pocket",
    overrides: list[str] = (),  # type: ignore[assignment]
    seed: int = 0,
    device: str = "auto",
    save_steps: int = 0,
    save_minutes: float = 5.0,
    gpus: int = 0,
    root: str | None = None,
) -> str:
    """Train one encoder from scratch for several tasks together, with a classification head for each (stage 1).

    Internal batches go round the tasks in turn. `finetune` then takes the checkpoint for any of the tasks, or for
    another one. Saves its state while it works, also on SIGTERM and Ctrl-C, and goes on from there when it is repeated.

    Args:
        tasks: URIs of the tasks.
        tokenizer: URI of the tokenizer.
        subset: URI of the subset, merged of the tasks' own; without one the tasks' own texts are all there is.
        preset: Named settings; `tlm show` lists them. Their steps are those of all tasks together.
        overrides: Settings to change, such as train.steps=10000.
        seed: For weights, order, masks and dropout.
        device: Where to compute: auto, cpu, cuda or cuda:N, mps.
        save_steps: Save the state every so many steps; 0: not by steps.
        save_minutes: Save the state every so many minutes; 0: not by time.
        gpus: How many GPUs of this machine to train on; fewer are an error. 0: all that there are, or the CPU.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    given = {**locals(), "tasks": list(tasks)}
    check_numbers(seed=seed, save_steps=save_steps, save_minutes=save_minutes, gpus=gpus)
    root = home(root, [Artifact.open(uri, "task") for uri in tasks]).root
    names = _names(tasks)
    alone = checkpoint_recipe(tasks[0], tokenizer, subset, preset, overrides, seed, root)
    inputs = dict(alone.inputs)
    for number, uri in enumerate(tasks[1:], start=1):
        inputs[f"task-{number}"] = Artifact.open(uri, "task")
        inputs[f"task_tokens-{number}"] = Artifact.open(tokenize(uri, tokenizer, root=root))
    recipe = Recipe("checkpoint", "train-multitask", VERSION, {**alone.settings, "arm": ARM}, inputs)

    def write(draft: Draft) -> None:
        from tlm.training import multitask_stage1
        from tlm.training.checkpoint import Snapshots

        snapshots = Snapshots(recipe, root, save_steps, save_minutes, draft.spending)
        facts = {"arm": ARM, "seed": seed}
        multitask_stage1.write(draft, inputs, names, presets.resolve(preset, overrides), facts, device, snapshots)
        draft.run |= presets.named(preset, overrides)

    return train_together(recipe, root, write, Command("tlm.training.multitask:train_multitask", given))


def _names(tasks: list[str]) -> list[str]:
    """The tasks' names. Raises InputError where there is none, or two have one name."""
    if not tasks:
        raise InputError("no task is given; expected the URIs of the tasks to train for")
    names: list[str] = []
    for uri in tasks:
        task = Artifact.open(uri, "task")
        name = str(task.details["name"])
        if name in names:
            raise InputError(
                f"{tasks[names.index(name)]} and {uri} are both called '{name}'; give each task once, by its own name"
            )
        names.append(name)
        if not task.counts["train"]:
            raise InputError(f"{uri} has no train examples; stage 1 needs them, give load-task such a file")
    return names
