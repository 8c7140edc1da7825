"""The hinge loss of online models: kernels and certificates, against linear programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import fcl
from fcl.kernels import losses
from fcl.objective import KINKED_LOSSES, LOSSES, find_loss
from tests import by_name

N, P = 300, 8
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(N, P))
Y = np.where(X[:, :3] @ np.array([1.5, -1.0, 0.7]) + 0.3 + RANDOM.logistic(size=N) > 0.0, 1, -1)


def optimum(x: np.ndarray, y: np.ndarray, C: float, radius: float | None = None) -> float:
    """The least |w|_1 + C sum of hinge losses; with a radius, the least sum within the ball."""
    n, p = x.shape
    weight = 1.0 if radius is None else 0.0
    cost = np.concatenate([np.full(2 * p, weight), [0.0, 0.0], np.full(n, C)])
    rows = y[:, None] * x
    upper = -np.column_stack([rows, -rows, y, -y, np.eye(n)])
    limit = -np.ones(n)
    if radius is not None:
        ball = np.zeros((1, 2 * p + 2 + n))
        ball[0, : 2 * p] = 1.0
        upper, limit = np.vstack([upper, ball]), np.append(limit, radius)
    return float(linprog(cost, upper, limit, bounds=[(0.0, None)] * len(cost)).fun)


def test_kernels_follow_the_definition() -> None:
    loss = find_loss("hinge")
    assert set(KINKED_LOSSES) == {"hinge"} and "hinge" not in LOSSES
    assert loss.code not in {kind.code for kind in LOSSES.values()} and not loss.smooth
    for y in (-1.0, 1.0):
        for m in (-1e9, -2.5, -1.0, 0.0, 1.0 - 1e-9, 1.0, 3.0):
            h = max(0.0, 1.0 - y * m)
            assert losses.loss_value(loss.kernel, y, m) == h
            assert losses.loss_slope_curvature(loss.kernel, y, m) == (-y if h > 0.0 else 0.0, 0.0)
        low, high = (float(end) for end in loss.domain(np.array(y)))
        assert (low, high) == tuple(sorted((0.0, -y)))
        grid = np.linspace(-50.0, 50.0, 100_001)
        for u in np.linspace(low, high, 7):
            most = (u * grid - np.maximum(0.0, 1.0 - y * grid)).max()
            assert losses.conjugate(loss.kernel, y, u) == pytest.approx(most, abs=1e-9)


@pytest.mark.parametrize("method", ["ftrl", "truncated-gradient", "ogd", "ball"])
def test_the_certificate_encloses_the_linear_program(method: str, tmp_path: Path) -> None:
    data = fcl.open_data(X, y=Y)
    radius = 2.0 if method == "ball" else None
    given: dict[str, Any] = {"alpha": 0.02, "loss": "hinge", "method": method, "radius": radius}
    result = by_name.train_online(data, "columns", **given, passes=20)
    model, proof = result.model, result.optimality
    assert result.uncertified is None and model.loss == "hinge" and proof is not None
    norm, hinges = np.abs(model.weights).sum(), np.maximum(0.0, 1.0 - Y * model.margins(X)).sum()
    assert proof.objective == pytest.approx(norm + model.C * hinges, rel=1e-12)
    least = optimum(X, Y, model.C)
    assert proof.bound <= least * (1.0 + 1e-9) and proof.bound > 0.0
    assert least * (1.0 - 1e-9) <= proof.objective
    if method != "ball":
        assert proof.objective <= 1.05 * least
    # the gap of the ball bounds the distance from the best point of the ball
    inside = optimum(X, Y, 1.0, proof.radius)
    assert hinges - inside <= proof.ball_gap * (1.0 + 1e-9)
    # the gap at the best C holds there
    assert proof.best_C is not None and proof.best_gap is not None
    best = norm + proof.best_C * hinges
    assert optimum(X, Y, proof.best_C) >= best * (1.0 - proof.best_gap) * (1.0 - 1e-9)
    result.save(tmp_path / "m.fcl")
    again = fcl.certify(tmp_path / "m.fcl", data)
    assert again.bound == pytest.approx(model.certificate.bound, rel=1e-9)


def test_binary_rows_with_many_margins_at_the_kink() -> None:
    x = (RANDOM.random((200, 5)) < 0.5).astype(float)
    y = np.where(x[:, 0] > 0.0, 1, -1)
    data = fcl.open_data(x, y=y)
    proof = fcl.certify(([2.0, 0.0, 0.0, 0.0, 0.0], -1.0), data, 0.05, loss="hinge")
    assert proof.objective == pytest.approx(2.0, rel=1e-9)
    assert 0.0 <= proof.bound <= optimum(x, y, 0.05) * (1.0 + 1e-9)


def test_estimators_have_no_probabilities() -> None:
    options: dict[str, Any] = {"alpha": 0.01, "loss": "hinge", "rate": 0.1}
    found = fcl.FCLOnlineClassifier(**options).fit(X, Y)
    assert not hasattr(found, "predict_proba") and found.certify(X, Y).bound > 0.0
