"""What several tests of faults begin with."""

import os
import random

import pytest

from tests.faults.chain import MAIN, Chain

SEED = int(os.environ.get("TLM_TEST_SEED") or random.SystemRandom().randrange(1 << 32))


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """All steps of a run, done undisturbed."""
    pytest.importorskip("torch")
    return Chain(tmp_path_factory.mktemp("chain"), MAIN, "tiny")


@pytest.fixture
def chance() -> random.Random:
    """Seeded; the seed is printed, and can be given."""
    print(f"TLM_TEST_SEED={SEED}")
    return random.Random(SEED)
