"""An S3 server in trouble, in short: parts/s3.py tries more of it."""

import pytest

from tests.conftest import started
from tests.faults.cases.s3 import CASES
from tests.faults.parts.s3 import gone, raced, troubled
from tests.faults.storing import storing

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TLM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield from started(storing)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_wrong_setting_is_said_and_nothing_half_done_is_seen(ground, case):
    case(ground)


def test_with_trouble_on_the_way_all_is_stored(ground):
    troubled(ground, seed=1, seconds=5)


def test_while_a_server_is_killed_all_is_stored(ground):
    gone(ground, seed=1, seconds=3)


def test_of_writers_at_once_one_wins(ground):
    raced(ground, seed=1, writers=4, keys=8)
