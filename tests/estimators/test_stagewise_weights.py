"""Weights of rows and classes, and offsets, of the stagewise estimators."""

from __future__ import annotations

import numpy as np

import fcl

RANDOM = np.random.default_rng(8)
N, P = 200, 4
X = RANDOM.normal(size=(N, P))
Y = np.array(["a", "b", "c"])[
    (X @ RANDOM.normal(size=(P, 3)) + RANDOM.gumbel(size=(N, 3))).argmax(1)
]
OPTIONS = {"block": 4, "visits": 1, "alpha": 1.0, "validation_fraction": 0.0}


def test_class_weights_are_sample_weights() -> None:
    by_class = {"a": 3.0, "b": 0.5}
    weights = np.array([by_class.get(label, 1.0) for label in Y])
    one = fcl.StagewiseClassifier("columns", class_weight=by_class, **OPTIONS).fit(X, Y)
    two = fcl.StagewiseClassifier("columns", **OPTIONS).fit(X, Y, sample_weight=weights)
    plain = fcl.StagewiseClassifier("columns", **OPTIONS).fit(X, Y)
    np.testing.assert_allclose(one.decision_function(X), two.decision_function(X), atol=1e-9)
    assert np.abs(one.decision_function(X) - plain.decision_function(X)).max() > 1e-2


def test_offsets_of_numbers_are_subtracted() -> None:
    numbers = X @ RANDOM.normal(size=(P, 2)) + 1.0
    offset = RANDOM.normal(size=(N, 2))
    shifted = fcl.StagewiseRegressor("columns", **OPTIONS).fit(X, numbers + offset, offset=offset)
    plain = fcl.StagewiseRegressor("columns", **OPTIONS).fit(X, numbers)
    np.testing.assert_allclose(
        shifted.predict(X, offset=offset), plain.predict(X) + offset, atol=1e-8
    )
