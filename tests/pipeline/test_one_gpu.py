"""The script for one GPU, rehearsed: the same program with a smaller preset, from files to kept results."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from research.paper.results import fault, read_results
from tests.tiny import write_tiny


@pytest.mark.slow
def test_three_arms_are_run_timed_and_kept(tmp_path: Path, run_module: Callable) -> None:
    write_tiny(tmp_path / "data")
    where = ["--corpus", "data/corpus.jsonl", "--task", "data/task", "--root", "store", "--results", "results"]
    done = run_module("research.benchmarks.one_gpu_mini", *where, "--rehearse", "--set", "corpus_source_field=source")
    for arm in ("task-only", "random", "bm25"):
        assert re.search(
            rf"^{arm}: \d+\.\d min on \S.*, macro-F1 \d+\.\d dev, \d+\.\d test$", done.stdout, re.MULTILINE
        )
    kept = read_results(tmp_path / "results")
    assert {one.key for one in kept} == {"baseline-task", "tiny-task-task-only", "tiny-task-random", "tiny-task-bm25"}
    assert [fault(one, str(tmp_path / "store")) for one in kept] == [""] * 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so_before_anything(tmp_path: Path, run_module: Callable) -> None:
    done = run_module("research.benchmarks.one_gpu_mini", "--corpus", "none", "--task", "none", code=2)
    assert done.stderr == "one_gpu_mini: torch sees no GPU; run it where there is one, or with --rehearse in small\n"
    assert list(tmp_path.iterdir()) == []
