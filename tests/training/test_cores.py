"""The cores of a container, on trees of files as kernels show them."""

import os
from pathlib import Path

import pytest

from tlm.training.cores import cores

MANY = 64


@pytest.fixture(autouse=True)
def many(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(MANY)), raising=False)


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return folder


V1 = "12:memory:/kubepods/pod1/c1\n4:cpu,cpuacct:/kubepods/pod1/c1\n0::/"
PERIOD = {"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, MANY),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, MANY),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "400000 100000"}, 4),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"}, 2),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "5000 100000"}, 1),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "nonsense"}, MANY),
        # a group's limit stands above it, and the group's own path is the host's
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "300000 100000"}, 3),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/cpu.max": "600000 100000"}, 6),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
                "sys/fs/cgroup/a/cpu.max": "700000 100000",
                "sys/fs/cgroup/cpu.max": "800000 100000",
            },
            7,
        ),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", **PERIOD}, MANY),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000", **PERIOD}, 3),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu/kubepods/pod1/c1/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/kubepods/pod1/c1/cpu.cfs_period_us": "50000",
            },
            4,
        ),
    ],
)
def test_the_smallest_limit_counts(tmp_path, files, expected):
    assert cores(tree(tmp_path, files)) == expected


def test_affinity_counts_too(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "400000 100000"}
    assert cores(tree(tmp_path, files)) == 2


def test_this_machine_has_cores():
    assert 1 <= cores() <= MANY


def test_training_takes_no_more_threads_than_there_are_cores(monkeypatch):
    torch = pytest.importorskip("torch")
    from tlm.training import device

    before = torch.get_num_threads()
    torch.set_num_threads(5)
    monkeypatch.setattr(device, "cores", lambda: 3)
    monkeypatch.delenv("TLM_THREADS", raising=False)
    try:
        device.resolve_device("cpu")
        assert torch.get_num_threads() == 3
        monkeypatch.setenv("TLM_THREADS", "4")
        device.resolve_device("cpu")
        assert torch.get_num_threads() == 4
        monkeypatch.delenv("TLM_THREADS")
        torch.set_num_threads(2)
        device.resolve_device("cpu")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
