"""All of scikit-learn's estimator checks, without exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from fcl import FCLClassifier, FCLRegressor

ESTIMATORS = [
    FCLClassifier(),
    FCLRegressor(),
    # losses without a bound on the slope, and the group norm, need more digits for the same prediction
    FCLClassifier(loss="squared_hinge", alpha=0.01, warm_start=True, tol=1e-10),
    FCLRegressor(fit_intercept=False, warm_start=True, tol=1e-10),
    FCLClassifier(loss="softmax"),
    FCLClassifier(loss="softmax", group=True, warm_start=True, tol=1e-10),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
