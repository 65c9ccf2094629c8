"""The gain of each lever of the training step: our own step beside the same one without it."""

from research.benchmarks.measure import compare, per_cpu_second
from research.benchmarks.row import Result, Row, against
from research.benchmarks.training_cpu import EXTERNAL, INTERNAL, SHAPES, Bench
from research.benchmarks.training_data import prepare
from research.benchmarks.without import WITHOUT

STEPS = {EXTERNAL: 24, INTERNAL: 48}


def run(quick: bool) -> list[Result]:
    """Tokens, padding left out, per CPU second, on the pocket model."""
    return [result for kind in STEPS for result in measure(kind, quick)]


def measure(kind: str, quick: bool) -> list[Result]:
    """Ours beside ours without each lever, on one kind of step."""
    from tlm.settings import presets

    shape = SHAPES[0]
    presets_of = [presets.resolve(shape.preset, [*shape.overrides, f"model.dropout={share}"]) for share in (0, 0.1)]
    material = prepare(quick, presets_of[0].tokenizer.vocab_size)
    plain, dropped = (Bench(material, preset, kind) for preset in presets_of)
    steps = STEPS[kind] // (6 if quick else 1)
    sides = {"ours": plain.ours(steps), "with a dropout of 0.1": dropped.ours(steps)}
    sides |= {name: plain.ours(steps, change) for name, change in WITHOUT.items()}
    measured = compare(sides, repeats=1 if quick else 5, warm_up=1)
    others = [name for name in sides if name != "ours"]
    return [against(kind, measured, name, per_cpu_second("tokens"), note=plain.told) for name in others]


ROW = Row(
    name="levers",
    stage="levers of the training step",
    against="the same step without each",
    target="for information",
    what="Our own optimizer steps at pocket scale, with one thread, compared with the same steps without one of "
    "these optimisations: texts of similar length share a batch; a batch is padded to its longest text; logits "
    "only where a token was masked; the last layer only where a head reads (a classifier that reads the mean "
    "of all positions needs them all); no dropout, as in the preset. Padding and the last layer do not change "
    "any loss (`tests/benchmarks/test_without.py`); texts come in random order in both cases.",
    run=run,
    packages=("torch", "numpy"),
)
