"""Weights that are multiples of a step."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fcl.features.steps import common_step, in_steps

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
    rounded = in_steps(weights, step)
    assert (np.abs(rounded - weights) <= step / 2.0).all()
    assert common_step(rounded) >= step or not rounded.any()
