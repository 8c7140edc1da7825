"""Data frames whose columns are called by numbers or tuples, in another order than in fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

import fcl
from fcl.errors import InputError

RNG = np.random.default_rng(4)
X = RNG.normal(size=(80, 5))
LABELS = np.where(X[:, 0] - 2 * X[:, 3] + 0.5 * X[:, 4] > 0, "b", "a")
NUMBERS = X @ [1.0, 0.0, 0.5, -2.0, 0.0] + 0.1 * RNG.normal(size=80)
NAMES = {
    "numbers": [7, 3, 11, 0, 5],
    "range": range(5),
    "tuples": pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1)]),
}
MAKERS: dict[str, Callable[[], Any]] = {
    "classifier": lambda: fcl.FCLClassifier(C=1.0),
    "regressor": lambda: fcl.FCLRegressor(C=1.0),
    "online classifier": lambda: fcl.FCLOnlineClassifier(alpha=1e-3),
    "online regressor": lambda: fcl.FCLOnlineRegressor(alpha=1e-3),
    "stagewise": lambda: fcl.StagewiseRegressor("fourier:n=16"),
    "search": lambda: fcl.FCLClassifierCV(cv=2),
}


def fitted(kind: str, frame: pd.DataFrame) -> tuple[Any, np.ndarray]:
    y = LABELS if "class" in kind or kind == "search" else NUMBERS
    return MAKERS[kind]().fit(frame, y), y


@pytest.mark.parametrize(
    ("kind", "names"),
    [*((kind, "numbers") for kind in MAKERS), ("regressor", "range"), ("classifier", "tuples")],
)
def test_columns_are_matched_by_name(kind: str, names: str) -> None:
    frame = pd.DataFrame(X, columns=NAMES[names])
    estimator, y = fitted(kind, frame)
    mixed = frame[frame.columns[[3, 0, 4, 2, 1]]]
    method = getattr(estimator, "decision_function", estimator.predict)
    np.testing.assert_array_equal(method(mixed), method(frame))
    np.testing.assert_array_equal(method(X), method(frame))  # without names, by position
    assert estimator.score(mixed, y) == estimator.score(frame, y)
    if kind in ("classifier", "regressor"):
        weights = np.zeros(5)
        weights[estimator.feature_keys_] = np.ravel(estimator.coef_)
        margins = X @ weights + np.ravel(estimator.intercept_)[0]
        np.testing.assert_allclose(np.ravel(method(mixed)), margins, rtol=1e-10)
    other = mixed.set_axis([99, *range(100, 104)], axis=1)
    with pytest.raises(InputError, match="which the input lacks"):
        method(other)


@pytest.mark.parametrize("kind", ["online classifier", "online regressor"])
def test_later_calls_of_partial_fit(kind: str) -> None:
    frame = pd.DataFrame(X, columns=NAMES["numbers"])
    y = LABELS if "class" in kind else NUMBERS
    more = {"classes": ["a", "b"]} if "class" in kind else {}
    models = []
    for second in (frame, frame[[5, 0, 3, 7, 11]]):
        estimator = MAKERS[kind]().partial_fit(frame, y, **more)
        models.append(estimator.partial_fit(second, y))
    np.testing.assert_array_equal(models[0].coef_.toarray(), models[1].coef_.toarray())
    certified = [models[0].certify(rows, y).own_gap for rows in (frame, frame[[5, 0, 3, 7, 11]])]
    assert certified[0] == pytest.approx(certified[1], rel=1e-9)


def test_a_warm_start_needs_the_same_columns() -> None:
    """Weights of columns in another order are not a start."""
    frame = pd.DataFrame(X, columns=NAMES["numbers"])
    estimator = fcl.FCLRegressor(C=1.0, warm_start=True).fit(frame, NUMBERS)
    again = estimator.fit(frame[[5, 0, 3, 7, 11]], NUMBERS)
    cold = fcl.FCLRegressor(C=1.0).fit(frame[[5, 0, 3, 7, 11]], NUMBERS)
    np.testing.assert_array_equal(again.coef_, cold.coef_)


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_names_of_a_matrix(kind: Any, tmp_path: Path) -> None:
    """Names beside a matrix, as those of the words of a vectorizer, are in the model; rows need none."""
    rng = np.random.default_rng(0)
    X = rng.poisson(0.7, (200, 3)).astype(float)
    y = np.where(X[:, 0] > X[:, 2], "up", "down")
    estimator = fcl.FCLClassifier(features="columns", C=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.fit(kind(X), y, feature_names=["good", "film", "bad"])
        assert (estimator.predict(kind(X)) == y).mean() > 0.9
    assert set(estimator.get_feature_names_out()) >= {"good", "bad"}
    estimator.models_[0].save(tmp_path / "m.fcl")
    names = [row.feature for row in fcl.load_model(tmp_path / "m.fcl").describe(2)]
    assert sorted(names) == ["bad", "good"]
    estimator.fit(kind(X), y)
    assert set(estimator.get_feature_names_out()) >= {"x0", "x2"}
    for names, message in ((["a"], "expected 3 distinct names"), (["a"] * 3, "1 of them distinct")):
        with pytest.raises(InputError, match=f"feature_names: .*{message}"):
            estimator.fit(kind(X), y, feature_names=names)
