"""exp and log of the kernels: against extended precision, at their edges, and in a loop as alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from fcl.kernels import elementary, losses
from fcl.kernels.compilation import kernel
from fcl.objective import find_loss
from tests.windows import examples

Floats = npt.NDArray[np.float64]
Long = np.longdouble
#: In units of the last place; without extended precision, the reference is rounded, too.
NEAR = 1.5 if np.finfo(Long).eps < 1e-18 else 3.0
FUNCTIONS: list[
    tuple[Callable[[float], float], Callable[[np.longdouble], np.longdouble], float]
] = [
    (elementary.exp_of_negative, np.exp, -700.0),
    (elementary.log1p_of_share, np.log1p, 1.0),
    (elementary.log_of_share, np.log, 1.0),
]


def _points(end: float) -> Floats:
    rng = np.random.default_rng(0)
    evenly = end * rng.random(4000)
    near = end * 2.0 ** -rng.uniform(0, 60, 4000)
    return np.concatenate([evenly, near, [end, 0.5 * end, 1e-300 * end]])


def test_errors_are_a_unit_in_the_last_place() -> None:
    for function, reference, end in FUNCTIONS:
        for x in _points(end):
            exact = reference(Long(x))
            unit = np.spacing(abs(np.float64(exact)))
            assert abs(Long(function(x)) - exact) <= NEAR * unit, (reference, x)


def test_edges() -> None:
    exp, log = elementary.exp_of_negative, elementary.log_of_share
    assert exp(0.0) == exp(-0.0) == 1.0 and exp(-math.inf) == exp(-709.0) == 0.0
    assert exp(-708.0) > 0.0 and math.isnan(exp(math.nan))
    assert elementary.log1p_of_share(0.0) == log(1.0) == 0.0
    assert math.isfinite(log(0.0)) and log(0.0) < -708.0 and math.isfinite(log(5e-324))
    assert elementary.negative_entropy(0.0) == elementary.negative_entropy(1.0) == 0.0


@given(st.floats(0.0, 1.0) | st.floats(0.0, 1.0).map(lambda a: a**40))
@examples(300)
def test_entropy_keeps_its_digits(a: float) -> None:
    x = Long(a)
    exact = (x * np.log(x) if a > 0.0 else x) + ((1 - x) * np.log1p(-x) if a < 1.0 else x - x)
    assert abs(Long(elementary.negative_entropy(a)) - exact) <= 1e-15 * abs(exact) + 1e-300


@kernel
def conjugates(loss, y, u, out):  # type: ignore[no-untyped-def]
    """Write the conjugate of each row."""
    for i in range(y.shape[0]):
        out[i] = losses.conjugate(loss, y[i], u[i])


@given(st.lists(st.floats(-800.0, 800.0), min_size=1, max_size=600), st.booleans())
@examples(60)
def test_a_loop_gives_the_bits_of_a_single_row(margins: list[float], positive: bool) -> None:
    loss, m = find_loss("logistic").kernel, np.array(margins)
    y = np.full(len(m), 1.0 if positive else -1.0)
    values, slopes, curvatures, duals = np.empty((4, len(m)))
    losses.losses(loss, y, m, values)
    losses.residuals_curvatures(loss, y, np.ones(len(m)), m, 0.0, slopes, curvatures)
    conjugates(loss, y, slopes, duals)
    for i in range(len(m)):
        assert values[i] == losses.loss_value(loss, y[i], m[i])
        assert (slopes[i], curvatures[i]) == losses.loss_slope_curvature(loss, y[i], m[i])
        assert duals[i] == losses.conjugate(loss, y[i], slopes[i])
