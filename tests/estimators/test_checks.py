"""All of scikit-learn's estimator checks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from fcl import (
    FCLClassifier,
    FCLClassifierCV,
    FCLOnlineClassifier,
    FCLOnlineRegressor,
    FCLRegressor,
    FCLRegressorCV,
    StagewiseClassifier,
    StagewiseRegressor,
)

# held-out rows depend on the number of a row, so that repeated rows are no weights
WITHOUT_VALIDATION = {"validation_fraction": 0.0, "n_jobs": 1}
ONE_ALPHA = {"alphas": [0.1], "cv": 2, "tol": 0.01}  # the checks fit some hundred times
ESTIMATORS = [
    FCLClassifier(),
    FCLRegressor(),
    # losses without a bound on the slope, and the group norm, need more digits for the same prediction
    FCLClassifier(loss="squared_hinge", alpha=0.01, warm_start=True, tol=1e-10),
    FCLRegressor(fit_intercept=False, warm_start=True, tol=1e-10),
    FCLClassifier(loss="softmax"),
    FCLClassifier(loss="softmax", group=True, warm_start=True, tol=1e-10),
    FCLClassifierCV(**ONE_ALPHA),
    FCLRegressorCV(**ONE_ALPHA),
    FCLOnlineClassifier(),
    FCLOnlineRegressor(),
    FCLOnlineClassifier(loss="squared_hinge", method="truncated-gradient", rate=0.1),
    StagewiseClassifier(**WITHOUT_VALIDATION),
    StagewiseClassifier(update="gls", **WITHOUT_VALIDATION),
    StagewiseRegressor(**WITHOUT_VALIDATION),
]


def expected_failures(estimator: Any) -> dict[str, str]:
    """A row of weight 2 is one step, not two: scikit-learn's own SGD estimators declare the same."""
    if not isinstance(estimator, FCLOnlineClassifier | FCLOnlineRegressor):
        return {}
    why = "a row of weight 2 is learnt in one step"
    return {f"check_sample_weight_equivalence_on_{kind}_data": why for kind in ("dense", "sparse")}


@pytest.mark.thin(30)
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learn_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    sparse = check.func.__name__.startswith("check_estimator_sparse_")  # type: ignore[attr-defined]
    search = isinstance(estimator, FCLClassifierCV | FCLRegressorCV)
    if search and sparse and not os.environ.get("FCL_TEST_THOROUGH"):
        pytest.skip("slow: all sparse formats, which FCLClassifier and FCLRegressor check, too")
    check(estimator)
