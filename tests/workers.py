"""Which tests stay in one process where slow tests run in parallel: xdist's own `loadgroup` fails with pytest 9.2."""

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).parents[1]


class Shared(LoadFileScheduling):
    """Hands out the tests of a file together, or of all files that share something."""

    def _split_scope(self, nodeid: str) -> str:
        return shared(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Shared | None:
    return Shared(config, log) if config.getoption("dist") == "loadfile" else None


@cache
def shared(file: str) -> str:
    """What a file's tests share with others': Elasticsearch, or the network of containers; else the file itself."""
    if re.search("elasticsearch_(url|root)", (ROOT / file).read_text()):  # fixtures
        return "elasticsearch"
    return "containers" if "/containers/" in file else file
