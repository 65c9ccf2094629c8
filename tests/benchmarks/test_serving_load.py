"""The load test of `tlm serve`: what it sends, what it finds fault with, and a small one of a real server."""

import signal
from collections import Counter

import pytest

from research.benchmarks.hostile_bodies import ANSWER, KINDS, NOTHING, REFUSED, fault, hostile
from research.benchmarks.serving_load import CLIENTS, answer_to, ask, of_hostile, of_load, serving
from tests.toys_training import task
from tlm.artifacts.artifact import Artifact
from tlm.evaluation.score.baseline import baseline

GOOD = b'{"instances": ["court judge"]}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A linear model."""
    return Artifact.open(baseline(task(tmp_path_factory.mktemp("load")))).input("model").path("model")


def test_requests_are_of_every_kind_and_the_same_for_a_seed():
    sent = list(hostile(10 * len(KINDS), seed=1))
    assert sent == list(hostile(10 * len(KINDS), seed=1)) != list(hostile(10 * len(KINDS), seed=2))
    assert Counter(one.kind for one in sent) == dict.fromkeys(KINDS, 10)
    assert {one.owed for one in sent} == {ANSWER, REFUSED, NOTHING}


def answered(code: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d Said\r\ncontent-length: %d\r\n\r\n" % (code, len(body)) + body


@pytest.mark.parametrize(
    ("answer", "owed", "why"),
    [
        (answered(400, b'{"error":"the body is not JSON"}'), ANSWER, ""),
        (answered(200, b'{"predictions":[]}'), ANSWER, ""),
        (answered(400, b"Invalid HTTP request received."), REFUSED, ""),
        (b"", NOTHING, ""),
        (b"", ANSWER, "no HTTP"),
        (answered(500, b"Internal Server Error"), ANSWER, "500, not in JSON"),
        (answered(500, b'{"error":"the server failed"}'), ANSWER, "500"),
        (answered(400, b'{"error":"two\\nlines"}'), ANSWER, "no sentence"),
        (answered(400, b'{"error":""}'), ANSWER, "no sentence"),
        (answered(200, b'{"error":"no"}'), ANSWER, "200 without predictions"),
        (answered(200, b'{"predictions":[]}'), REFUSED, "200 for what is no request"),
        (answered(400, b"{}"), NOTHING, "an answer to nobody"),
    ],
)
def test_an_answer_that_is_not_what_was_owed_is_a_fault(answer: bytes, owed: str, why: str) -> None:
    found = fault(answer, owed)
    assert bool(found) == bool(why)
    assert why in found


def test_a_real_server_answers_whatever_was_sent_before(folder) -> None:
    with serving(folder) as (port, server):
        expected = ask(port, GOOD)
        found = [one for clients in CLIENTS for one in of_load(port, [(GOOD, expected)], clients, 128)]
        found += of_hostile(port, 10 * len(KINDS))
        assert [one.label for one in found if one.unit == "requests" and one.ours != 0] == []
        for one in hostile(len(KINDS), seed=3):
            assert fault(answer_to(port, one), one.owed) == "", one
            assert ask(port, GOOD) == expected, one
        wrong = of_load(port, [(GOOD, b"another answer")], 1, 8)[-1]
        assert (wrong.ours, wrong.verdict) == (8, "short")
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
