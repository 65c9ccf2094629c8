"""Energy from counters that wrap around, money from prices, and the picture of score against compute."""

import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.score_and_compute import Point, score_against_compute
from tlm.artifacts import spending
from tlm.artifacts.spending import Counter, Spending, nvml, rapl
from tlm.evaluation.report.runs import Spent, total
from tlm.settings.options import Prices

SPAN = 262_143_328_850  # microjoules, as processors have it


def zone(powercap: Path, name: str, label: str, microjoules: int, span: int = SPAN) -> Path:
    folder = powercap / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{label}\n")
    (folder / "max_energy_range_uj").write_text(f"{span}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    return folder / "energy_uj"


def used(energy: Spending, kind: str) -> float | None:
    """The joules, or None where they are not known."""
    joules, unmeasured = energy.joules()[f"{kind}_joules"]
    return None if unmeasured else joules


def test_packages_and_their_memory_count_but_their_parts_do_not(tmp_path):
    files = [
        zone(tmp_path, name, label, 10_000_000)
        for name, label in [
            ("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:0:1", "dram"),
            ("intel-rapl:1", "package-1"), ("intel-rapl:2", "psys"),
        ]
    ]  # fmt: skip
    (tmp_path / "intel-rapl").mkdir()
    with Spending(rapl(tmp_path)) as energy:
        for file, joules in zip(files, (5, 4, 2, 3, 100), strict=True):
            file.write_text(str((10 + joules) * 1_000_000))
    assert used(energy, "cpu") == pytest.approx(5 + 2 + 3)
    assert used(energy, "gpu") is None


@given(st.integers(1, 10**6), st.lists(st.floats(0, 0.999), min_size=1, max_size=20), st.floats(0, 0.999))
def test_a_counter_that_wraps_around_loses_nothing(span, steps, start):
    """Whatever is used between two looks, as long as it is less than a whole round."""
    value = start * span
    counter = Counter("cpu_joules", lambda: value, float(span))
    counter.sample()
    for step in steps:
        value = (value + step * span) % span
        counter.sample()
    assert counter.total == pytest.approx(sum(steps) * span, rel=1e-6, abs=1e-6 * span)


def test_long_work_is_looked_at_in_between():
    """Two rounds of the counter within one block: only samples on the way can tell."""
    values, looks = iter([0.0, 0.6, 0.2, 0.8, 0.4]), []

    def read() -> float:
        looks.append(next(values, 0.4))
        return looks[-1]

    with Spending([Counter("cpu_joules", read, 1.0)], every=0.001) as energy:
        while len(looks) < 5:
            time.sleep(0.001)
    assert used(energy, "cpu") == pytest.approx(2.4)


def test_a_machine_that_does_not_tell(tmp_path):
    assert rapl(tmp_path / "absent") == []
    with Spending([]) as energy:
        pass
    assert used(energy, "cpu") is used(energy, "gpu") is None


@pytest.mark.parametrize(("worker", "spent"), [("cpu_seconds", 4.0), ("gpu_seconds", 20.0)])
def test_cpu_time_is_what_was_computed_and_gpu_time_what_went_by(
    monkeypatch: pytest.MonkeyPatch, worker: str, spent: float
) -> None:
    clock = SimpleNamespace(monotonic=lambda: 100.0, process_time=lambda: 7.0)
    monkeypatch.setattr(spending, "time", clock)
    of_two = Spending([])
    of_two.workers = {worker: 2}
    clock.monotonic, clock.process_time = lambda: 110.0, lambda: 9.0
    facts = of_two.facts()
    assert (facts["seconds"], facts[worker]) == (10.0, spent)


def test_a_package_that_vanishes_leaves_no_partial_sum(tmp_path):
    files = [zone(tmp_path, f"intel-rapl:{number}", f"package-{number}", 5) for number in (0, 1)]
    with Spending(rapl(tmp_path)) as energy:
        files[0].unlink()
        files[1].write_text("3000005")
    assert used(energy, "cpu") is None


def test_an_unreadable_zone_is_left_out(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0", 5)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("")
    with Spending(rapl(tmp_path)) as energy:
        pass
    assert used(energy, "cpu") is used(energy, "gpu") is None


def test_an_error_in_the_work_is_not_swallowed(tmp_path):
    energy = Spending(rapl(tmp_path))
    with pytest.raises(ZeroDivisionError), energy:
        _ = 1 / 0
    assert used(energy, "cpu") is used(energy, "gpu") is None


class StandInForNvml(ModuleType):
    """A stand-in for the package nvidia-ml-py: two GPUs that count, and one too old to."""

    class NVMLError(Exception):
        """As the library's."""

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.millijoules = {0: 1_000, 1: 50_000}

    def nvmlInit(self) -> None:
        """Nothing to do."""

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index > 2:
            raise self.NVMLError("invalid argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return {"GPU-b": 1}[uuid]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if handle not in self.millijoules:
            raise self.NVMLError("not supported")
        return self.millijoules[handle]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, 10.0), ("0", 7.0), ("GPU-b", 3.0), ("1,0", 10.0), ("", None), ("2", None), ("7,1", 3.0)],
)
def test_gpus_that_may_be_used_are_counted(visible, expected, monkeypatch):
    standin = StandInForNvml()
    monkeypatch.setitem(sys.modules, "pynvml", standin)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with Spending(nvml()) as energy:
        standin.millijoules = {0: 8_000, 1: 53_000}
    assert used(energy, "gpu") == (None if expected is None else pytest.approx(expected))
    assert used(energy, "cpu") is None


def test_no_driver_is_no_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it fails
    assert nvml() == []


# ---- cost


COUNTED = {"tokens": 10, "padded_tokens": 20, "flops": 100, "paper_flops": 120, "steps": 3}


def test_cost_of_a_stage_on_cpu_and_gpu():
    cpu = Spent.of_stage(COUNTED, {"seconds": 7200.0, "cpu_seconds": 14400.0, "cpu_joules": 3.6e6})
    assert (cpu.seconds, cpu.cpu_seconds, cpu.gpu_seconds, cpu.joules) == (7200, 14400, None, 3.6e6)
    assert cpu.money(Prices(gpu_hour=9, cpu_hour=0.05, kilowatt_hour=0.3)) == pytest.approx(4 * 0.05 + 0.3)
    gpu = Spent.of_stage(COUNTED, {"seconds": 1800.0, "gpu_seconds": 7200.0})
    assert (gpu.gpu_seconds, gpu.cpu_seconds, gpu.joules) == (7200, None, None)
    assert gpu.money(Prices(gpu_hour=2.5)) == pytest.approx(5)
    assert gpu.money(Prices(gpu_hour=2.5, kilowatt_hour=0.3)) is None  # energy has a price and nobody measured it
    both = total([cpu, gpu])
    assert (both.flops, both.tokens, both.seconds) == (200, 20, 9000)
    assert (both.gpu_seconds, both.cpu_seconds, both.joules) == (7200, 14400, None)


def test_cost_of_attempts_on_different_machines():
    told = {"seconds": 90.0, "gpu_seconds": 240.0, "cpu_seconds": 60.0, "gpu_joules": 5.0, "cpu_joules": 1.0}
    both = Spent.of_stage(COUNTED, told)
    assert (both.seconds, both.gpu_seconds, both.cpu_seconds, both.joules) == (90, 240, 60, 6)


def test_what_was_measured_in_part_is_not_taken_for_the_whole():
    part = {"gpu_seconds_at_least": 240.0, "seconds_at_least": 60.0, "gpu_joules": 5.0, "cpu_joules_at_least": 1.0}
    cost = Spent.of_stage(COUNTED, part)
    assert cost.seconds is cost.gpu_seconds is cost.cpu_seconds is cost.joules is None


@pytest.mark.parametrize("gpu", [{"gpu_seconds": 3600.0}, {"gpu_seconds_at_least": 9.0}, {"device": "cuda:0"}])
def test_energy_of_work_on_gpus_is_unknown_where_they_do_not_tell(gpu):
    """Without NVML there is the CPU's energy alone, a small part of it."""
    told = {"seconds": 3600.0, "cpu_joules": 3.6e5, **gpu}
    assert Spent.of_stage(COUNTED, told).joules is None
    assert Spent.of_stage(COUNTED, {**told, "gpu_joules": 2e7}).joules == 2.036e7
    assert Spent.of_stage(COUNTED, told).grams(Prices(grams_per_kwh=380)) is None


def test_what_was_not_measured_stays_unknown():
    nothing = Spent.of_stage(COUNTED, {})
    assert nothing.flops == 100
    assert nothing.seconds is nothing.gpu_seconds is nothing.cpu_seconds is None
    assert nothing.money(Prices(gpu_hour=1)) is None
    known = Spent.of_stage(COUNTED, {"seconds": 10.0, "cpu_seconds": 10.0})
    assert total([known, nothing]).cpu_seconds is None
    assert total([]) == Spent()


def test_score_against_compute_names_every_point():
    published = [Point("BERT-Base", 2.79e19, [83.46]), Point("TLM small", 2.74e18, [83.78], "paper")]
    ours = [Point("bm25 $x$", 1e13, [60.0, 62.0], "bm25")]
    drawn = score_against_compute(ours, published, "macro-F1")
    for name in ("BERT-Base", "TLM small", "bm25 $x$", "10¹⁹", "macro-F1"):
        assert name in drawn
    assert drawn == score_against_compute(ours, published, "macro-F1")
    assert "var(--bm25)" in drawn
    assert ours[0].score == 61
