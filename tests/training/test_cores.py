"""The threads of training, within the CPUs that this process may use."""

import os

import pytest


def test_training_takes_no_more_threads_than_there_are_cores(monkeypatch):
    torch = pytest.importorskip("torch")
    from tlm.training import device

    before = torch.get_num_threads()
    torch.set_num_threads(5)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "3")
    monkeypatch.delenv("TLM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
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
