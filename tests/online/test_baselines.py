"""The baselines of tools/bench do what their papers say."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fcl
from fcl.kernels.losses import LOGISTIC, SQUARED
from fcl.online import project_l1_ball
from tests.online.test_ball import Rows, dense, learner_for
from tools.bench import data as bench_data
from tools.bench import online_ball
from tools.bench import online_baselines as loops
from tools.bench.online_baselines import INTERCEPT, ROOT, ROWS, SHIFT, STATES, TOTAL


def walk(t: loops.Tree, v: int) -> list[int]:
    """The nodes of a subtree in order; asserts its sizes, sums and priorities."""
    none = len(t.raw) - 1
    if v == none:
        return []
    before, after = walk(t, t.left[v]), walk(t, t.right[v])
    assert all(t.priority[v] > t.priority[c] for c in (t.left[v], t.right[v]) if c != none)
    nodes = [*before, v, *after]
    assert t.size[v] == len(nodes)
    assert t.total[v] == t.raw[v] + t.total[t.left[v]] + t.total[t.right[v]]
    return nodes


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "radius", "rate"), [
    ("logistic", 1.0, 0.5), ("logistic", 5.0, 2.0), ("logistic", 0.05, 0.1), ("squared", 0.3, 0.05),
])  # fmt: skip
def test_tree_heap_list_and_whole_vector_agree_after_every_row(
    loss: str, radius: float, rate: float
) -> None:
    rows = Rows(11, 250, 30)
    rows.s[:] = 1.0
    rows.offset[:] = 0.0
    p = rows.p
    heap = learner_for(rows, loss=loss, radius=radius, rate=rate, step="explicit")
    tree, state = loops.make_tree(p), np.zeros(STATES)
    state[ROOT] = p
    w, v, out, list_state, dense_state = *np.zeros((3, p)), *np.zeros((2, STATES))
    listed, members = np.zeros(p, np.uint8), np.zeros(p, int)
    code = (SQUARED if loss == "squared" else LOGISTIC, 0.0, 0.0)
    shift, paid = 0.0, np.zeros(3)
    for i in range(rows.n):
        rows.learn(heap, i, i + 1)
        given = (rows.indptr, rows.ids, rows.values, rows.y, i, i + 1, code, rate, radius)
        paid += [
            loops.descend_tree(*given, tree, state),
            loops.descend_list(*given, w, listed, members, list_state),
            loops.descend_dense(*given, v, out, dense_state),
        ]
        found = dense(heap)
        for other in (loops.tree_weights(tree, state), w):
            assert np.abs(other - found).max() <= 1e-10 and np.abs(other - v).max() <= 1e-10
        nodes = walk(tree, int(state[ROOT]))
        assert sorted(nodes) == np.flatnonzero(tree.raw[:-1] > state[SHIFT]).tolist()
        keys = [(tree.raw[j], j) for j in nodes]
        assert keys == sorted(set(keys)) and state[SHIFT] >= shift
        assert sum(tree.raw[j] - state[SHIFT] for j in nodes) <= radius * (1.0 + 1e-10)
        shift = state[SHIFT]
        assert set(members[: int(list_state[ROOT])]) == set(np.flatnonzero(listed))
        assert heap.intercept == pytest.approx(state[INTERCEPT], rel=1e-9)
    assert shift > 0.0 and np.ptp(paid) <= 1e-9 * paid[0] and state[ROWS] == rows.n


@pytest.mark.parametrize("batch", [1, 30])
def test_exponentiated_gradient_equals_its_full_form(batch: int) -> None:
    rows = Rows(15, 400, 25)
    z, rate, p = 4.0, 3.0, rows.p
    up, down, gradient, state = loops.make_eg(p)
    X, full, b = rows.matrix(), np.full(2 * p, z / (2 * p)), 0.0
    errors, taken = 0, 0
    given = (rows.indptr, rows.ids, rows.values, rows.y, 0, rows.n, (LOGISTIC, 0.0, 0.0))
    paid, wrong = loops.descend_eg(*given, rate, 1.0, 0.5, z, batch, up, down, gradient, state)
    for first in range(0, rows.n, batch):
        some, y = X[first : first + batch], rows.y[first : first + batch]
        m = some @ (full[:p] - full[p:]) + b
        paid -= np.logaddexp(0.0, -y * m).sum()
        errors += np.count_nonzero(y * m <= 0.0)
        slopes = -y / (1.0 + np.exp(y * m))
        taken += len(y)
        length = 1.0 / math.sqrt(taken / batch)
        b -= length * slopes.mean()
        change = rate * length * (slopes @ some) / len(y)
        full *= np.exp(np.concatenate([-change, change]))
        full *= z / full.sum()
    both = z * np.concatenate([up, down]) / state[TOTAL]
    assert np.abs(both - full).max() <= 1e-12 * z and not gradient.any()
    assert abs(paid) <= 1e-8 and wrong == errors and state[INTERCEPT] == pytest.approx(b)
    before = (up - down) / state[TOTAL]
    loops.total_of(up, down, state)
    assert state[TOTAL] == pytest.approx(1.0) and np.allclose((up - down) / state[TOTAL], before)


@pytest.mark.slow
@pytest.mark.parametrize("squared", [True, False])
def test_coordinate_descent_and_interior_points_find_the_optimum_of_fcl(squared: bool) -> None:
    """Of the penalised problem, and of the ball whose radius is the norm of this optimum."""
    from scipy import sparse

    rng = np.random.default_rng(14)
    X = rng.normal(size=(80, 30))
    truth = np.where(rng.random(30) < 0.5, rng.normal(size=30), 0.0)
    y = X @ truth + rng.normal(size=80)
    y = y if squared else np.sign(y)
    C = 0.02 if squared else 0.2
    loss = "squared" if squared else "logistic"
    model = fcl.train(fcl.open_data(X, y=y), "columns", C=C, loss=loss, tol=1e-9).model
    w = np.zeros(30)
    w[model.ids] = model.weights
    assert 3 < len(model.ids) < 30
    problem = online_ball.Problem(bench_data.Rows(sparse.csr_matrix(X), y), squared, w, C)
    limits = online_ball.Limits(1e6, 60.0, 1e-9)
    found = online_ball.curve(problem, online_ball.descent(problem), limits)
    assert found[-1][2] <= 1e-9 and found[0][0] == 0.0 < found[1][0]
    few = limits._replace(passes=20.0)
    rate = 0.05 if squared else 1.0
    runs = [online_ball.stochastic(problem, method, 20, rate) for method in ("ball", "EG")]
    for steps in (*runs, online_ball.exponentiated(problem, rate)):
        values = [value for _, _, value in online_ball.curve(problem, steps, few)]
        assert min(values) < 0.7 * values[0]
    pytest.importorskip("clarabel")
    found = online_ball.curve(problem, online_ball.interior_point(problem, 100), limits)
    assert found[-1][2] <= 1e-6


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_line_search_never_rises_and_its_gap_is_honest(loss: str) -> None:
    """fcl's optimum, at the norm of its weights, is the optimum of the ball of that radius."""
    rng = np.random.default_rng(13)
    X = rng.normal(size=(60, 25))
    truth = np.where(rng.random(25) < 0.5, rng.normal(size=25), 0.0)
    y = X @ truth + rng.normal(size=60)
    y = y if loss == "squared" else np.where(y > 0.0, 1.0, -1.0)
    best = fcl.train(
        fcl.open_data(X, y=y), "columns", C=0.02 if loss == "squared" else 0.4, loss=loss, tol=1e-10
    ).model
    w = np.zeros(25)
    w[best.ids] = best.weights
    z = float(np.abs(w).sum())
    problem = online_ball.Batch(X, y, loss == "squared")
    optimum, gradient = problem.value(w)
    assert 3 < np.count_nonzero(w) < 25
    assert 0.0 <= online_ball.gap_of(w, gradient, z) <= 1e-5 * optimum
    last = math.inf
    for step, found in enumerate(online_ball.line_search(problem, z, 25)):
        assert found.value <= last and np.abs(found.w).sum() <= z * (1.0 + 1e-12)
        assert found.gap >= found.value - optimum - 1e-9 * optimum
        last = found.value
        if found.gap <= 1e-7 * optimum or step == 3000:
            break
    assert found.gap <= 1e-7 * optimum and found.value - optimum <= 1e-7 * optimum
    for step, found in enumerate(online_ball.fixed_rates(problem, z, 25, 1.0)):
        assert found.gap >= found.value - optimum - 1e-9 * optimum
        if step == 100:
            break
    assert np.abs(project_l1_ball(found.w, z) - found.w).max() <= 1e-12
