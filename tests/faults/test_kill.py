"""Killed at any moment, told to end, or twice at once: what is begun again ends with the same bytes.

`make chaos PART=kill` tries more of each.
"""

from collections.abc import Iterator

import pytest

from tests.faults.chain import MAIN
from tests.faults.in_parts import killed_in_parts
from tests.faults.moments import told_within_a_library
from tests.faults.parts import kill
from tests.faults.tally import tally

pytestmark = pytest.mark.slow


def survived(outcomes: Iterator[str], at_least: int) -> None:
    found = tally("short", outcomes)
    assert found["survived"] == found["tried"]
    assert int(found["tried"]) >= at_least


@pytest.mark.parametrize("name", MAIN)
def test_sigkill_at_a_random_instant(chain, chance, name):
    survived(kill.at_instants(chain, name, 2, chance), 2)


def test_sigkill_of_a_corpus_in_parts(tmp_path, chance):
    survived(killed_in_parts(tmp_path, 3, chance), 1)


@pytest.mark.parametrize("name", ["load-corpus", "train", "finetune"])
def test_sigterm_at_a_random_instant(chain, chance, name):
    survived(kill.told_to_end(chain, name, 2, chance), 2)


def test_sigterm_is_not_taken_for_a_fault_of_a_library(chain):
    root = chain.root("load-task")
    ended = chain.run("load-task", root, told_within_a_library)
    assert (ended.code, ended.sentence) == (143, "tlm: stopped by SIGTERM; repeat the command to resume")
    assert chain.wrong("load-task", root, chain.run("load-task", root)) == ""


@pytest.mark.parametrize("name", ["load-corpus", "export", "train"])
def test_twice_at_once(chain, chance, name):
    survived(kill.twice(chain, name, 2, chance), 2)


def test_snapshots_written_twice_at_once(tmp_path):
    """What lists, writes and removes them may meet the other's removal at any point."""
    survived(kill.shared_snapshots(tmp_path, 20), 20)


@pytest.mark.parametrize(("name", "stride"), [("tokenize", 7), ("train", 29)])
def test_sigkill_before_operations_on_the_store(chain, chance, name, stride):
    survived(kill.at_operations(chain, name, stride=stride, first=chance.randrange(stride)), 5)


def test_sigkill_before_operations_of_a_resume(chain, chance):
    survived(kill.at_operations(chain, "finetune", resuming=True, stride=41, first=chance.randrange(41)), 3)
