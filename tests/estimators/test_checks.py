"""All checks that scikit-learn has for estimators, none of them excused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from fcl import FCLClassifier, FCLRegressor

ESTIMATORS = [
    FCLClassifier(),
    FCLClassifier(loss="squared_hinge", fit_intercept=False, warm_start=True),
    FCLRegressor(),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
