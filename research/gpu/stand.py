"""The machine, the data and the sizes of a piece: those of a GPU, or toy sizes that rehearse it on a CPU."""

import os
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from research.benchmarks.training_cpu import Bench
from research.benchmarks.training_data import Material
from research.benchmarks.training_gpu import LINES, REHEARSAL
from research.gpu.pack import unpack
from tlm.errors import InputError
from tlm.runs.plan import PlannedRun
from tlm.settings import presets

Shape: TypeAlias = tuple[str, str, tuple[str, ...]]  # a model to measure: its name, preset and overrides
VOCABULARY = 30522  # of BERT-base; the tokenizer of the data is that of mini


class Stand:
    """What a piece works with.

    Attributes:
        device: The device's name, resolved.
        folder: Folder of the archives.
        rehearsal: Whether this is the CPU, at toy sizes: then numbers mean nothing.
    """

    def __init__(self, device: str, folder: str) -> None:
        """Raises InputError if there is no such device."""
        from tlm.training.device import resolve_device

        self.device, self.folder = resolve_device(device), folder
        self.rehearsal = self.device == "cpu"
        os.environ["TLM_BENCHMARK_ROOT"] = folder  # where `Material` finds tokens

    def runs(self, part: str) -> list[PlannedRun]:
        """The runs of a part; none where its archive is not here."""
        return unpack(part, self.folder)

    @cached_property
    def first(self) -> PlannedRun:
        """The first run of mini, whose text and task the measurements take."""
        found = self.runs("mini")
        if not found:
            raise InputError(f"{Path(self.folder) / 'mini.tar.xz'} is not here; make it with gpu-pack, and copy it")
        return found[0]

    def shape(self, name: str) -> Shape:
        """BERT-base or mini; a tiny model in a rehearsal."""
        return REHEARSAL if self.rehearsal else next(line for line in LINES if line[0] == name)

    def bench(self, shape: Shape, kind: str, *overrides: str, device: str = "") -> Bench:
        """One kind of step of a model, on this device or another one."""
        name, preset_name, changes = shape
        preset: Any = presets.resolve(preset_name, [*changes, *overrides])
        material = Material(self.first.task, self.first.tokenizer, self.first.subset, "SciERC and BM25's text for it")
        wide = VOCABULARY if name == "BERT-base" else 0
        return Bench(material, preset, kind, device or self.device, wide)
