"""The plan: everything checked before any work, arms × seeds as flat strings."""

import pytest

from tlm.errors import InputError
from tlm.plan import Run, plan


def test_arms_times_seeds() -> None:
    planned = plan("pocket", arms="random, bm25", seeds="0,7")
    assert planned.runs == ["random:0", "bm25:0", "random:7", "bm25:7"]


def test_overrides_reach_the_flat_values() -> None:
    planned = plan("pocket", overrides=["retrieve.top_k=7", "tokenizer.vocab_size=123"])
    assert (planned.top_k, planned.vocab_size) == (7, 123)


def test_a_run_is_written_and_read() -> None:
    run = Run.parse("task-only:3")
    assert (str(run), run.subset("a", "b")) == ("task-only:3", "")
    assert Run.parse("bm25:0").subset("a", "b") == "a"
    assert Run.parse("random:0").subset("a", "b") == "b"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"arms": "bm52"}, "arms: 'bm52' is no arm; did you mean 'bm25'?"),
        ({"arms": ""}, "arms: '' names none"),
        ({"seeds": "0,0"}, "seeds: '0,0' names none, or one twice"),
        ({"seeds": "-1"}, "seeds: '-1' is no whole number"),
    ],
)
def test_what_is_wrong_is_one_sentence(wrong: dict[str, str], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        plan("pocket", **wrong)
    assert str(error.value).startswith(sentence)
