"""The t quantile of the report against scipy's."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tlm.evaluation.score.intervals import t_quantile


@settings(deadline=None)
@given(st.floats(0.01, 0.9999), st.integers(1, 300))
def test_it_is_scipy_s(confidence, degrees):
    assert t_quantile(confidence, degrees) == pytest.approx(stats.t.ppf((1 + confidence) / 2, degrees), rel=1e-9)
