"""The refit of the chosen features, against scikit-learn on their columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fcl
from fcl.model.certificate import Scope
from fcl.path.refit import REFIT_L1
from tests import by_name
from tests.path.conftest import N, rows, split, train_path


def confirm_refit(model: fcl.Model, data: fcl.DataSet, s: np.ndarray) -> None:
    """Compare with scikit-learn's ridge penalty on the columns divided by their deviations.

    The certificate must enclose the objective of scikit-learn's weights, computed from the definition.
    """
    columns = model.columns(data).toarray()
    deviations = columns.std(axis=0)
    y = np.where(np.asarray(data.target) > 0, 1.0, -1.0)
    ridge = LogisticRegression(C=1 / (model.alpha * model.sum_weights), tol=1e-10, max_iter=1000)
    ridge.set_params(solver="newton-cg").fit(columns / deviations, y, sample_weight=s)
    np.testing.assert_allclose(model.weights * deviations, ridge.coef_[0], atol=2e-3)
    weights = ridge.coef_[0] / deviations
    losses = np.logaddexp(0.0, -y * (columns @ weights + ridge.intercept_[0]))
    penalty = REFIT_L1 * np.abs(weights) + (1 - REFIT_L1) * weights**2 / 2
    value = deviations**2 @ penalty + model.C * (s @ losses)
    certificate = model.certificate
    assert certificate.bound <= value * (1 + 1e-12)
    assert certificate.objective <= value * (1 + 1e-7)
    assert certificate.scope is Scope.SUPPORT and certificate.n_priced == len(model.ids)


@pytest.mark.parametrize(
    ("features", "row_view"),
    [
        ("kmers:d=2", "all"),
        ("kmers:d=2", 128),
        ("kmers:d=1 + bag:d=2 * 3", "all"),
        ("bag:d=2,strands=both", "all"),
    ],
)
def test_a_refit_is_ridge_regression_on_the_chosen_columns(features: str, row_view: Any) -> None:
    codes, y = rows()
    s = np.random.default_rng(1).uniform(0.5, 2.0, N)
    data = fcl.open_data(codes, y=y, weights=s)
    options: dict[str, Any] = {"tol": 1e-8, "memory": "1GiB", "row_view": row_view}
    path = fcl.train_path(data, features, points=4, refit=True, **options)
    assert path.refit is not None and path.refit.converged
    chosen, model = path.chosen.model, path.refit.model
    np.testing.assert_array_equal(model.ids, chosen.ids[chosen.weights != 0.0])
    confirm_refit(model, data, s)


@pytest.mark.parametrize("features", ["columns", "products:degree=2"])
@pytest.mark.parametrize("standardize", [False, True])
def test_a_refit_of_columns(features: str, standardize: bool) -> None:
    if standardize and features != "columns":
        return
    random = np.random.default_rng(5)
    X = (random.random((N, 6)) < 0.4) * 1.0
    if features == "columns":  # the ridge penalty does not depend on the units of a column
        X = random.normal(size=(N, 6)) * 10.0 ** np.arange(-2, 4)
    y = X[:, 1] / X[:, 1].std() + random.normal(size=N) > 0.5
    data = fcl.open_data(X, y=y)
    options: dict[str, Any] = {"points": 3, "tol": 1e-8, "class_weight": "balanced", "warn": False}
    path = by_name.train_path(
        data, features, refit=True, refit_alpha=0.01, standardize=standardize, **options
    )
    assert path.refit is not None
    confirm_refit(path.refit.model, data, N / 2 / np.where(y, y.sum(), (~y).sum()))


def test_separable_rows_have_a_refit() -> None:
    codes, _ = rows()
    data = fcl.open_data(codes, y=codes[:, 5] == 2)
    path = train_path(data, points=3, refit=True)
    assert path.refit is not None and path.refit.converged
    assert 3.0 < np.abs(path.refit.model.weights).max() < 100.0
    loose = train_path(data, points=3, refit=True, refit_alpha=1e-2).refit
    assert loose is not None
    assert np.abs(loose.model.weights).max() < np.abs(path.refit.model.weights).max()


@pytest.mark.slow
def test_the_score_of_a_refit_is_over_the_held_out_rows() -> None:
    data, valid = split()
    path = train_path(data, valid=valid, points=4, refit=True)
    assert path.refit is not None
    margins = path.refit.model.margins(valid)
    assert path.refit.score == pytest.approx(fcl.average_precision(valid.target, margins))
    folds = np.arange(data.n_rows) % 3
    crossed = train_path(data, cv=folds, points=4, refit=True)
    assert crossed.refit is not None
    scores = []
    for fold in range(3):
        own = crossed.fold_points[fold][crossed.chosen.number].model
        columns, y = own.columns(data).toarray(), np.asarray(data.target)
        train, test = folds != fold, folds == fold
        sd = columns[train].std(axis=0)
        ridge = LogisticRegression(C=1 / (crossed.refit.alpha * train.sum()), max_iter=1000)
        margins = ridge.fit(columns[train] / sd, y[train]).decision_function(columns[test] / sd)
        scores.append(fcl.average_precision(y[test] > 0, margins))
    assert crossed.refit.score == pytest.approx(np.mean(scores), abs=0.01)
    assert crossed.refit.se == pytest.approx(np.std(scores, ddof=1) / 3**0.5, abs=0.01)


def test_a_model_without_features_has_no_refit() -> None:
    assert train_path(split()[0], points=2, max_active=1, alphas=[1e3], refit=True).refit is None


def test_a_refit_is_a_model_file(tmp_path: Path) -> None:
    data, _ = split()
    path = train_path(data, points=3, refit=True)
    assert path.refit is not None and path.refit.alpha == pytest.approx(1e-4)
    path.refit.model.save(tmp_path / "m.refit.fcl")
    model = fcl.load_model(tmp_path / "m.refit.fcl")
    n = len(model.ids)
    assert model.certificate.scope_text == (
        f"the {n} features of the support alone, not over the family"
    )
    np.testing.assert_array_equal(model.margins(data), path.refit.model.margins(data))
