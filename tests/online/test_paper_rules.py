"""Sub-gradients, and the mean of the iterates, against truncations of all weights at every row."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import rewrite
from hypothesis import given
from hypothesis import strategies as st
from online_eager import Eager, dense_point, loss_of, slope, stream
from windows import examples

import fcl
from fcl.kernels import averaged
from fcl.online import OnlineOptions, make_learner
from tests.online.conftest import LABELS, ROWS, feed

LOSSES = ("logistic", "squared", "squared_hinge", "hinge")


@given(st.integers(0, 2**31), st.sampled_from(LOSSES), st.sampled_from([1, 3, 10]))
@examples(40)
def test_subgradients_are_equation_5(seed: int, loss: str, period: int) -> None:
    n, p, rate, alpha = 60, 6, 0.05, 0.05
    X, y, s = stream(seed, n, p, loss)
    factors = np.random.default_rng(seed).choice([0.5, 1.0, np.inf], p)
    options = OnlineOptions(
        alpha, loss, rate, step="explicit", period=period, truncation="subgradient", theta=0.0
    )
    learner = make_learner("truncated-gradient", p, options, factors)
    margins = feed(learner, X, y, s, [20, 21])
    w, b, rows, pending = np.zeros(p), 0.0, 0, 0.0
    on = np.isfinite(factors)
    for i in np.flatnonzero(s):
        rows, pending = rows + 1, pending + s[i]
        m = float(X[i] @ w + b)
        assert margins[i] == pytest.approx(m, rel=1e-10, abs=1e-10)
        eta, r = rate / math.sqrt(rows), slope(loss, y[i], m)
        change = eta * s[i] * r * X[i] * on
        if rows % period == 0:
            change += eta * alpha * pending * np.where(on, factors, 0.0) * np.sign(w)
            pending = 0.0
        w, b = w - change, b - eta * s[i] * r
    found, intercept = dense_point(learner)
    np.testing.assert_allclose(found, w, rtol=1e-10, atol=1e-12)
    assert intercept == pytest.approx(b, rel=1e-10, abs=1e-12)
    assert (found != 0.0).sum() == (on & X[s > 0].any(axis=0)).sum()  # it is not sparse
    size = float(np.median(np.abs(w)))
    rounded = make_learner(
        "truncated-gradient",
        p,
        OnlineOptions(
            alpha, loss, rate, step="explicit", period=period, truncation="subgradient", theta=size
        ),
        factors,
    )
    # rounding at the end changes the model, and nothing of the way to it
    assert feed(rounded, X, y, s).tobytes() == margins.tobytes()
    sparse = dense_point(rounded)[0]
    assert np.array_equal(sparse, np.where(np.abs(found) > size, found, 0.0))


@pytest.mark.slow
@given(
    st.integers(0, 2**31),
    st.sampled_from(LOSSES),
    st.sampled_from([1, 4]),
    st.sampled_from([("soft", math.inf), ("soft", 0.05), ("round", 0.03)]),
    st.sampled_from([0.0, 0.5]),
    st.lists(st.integers(1, 59), max_size=3, unique=True),
)
@examples(60)
def test_the_mean_of_the_iterates(
    seed: int, loss: str, period: int, rule: tuple[str, float], power: float, cuts: list[int]
) -> None:
    n, p = 60, 7
    X, y, s = stream(seed, n, p, loss)
    factors = np.random.default_rng(seed).choice([0.5, 1.0, np.inf], p)
    options = OnlineOptions(
        0.05, loss, 0.05, power, step="explicit", period=period, truncation=rule[0],
        theta=rule[1], average=True,
    )  # fmt: skip
    learner = make_learner("truncated-gradient", p, options, factors)
    eager = Eager(options, factors, np.zeros(p))
    total, constant = np.zeros(p), 0.0
    for _ in range(2):
        margins = feed(learner, X, y, s, cuts)
        for i, row in enumerate(zip(X, y, s, strict=True)):
            if row[2]:
                total, constant = total + eager.w, constant + eager.b
            m = eager.learn(*row)
            assert not row[2] or margins[i] == pytest.approx(m, rel=1e-10, abs=1e-10)
        near = np.abs(np.abs(eager.w) - options.theta) < 1e-9
        if near.any():
            return
        for _ in range(2):  # the second time after the flush
            w, b = dense_point(learner)
            count = eager.rows + 1
            scale = 1.0 + np.abs(total).max() / count
            np.testing.assert_allclose(w, (total + eager.w) / count, rtol=0, atol=1e-11 * scale)
            assert b == pytest.approx((constant + eager.b) / count, rel=1e-10, abs=1e-11)
            learner.end_pass()
            eager.passes = learner.passes


def test_many_truncations_between_two_rows_of_a_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the list holds, and a weight that reaches 0 on the way."""
    n = 3 * averaged.MOST_HISTORY + 5
    X = np.zeros((n, 3))
    X[0], X[-1] = [1.0, 100.0, 0.0], [1.0, 1.0, 1.0]
    X[:, 2] = np.arange(n) % 2
    y, s = np.where(np.arange(n) % 3, 1.0, -1.0), np.ones(n)
    options = OnlineOptions(
        1e-3, "logistic", 0.5, 0.0, step="explicit", period=1, average=True, intercept=False
    )
    learner = make_learner("truncated-gradient", 3, options)
    eager, total = Eager(options, np.ones(3), np.zeros(3)), np.zeros(3)
    feed(learner, X, y, s)
    for row in zip(X, y, s, strict=True):
        total += eager.w
        eager.learn(*row)
    w = dense_point(learner)[0]
    np.testing.assert_allclose(w, (total + eager.w) / (n + 1), rtol=1e-9)


def test_theorem_3_2_holds_for_the_mean() -> None:
    """E (1 - A eta/2) R(w^, g/(1 - A eta/2)) <= eta B/2 + |w*|^2/(2 eta T) + R(w*, g), over 40 draws."""
    random = np.random.default_rng(1)
    n, p, g, T = 50, 4, 0.02, 400
    X = random.normal(size=(n, p))
    y = np.where(X[:, 0] + random.normal(size=n) > 0.0, 1.0, -1.0)
    radius2 = float((X**2).sum(axis=1).max())
    for loss in ("hinge", "squared"):
        A, B = (4.0 * radius2, 0.0) if loss == "squared" else (0.0, radius2)
        eta = 0.1 / radius2 if loss == "squared" else 0.02
        shrink = 1.0 - 0.5 * A * eta

        def objective(w: np.ndarray, gravity: float, loss: str = loss) -> float:
            mean = np.mean([loss_of(loss, *pair) for pair in zip(y, X @ w, strict=True)])
            return float(mean + gravity * np.abs(w).sum())

        found, last = [], []
        for _ in range(40):
            draws = random.integers(0, n, T)
            options = OnlineOptions(
                g, loss, eta, 0.0, step="explicit", period=1, average=True, intercept=False
            )
            learner = make_learner("truncated-gradient", p, options)
            feed(learner, X[draws], y[draws], np.ones(T))
            w, _ = dense_point(learner)
            found.append(shrink * objective(w, g / shrink))
            last.append(w)
        candidates = [np.zeros(p), np.mean(last, axis=0)]
        for w in candidates:
            right = eta * B / 2 + w @ w / (2 * eta * T) + objective(w, g)
            assert np.mean(found) + 4.0 * np.std(found) / math.sqrt(40) <= right
            assert right < 3.0 * np.mean(found)


GIVEN: dict[str, Any] = {
    "features": "columns", "method": "truncated-gradient", "alpha": 1e-3, "rate": 0.2,
    "passes": 2, "block_rows": 256, "certify": False, "period": 3,
}  # fmt: skip


def test_states_of_earlier_versions_have_no_new_options(tmp_path: Path) -> None:
    data = fcl.open_data(ROWS, y=LABELS)
    whole = fcl.train_online(data, **GIVEN)
    fcl.train_online(data, **(GIVEN | {"passes": 1})).save(tmp_path / "m.fcl")

    def change(members: dict[str, bytes]) -> None:
        run = json.loads(members["online.json"])
        for name in ("average", "gamma", "max_weight", "rates", "most_nonzero"):
            del run["options"][name]
        members["online.json"] = json.dumps(run).encode()

    rewrite(tmp_path / "m.fcl", change)
    more = fcl.train_online(data, resume=tmp_path / "m.fcl", passes=2, certify=False)
    assert more.model.weights.tobytes() == whole.model.weights.tobytes()
