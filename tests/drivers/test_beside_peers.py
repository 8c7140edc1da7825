"""fcl solves problems that liblinear solves well: a small part of the group "grid" of tools/bench."""

from __future__ import annotations

import numpy as np
import pytest

import fcl
from tests.judge import Problem, confirm
from tools.bench import common, data, training
from tools.bench.runner import Clock
from tools.fuzz import reference


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
    problem = Problem(X, y, np.ones(n), "logistic", C)
    confirm(problem, w, result.model.intercept, result.certificate, reference.solve(problem))


# the objectives are liblinear's, at a tolerance of 1e-5
@pytest.mark.slow
@pytest.mark.parametrize(("number", "C", "theirs"), [(15, 1.0, 266.208), (18, 10.0, 452.140)])
def test_counts_of_words(number: int, C: float, theirs: float) -> None:
    if not (common.SHARED / "20news_counts.npz").exists():
        pytest.skip("20news_counts.npz comes with the shared data, not with a clone")
    rows = data.newsgroups(group=number)
    found = training.verified(rows, Clock(), C, max_time=250.0, other="none")
    assert found["faults"] == "none" and found["objective"] <= theirs * (1.0 + 1e-3), found
