"""Local problems of losses whose curvature jumps, held against the judge."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from explicit import dense_weights, explicit_family, make_solver, run
from judge import Problem

from fcl.solve import clipped
from fcl.solve.state import Step

JUMPING = ["squared_hinge", "huber:delta=0.5", "pinball:tau=0.9,width=0.1"]


def problem(loss: str, seed: int, intercept: bool = True, scales: bool = True) -> Problem:
    """Forty rows that are nearly interpolated, most of them flat at the optimum."""
    random = np.random.default_rng(seed)
    phi = random.normal(size=(40, 25))
    if scales:
        phi *= 10.0 ** random.uniform(-3.0, 3.0, 25)
    phi = phi.astype(np.float32).astype(np.float64)
    y = phi @ (random.normal(size=25) / np.abs(phi).max(axis=0)) + 0.05 * random.normal(size=40)
    y = np.sign(y) if loss == "squared_hinge" else y + 5.0 * (random.random(40) < 0.2)
    return Problem(phi, y, random.uniform(0.1, 2.0, 40), loss, 20.0, intercept)


@pytest.mark.thin(4)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("loss", JUMPING)
def test_the_optimum_is_reached(loss: str, seed: int, intercept: bool) -> None:
    case = problem(loss, seed, intercept)
    solver = make_solver(explicit_family(case.phi), case.phi, case, tol=1e-9)
    passes = run(solver, 40)
    assert passes[-1].gap <= 1e-9, f"{len(passes)} passes"
    point = dense_weights(solver), solver.outer.point.intercept
    assert case.objective(*point) == pytest.approx(passes[-1].objective, rel=1e-12)
    best = case.improved(*point).objective
    assert passes[-1].bound <= best * (1.0 + 1e-12)
    assert passes[-1].objective == pytest.approx(best, rel=1e-9)
    assert case.violations(*point).max() < 1e-6


@pytest.mark.parametrize("rho", [1.0, 0.05])
@pytest.mark.parametrize("loss", JUMPING)
def test_one_step_ends_a_local_problem(loss: str, rho: float) -> None:
    """The step minimises the local problem itself, so a second one has next to nothing left to do."""
    case = replace(problem(loss, 7), rho=rho)
    solver = make_solver(explicit_family(case.phi), case.phi, case, tol=1e-10)
    run(solver, 2)
    solver.admit()
    local = solver.local
    solved = local.solve(1e-6, 9)
    assert solved.violation <= 1e-6
    assert solved.steps <= 2


def counted_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of steps, one for each local problem that is minimised from now on."""
    steps: list[int] = []
    minimise = clipped.ClippedProblem.minimise

    def counted(*arguments: Any) -> Step:
        step = minimise(*arguments)
        steps.append(step.sweeps)
        return step

    monkeypatch.setattr(clipped.ClippedProblem, "minimise", counted)
    return steps


@pytest.mark.thin(2)
@pytest.mark.parametrize("complements", [False, True])
@pytest.mark.parametrize("loss", JUMPING)
def test_more_columns_than_rows(
    loss: str, complements: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are interpolated by few of many columns, so that sweeps leave dependent columns.

    With an intercept, a column and its complement are the same but for their sign: the objective is level
    along the direction in which both grow.
    """
    random = np.random.default_rng(5)
    phi = random.normal(size=(40, 300)).astype(np.float32).astype(np.float64)
    if complements:
        phi = (phi > 0.3).astype(np.float64)
        phi[:, 150:] = 1.0 - phi[:, :150]
    y = phi[:, :5].sum(axis=1)
    y = np.where(y > np.median(y), 1.0, -1.0) if loss == "squared_hinge" else y
    case = Problem(phi, y, np.ones(40), loss, 100.0, True)
    solver = make_solver(explicit_family(case.phi), case.phi, case, tol=1e-9)
    steps = counted_steps(monkeypatch)
    passes = run(solver, 40)
    assert passes[-1].gap <= 1e-9
    assert np.count_nonzero(dense_weights(solver)) <= 41
    assert case.violations(dense_weights(solver), solver.outer.point.intercept).max() < 1e-6
    assert (
        not complements or max(steps) <= 80
    )  # one for each column and its complement were 115 and 227


def test_interpolated_rows_are_reached_by_falling_penalties(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise one local problem alone takes 2,000 steps, after which it is not solved."""
    random = np.random.default_rng(1)
    phi = random.poisson(0.3, (200, 500)).astype(np.float64)
    margins = phi @ (random.normal(size=500) * (random.random(500) < 0.1)) + random.normal(size=200)
    y = np.where(margins > np.median(margins), 1.0, -1.0)
    case = Problem(phi, y, np.ones(200), "squared_hinge", 1000.0, True)
    steps = counted_steps(monkeypatch)
    solver = make_solver(explicit_family(case.phi), case.phi, case, tol=1e-8)
    passes = run(solver, 20)
    assert passes[-1].gap <= 1e-8
    assert case.violations(dense_weights(solver), solver.outer.point.intercept).max() < 1e-6
    assert max(steps) < 400


def test_beyond_its_size_a_model_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipped, "MOST_ENTRIES", 0)
    case = problem("squared_hinge", 3, scales=False)
    solver = make_solver(explicit_family(case.phi), case.phi, case, tol=1e-8)
    assert run(solver, 60)[-1].gap <= 1e-8
