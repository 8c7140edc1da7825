"""Sampled rows for the trainer: the loop still ends at the optimum of all rows, however few they are."""

from __future__ import annotations

import numpy as np
from explicit import dense_weights, make_solver, reach_the_optimum
from judge import Problem, kmer_matrix
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
