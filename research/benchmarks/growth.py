"""Growth of cost with documents, queries and K; with the length of texts, the number of steps and of seeds."""

import os
import shutil
from functools import partial

from research.benchmarks import growth_retrieval
from research.benchmarks.growth_retrieval import cpu_seconds
from research.benchmarks.measure import Side, child
from research.benchmarks.row import Result, Row, growth
from research.benchmarks.training_data import folder, prepare
from tlm.settings.options import Compute

LENGTHS = (32, 64, 128, 256, 512)
TOGETHER = 4  # steps that are timed together
STEPS = (100, 200, 400, 800, 1600)
SEEDS = (1, 2, 3, 4)


def run(quick: bool) -> list[Result]:
    """CPU seconds by size, with the exponent fitted."""
    repeats = 1 if quick else 5
    results = [*growth_retrieval.results(quick), by_length(LENGTHS[:3] if quick else LENGTHS, repeats)]
    material = prepare(quick)
    steps, seeds = ((20, 40), (1, 2)) if quick else (STEPS, SEEDS)
    axes = ("optimizer steps", "CPU seconds")
    note = "Pocket scale; the whole step `train` as a process: reading, training, writing."
    given = (material.task, material.tokenizer, material.subset)
    by_steps = {count: child(stage1, *given, count, 1) for count in steps}
    results.append(growth("steps", cpu_seconds(by_steps, repeats), axes, note=note))
    by_seeds = {count: child(stage1, *given, steps[0], count) for count in seeds}
    note = f"Stage 1 of {steps[0]} steps for each seed; tokens are shared. Seeds have nothing else in common."
    results.append(growth("seeds", cpu_seconds(by_seeds, repeats), ("seeds", "CPU seconds"), note=note))
    return results


def by_length(lengths: tuple[int, ...], repeats: int) -> Result:
    """A step on external texts of one length, pocket model, batches of 16."""
    sides = {length: step_side(length) for length in lengths}
    note = (
        "One optimizer step on 16 texts of full length, pocket model. Attention alone grows with the square; at these "
        "widths it is a small part."
    )
    points = [(length, seconds / TOGETHER) for length, seconds in cpu_seconds(sides, repeats)]
    return growth("text length", points, ("tokens of a text", "CPU seconds a step"), note=note)


def step_side(length: int) -> Side:
    """Some optimizer steps on random tokens, after one that is not counted."""
    import numpy as np
    import torch

    from tlm.settings import presets
    from tlm.training.checkpoint import AdamW
    from tlm.training.device import to_device
    from tlm.training.input.batches import MASK, Masking, collate, generator
    from tlm.training.input.texts import Ragged, Special, Texts
    from tlm.training.model import build
    from tlm.training.model.losses import external_loss

    preset = presets.resolve("pocket", [f"model.max_length={length}", f"train.external_length={length}"])
    special, vocabulary = Special(0, 1, 2, 3, 4), preset.tokenizer.vocab_size
    config = build.with_task(build.make_config(preset.model, vocabulary, special), ["a", "b"], "growth")
    model = build.build(config, seed=0)
    optimizer = AdamW(model, preset.train.weight_decay, preset.train.betas)
    words = np.random.default_rng(0).integers(5, vocabulary, (16, length))
    texts = Texts(Ragged(words.ravel(), np.arange(17) * length), None, length, special)
    masking = Masking(preset.train.mask_share, vocabulary, special)

    def steps(count: int) -> None:
        for step in range(count):
            batch = masking(collate(texts, np.arange(16)), generator(0, MASK, step))
            external_loss(model, to_device(batch, torch.device("cpu"))).total.backward()  # type: ignore[no-untyped-call]
            optimizer.step(1e-3)

    steps(1)
    return partial(steps, TOGETHER)


def stage1(task: str, tokenizer: str, subset: str, steps: int, seeds: int) -> None:
    """The step `train` for so many seeds that no run had before; what it makes is thrown away."""
    from tlm.training.stages import train

    root, given = str(folder() / "store"), [f"train.steps={steps}", "train.warmup_steps=10"]
    first = int.from_bytes(os.urandom(4))
    for seed in range(first, first + seeds):
        made = train(
            task,
            tokenizer=tokenizer,
            subset=subset,
            overrides=given,
            seed=seed,
            compute=Compute(device="cpu"),
            root=root,
        )
        shutil.rmtree(made)


ROW = Row(
    name="growth",
    stage="growth",
    against="work",
    target="exponent at most 1.1",
    what="CPU seconds against the amount of work, both on logarithmic axes: the slope is the exponent, and 1 means "
    "proportional. One thread.",
    run=run,
    packages=("torch", "numpy"),
)
