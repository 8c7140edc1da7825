"""Weights that are multiples of a step."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fcl.features.steps import common_step, rounded_to, useful_step

FLOATS = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)


@given(st.lists(FLOATS, min_size=1, max_size=6))
def test_the_common_step_is_the_largest_that_divides_all_weights(values: list[float]) -> None:
    weights = np.array(values)
    step = common_step(weights)
    if not weights.any():
        assert step == 1.0
        return
    whole = [Fraction(value) / Fraction(step) for value in values]
    assert all(number.denominator == 1 for number in whole)
    assert any(number.numerator % 2 for number in whole)  # so twice the step does not divide them


@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=6),
    st.integers(-40, 10),
)
def test_rounded_weights_are_the_nearest_multiples(values: list[float], exponent: int) -> None:
    weights, step = np.array(values), 2.0**exponent
    rounded = rounded_to(weights, step)
    assert (np.abs(rounded - weights) <= step / 2.0).all()
    assert common_step(rounded) >= step or not rounded.any()


@given(st.lists(st.floats(-1e9, 1e9, allow_subnormal=False), min_size=1, max_size=20))
def test_sums_in_useful_steps_fit_in_32_bits(values: list[float]) -> None:
    weights = np.array(values)
    step = useful_step(weights)
    if not weights.any():
        assert step == 0.0
        return
    steps = np.abs(rounded_to(weights, step)) / step
    assert 2.0**30 - len(values) <= steps.sum() <= 2.0**31 + len(values)


def test_tiny_steps_leave_numbers_as_they_are() -> None:
    weights = np.array([1e300, -1.0, 1e-300])
    assert rounded_to(weights, common_step(weights)).tolist() == weights.tolist()
