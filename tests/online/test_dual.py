"""Dual cached loops: the dual objective never falls, and the gap goes to 0 with any cache."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tools.bench import online_baselines as dual


def problem(n: int = 80, p: int = 20) -> tuple[sparse.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(5)
    X = sparse.random(n, p, 0.3, "csr", random_state=rng, data_rvs=rng.standard_normal)
    y = np.where(X @ rng.normal(size=p) + 0.5 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    return X, y


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.5, 10.0])
@pytest.mark.parametrize("part", [1, 5])
def test_dual_rises_to_the_optimum(squared: bool, share: float, part: int) -> None:
    X, y = problem()
    n, p = X.shape
    C, a, w = 0.5, np.zeros(n), np.zeros(p)
    cache = dual.make_cache(n, n // part)
    norms = np.asarray(X.multiply(X).sum(axis=1)).ravel()
    last, counts = 0.0, set()
    matrix = (X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data)
    for _ in range(4000):
        dual.train_dual(*matrix, y, norms, C, squared, share, 2, 50, a, w, cache)
        primal, bound = dual.primal_and_dual(X, y, C, squared, a, w)
        assert bound >= last - 1e-12 and primal >= bound - 1e-12
        assert a.min() >= 0.0 and (squared or a.max() <= C)
        assert np.abs(X.T @ (a * y) - w).max() <= 1e-9
        count = int(cache.state[dual.COUNT])
        rows = cache.rows[:count]
        assert (cache.place[rows] == np.arange(count)).all() and (cache.place >= 0).sum() == count
        counts.add(count)
        last = bound
        if primal - bound <= 1e-6 * primal:
            break
    assert primal - bound <= 1e-6 * primal
    assert max(counts) <= n // part
    if share == 0.0 and part == 5:
        assert len(counts) > 1  # rows at a bound have left


def test_descent_on_cached_rows_equals_eager_truncation() -> None:
    X, y = problem()
    n, p = X.shape
    C, rate = 2.0, 0.4
    w, seen = np.zeros(p), np.zeros(p)
    cache, same = dual.make_cache(n, n // 4), dual.make_cache(n, n // 4)
    dense, b = np.zeros(p), 0.0
    matrix = (X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data)
    for t in range(500):
        dual.train_l1(*matrix, y, C, rate, 3, 1, w, seen, cache)
        if t % 3 == 0:
            dual.read_row(same)
        i = same.rows[dual.draw_row(same)]
        x = X[[i]].toarray()[0]
        eta = rate / (1.0 + rate * t / (C * n))
        step = eta * y[i] / (1.0 + np.exp(y[i] * (dense @ x + b)))
        dense, b = dense + step * x, b + step
        dense = np.sign(dense) * np.maximum(np.abs(dense) - eta / (C * n), 0.0)
        assert np.abs(dual.settled(w, seen, cache) - dense).max() <= 1e-12
    assert cache.sums[dual.BIAS] == pytest.approx(b, rel=1e-10)
    assert np.count_nonzero(dense) > 0
