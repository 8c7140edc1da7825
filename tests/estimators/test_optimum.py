"""The same optimum as scikit-learn's own solvers, of the same problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from scipy.special import expit
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.metrics import mean_poisson_deviance, r2_score
from sklearn.svm import LinearSVC

from fcl import FCLClassifier, FCLRegressor

NEW_PENALTY = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8)


LOSSES = {
    "logistic": lambda m, y: np.logaddexp(0.0, -y * m),
    "squared_hinge": lambda m, y: np.maximum(0.0, 1.0 - y * m) ** 2,
    "squared": lambda m, y: (y - m) ** 2,
}


def dense(model: Any, n_columns: int) -> np.ndarray:
    """The weights of all columns of X, (n_models, n_columns)."""
    weights = np.zeros((len(np.atleast_2d(model.coef_)), n_columns))
    weights[:, model.feature_keys_] = model.coef_
    return weights


@pytest.fixture(name="data")
def binary_data() -> tuple[np.ndarray, np.ndarray]:
    return make_classification(150, 30, n_informative=6, random_state=3)


def rival(loss: str, C: float, intercept: bool, n: int) -> Any:
    """scikit-learn's own solver."""
    if loss == "logistic":
        how: dict[str, Any] = {"l1_ratio": 1.0} if NEW_PENALTY else {"penalty": "l1"}
        return LogisticRegression(C=C, solver="saga", tol=1e-12, max_iter=100_000, **how)
    options: dict[str, Any] = {"fit_intercept": intercept, "tol": 1e-10, "max_iter": 100_000}
    if loss == "squared_hinge":
        return LinearSVC(penalty="l1", dual=False, C=C, **options)
    return Lasso(alpha=1.0 / (2.0 * n * C), **options)


@pytest.mark.parametrize(
    ("loss", "C", "intercept"),
    [
        *(("logistic", C, True) for C in (0.02, 0.3, 5.0)),
        # without an intercept: liblinear penalises its own
        *(("squared_hinge", C, False) for C in (0.02, 0.5)),
        *(("squared", C, intercept) for C in (1e-3, 0.1) for intercept in (True, False)),
    ],
)
def test_the_optimum_of_scikit_learn(
    data: tuple[np.ndarray, np.ndarray], loss: str, C: float, intercept: bool
) -> None:
    (X, y), s, more = data, np.ones(len(data[1])), {}
    if loss == "squared":
        X, y = make_regression(120, 200, n_informative=8, noise=3.0, bias=20.0, random_state=1)
        s = np.random.default_rng(0).random(120)
        s *= 120 / s.sum()
        more = {"sample_weight": s}
    kind: Any = FCLRegressor if loss == "squared" else FCLClassifier
    ours = kind(C=C, loss=loss, fit_intercept=intercept, tol=1e-9).fit(X, y, **more)
    theirs = rival(loss, C, intercept, len(y)).fit(X, y, **more)
    w, b = dense(ours, X.shape[1])[0], np.ravel(ours.intercept_)[0]
    target = y if loss == "squared" else np.where(y == 1, 1.0, -1.0)
    mine, best = (
        np.abs(weights).sum() + C * float(s @ LOSSES[loss](X @ np.ravel(weights) + shift, target))
        for weights, shift in ((w, b), (theirs.coef_, theirs.intercept_))
    )
    assert ours.objective_ == pytest.approx(mine, rel=1e-12)
    assert mine == pytest.approx(best, rel=1e-6) and mine <= best * (1.0 + 1e-8)
    if loss == "logistic":
        np.testing.assert_allclose(w, theirs.coef_[0], atol=1e-3 * np.abs(w).max())
    if loss == "squared":
        assert ours.score(X, y) == pytest.approx(theirs.score(X, y), abs=1e-5)
        assert isinstance(ours.intercept_, float) and ours.coef_.shape == (ours.n_nonzero_,)


@pytest.mark.parametrize("path", [False, True])
def test_counts_with_an_offset(path: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X, o = random.normal(size=(200, 12)), random.normal(size=200)
    y = random.poisson(np.exp(0.7 * X[:, 0] + o + 1.0)).astype(float)
    given: dict[str, Any] = {"X": X, "y": y, "offset": o}
    scored = given
    if path:
        for name, array in (("X", X), ("y", y), ("o", o)):
            np.save(tmp_path / f"{name}.npy", array)
        given = scored = {"X": tmp_path, "offset": "o"}
    model = FCLRegressor(loss="poisson", C=0.05, tol=1e-9).fit(**given)
    w = dense(model, 12)[0]
    m = X @ w + model.intercept_ + o
    deviance = mean_poisson_deviance(y, np.exp(m))
    assert model.objective_ == pytest.approx(
        np.abs(w).sum() + 0.05 * 200 * deviance / 2.0, rel=1e-12
    )
    np.testing.assert_allclose(model.predict(X, offset=o), np.exp(m), rtol=1e-12)
    assert model.score(**scored) == pytest.approx(r2_score(y, np.exp(m)), rel=1e-12)


# -- more than two classes ---------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_each_class_against_the_rest(loss: str) -> None:
    X, y = make_classification(200, 12, n_informative=6, n_classes=4, random_state=0)
    labels = np.array(["d", "a", "c", "b"])[y]
    many = FCLClassifier(C=0.3, loss=loss, tol=1e-9).fit(X, labels)
    assert many.classes_.tolist() == ["a", "b", "c", "d"]
    assert many.coef_.shape == (4, len(many.feature_keys_)) and many.intercept_.shape == (4,)
    assert not hasattr(many, "model_") and len(many.models_) == 4
    margins = many.decision_function(X)
    total = 0.0
    for k, label in enumerate(many.classes_):
        one = FCLClassifier(C=0.3, loss=loss, tol=1e-9).fit(X, labels == label)
        total += one.objective_
        np.testing.assert_allclose(margins[:, k], one.decision_function(X), atol=1e-6)
        np.testing.assert_allclose(dense(many, 12)[k], dense(one, 12)[0], atol=1e-6)
    assert many.objective_ == pytest.approx(total, rel=1e-12)
    assert (many.predict(X) == many.classes_[margins.argmax(axis=1)]).all()
    if loss == "logistic":
        each = expit(margins)
        expected = each / each.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(many.predict_proba(X), expected, rtol=1e-9)
    else:
        assert not hasattr(many, "predict_proba")


def test_probabilities_do_not_underflow() -> None:
    X = np.array([[-1.0], [0.0], [1.0]] * 5)
    y = np.array([0, 1, 2] * 5)
    model = FCLClassifier(C=10.0).fit(X, y)
    for at in (1e6, -1e6, 1e12):
        found = model.predict_proba([[at], [0.0]])
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
        assert np.isfinite(model.predict_log_proba([[at]])).all()


# -- weights -----------------------------------------------------------------------------------


def test_class_weights_multiply_sample_weights_and_leave_alpha_alone() -> None:
    X, y = make_classification(100, 8, n_classes=3, n_informative=4, random_state=2)
    sample = np.random.default_rng(4).random(100)
    by_class = {0: 1.0, 1: 2.5, 2: 0.5}
    given = FCLClassifier(alpha=0.05, class_weight={1: 2.5, 2: 0.5}, tol=1e-10)
    given.fit(X, y, sample_weight=sample)
    C = 1.0 / (0.05 * sample.sum())
    factors = np.array([by_class[label] for label in y])
    other = FCLClassifier(C=C, tol=1e-10).fit(X, y, sample_weight=sample * factors)
    assert given.objective_ == pytest.approx(other.objective_, rel=1e-9)
    sums = np.array([sample[y == label].sum() for label in range(3)])
    balanced = FCLClassifier(C=C, class_weight="balanced", tol=1e-10)
    balanced.fit(X, y, sample_weight=sample)
    other.fit(X, y, sample_weight=sample * (sums.sum() / (3 * sums))[y])
    assert balanced.objective_ == pytest.approx(other.objective_, rel=1e-9)


def test_labels_of_rows_without_weight_do_not_count() -> None:
    X, y = make_classification(60, 5, random_state=0)
    y = y.astype(object)
    y[:5] = 7
    weights = np.r_[np.zeros(5), np.ones(55)]
    model = FCLClassifier().fit(X, y, sample_weight=weights)
    assert model.classes_.tolist() == [0, 1]
    assert model.objective_ == pytest.approx(FCLClassifier().fit(X[5:], y[5:]).objective_, rel=1e-9)
