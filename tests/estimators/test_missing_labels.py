"""Labels that are missing: one message from every estimator, and from open_data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fcl

pandas = pytest.importorskip("pandas")
X = np.random.default_rng(0).normal(size=(60, 3))
VALUES: dict[str, Any] = {
    "None": np.array(["a", None] * 30, object),
    "NaN": np.array(["a", np.nan] * 30, object),
    "NA": np.array(["a", pandas.NA] * 30, object),
    "NaT": np.array(["a", pandas.NaT] * 30, object),
    "string": pandas.Series(["a", pandas.NA] * 30, dtype="string"),
    "objects": pandas.Series(["a", None] * 30, dtype=object),
    "categorical": pandas.Series(["a", None] * 30, dtype="category"),
    "booleans": np.array([True, None] * 30, object),
}
DOORS: dict[str, Callable[[Any], Any]] = {
    "open_data": lambda y: fcl.open_data(X, y=y),
    "FCLClassifier": lambda y: fcl.FCLClassifier("columns").fit(X, y),
    "FCLRegressor": lambda y: fcl.FCLRegressor("columns").fit(X, y),
    "FCLClassifierCV": lambda y: fcl.FCLClassifierCV("columns").fit(X, y),
    "FCLOnlineClassifier": lambda y: fcl.FCLOnlineClassifier("columns").fit(X, y),
    "partial_fit": lambda y: fcl.FCLOnlineClassifier("columns").partial_fit(
        X, y, classes=["a", "b"]
    ),
    "StagewiseClassifier": lambda y: fcl.StagewiseClassifier("columns").fit(X, y),
    "StagewiseRegressor": lambda y: fcl.StagewiseRegressor("columns").fit(X, y),
}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("door", DOORS)
def test_missing_labels(door: str, values: str) -> None:
    with pytest.raises(fcl.InputError, match=r"^y: row 1 is missing \(NA\), as are 30 of 60"):
        DOORS[door](VALUES[values])


def test_labels_that_are_there() -> None:
    """Text in objects, and labels of two kinds, which scikit-learn sorts as text."""
    words = np.array(["NA", "nan"] * 30, object)
    assert list(fcl.FCLClassifier("columns").fit(X, words).classes_) == ["NA", "nan"]
