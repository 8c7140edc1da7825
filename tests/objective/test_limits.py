"""Limits of weights: by feature, slopes at them, steps within them, and their terms of the dual."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.objective.limits import UNLIMITED, Limits, cost, inside, sizes
from tests.windows import examples

INF = float("inf")
NAMED = Limits(0.0, INF, np.array([2, 5]), np.array([-1.0, -INF]), np.array([0.5, 0.0]))


def test_limits_of_features() -> None:
    low, high = NAMED.of(np.array([5, 0, 2, 9]))
    assert low.tolist() == [-INF, 0.0, -1.0, 0.0] and high.tolist() == [0.0, INF, 0.5, INF]
    assert NAMED.side == 1 and Limits(high=0.0).side == -1 and Limits(-1.0, 0.0).side == -1
    assert UNLIMITED.side == Limits(-1.0, 1.0).side == 0
    assert NAMED.exact and not NAMED.boxed and not Limits(0.0).exact and Limits(-1.0).boxed
    assert not NAMED.unlimited and UNLIMITED.unlimited and not Limits(0.0).unlimited
    assert NAMED.alike(np.array([2, 3])).tolist() == [False, True]
    assert not Limits(0.0, 1.0).alike(np.array([3])).any()
    some = NAMED.restricted(np.array([2, 4]))
    assert some.of(np.array([0, 1]))[0].tolist() == [-1.0, 0.0] and some.side == 0


@pytest.mark.parametrize("limits", [UNLIMITED, NAMED, Limits(-0.25, 3.0), Limits(high=0.0)])
def test_stored_and_in_words(limits: Limits) -> None:
    again = Limits.from_stored(limits.stored())
    ids = np.arange(8)
    np.testing.assert_array_equal(again.of(ids), limits.of(ids))
    assert (limits.stored() is None) == limits.unlimited == (limits.text == "")
    assert Limits(-0.25, 3.0).text == "-0.25 <= w_j <= 3" and Limits(high=0.0).text == "w_j <= 0"
    assert NAMED.text == "0 <= w_j, own limits of 2 features"


def test_slopes_and_weights_at_limits() -> None:
    ids, w = np.array([0, 1, 2, 2, 2, 5, 5]), np.array([0.0, 0.3, 0.5, -1.0, 0.2, 0.0, -2.0])
    slopes = np.array([3.0, 3.0, -3.0, 3.0, -3.0, -3.0, 3.0])
    assert NAMED.clamp(ids, slopes, w).tolist() == [0.0, 3.0, -1.0, 1.0, -3.0, 0.0, 3.0]
    assert NAMED.clamp(ids, -slopes, w).tolist() == [-3.0, -3.0, 3.0, -3.0, 3.0, 3.0, -3.0]
    assert NAMED.reached(ids, w).tolist() == [True, False, True, True, False, True, False]
    both = np.column_stack([slopes, -slopes])
    matrix = np.column_stack([w, w])
    expected = [NAMED.clamp(ids, one, w) for one in (slopes, -slopes)]
    np.testing.assert_array_equal(Limits.clamp(NAMED, ids, both, matrix).T, expected)
    out = NAMED.within(np.array([0, 2, 2, 5]), np.array([-0.1, 0.5 - 1e-16, -1.5, 1e-9]))
    assert out.tolist() == [0.0, 0.5, -1.0, 0.0]
    assert inside(np.array([0.49]), np.array([-1.0]), np.array([0.5])).tolist() == [0.49]
    assert sizes(np.array([-2.0, 2.0, 2.0]), np.array([0, 0, -1]), 1.0).tolist() == [2.0, 0.0, 2.0]


def test_steps_end_at_a_limit() -> None:
    ids, w = np.array([0, 2]), np.array([1.0, 0.0])
    assert NAMED.longest(ids, w, np.array([1.0, 0.0]), 2.0) == 2.0
    assert NAMED.longest(ids, w, np.array([-0.8, 0.1]), 2.0) == 1.25
    assert NAMED.longest(ids, w, np.array([0.0, 0.4]), 2.0) == 1.25
    assert NAMED.longest(ids, w, np.array([-1.0, 0.5]), 2.0) == 1.0
    assert UNLIMITED.longest(ids, w, np.array([-9.0, 9.0]), 2.0) == 2.0


@given(
    st.floats(-3, 3),
    st.floats(0.1, 3),
    st.floats(0, 2),
    st.sampled_from([0.0, 0.3]),
    st.floats(0.1, 4),
)
@examples(200)
def test_the_cost_is_the_largest_gain_within_the_limits(
    price: float, f: float, most: float, ridge: float, level: float
) -> None:
    """max_w  size f w - level f w - ridge f w^2 / 2 over 0 <= w <= most."""
    w = np.linspace(0.0, most, 10_001)
    gain = f * ((abs(price) - level) * w - 0.5 * ridge * w**2)
    found: Any = cost(np.array([abs(price) - level]), f, np.array([most]), ridge)
    assert found[0] >= gain.max() - 1e-12
    assert found[0] == pytest.approx(gain.max(), abs=1e-6)
    if ridge > 0.0:
        endless = cost(np.array([abs(price) - level]), f, np.array([INF]), ridge)
        assert endless[0] == pytest.approx(f * max(0.0, abs(price) - level) ** 2 / (2.0 * ridge))
