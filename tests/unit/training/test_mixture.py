"""Which steps are internal: exact counts, the paper's among them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlm.training.input.batches import Interleaving


@pytest.mark.parametrize(
    ("rho1", "steps", "internal"),
    [
        (999, 150_000, 150),  # ACL-ARC, SciERC, ChemProt, small scale
        (1, 100_000, 50_000),  # AGNews
        (99, 50_000, 500),  # HyperPartisan
        (19, 150_000, 7_500),  # IMDB
        (3, 100_000, 25_000),  # RCT
        (499, 300_000, 600),  # HyperPartisan, large scale
        (0, 1000, 1000),
        ("inf", 1000, 0),
        (999, 999, 0),
    ],
)
def test_counts_of_table_b1(rho1, steps, internal):
    mixture = Interleaving(rho1)
    assert mixture.internal_before(steps) == internal
    assert sum(map(mixture.is_internal, range(steps))) == internal


def test_the_internal_step_comes_after_rho1_external_ones():
    assert [Interleaving(2).is_internal(step) for step in range(7)] == [False, False, True, False, False, True, False]


@given(st.one_of(st.integers(0, 50), st.just("inf")), st.integers(0, 300))
def test_each_kind_takes_its_batches_one_after_another(rho1, steps):
    mixture = Interleaving(rho1)
    for kind in (True, False):
        own = [step for step in range(steps) if mixture.is_internal(step) == kind]
        assert [mixture.index(step) for step in own] == list(range(len(own)))
    assert mixture.internal_before(steps) == sum(map(mixture.is_internal, range(steps)))
