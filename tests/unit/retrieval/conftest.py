"""Fixtures that several modules share."""

from pathlib import Path

import pytest

from tests.searchable import cooking


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A store."""
    return str(tmp_path / "root")


@pytest.fixture
def made(root: str) -> tuple[str, str, str, str]:
    """What `cooking` makes in it."""
    return cooking(root)
