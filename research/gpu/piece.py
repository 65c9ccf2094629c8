"""What a piece of the hour keeps: its results, with all that is needed to repeat them."""

from datetime import UTC, datetime

from research.benchmarks.kept import Kept
from research.benchmarks.machine import machine, versions
from research.benchmarks.row import Result
from research.benchmarks.training_gpu import without_verdict
from tlm import __version__

PACKAGES = ("torch", "transformers", "accelerate", "numpy")


def piece(name: str, results: list[Result], device: str, commit: str) -> Kept:
    """Results of a piece; those of a rehearsal on the CPU say so."""
    import torch

    rehearsal = device == "cpu"
    card = {} if rehearsal else {"GPU": torch.cuda.get_device_name(device)}
    found = [without_verdict(result) for result in results] if rehearsal else results
    day, packages = datetime.now(UTC).date().isoformat(), {"tlm": __version__, **versions(PACKAGES)}
    return Kept(name, "python -m research gpu", day, commit, rehearsal, {**card, **machine()}, packages, found)
