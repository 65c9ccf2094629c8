"""The plan: everything checked before any work, arms × seeds as flat strings."""

import pytest

from tlm.errors import InputError
from tlm.plan import Run, plan, settings

SOURCES = {
    "task": "/a b/task/1",
    "tokenizer": "s3://b/tokenizer/2",
    "bm25": "s3://b/subset/3",
    "random": "s3://b/subset/4",
    "preset": "pocket",
    "overrides": "train.rho1=4 train.steps=9",
}


def test_arms_times_seeds_each_with_its_subset() -> None:
    runs = [Run.parse(text) for text in plan("random, bm25,task-only", "0,7", **SOURCES)]
    assert [(run.arm, run.seed) for run in runs] == [
        (arm, seed) for seed in (0, 7) for arm in ("random", "bm25", "task-only")
    ]
    assert [run.subset for run in runs[:3]] == ["s3://b/subset/4", "s3://b/subset/3", ""]
    assert {(run.task, run.tokenizer, run.stages) for run in runs} == {("/a b/task/1", "s3://b/tokenizer/2", "12")}
    assert runs[0].settings() == {"preset": "pocket", "overrides": ["train.rho1=4", "train.steps=9"]}


def test_overrides_reach_the_flat_values() -> None:
    flat = settings("pocket", overrides=["retrieve.top_k=7", "tokenizer.vocab_size=123"])
    assert (flat.top_k, flat.vocab_size) == (7, 123)


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
        settings("pocket", **wrong)
    assert str(error.value).startswith(sentence)
