"""Stage 1 on one GPU: ours, the authors' way, Hugging Face's `Trainer`; how much of the chip's peak is used.

``python -m research.benchmarks training_gpu`` measures all GPU rows in ten minutes. With ``--quick --device cpu`` the
same code runs in small where there is no GPU: a rehearsal, whose numbers mean nothing.
"""

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from research.benchmarks.measure import Measured, Side, compare, per_second, under
from research.benchmarks.row import NotMeasured, Result, Row, against, limit, need, not_measured
from research.benchmarks.training_cpu import AUTHORS, EXTERNAL, INTERNAL, TRAINER, Bench, finish
from research.benchmarks.training_data import prepare

FASTER, USED = 2.5, 40.0
PEAKS = (  # dense bf16 with fp32 sums, TFLOP/s, by a part of the device's name: data sheets of the maker
    ("B200", 2250.0), ("H200", 989.0), ("H100 PCIe", 756.0), ("H100", 989.0), ("A100", 312.0), ("L40S", 362.0),
    ("L40", 181.0), ("L4", 121.0), ("A10", 125.0), ("4090", 165.0), ("3090", 71.0),
)  # fmt: skip
LINES = (("BERT-base", "small", ("train.rho1=1",)), ("mini", "mini", ("train.rho1=1",)))
REHEARSAL = ("rehearsal", "tiny", ("train.rho1=1", "train.steps=64"))
STEPS = 20


def run(quick: bool) -> list[Result]:
    """Tokens per second, share of the peak, and how long the GPU waits for batches."""
    import torch

    need("accelerate")
    device = os.environ.get("TLM_BENCHMARK_DEVICE", "cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise NotMeasured("needs a GPU; `--quick --device cpu` rehearses it in small")
    from tlm.settings import presets
    from tlm.training.device import resolve_device

    shapes = (REHEARSAL,) if device == "cpu" else LINES[:1] if quick else LINES
    found = []
    for name, preset_name, changes in shapes:
        preset = presets.resolve(preset_name, changes)
        material = prepare(quick or device == "cpu", preset.tokenizer.vocab_size)
        for kind in (EXTERNAL, INTERNAL):
            found += lines(name, Bench(material, preset, kind, resolve_device(device)), quick or device == "cpu")
    return [without_verdict(result) for result in found] if device == "cpu" else found


def lines(name: str, stand: Bench, quick: bool) -> list[Result]:
    """One shape with one kind of batch."""
    steps = 4 if quick else STEPS
    label, tokens = f"{name}, {stand.kind}", per_second("tokens")

    def beside(other: str, theirs: Side) -> Measured:
        """The others may use cuDNN's attention; our training turns it off."""
        sides = {"ours": stand.ours(steps), other: under(cudnn_attention, theirs)}
        return compare(sides, repeats=2 if quick else 5, warm_up=1)

    measured = beside(AUTHORS, stand.authors(steps))
    least = FASTER if name == "BERT-base" else None
    found = [against(label, measured, AUTHORS, tokens, at_least=least, note=stand.told)]
    try:
        need("accelerate")
        found.append(against(label, beside(TRAINER, stand.trainer(steps)), TRAINER, tokens, note=stand.told))
    except Exception as error:  # which must not cost what is measured already
        found.append(not_measured(f"{label}, {TRAINER}", str(error).partition("\n")[0][:200]))
    return [*found, used(label, stand, measured), waiting(label, stand, measured, steps)]


@contextmanager
def cudnn_attention() -> Iterator[None]:
    """PyTorch's own choice of kernels, which our training restricts."""
    import torch

    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(False)


def used(label: str, stand: Bench, measured: Measured) -> Result:
    """Model FLOPs utilisation: operations that the model needs for real tokens, over what the chip could do."""
    per_token = stand.flops_per_token()
    rate = measured.spread("ours", per_second("tokens")).middle * per_token
    peak, source = peak_of(stand.device)
    share = 100 * rate / peak
    note = (
        f"{rate / 1e12:.3g} of {peak / 1e12:.3g} TFLOP/s ({source}); operations of both passes that the loss needs, on "
        "tokens without padding: no logits that are not looked at."
    )
    target = f"≥ {USED:g} %" if label.startswith("BERT-base, external") else ""
    verdict = "" if not target else "PASS" if share >= USED else "short"
    return Result(f"{label}: share of the peak", share, None, "%", None, target, verdict, note=note)


def waiting(label: str, stand: Bench, measured: Measured, steps: int) -> Result:
    """Host time that goes into making batches, as a share of the step: at 100 % the loader is what limits."""
    seconds = stand.seconds_per_batch()
    step = statistics.median(cost.wall for cost in measured.costs["ours"]) / steps
    note = f"{1000 * seconds:.2f} ms to make and mask a batch, {1000 * step:.2f} ms a step; the GPU works meanwhile."
    return limit(f"{label}: batches made, share of a step", 100 * seconds / step, "%", note=note)


def peak_of(device: Any) -> tuple[float, str]:
    """FLOP/s of bf16 products, and where the figure is from."""
    import torch

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    for part, peak in PEAKS:
        if part in name and device.type == "cuda":
            return peak * 1e12, f"data sheet of {name}"
    return largest_product(device), f"{name}: its rate in a large product, for want of a data sheet"


def largest_product(device: Any, size: int = 0) -> float:
    """FLOP/s of a square product in bf16 on a GPU, fp32 on a CPU."""
    import torch

    size = size or (8192 if device.type == "cuda" else 512)
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    left, right = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    best = 0.0
    for _ in range(5):
        finish(device)
        started = time.perf_counter()
        for _ in range(4):
            left @ right
        finish(device)
        best = max(best, 4 * 2 * size**3 / (time.perf_counter() - started))
    return best


def without_verdict(result: Result) -> Result:
    """A result of a rehearsal, which says so."""
    return replace(
        result, target="", verdict="", note=f"A rehearsal on the CPU: its numbers mean nothing. {result.note}"
    )


ROW = Row(
    name="training_gpu",
    stage="stage 1 on one GPU",
    against="the authors' way; Hugging Face Trainer",
    target=f"BERT-base {FASTER:g}× the authors' way; {USED:g} % of the bf16 peak",
    what="As on the CPU, but in bf16 and by wall time: BERT-base with batches of 256 texts of at most 128 tokens, "
    "and `mini`. The share of the peak counts operations on real tokens only, once forward and twice backward.",
    run=run,
    packages=("torch", "transformers", "accelerate", "numpy"),
    command="python -m research gpu",
)
