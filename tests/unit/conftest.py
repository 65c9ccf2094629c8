"""Fixtures that several modules share: each is made once a session."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.evaluation.test_mix import Store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> "Store":
    """A task with classes, and models of each kind for it."""
    from tests.unit.evaluation.test_mix import Store

    return Store(tmp_path_factory.mktemp("store"), seeds=(1, 2))


@pytest.fixture(scope="session")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> "Store":
    """A task with numbers to predict, and models without a network for it."""
    from tests.unit.evaluation.test_mix import Store

    return Store(tmp_path_factory.mktemp("numbers"), numbers=True)
