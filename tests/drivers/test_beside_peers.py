"""A column that almost interpolates its rows, but for one far out."""

from __future__ import annotations

import numpy as np
import pytest

import fcl
from tests.judge import Problem, confirm


@pytest.mark.parametrize(
    ("n", "value", "C"), [(2000, 30.0, 10.0), (2000, 10.0, 10.0), (200, 20.0, 100.0)]
)
def test_a_column_with_one_row_far_out(n: int, value: float, C: float) -> None:
    """At the weight that is best for the other rows, that row has almost no curvature."""
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    X = np.zeros((n, 2))
    X[:, 0] = y
    X[0] = -y[0] * value, 1.0
    result = fcl.train(fcl.open_data(X, y=y), "columns", C=C, tol=1e-6)
    assert result.converged, result.message
    w = np.zeros(2)
    w[result.model.ids] = result.model.weights
    point = w, float(result.model.intercept)
    problem = Problem(X, y, np.ones(n), "logistic", C)
    confirm(problem, *point, result.certificate, problem.improved(*point))
