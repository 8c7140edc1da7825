"""Sampled rows for the trainer: the loop still ends at the optimum of all rows, however few they are."""

from __future__ import annotations

import numpy as np
import pytest
from explicit import dense_weights, explicit_family, make_solver, reach_the_optimum, run
from judge import LOSSES, Problem, confirm, kmer_matrix
from rows import acceptors, pyrimidines

from fcl.errors import GeneratorError
from fcl.features import KmerFamily
from fcl.solve import view as views

N = 3000
STRENGTHS = {"logistic": 0.3, "squared": 0.01, "squared_hinge": 0.05}


def problem_of(loss: str, intercept: bool = True) -> tuple[np.ndarray, Problem]:
    codes, labels = acceptors(12, N)
    y = pyrimidines(N) if loss == "squared" else labels
    s = np.random.default_rng(2).uniform(0.3, 2.0, N)
    return codes, Problem(kmer_matrix(codes, 2), y, s, loss, STRENGTHS[loss], intercept)


def draw(problem: Problem, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """About ``size`` rows by curvature at the null model, with a uniform floor; their inclusion."""
    b, _ = problem.null()
    q = problem.s * problem.bends(np.full(len(problem.y), b))
    share = 0.8 * q / max(q.sum(), 1e-300) + 0.2 * problem.s / problem.s.sum()
    inclusion = np.minimum(1.0, size * share)
    rows = np.flatnonzero(np.random.default_rng(seed).random(len(share)) < inclusion)
    return rows, inclusion[rows]


@pytest.mark.parametrize("rho", [0.7, 0.1])
@pytest.mark.parametrize("loss", LOSSES)
def test_squares_and_factors_on_few_rows(loss: str, rho: float) -> None:
    """Corrections belong to the loss alone: the penalty is the same on any rows."""
    random = np.random.default_rng(6)
    phi = np.column_stack([random.normal(size=(N, 30)), random.random((N, 20)) < 0.1])
    phi = phi.astype(np.float32).astype(np.float64)
    m = phi[:, 0] - phi[:, 1] + 2.0 * phi[:, 40] + random.normal(size=N)
    y = m if loss == "squared" else np.where(m > 0.5, 1.0, -1.0)
    f = random.uniform(0.5, 2.0, phi.shape[1])
    problem = Problem(phi, y, np.ones(N), loss, STRENGTHS[loss], True, rho, f)
    family = explicit_family(phi, f)
    solver = make_solver(family, phi, problem, tol=1e-5, sample=draw(problem, 400))
    assert solver.local.view.objective.n_rows < 600
    reach_the_optimum(solver, problem, 150)


@pytest.mark.slow
def test_thirty_rows_do_not_diverge() -> None:
    """Most columns have no row in the sample: only the floor bounds their steps."""
    codes, problem = problem_of("logistic")
    best = problem.solve()
    solver = make_solver(KmerFamily(2, 12), codes, problem, tol=1e-3, sample=draw(problem, 30))
    passes = run(solver, 100)
    objectives = [p.objective for p in passes]
    assert objectives == sorted(objectives, reverse=True)
    lost = (objectives[-1] - best.objective) / (objectives[0] - best.objective)
    assert lost < 0.01 and passes[-1].gap < 5e-2
    confirm(problem, dense_weights(solver), solver.outer.point.intercept, passes[-1], best)


def test_a_lower_local_objective_is_a_direction_of_descent() -> None:
    """Q falls => P falls along the first part of the step: the exact slope at the anchor is below 0."""
    codes, problem = problem_of("logistic")
    solver = make_solver(KmerFamily(2, 12), codes, problem, tol=1e-6, sample=draw(problem, 200))
    tried = 0
    for _ in range(8):
        solver.price()
        solver.admit()
        solved = solver.train()
        w, b = dense_weights(solver), solver.outer.point.intercept
        proposal = solver.proposal()
        d = -w
        d[proposal.ids] += proposal.weights
        if solved.decrease > 0.0:
            prices = problem.prices(w, b)
            slope = prices @ d + (np.sign(w) @ d) + np.abs(d[w == 0.0]).sum()
            slope += problem.C * problem.residuals(w, b).sum() * (proposal.intercept - b)
            assert slope < 0.0
            tried += 1
        before = solver.outer.objective
        solver.propose(proposal)
        assert solver.outer.objective <= before
    assert tried >= 5


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_at_an_anchor_the_moments_are_known(
    loss: str, sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those that corrected the view; elsewhere they are computed."""
    codes, problem = problem_of(loss)
    if sampled:
        solver = make_solver(KmerFamily(2, 12), codes, problem, sample=draw(problem, 300))
    else:  # columns of a user's class, which are verified
        phi = np.asarray(problem.phi, np.float32)
        solver = make_solver(explicit_family(phi), phi, problem)
    run(solver, 3)
    solver.admit()
    local, own = solver.local, solver.local.trainer
    columns = np.arange(solver.cache.n)
    assert len(columns) > 20
    local.return_to_anchor()
    assert own._knows()
    known = own._localise(columns)
    with monkeypatch.context() as changed:
        changed.setattr(own, "_knows", lambda *_: False)
        computed = own._localise(columns)
    scale = np.abs(computed.gradients).max()
    assert known.gradients == pytest.approx(computed.gradients, rel=1e-9, abs=1e-9 * scale)
    assert known.curvatures == pytest.approx(computed.curvatures, rel=1e-9)
    local.working.weights[0] += 0.1
    local.trainer.start(local.view, local.working, own.free, own.free)
    assert not own._knows()


def test_rounding_is_judged_by_all_rows_of_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by those without curvature: a column that has it nowhere is as right as any other."""
    _, problem = problem_of("logistic")
    phi = np.asarray(problem.phi, np.float32)
    solver = make_solver(explicit_family(phi), phi, problem)
    run(solver, 2)
    view, working, n = solver.local.view, solver.local.working, solver.cache.n
    g = working.gradients[:n] - working.correction[:n] * (1.0 + 1e-7)
    assert (g != working.gradients[:n]).any()
    nowhere = np.zeros(n)
    view._correct_rounding(0, working, 0, g, nowhere)
    g[7] += 1e-3 * np.abs(g).max()
    moments, asked = views.column_moments, []
    monkeypatch.setattr(
        views, "column_moments", lambda w, j, *a: asked.append(j.min()) or moments(w, j, *a)
    )
    for first in (0, 5):
        with pytest.raises(GeneratorError, match=f"feature {solver.cache.ids[7]} has the gradient"):
            view._correct_rounding(0, working, first, g[first:], nowhere[first:])
        assert asked[-1] >= first
    view._correct_rounding(0, working, 8, g[8:], nowhere[8:])


@pytest.mark.parametrize("loss", LOSSES)
def test_corrections_make_the_gradient_at_the_anchor_exact(loss: str) -> None:
    codes, problem = problem_of(loss)
    rows, inclusion = draw(problem, 300)
    solver = make_solver(KmerFamily(2, 12), codes, problem, sample=(rows, inclusion))
    for _ in range(4):
        solver.price()
        solver.admit()
        solver.train()
        solver.propose(solver.proposal())
    solver.price()
    solver.admit()
    working, view = solver.local.working, solver.local.view
    ids = working.cache.ids
    w, b = dense_weights(solver), solver.outer.point.intercept
    part = Problem(
        problem.phi[rows], problem.y[rows], problem.s[rows] / inclusion, loss, problem.C, True
    )
    assert len(ids) > 20
    r, r_part = problem.residuals(w, b), part.residuals(w, b)
    exact = (r @ problem.phi)[ids]
    n = len(ids)
    assert working.gradients[:n] == pytest.approx(exact, rel=1e-10, abs=1e-9)
    sampled = (r_part @ part.phi)[ids]
    assert np.abs(sampled - exact).max() > 1.0  # else the test shows nothing
    assert sampled + working.correction[:n] == pytest.approx(exact, rel=1e-9, abs=1e-9)
    assert r_part.sum() + view.free_correction[0] == pytest.approx(r.sum(), abs=1e-8)
    # the curvature with its floor is nowhere below the exact one; the intercept's not below half of it
    q = problem.s * problem.bends(problem.margins(w, b))
    q_part = part.s * part.bends(part.margins(w, b))
    h = (q @ problem.phi**2)[ids]
    assert ((q_part @ part.phi**2)[ids] + working.floor[:n] >= h * (1.0 - 1e-12)).all()
    assert q_part.sum() + view.free_floor[0] >= 0.5 * q.sum() * (1.0 - 1e-12)


def test_all_rows_need_no_correction() -> None:
    codes, problem = problem_of("logistic")
    solver = make_solver(KmerFamily(2, 12), codes, problem)
    solver.price()
    solver.admit()
    n = solver.cache.n
    assert n > 20 and solver.local.view.complete
    assert not solver.local.working.correction[:n].any()
    assert (solver.local.working.floor[:n] == solver.local.view.least_curvature).all()
    assert 0.0 < solver.local.view.least_curvature < 1e-10
    assert (solver.local.view.free_correction == 0.0).all()


def test_sampled_rows_of_real_values() -> None:
    random = np.random.default_rng(6)
    phi = np.column_stack([random.normal(size=(2000, 30)), 20.0 + random.normal(size=(2000, 5))])
    phi = phi.astype(np.float32).astype(np.float64)
    y = np.where(phi[:, 0] - phi[:, 1] + random.normal(size=2000) > 1.0, 1.0, -1.0)
    problem = Problem(phi, y, np.ones(2000), "logistic", 0.05)
    sample = draw(problem, 200)
    solver = make_solver(explicit_family(phi), phi, problem, tol=1e-3, sample=sample)
    reach_the_optimum(solver, problem, 300)


def test_columns_that_are_equal_in_the_sample_alone() -> None:
    """Two strong patterns with no row in the view: both columns are empty there, and both enter."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 4, (4000, 6)).astype(np.uint8)
    first, second = (codes[:, :3] == 0).all(axis=1), (codes[:, 3:] == 3).all(axis=1)
    y = np.where(rng.random(4000) < 0.5, 1.0, -1.0)
    y[first], y[second & ~first] = 1.0, -1.0
    problem = Problem(kmer_matrix(codes, 3), y, np.ones(4000), "logistic", 0.5)
    rows = np.flatnonzero(~first & ~second)[:600]
    sample = (rows, np.full(600, 600 / 4000))
    solver = make_solver(KmerFamily(3, 6), codes, problem, tol=1e-4, sample=sample)
    reach_the_optimum(solver, problem)
