"""Columns of large mean and small spread, such as times: what float64 margins can resolve, and cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fcl
from fcl.model.certificate import Certificate
from tests import by_name

C, TOL = 10.0, 1e-3


def centred(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Two columns, of which one has values that are exact in float64 beside a large number."""
    rng = np.random.default_rng(1)
    t, z = rng.integers(0, 200, n) * 0.25, rng.normal(size=n)
    y = (t - t.mean()) / 15 + z + 0.1 * rng.normal(size=n)
    return np.column_stack([t, z]), y


def optimum(X: np.ndarray, y: np.ndarray, s: np.ndarray | float = 1.0) -> float:
    """The least objective of the squared loss, by coordinate descent without intercept."""
    s = np.broadcast_to(s, len(y))
    X, y = X - np.average(X, axis=0, weights=s), y - np.average(y, weights=s)
    w = np.zeros(X.shape[1])
    for _ in range(2000):
        for j, x in enumerate(X.T):
            g = 2 * C * ((s * x) @ (y - X @ w + x * w[j]))
            w[j] = np.sign(g) * max(abs(g) - 1.0, 0.0) / (2 * C * ((s * x) @ x))
    r = y - X @ w
    return float(np.abs(w).sum() + C * (s * r) @ r)


def shifted(X: np.ndarray, base: float, sparse: bool) -> Any:
    moved = X + np.array([base, 0.0])
    return scipy.sparse.csr_array(moved) if sparse else moved


def train(X: Any, y: np.ndarray, **options: Any) -> fcl.TrainResult:
    given = {"C": C, "loss": "squared", "tol": TOL, "warn": False} | options
    return by_name.train(fcl.open_data(X, y=y), "columns", **given)


@pytest.mark.parametrize("driver", ["inline", "processes"])
def test_every_driver_polishes_before_it_gives_up(driver: str) -> None:
    """Sparse columns keep their offset, which hides the optimality conditions from the trainer."""
    X, y = centred()
    best = optimum(X, y)
    result = train(shifted(X, 1e8, sparse=True), y, driver=driver)
    found = result.certificate
    assert result.converged and found.objective == pytest.approx(best, rel=1e-9)
    assert best * (1.0 - TOL) <= found.bound <= best * (1.0 + 1e-12)
    assert found.gap == result.history[-1]["gap"] and result.history[-2]["gap"] > TOL


def violation(model: fcl.Model, X: np.ndarray, y: np.ndarray) -> float:
    """The largest slope at the best intercept, from differences that float64 holds exactly."""
    w = np.zeros(X.shape[1])
    w[model.ids] = model.weights
    r = y - (X - X.mean(axis=0)) @ w
    return float(np.abs(2 * C * (X - X.mean(axis=0)).T @ (r - r.mean())).max())


@pytest.mark.parametrize("base", [0.0, 1e3, 1e8, 1.7e9])
def test_a_violation_that_rounding_hides_is_not_resolved(base: float) -> None:
    X, y = centred()
    found = train(shifted(X, base, sparse=True), y, max_passes=8)
    certificate = found.certificate
    true = violation(found.model, X, y)
    assert certificate.violation_resolved == (base < 1e5)
    if certificate.violation_resolved:
        assert certificate.max_violation == pytest.approx(true, rel=2e-3)
    else:
        assert certificate.violation_text.startswith("not resolved")
        assert certificate.max_violation != pytest.approx(true, rel=2e-3)
    values = certificate.to_dict()
    assert values["violation_resolved"] == certificate.violation_resolved
    assert Certificate.from_dict(values) == certificate
    del values["violation_resolved"]  # as files of earlier versions
    assert Certificate.from_dict(values).violation_resolved
    # the pass of a certificate says the same
    again = fcl.certify(found.model, fcl.open_data(shifted(X, base, sparse=True), y=y))
    assert again.certificate.violation_resolved == certificate.violation_resolved


def test_facts_say_that_it_is_not_resolved() -> None:
    for resolved, said in ((True, "1.5 largest"), (False, "not resolved")):
        own = Certificate(1.0, 0.9, 0.1, 1.5, 2, violation_resolved=resolved)
        (violation,) = (fact for fact in own.facts() if fact.name == "violation")
        assert violation.text.startswith(said) and violation.value == 1.5


@pytest.mark.parametrize(("loss", "C"), [("squared", 1e-308), ("huber", 1e-10), ("huber", 1e5)])
def test_targets_near_the_largest_number_give_no_warning_of_numpy(loss: str, C: float) -> None:
    X, y = np.random.default_rng(0).normal(size=(40, 5)), np.full(40, 1e300)
    result = by_name.train(fcl.open_data(X, y=y), "columns", C=C, loss=loss, tol=1e-12, warn=False)
    assert result.certificate.bound <= result.certificate.objective


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("driver", ["inline", "processes"])
def test_interpolated_targets_of_several_outputs(driver: str, group: bool) -> None:
    """At the optimum, the residuals are smaller than the rounding errors of the margins."""
    random = np.random.default_rng(0)
    X, W = random.normal(size=(40, 15)) * 1e5, random.normal(size=(15, 3))
    result = train(X, X @ W, C=1e4, tol=1e-9, group=group, driver=driver)
    norms = np.linalg.norm(W, axis=1) if group else np.abs(W)
    assert result.converged and result.passes < 15
    assert result.certificate.objective <= norms.sum() * (1.0 + 1e-9)
