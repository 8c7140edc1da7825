"""Unpenalised covariates: the optimum, its certificate, and both drivers, against the judge."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from judge import ALL_LOSSES, Problem
from rows import STRENGTHS, targets
from sklearn.linear_model import Lasso

import fcl
from fcl.drivers.job import make_job
from fcl.options import TrainOptions
from fcl.solve import passes
from tests import by_name
from tests.drivers.conftest import check, coefficients, dense

N, P = 300, 25
UNITS, CENTRES = np.array([1.0, 100.0, 0.01]), np.array([0.0, 50.0, 3.0])


def table(loss: str, mixed: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Columns, targets, weights and covariates, which the first columns contain ``mixed`` times."""
    random = np.random.default_rng(4)
    X, z = random.normal(size=(N, P)), random.normal(size=(N, 3))
    X[:, :3] += mixed * z
    X = X.astype(np.float32).astype(np.float64)
    return X, targets(loss, N), random.uniform(0.2, 2.0, N), z * UNITS + CENTRES


def train(
    loss: str, mixed: float = 0.0, covariates: Any = "own", **options: Any
) -> fcl.TrainResult:
    X, y, s, z = table(loss, mixed)
    given = {"C": STRENGTHS[loss], "tol": 1e-9, "loss": loss, "block_rows": 64, "memory": "1GiB"}
    z = z if isinstance(covariates, str) else covariates
    return by_name.train(
        fcl.open_data(X, y=y, weights=s, covariates=z), "columns", **(given | options)
    )


def confirm(result: fcl.TrainResult, problem: Problem) -> None:
    """The judge's optimum and bound; the slopes of the covariates are 0 there."""
    w = check(result, problem, rel=2e-9)
    b = np.append(
        np.full(int(problem.intercept), result.model.intercept), coefficients(result.model)
    )
    r = problem.residuals(w, b)
    assert (np.abs(r @ problem.free) <= 1e-10 * (np.abs(r) @ np.abs(problem.free))).all()
    assert result.certificate.bound == pytest.approx(problem.bound(r), rel=1e-9)


def problem_of(loss: str, mixed: float = 0.0, intercept: bool = True, rho: float = 1.0) -> Problem:
    X, y, s, z = table(loss, mixed)
    return Problem(X, y, s, loss, STRENGTHS[loss], intercept, rho, z=z)


# of pinball, whose curvature jumps most, the judge's polish does not reach 1e-10 beside covariates
@pytest.mark.parametrize("loss", [loss for loss in ALL_LOSSES if not loss.startswith("pinball")])
@pytest.mark.parametrize(
    ("mixed", "intercept", "rho"), [(3.0, True, 1.0), (3.0, False, 1.0), (1.0, True, 0.3)]
)
def test_optimum(loss: str, mixed: float, intercept: bool, rho: float) -> None:
    result = train(loss, mixed, intercept=intercept, l1_ratio=rho)
    confirm(result, problem_of(loss, mixed, intercept, rho))
    assert result.passes <= 8  # the model of a step eliminates the covariates


def test_a_sample_of_the_rows() -> None:
    confirm(train("poisson", 1.0, row_view=64, seed=3), problem_of("poisson", 1.0))


def test_margins_do_not_depend_on_units_or_on_features_along_covariates() -> None:
    """Covariates in other units, or added to features, give another way to write one model."""
    X, _, _, z = table("logistic")
    first = train("logistic")
    other = train("logistic", covariates=-7.0 * z[:, ::-1] + 1e3)
    np.testing.assert_allclose(
        coefficients(other.model), coefficients(first.model)[::-1] / -7.0, 1e-5
    )
    mixed = train("logistic", 3.0)
    assert mixed.certificate.objective == pytest.approx(first.certificate.objective, rel=1e-7)
    expected = first.model.margins(X, covariates=z)
    found = mixed.model.margins(table("logistic", 3.0)[0], covariates=z)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_squared_loss_is_the_lasso_on_residuals() -> None:
    """Frisch, Waugh and Lovell: regress columns and targets on the covariates first."""
    X, y, _, z = table("squared", 1.0)
    a = np.column_stack([np.ones(N), z])
    rest = [t - a @ np.linalg.lstsq(a, t)[0] for t in (X, y)]
    lasso = Lasso(1.0 / (2.0 * 0.05 * N), fit_intercept=False, tol=1e-12, max_iter=100_000).fit(
        *rest
    )
    data = fcl.open_data(X, y=y, covariates=z)
    model = fcl.train(data, "columns", C=0.05, loss="squared", tol=1e-11, memory="1GiB").model
    np.testing.assert_allclose(dense(model, P), lasso.coef_, atol=1e-6)
    b = np.linalg.lstsq(a, y - X @ lasso.coef_)[0]
    np.testing.assert_allclose([model.intercept, *coefficients(model)], b, rtol=1e-4)


def test_columns_that_others_determine_have_the_coefficient_0(caplog: Any) -> None:
    z = table("logistic")[3]
    more = np.column_stack([np.full(N, 7.0), z, z[:, 0] - 2.0 * z[:, 1] + 5.0])
    with caplog.at_level(logging.WARNING, "fcl"):
        result = train("logistic", covariates=more)
    assert "determine them: covariates[0], covariates[4]" in caplog.text
    own = train("logistic")
    expected = np.concatenate([[0.0], coefficients(own.model), [0.0]])
    np.testing.assert_allclose(coefficients(result.model), expected, rtol=1e-6)
    constant = train("logistic", covariates=np.ones(N)).model
    assert coefficients(constant).tolist() == [0.0] and constant.options["covariates"] is None
    free = train("logistic", covariates=np.ones(N), intercept=False)
    plain = train("logistic", covariates=None)
    assert free.certificate.objective == pytest.approx(plain.certificate.objective, rel=1e-8)
    assert coefficients(free.model)[0] == pytest.approx(plain.model.intercept, abs=1e-4)


def test_an_outlying_covariate_leaves_a_finite_minimum() -> None:
    X, y, _, z = table("logistic")
    outlier = np.where(np.arange(N) == 7, 1e4, z[:, 0])
    assert fcl.train(fcl.open_data(X, y=y, covariates=outlier), "columns", C=1.0).converged


@pytest.mark.slow
def test_a_squared_hinge_that_covariates_bring_to_0_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an offset, the last rows leave the hinge one by one; the minimum is still 0."""
    X, y, _, z = table("squared_hinge")
    offset = 4.0 * np.random.default_rng(1).normal(size=N)
    covariates = np.column_stack([y, z[:, :2]])
    data = fcl.open_data(X, y=y, covariates=covariates, offset=offset)
    options = {"C": 1e-3, "loss": "squared_hinge", "intercept": False, "max_passes": 2}
    with pytest.raises(fcl.InputError, match="fit the targets exactly"):
        fcl.train(data, "columns", **options)
    monkeypatch.setattr(passes, "FALLING", 0.0)
    assert not by_name.train(data, "columns", warn=False, **options).converged


def test_fingerprints_and_warm_starts() -> None:
    X, y, _, z = table("logistic")
    data = [fcl.open_data(X, y=y, covariates=c) for c in (z, z[:, :2], z + 1e-9)]
    assert len({d.fingerprint() for d in data}) == 3
    options = {"C": 1.0, "memory": "1GiB"}
    whole = fcl.train(data[0], "columns", tol=1e-8, **options)
    again = fcl.train(data[0], "columns", tol=1e-8, initial=whole.model, **options)
    assert again.passes == 2 and again.converged
    after = fcl.train(data[1], "columns", tol=1e-8, initial=whole.model, **options)
    assert after.converged and len(coefficients(after.model)) == 2


def test_path_with_folds() -> None:
    X, y, _, z = table("logistic")
    data = fcl.open_data(X, y=y, covariates=z)
    found = fcl.train_path(data, "columns", points=3, C_max=0.3, cv=2, memory="1GiB", tol=1e-6)
    for point in found.points:
        alone = fcl.train(data, "columns", C=point.C, tol=1e-6, memory="1GiB")
        objectives = [m.certificate.objective for m in (point.model, alone.model)]
        assert objectives[0] == pytest.approx(objectives[1], rel=2e-6)
    assert len(coefficients(found.chosen.model)) == 3


def test_a_path_names_the_fold_that_covariates_separate_and_warns_once(caplog: Any) -> None:
    X, y, _, z = table("logistic")
    options = {"points": 2, "C_max": 0.3, "cv": np.arange(N) % 2, "memory": "1GiB", "tol": 1e-2}
    level = np.arange(N) < 20
    labels = np.where(level & (np.arange(N) != 7), 1.0, y)
    labels[7] = -1.0  # the only such row of the level, which the second fold holds out
    data = fcl.open_data(X, y=labels, covariates=level.astype(float))
    with pytest.raises(fcl.InputError, match=r"^fold 2 of 2: covariates: .* separates"):
        fcl.train_path(data, "columns", **options)
    data = fcl.open_data(X, y=y, covariates=np.column_stack([np.ones(N), z[:, 0]]))
    for warn in (False, True):
        by_name.train_path(data, "columns", warn=warn, **options)
        assert caplog.text.count("covariates left out") == warn


def test_memory_of_the_covariates_is_planned() -> None:
    X, y, _, z = table("logistic")
    plans = [
        make_job(fcl.open_data(X, y=y, covariates=c), "columns", TrainOptions.checked(C=1.0)).plan
        for c in (None, z)
    ]
    uses = [dict(plan.parts) for plan in plans]
    assert uses[1]["covariates"] == 2 * 8 * 5 * N and "covariates" not in uses[0]
    name = next(name for name in uses[0] if name.startswith("trainer's vectors"))
    assert uses[1][name] - uses[0][name] == 2 * 8 * 4 * N


@pytest.mark.parametrize("distance", [1e-3, 3e-7])
def test_nearly_collinear_columns_are_covered_by_the_bound(distance: float) -> None:
    """The best coefficients are large, and the bound holds for the models that have them."""
    X, y, s, z = table("logistic")
    signal = np.random.default_rng(8).normal(size=N) + 0.5 * y
    pair = np.column_stack([1e6 * z[:, 0], 1e6 * (z[:, 0] + distance * signal)])
    own = pair / 1e6
    apart = np.column_stack([z[:, 0], (own[:, 1] - own[:, 0]) / distance])
    result = train("logistic", covariates=pair)
    best = Problem(X, y, s, "logistic", STRENGTHS["logistic"], z=apart).solve(1e-9)
    assert result.converged
    assert result.certificate.objective == pytest.approx(best.objective, rel=1e-7)
    for entry in result.model.history:
        assert entry["bound"] <= best.objective * (1.0 + 1e-9)


def test_a_level_of_a_single_row_without_loss_keeps_a_small_coefficient() -> None:
    """Its loss is flat where the row is classified well, so any larger coefficient is optimal, too."""
    X, y, _, _ = table("squared_hinge")
    s = 10.0 ** np.random.default_rng(3).uniform(-4, 4, N)
    level, offset = (np.arange(N) == 3).astype(float), -1e5 + X[:, 1]
    data = fcl.open_data(X, y=y, weights=s, covariates=level, offset=offset)
    C = 1.0 / float(s.sum())
    result = fcl.train(data, "columns", C=C, loss="squared_hinge", tol=1e-7, memory="1GiB")
    w = dense(result.model, P)
    b = np.append(result.model.intercept, coefficients(result.model))
    problem = Problem(X, y, s, "squared_hinge", C, offset=offset, z=level[:, None])
    assert result.converged and abs(b[1]) < 100.0
    assert result.certificate.objective == pytest.approx(problem.objective(w, b), rel=1e-8)


def test_columns_without_a_unit_that_float64_holds_and_categories_of_one_level() -> None:
    z = table("logistic")[3]
    small = train("logistic", covariates=z * [1e-90, 1.0, 1e90])
    own = train("logistic")
    np.testing.assert_allclose(
        coefficients(small.model) * [1e-90, 1.0, 1e90], coefficients(own.model), rtol=1e-6
    )
    one = {"names": np.full(N, "only"), "age": z[:, 0]}
    pandas = pytest.importorskip("pandas")
    mixed = train("logistic", covariates=pandas.DataFrame(one)).model
    assert [len(term.coefficients) for term in mixed.covariates] == [0, 1]


def test_levels_are_read_in_several_blocks() -> None:
    pandas = pytest.importorskip("pandas")
    levels = np.array(["a", "b"])[np.arange(10_000) % 2]
    X = np.arange(10_000.0)[:, None] % 7
    data = fcl.open_data(
        X, y=np.arange(10_000) % 3 % 2, covariates=pandas.DataFrame({"site": levels})
    )
    model = fcl.train(data, "columns", C=1e-3, memory="1GiB").model
    found = model.margins(X, covariates=pandas.DataFrame({"site": levels}))
    b = coefficients(model)[0]
    expected = X @ np.bincount(model.ids, model.weights, 1) + model.intercept + b * (levels == "b")
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
