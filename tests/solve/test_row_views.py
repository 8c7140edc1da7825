"""Sampled rows for the trainer: the loop still ends at the optimum of all rows, however few they are."""

from __future__ import annotations

import numpy as np
import pytest
from explicit import dense_weights, explicit_family, make_solver, reach_the_optimum, run
from judge import LOSSES, Problem, confirm, kmer_matrix
from rows import acceptors, pyrimidines

from fcl.features import KmerFamily

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
