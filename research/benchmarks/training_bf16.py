"""Optimizer steps in bf16 on a CPU: beside fp32, beside attention in bf16, and beside Hugging Face's `Trainer`."""

from unittest.mock import patch

from research.benchmarks.measure import compare, per_cpu_second, under
from research.benchmarks.row import NotMeasured, Result, Row, against, need
from research.benchmarks.training_cpu import EXTERNAL, STAGE2, TRAINER, Bench
from research.benchmarks.training_data import prepare

MINILM = (
    "model.architecture=bert", "model.layers=6", "model.hidden=384", "model.heads=12", "model.intermediate=1536",
)  # fmt: skip
SHAPES = (  # name, preset, overrides, vocabulary (0: the preset's), steps by kind
    ("pocket", "pocket", (), 0, {EXTERNAL: 40, STAGE2: 80}),
    ("MiniLM-L6", "adapt", MINILM, 30522, {EXTERNAL: 3, STAGE2: 8}),
)
FP32, HALF_ATTENTION = "fp32", "attention in bf16"


def run(quick: bool) -> list[Result]:
    """Tokens, padding left out, per CPU second."""
    import torch

    from tlm.training.device import has_bf16

    need("accelerate")
    if not has_bf16(torch.device("cpu")):
        raise NotMeasured("this CPU has neither AVX512-BF16 nor AMX")
    from tlm.settings import presets

    found = []
    for name, preset, overrides, vocabulary, steps_of in SHAPES[:1] if quick else SHAPES:
        half, single = (
            presets.resolve(preset, [*overrides, f"train.precision={one}", f"finetune.precision={one}"])
            for one in ("bf16", "fp32")
        )
        material = prepare(quick, vocabulary or half.tokenizer.vocab_size)
        for kind, steps in steps_of.items():
            stand, other = (Bench(material, one, kind, vocab_size=vocabulary) for one in (half, single))
            found += measure(f"{name}, {kind}", stand, other, max(1, steps // (8 if quick else 1)), quick)
    return found


def measure(label: str, half: Bench, single: Bench, steps: int, quick: bool) -> list[Result]:
    """Ours in bf16 beside the others, on one kind of step."""
    from tlm.training.model.encoder import OF_KIND, Tuning

    in_bf16 = under(lambda: patch.dict(OF_KIND, cpu=Tuning(half_attention=True)), half.ours(steps))
    sides = {"ours": half.ours(steps), FP32: single.ours(steps), HALF_ATTENTION: in_bf16, TRAINER: half.trainer(steps)}
    measured = compare(sides, repeats=2 if quick else 5, warm_up=1)
    others = [other for other in sides if other != "ours"]
    return [against(label, measured, other, per_cpu_second("tokens"), note=half.told) for other in others]


ROW = Row(
    name="training_bf16",
    stage="bf16 on a CPU",
    against="fp32; attention in bf16; Hugging Face Trainer in bf16",
    target="for information",
    what="Optimizer steps of both stages in bf16, which `precision=auto` chooses on a CPU with AVX512-BF16 or AMX, "
    "with one thread: beside the same steps in fp32; beside the same with attention in bf16, too, which we compute in "
    "fp32 because torch's kernel for bf16 is slow there; and beside Hugging Face's Trainer in bf16. "
    "The model called MiniLM-L6 has that shape and vocabulary, and random weights.",
    run=run,
    packages=("torch", "transformers", "accelerate", "numpy"),
)
