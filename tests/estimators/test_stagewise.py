"""The stagewise estimators: scikit-learn's checks, and fits against its ridge models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks
from waves import Problem, Waves

from fcl import StagewiseClassifier, StagewiseRegressor
from fcl.errors import InputError

WITHOUT_VALIDATION = {"validation_fraction": 0.0, "n_jobs": 1}


@parametrize_with_checks(
    [
        # held-out rows depend on the number of a row, so that repeated rows are no weights
        StagewiseClassifier(**WITHOUT_VALIDATION),
        StagewiseClassifier(update="gls", **WITHOUT_VALIDATION),
        StagewiseRegressor(**WITHOUT_VALIDATION),
    ]
)
def test_scikit_learn_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


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


@pytest.mark.parametrize("update", ["ls", "gls", "cls"])
def test_classification(problem: Problem, update: str) -> None:
    found = StagewiseClassifier(Waves(), block=10, update=update).fit(problem.x, problem.y)
    assert found.score(problem.x, problem.y) > 0.6 and list(found.classes_) == ["a", "b", "c"]
    chances = found.predict_proba(problem.x)
    assert np.allclose(chances.sum(axis=1), 1) and chances.min() >= 0
    assert "valid_loss" in found.history_[0] and found.history_[0]["valid_loss"] is not None
    with pytest.raises(InputError, match="n_jobs"):
        StagewiseClassifier(n_jobs=0).fit(problem.x, problem.y)
    with pytest.raises(InputError, match="validation_fraction must be"):
        StagewiseClassifier(validation_fraction=1.5).fit(problem.x, problem.y)
