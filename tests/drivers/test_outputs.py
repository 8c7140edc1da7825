"""Models of several classes under every option, confirmed by code that shares nothing with fcl."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import judge_outputs
import numpy as np
import pytest
from judge_outputs import ClassProblem

import fcl
from fcl.features import Generator
from tests.drivers.conftest import dense, fit

N, P, K, C, TOL = 150, 12, 3, 0.2, 1e-7


@dataclass(frozen=True)
class Rows:
    """Rows with their classes, and everything that a data set may have beside them."""

    X: np.ndarray
    y: np.ndarray  #: class numbers (n,)
    s: np.ndarray | None = None
    offset: np.ndarray | None = None

    def open(self, X: Any = None) -> fcl.DataSet:
        X = self.X if X is None else X
        return fcl.open_data(X, y=self.y, weights=self.s, offset=self.offset)

    def problem(self, phi: np.ndarray | None = None, **changed: Any) -> ClassProblem:
        phi = self.X if phi is None else phi
        n, p = phi.shape
        given = {
            "s": np.ones(n) if self.s is None else self.s,
            "offset": 0.0 if self.offset is None else self.offset,
            "K": int(self.y.max()) + 1,
            "C": C,
            "f": np.ones(p),
        }
        return ClassProblem(phi=phi, y=self.y, **(given | changed))


@cache
def numbers(n: int = N) -> Rows:
    """Rows (n, 12) of numbers, whose classes depend on three columns."""
    random = np.random.default_rng(7)
    X = random.normal(size=(n, P))
    margins = X[:, :3] @ (1.5 * random.normal(size=(3, K))) + random.gumbel(size=(n, K))
    return Rows(X, margins.argmax(axis=1))


def train(data: fcl.DataSet, features: Any = "columns", **options: Any) -> fcl.TrainResult:
    return fit(data, features, **({"C": C, "loss": "softmax", "tol": TOL} | options))


def confirm(result: fcl.TrainResult, problem: ClassProblem, scale: Any = 1.0) -> None:
    """The judge's optimum; scale : float or (p,), the factors by which its columns are divided."""
    model = result.model
    assert result.converged, result.message
    W = dense(model, problem.phi.shape[1]) * np.reshape(scale, (-1, 1))
    b = np.asarray(model.intercept)
    judge_outputs.confirm(problem, W, b, result.certificate, model.options["tol"])
    if problem.group:
        np.testing.assert_allclose(W.sum(axis=1), 0.0, atol=1e-4)
    assert problem.intercept or not b.any()


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"intercept": False},
        {"l1_ratio": 0.5},
        {"group": True, "l1_ratio": 0.5, "intercept": False},
        {"C": 0.005},  # the null model
        {"C": 20.0},
    ],
    ids=str,
)
def test_the_optimum(options: dict[str, Any]) -> None:
    result = train(numbers().open(), **options)
    other = {"rho": options.get("l1_ratio", 1.0)}
    other |= {name: options[name] for name in ("C", "group", "intercept") if name in options}
    confirm(result, numbers().problem(**other))
    assert (len(result.model.ids) == 0) == (options.get("C") == 0.005)


@pytest.mark.parametrize("group", [False, True])
def test_weights_and_offsets(group: bool) -> None:
    random = np.random.default_rng(9)
    s = random.uniform(0.2, 3.0, N)
    s[:5] = 0.0
    rows = replace(numbers(), s=s, offset=random.normal(size=(N, K)))
    kept = replace(rows, X=rows.X[5:], y=rows.y[5:], s=s[5:], offset=rows.offset[5:])
    confirm(train(rows.open(), group=group), kept.problem(group=group))


def test_class_weights() -> None:
    rows = replace(numbers(), s=np.random.default_rng(9).uniform(0.2, 3.0, N))
    sums = np.bincount(rows.y, weights=rows.s)
    for given, factors in (
        ("balanced", sums.sum() / (K * sums)),
        ({0: 2.0, 2: 0.5}, np.array([2.0, 1.0, 0.5])),
    ):
        result = train(rows.open(), class_weight=given)
        confirm(result, rows.problem(s=rows.s * factors[rows.y]))


def test_standardized_columns() -> None:
    scales = np.geomspace(0.1, 10.0, P)
    rows = replace(numbers(), X=numbers().X * scales + 2.0)
    sd = rows.X.std(axis=0)
    confirm(train(rows.open(), standardize=True), rows.problem(rows.X / sd), sd)


def test_a_class_of_three_rows() -> None:
    y = numbers().y.copy()
    y[[3, 70, 120]] = K
    rows = replace(numbers(), y=y)
    for options in ({}, {"class_weight": "balanced"}):
        result = train(rows.open(), C=1.0, row_view=100, **options)
        s = N / (4 * np.bincount(y))[y] if options else np.ones(N)
        confirm(result, rows.problem(C=1.0, s=s))


def test_validation_rows() -> None:
    rows, other = numbers(), numbers(300)
    held = replace(other, X=other.X[200:], y=other.y[200:], s=np.linspace(0.5, 2.0, 100))
    result = train(rows.open(), valid=held.open())
    confirm(result, rows.problem())
    m = held.X[:, result.model.ids] @ result.model.weights + result.model.intercept
    losses = np.logaddexp.reduce(m, axis=1) - m[np.arange(100), held.y]
    scores = result.history[-1]["validation"]
    assert scores["log_loss"] == pytest.approx(np.average(losses, weights=held.s), rel=1e-12)
    split = train(rows.open(), valid_fraction=0.3, seed=4)
    n_held = split.history[-1]["validation"]["n_rows"]
    assert split.model.n_rows + n_held == N and 20 < n_held < 70
    assert train(rows.open(), valid_fraction=0.3, seed=4).certificate == split.certificate


def test_an_initial_model() -> None:
    rows = numbers()
    for group in (False, True):
        other = train(rows.open(), C=0.15, tol=1e-3, group=group)
        result = train(rows.open(), initial=other.model, group=group)
        confirm(result, rows.problem(group=group))
        assert train(rows.open(), initial=result.model, group=group).passes <= 3


# -- other solvers, and equal models ---------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("group", [False, True])
def test_offsets_that_leave_no_row_any_curvature(group: bool) -> None:
    rows = replace(numbers(), offset=1e6 * np.random.default_rng(1).normal(size=(N, K)))
    result = train(rows.open(), group=group, max_passes=5)
    assert 0.0 < result.certificate.gap < 1.0


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("options", [{"max_passes": 1}, {"row_view": 100}], ids=str)
def test_a_constant_for_all_classes_costs_nothing(group: bool, options: dict[str, Any]) -> None:
    rows = replace(numbers(), y=(numbers().y + np.arange(N) % 2 * 2) % 5)
    result = train(rows.open(), **{"C": 0.5, "group": group, "tol": 1e-3, "warn": False} | options)
    model, certificate = result.model, result.certificate
    assert model.n_active
    middle = model.weights.mean(axis=1) if group else np.median(model.weights, axis=1)
    np.testing.assert_allclose(middle, 0.0, atol=1e-14)
    assert abs(model.intercept.mean()) < 1e-13
    own = rows.problem(C=0.5, group=group).objective(dense(model, P), model.intercept)
    assert certificate.objective == pytest.approx(own, rel=1e-12)
    assert certificate.bound <= own


# -- families --------------------------------------------------------------------------------------


class Factored(Generator):
    """The columns themselves, with penalty factors from 0.5 to 2; one is left out."""

    def fit(self, sample: Any) -> None:
        self.n_features = sample.shape[1]

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return np.asarray(block[:, ids])

    def penalty_factors(self, ids: Any) -> np.ndarray:
        factors = np.geomspace(0.5, 2.0, self.n_features)
        factors[0] = np.inf
        return np.asarray(factors[ids])


@pytest.mark.parametrize("options", [{}, {"group": True}, {"l1_ratio": 0.6}], ids=str)
def test_penalty_factors(options: dict[str, Any]) -> None:
    rows, f = numbers(), np.geomspace(0.5, 2.0, P)
    phi = rows.X.copy()
    phi[:, 0] = 0.0
    result = train(rows.open(), Factored(), **options)
    rho = options.get("l1_ratio", 1.0)
    confirm(result, rows.problem(phi, f=f, rho=rho, group="group" in options))
    assert 0 not in result.model.ids


# -- targets and labels ----------------------------------------------------------------------------


# -- checkpoints -----------------------------------------------------------------------------------


def test_many_similar_features_leave_the_bound_of_a_group_tight() -> None:
    """A thousand features a class have prices near the largest: lists of the outputs hold them all."""
    random = np.random.default_rng(9)
    y = np.repeat(np.arange(K), N // K)
    phi = (y[:, None] == np.arange(3000) % K) + 0.05 * random.normal(size=(N, 3000))
    problem = Rows(phi, y).problem(group=True)
    null = problem.residuals(np.zeros((3000, K)), np.zeros(K))
    least = 1.0 / problem.largest(null)
    found = train(Rows(phi, y).open(), C=0.99 * least, group=True, max_passes=3).certificate
    assert found.max_violation == pytest.approx(0.99, rel=1e-9)
    assert found.gap <= TOL
