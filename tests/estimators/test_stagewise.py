"""The stagewise estimators against ridge models of scikit-learn; weights of rows, and offsets."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from waves import Problem, Waves

from fcl import StagewiseRegressor

WITHOUT_VALIDATION = {"validation_fraction": 0.0, "n_jobs": 1}
RANDOM = np.random.default_rng(8)
N, P = 200, 4
X = RANDOM.normal(size=(N, P))
OPTIONS = {"block": 4, "visits": 1, "alpha": 1.0, "validation_fraction": 0.0}


@pytest.fixture
def problem() -> Problem:
    return Problem()


def test_regression_is_ridge(problem: Problem) -> None:
    F = problem.matrix()
    for target in (problem.numbers, problem.numbers[:, 0]):
        found = StagewiseRegressor(Waves(), certify=True, **WITHOUT_VALIDATION)
        found.fit(problem.x, target, problem.s)
        joint = Ridge().fit(F, target, sample_weight=problem.s)
        assert found.predict(problem.x).shape == target.shape
        assert np.abs(found.predict(problem.x) - joint.predict(F)).max() < 1e-8
        assert found.dual_gap_ < 1e-8
        assert np.isclose(found.score(problem.x, target), joint.score(F, target))


def test_offsets_of_numbers_are_subtracted() -> None:
    numbers = X @ RANDOM.normal(size=(P, 2)) + 1.0
    offset = RANDOM.normal(size=(N, 2))
    shifted = StagewiseRegressor("columns", **OPTIONS).fit(X, numbers + offset, offset=offset)
    plain = StagewiseRegressor("columns", **OPTIONS).fit(X, numbers)
    np.testing.assert_allclose(
        shifted.predict(X, offset=offset), plain.predict(X) + offset, atol=1e-8
    )
