"""Penalty factors of single features: optimum, and features left out."""

from __future__ import annotations

import json

import numpy as np
import pytest
from saga import l1_saga

import fcl
from fcl.features import Columns

M, C = 40, 0.05


def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    X = random.normal(size=(900, M))
    w = np.zeros(M)
    w[:8] = random.normal(size=8)
    y = np.where(X @ w + random.logistic(size=len(X)) > 0.0, 1.0, -1.0)
    f = np.exp(random.normal(size=M))
    f[3] = np.inf
    return X, y, f


@pytest.mark.parametrize("driver", ["inline", "processes"])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.4])
def test_the_optimum(driver: str, l1_ratio: float) -> None:
    """With pure L1 that of columns divided by their factors, which an independent solver finds."""
    X, y, f = problem()
    data = fcl.open_data(X, y=y)
    result = fcl.train(
        data,
        Columns(factors=f.tolist()),
        C=C,
        l1_ratio=l1_ratio,
        tol=1e-10,
        driver=driver,
        memory="1GiB",
    )
    assert result.converged
    w = np.zeros(M)
    w[result.model.ids] = result.model.weights
    assert w[3] == 0.0
    kept = np.isfinite(f)
    margins = X @ w + result.model.intercept
    loss = np.logaddexp(0.0, -y * margins).sum()
    penalty = (f[kept] * (l1_ratio * abs(w[kept]) + 0.5 * (1 - l1_ratio) * w[kept] ** 2)).sum()
    assert penalty + C * loss == pytest.approx(result.certificate.objective, rel=1e-12)
    slopes = (
        C * X.T @ (-y / (1.0 + np.exp(y * margins))) + (1 - l1_ratio) * np.where(kept, f, 0) * w
    )
    assert np.abs(slopes[kept] / (l1_ratio * f[kept])).max() <= 1.0 + 1e-3
    if l1_ratio == 1.0:
        Z = X[:, kept] / f[kept]
        saga = l1_saga(C=C, tol=1e-8, max_iter=10_000)
        saga.fit(Z, y)
        m = Z @ saga.coef_[0] + saga.intercept_
        best = np.abs(saga.coef_).sum() + C * np.logaddexp(0.0, -y * m).sum()
        assert result.certificate.objective == pytest.approx(best, rel=1e-7)


def test_they_are_kept_with_the_model(tmp_path) -> None:
    X, y, f = problem()
    result = fcl.train(fcl.open_data(X, y=y), Columns(factors=f), C=C, tol=1e-3)
    json.loads(json.dumps(result.model.family.to_config(), allow_nan=False))
    result.model.save(tmp_path / "model.fcl")
    loaded = fcl.load_model(tmp_path / "model.fcl")
    ids = np.arange(M)
    assert (loaded.family.penalty_factors(ids) == f).all()
    assert (loaded.margins(X) == result.model.margins(X)).all()
