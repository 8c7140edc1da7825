"""The trainer lowers the local objective, leaves no tiny weights, and stops at its target."""

from __future__ import annotations

import math

import numpy as np
import pytest
from explicit import make_solver, run
from judge import ALL_LOSSES, Problem, kmer_matrix
from rows import STRENGTHS, acceptors, targets

from fcl.features import KmerFamily
from fcl.solve import inner
from fcl.solve.solver import Certified, Solver

#: Problems as small as these would be solved by their whole Hessian (test_exact.py).
pytestmark = pytest.mark.usefixtures("coordinate_descent")


def ready(
    loss: str, passes: int = 1, intercept: bool = True, **options: object
) -> tuple[Solver, Problem]:
    """A solver with columns in its cache, after some passes."""
    codes, y = acceptors(14, 400)[0], targets(loss, 400)
    problem = Problem(kmer_matrix(codes, 3), y, np.ones(400), loss, STRENGTHS[loss], intercept)
    solver = make_solver(KmerFamily(3, 14), codes, problem, **options)  # type: ignore[arg-type]
    run(solver, passes)
    solver.admit()
    return solver, problem


def trained(solver: Solver) -> np.ndarray:
    """The trainer's weights as a vector over the family."""
    w = np.zeros(solver.family.n_features)
    n = solver.cache.n
    w[solver.cache.ids] = solver.local.working.weights[:n]
    return w


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_the_decrease_is_the_judges(loss: str, intercept: bool) -> None:
    for passes in (1, 2, 3):
        solver, problem = ready(loss, passes, intercept)
        before = solver.outer.objective
        solved = solver.train()
        after = problem.objective(trained(solver), solved.free.sum())
        assert solved.decrease > 0.0
        assert before - after == pytest.approx(solved.decrease, rel=1e-8, abs=1e-12 * before)


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_the_reported_violation_is_the_judges(loss: str) -> None:
    solver, problem = ready(loss, 2)
    for target in (1e-2, 1e-5, 1e-8):
        solved = solver.local.solve(target, 50)
        assert solved.violation <= target
        cached = solver.cache.ids
        violations = problem.violations(trained(solver), solved.free.sum())[cached]
        # those at rest were near no violation when the anchor was priced
        moving = (trained(solver)[cached] != 0.0) | (
            np.abs(problem.C * solver.local.working.gradients[: len(cached)]) > 0.8
        )
        assert violations[moving].max() == pytest.approx(solved.violation, rel=1e-3, abs=1e-11)


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_no_crumbs(loss: str) -> None:
    """A weight of rounding size with the wrong sign would keep a violation of 2 forever."""
    solver, problem = ready(loss, 1)

    def watch(solver: Solver, certified: Certified) -> None:
        weights = np.abs(solver.outer.point.weights)
        if len(weights):
            assert weights.min() > 1e-12 * weights.max()

    run(solver, 60, watch)
    w = np.zeros(solver.family.n_features)
    w[solver.outer.point.ids] = solver.outer.point.weights
    assert problem.violations(w, solver.outer.point.intercept).max() < 1e-7


def test_a_sample_of_the_rows_for_the_hessian(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inner model on far fewer rows than there are: more steps, the same end."""
    exact, _ = ready("logistic", 1)
    optimum = run(exact, 60)[-1].objective
    monkeypatch.setattr(inner, "LEAST_ROWS", 40)
    monkeypatch.setattr(inner, "ROWS_A_COLUMN", 0)
    solver, _ = ready("logistic", 1, tol=1e-6)
    passes = run(solver, 100)
    assert passes[-1].gap <= 1e-6
    assert passes[-1].objective == pytest.approx(optimum, rel=2e-6)


def test_little_room_for_gathered_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for a part of the entries: rows are left out until they fit."""
    codes, labels = acceptors(14, 400)
    problem = Problem(kmer_matrix(codes, 3), labels, np.ones(400), "logistic", 1.0)
    solver = make_solver(KmerFamily(3, 14), codes, problem, tol=1e-6)
    model = solver.local.trainer.inner
    model._rows = np.empty(2500, np.uint16)
    gather, sizes = model.gather, []
    monkeypatch.setattr(model, "gather", lambda *args: sizes.append(gather(*args)) or sizes[-1])
    passes = run(solver, 100)
    assert int(solver.cache.store.nonzeros[solver.cache.slots].sum()) > 2500
    assert 10 < min(sizes) < 400
    assert passes[-1].gap <= 1e-6, f"{len(passes)} passes"


def test_steps_that_together_exceed_the_gap_are_refused() -> None:
    """The first step is always taken; a refusal lasts until the local problem is started again."""
    solver, _ = ready("logistic", 2)
    local = solver.local
    own = local.trainer
    first = local.solve(1e-9, 1).decrease
    for gap, steps in ((math.inf, 3), (0.9 * first, 1), (0.0, 1)):
        local.return_to_anchor()
        own.most_decrease = gap
        solved = local.solve(1e-9, 3)
        assert solved.steps == steps
    assert solved.sweeps and not own.step(1e-9).sweeps
    own.columns_changed()
    assert not own.step(1e-9).moved
    local.return_to_anchor()
    assert own.step(1e-9).moved


def test_out_of_time_it_ends_after_a_sweep() -> None:
    solver, _ = ready("logistic", 2)
    asked = []

    def cease() -> bool:
        asked.append(True)
        return len(asked) > 1

    solver.local.trainer.inner.cease = cease
    solved = solver.train()
    assert (solved.sweeps, solved.steps) == (1, 1)
    assert solved.decrease > 0.0
    solver.local.trainer.inner.cease = lambda: False
    assert solver.train().sweeps > 1
