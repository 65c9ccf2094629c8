"""Elasticsearch in trouble, in short: parts/elastic.py tries more of it."""

import pytest

from tests.conftest import started
from tests.faults.cases.elastic import CASES
from tests.faults.parts.elastic import killed_while_filled, troubled
from tests.faults.searching import searching

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    yield from started(lambda: searching(str(tmp_path_factory.mktemp("root")), 600, 120))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_others_do_is_noticed_or_waited_out(ground, case):
    case(ground)


def test_with_trouble_on_the_way_the_same_is_indexed_and_found(ground):
    troubled(ground, seed=1)


def test_a_killed_server_loses_nothing(ground):
    killed_while_filled(ground, seed=4)  # started again at once, which takes seconds; others let it be away for 20
