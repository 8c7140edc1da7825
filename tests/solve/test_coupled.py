"""The trainer of coupled outputs reaches the optimum of an independent solver."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from judge_outputs import ClassProblem, TargetProblem
from scipy.special import softmax

import fcl
from fcl.cache import ColumnCache
from fcl.features.base import DenseColumns
from fcl.kernels.coupled_blocks import block_length
from fcl.objective import GroupPenalty, Objective, Penalty, find_loss, make_objective
from fcl.solve import coupled_exact, coupled_groups, coupled_model
from fcl.solve.coupled import CoupledTrainer
from fcl.solve.inner import InnerModel
from fcl.solve.line import norm_rise
from fcl.solve.local import LocalProblem
from fcl.solve.state import Point
from fcl.solve.trainer import StepResult
from fcl.solve.view import RowView


@dataclass
class Case:
    """A small problem; y are class numbers, or (K, n) targets or labels."""

    phi: np.ndarray
    y: np.ndarray
    loss: str
    group: bool
    C: float = 0.3
    l1_ratio: float = 1.0
    K: int = 4
    s: np.ndarray = field(default_factory=lambda: np.empty(0))
    f: np.ndarray = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        n, k = self.phi.shape
        self.s = self.s if len(self.s) else np.ones(n)
        self.f = self.f if len(self.f) else np.ones(k)

    @property
    def outputs(self) -> Objective:
        penalty = (GroupPenalty if self.group else Penalty)(self.l1_ratio)
        loss = find_loss(self.loss)
        return make_objective(loss, self.y, self.s, self.C, self.K, penalty=penalty, block_rows=64)

    @property
    def judge(self) -> ClassProblem:
        given = (self.phi, self.y.T, self.s, self.K, self.C, self.f, self.l1_ratio, self.group)
        if self.loss == "softmax":
            return ClassProblem(*given)
        return TargetProblem(*given, kind=self.loss)

    def margins(self, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (self.phi @ w + b).T

    def value(self, w: np.ndarray, b: np.ndarray) -> float:
        return self.judge.objective(w, b)

    def optimum(self) -> float:
        """By the judge, on centred columns, for which the free intercepts compensate."""
        centred = replace(self.judge, phi=self.phi - self.phi.mean(axis=0))
        return centred.objective(*centred.solve())


def make_case(loss: str, group: bool, n: int = 90, k: int = 12, **rest: object) -> Case:
    """A problem with informative, duplicate, constant and sparse columns."""
    random = np.random.default_rng(5)
    phi = random.normal(size=(n, k)).astype(np.float32).astype(np.float64)
    phi[:, 1] = phi[:, 0]
    phi[:, 2] = 3.0
    phi[:, 3] = 200.0 + phi[:, 3]
    phi[:, 4:7] *= random.random((n, 3)) < 0.2
    phi = phi.astype(np.float32).astype(np.float64)
    score = phi[:, :4] @ random.normal(size=(4, 4)) * 0.7 + random.gumbel(size=(n, 4))
    score -= score.mean(axis=0)
    if loss == "softmax":
        score[:, 3] -= np.sort(score[:, 3] - score[:, :3].max(axis=1))[-4] + 1e-9
        y = score.argmax(axis=1).astype(float)  # three rows of the last class
        assert (y == 3.0).sum() == 3
    else:
        y = score.T.copy() if loss == "squared" else np.where(score.T > 0.3, 1.0, -1.0)
    return Case(phi, y, loss, group, **rest)  # type: ignore[arg-type]


def solver_of(case: Case, rows: np.ndarray | None = None, entries: int = 1 << 16) -> LocalProblem:
    """A solver at the null model, with all columns in its cache; rows : a sample."""
    objective = case.outputs
    n, k = len(case.s) if rows is None else len(rows), case.phi.shape[1]
    part = objective if rows is None else objective.take(rows, case.s[rows] * len(case.s) / n)
    view = RowView(rows, part)
    cache = ColumnCache(1 << 18, k, n, 64, binary=False)
    trainer = CoupledTrainer(InnerModel(n, k, entries, 1, False, 64), (case.K,))
    solver = LocalProblem(view, cache, trainer, lambda ids: case.f[ids])
    b = np.zeros(case.K)
    m = np.zeros((case.K, len(case.s)))
    b += objective.fit_unpenalised(m).x
    point = Point(np.empty(0, np.int64), np.empty((0, case.K)), 0.0, b)
    columns = (case.phi if rows is None else case.phi[rows]).T.astype(np.float32)
    blocks = [
        DenseColumns(np.ascontiguousarray(columns[:, at : at + 64]), len(columns[0, at : at + 64]))
        for at in range(0, n, 64)
    ]
    staged = cache.measure(np.arange(k), blocks)
    assert all(cache.admit(staged, t) for t in range(k))
    move_to(solver, case, point)
    return solver


def move_to(solver: LocalProblem, case: Case, point: Point) -> None:
    """Move the anchor to a point, with exact gradients."""
    objective = case.outputs
    w = point.weights_of(np.arange(case.phi.shape[1]))
    m = case.margins(w, point.covariates).copy()
    r, q = np.empty_like(m), np.empty_like(m)
    objective.residuals_curvatures(m, r, q)
    if solver.working.of("factor").shape[0] and not solver.anchor.ids.size:
        empty = np.zeros((solver.cache.n, case.K))
        exact = ((case.phi**2).T @ q.T).copy()
        solver.view.anchor(m, 0.0, r.sum(axis=1), q.sum(axis=1))
        solver.entered(0, empty, case.phi.T @ r.T, exact)
    exact = (case.phi**2).T @ q.T
    solver.move_anchor(point, m, case.phi.T @ r.T, exact, r.sum(axis=1), q.sum(axis=1))
    solver.return_to_anchor()


def solve(case: Case, rounds: int = 6, **options: object) -> tuple[float, np.ndarray]:
    """The objective by the judge at the solver's last anchor, and the weights."""
    solver = solver_of(case, **options)  # type: ignore[arg-type]
    for _ in range(rounds):
        solved = solver.solve(1e-9, 30)
        assert solved.decrease >= 0.0
        move_to(solver, case, solver.point())
    point = solver.anchor
    return case.value(
        point.weights_of(np.arange(case.phi.shape[1])), point.covariates
    ), point.weights


@pytest.mark.slow
@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("loss", ["softmax", "squared", "logistic"])
def test_the_optimum_is_that_of_the_judge(loss: str, group: bool) -> None:
    case = make_case(loss, group, C=0.02 if loss == "squared" else 0.3)
    found, weights = solve(case)
    assert found == pytest.approx(case.optimum(), rel=1e-8)
    assert 0 < weights.any(axis=1).sum() < 12


@pytest.mark.thin(2)
@pytest.mark.parametrize("group", [True, False])
def test_weights_of_rows_penalty_factors_and_squares(group: bool) -> None:
    random = np.random.default_rng(1)
    extra = {"s": random.uniform(0.1, 3.0, 90), "f": random.uniform(0.5, 2.0, 12)}
    case = make_case("softmax", group, l1_ratio=0.6, **extra)
    assert solve(case)[0] == pytest.approx(case.optimum(), rel=1e-8)


@pytest.mark.slow
def test_without_elimination_and_with_a_bound_of_the_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fallback for very many outputs."""
    monkeypatch.setattr(coupled_model, "MOST_CROSS", 0)
    for group in (True, False):
        case = make_case("softmax", group)
        assert solve(case)[0] == pytest.approx(case.optimum(), rel=1e-8)


@pytest.mark.parametrize("group", [True, False])
def test_the_exact_hessian_is_summed_over_chunks_of_rows(
    monkeypatch: pytest.MonkeyPatch, group: bool
) -> None:
    case = make_case("softmax", group)
    value = solve(case, rounds=2)[0]
    calls = []
    minimise = coupled_exact.over_chunks
    monkeypatch.setattr(coupled_exact, "over_chunks", lambda *a: calls.append(a) or minimise(*a))
    monkeypatch.setattr(coupled_exact, "CHUNK_ENTRIES", 1000)  # 9 rows of 12 weights of 3 outputs
    assert solve(case, rounds=2)[0] == pytest.approx(value, rel=1e-12) and calls


@pytest.mark.slow
def test_a_sample_of_the_rows_leads_to_the_same_optimum() -> None:
    case = make_case("softmax", True, n=300)
    rows = np.sort(np.random.default_rng(2).choice(300, 200, replace=False))
    assert solve(case, rounds=25, rows=rows)[0] == pytest.approx(case.optimum(), rel=1e-7)


def test_a_sample_corrects_each_intercept_by_the_rows_it_lacks() -> None:
    random = np.random.default_rng(0)
    case = Case(
        random.normal(size=(90, 3)), random.integers(0, 4, 90).astype(float), "softmax", False
    )
    m, rows = random.normal(size=(4, 90)), np.arange(0, 90, 3)
    p = softmax(m, axis=0)
    r = p - np.eye(4)[case.y.astype(int)].T
    view = RowView(rows, case.outputs.take(rows, np.ones(30)))
    view.anchor(m, 0.0, r.sum(axis=1), (p * (1.0 - p)).sum(axis=1))
    np.testing.assert_allclose(
        view.correction_at(np.zeros(4)), r.sum(axis=1) - r[:, rows].sum(axis=1)
    )
    np.testing.assert_array_equal(view.margins, m[:, rows])
    np.testing.assert_allclose(view.focus(2, 0.5).margins, m[2, rows] - 0.5)


def test_a_small_buffer_samples_rows_for_the_model() -> None:
    case = make_case("softmax", True)
    assert solve(case, entries=500)[0] == pytest.approx(case.optimum(), rel=1e-8)


def test_rows_of_group_weights_sum_to_0_and_l1_is_sagas() -> None:
    from saga import l1_saga

    _, weights = solve(make_case("softmax", True))
    assert np.abs(weights.sum(axis=1)).max() < 1e-8
    case = make_case("softmax", False)
    case = replace(case, phi=np.delete(case.phi, [2, 3], axis=1), f=np.ones(10))
    peer = l1_saga(C=case.C, tol=1e-9, max_iter=20000)
    peer.fit(case.phi, case.y)
    assert solve(case)[0] == pytest.approx(case.value(peer.coef_.T, peer.intercept_), rel=1e-8)


def test_steps_lower_the_objective_by_what_they_say() -> None:
    case = make_case("softmax", True)
    solver = solver_of(case)
    before = case.value(np.zeros((12, 4)), solver.free)
    total = 0.0
    for _ in range(3):
        total += solver.step(0.0).decrease
    point = solver.point()
    after = case.value(point.weights_of(np.arange(12)), point.covariates)
    assert before - after == pytest.approx(total, rel=1e-9)
    assert solver.rise() == pytest.approx(after - before, rel=1e-9)


def test_newton_steps_of_groups_solve_their_system_in_any_units() -> None:
    random = np.random.default_rng(4)
    factor, units = random.normal(size=(9, 6)), 10.0 ** random.integers(-6, 7, 6)
    matrix = (factor.T @ factor) * units * units[:, None]
    found = coupled_groups._solved(matrix, matrix @ (1.0 / units))
    np.testing.assert_allclose(found * units, 1.0, rtol=1e-9)


def test_lengths_of_blocks_and_changes_of_norms() -> None:
    random = np.random.default_rng(0)
    for scale in (1e-8, 1.0, 1e8):
        e, c = scale * random.uniform(1e-6, 3.0, 5), random.normal(size=5)
        threshold = 0.3 * np.linalg.norm(c)
        length = block_length(c, e, threshold)
        z = c / (e + threshold / length)
        assert np.linalg.norm(z) == pytest.approx(length, rel=1e-10)
    w, d = random.normal(size=(2, 3, 4))
    w[0], d[1] = 0.0, -w[1]
    for group, order in ((True, 2), (False, 1)):
        change = np.linalg.norm(w + d, order, axis=1) - np.linalg.norm(w, order, axis=1)
        assert norm_rise(w, d, group) == pytest.approx(change, rel=1e-12, abs=1e-14)


def test_a_step_that_exceeds_the_gap_is_refused_unless_it_is_the_first() -> None:
    solver = solver_of(make_case("softmax", True))
    solver.trainer.most_decrease = 0.0
    assert solver.step(0.0).moved
    assert not solver.step(0.0).moved
    solver.trainer.most_decrease = math.inf
    solver.restart(solver.free)  # as at the next anchor
    assert solver.step(0.0).moved


@pytest.mark.thin(2)
@pytest.mark.parametrize("group", [False, True])
def test_the_plan_covers_the_allocations_of_a_step(
    group: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors over rows, products of classes and columns; the buffers were made before."""
    n, k, K = 1500, 40, 30
    random = np.random.default_rng(0)
    x, y = random.normal(size=(n, k)), np.arange(n) % K
    x[:, :20] += random.normal(size=(K, 20))[y]
    step, peaks = CoupledTrainer.step, []

    def measured(self: CoupledTrainer, *arguments: object) -> StepResult:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        result = step(self, *arguments)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
        return result

    monkeypatch.setattr(CoupledTrainer, "step", measured)
    data = fcl.open_data(x, y=y)
    for _ in range(2):  # the first time, kernels are loaded
        peaks.clear()
        tracemalloc.start()
        try:
            fcl.train(data, "columns", C=0.1, loss="softmax", group=group, max_passes=3, tol=0.1)
        finally:
            tracemalloc.stop()
    planned = CoupledTrainer.bytes_for(n, k, K, group) + k * CoupledTrainer.column_bytes(K)
    planned -= 4 * 8 * K * n
    assert 0.3 * planned < max(peaks) <= planned


def test_raised_curvatures_bound_flat_rows_from_below() -> None:
    p = np.array([[1.0, 0.2], [0.0, 0.3], [0.0, 0.5]])
    hessians = coupled_model.RowHessians(p, np.array([2.0, 3.0]), True)
    assert hessians.raised(0.0) is hessians
    raised = hessians.raised(1.0)
    np.testing.assert_allclose(raised.p, 0.5 * p + 1.0 / 6.0)
    flat = np.linalg.eigvalsh(np.diag(raised.p[:, 0]) - np.outer(raised.p[:, 0], raised.p[:, 0]))
    assert abs(flat[0]) < 1e-15
    assert flat[1] > 0.16
    separate = coupled_model.RowHessians(p, np.ones(2), False)
    assert separate.raised(1.0) is separate
