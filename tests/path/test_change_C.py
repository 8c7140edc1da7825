"""A change of C at an accepted anchor certifies it as a fresh pricing does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import acceptors

import fcl
from fcl.cache import ColumnCache
from fcl.data.prepared import PreparedRows
from fcl.drivers.job import make_job
from fcl.options import TrainOptions
from fcl.solve.passes import local_passes
from fcl.solve.solver import Solver


def solver_at(C: float, passes: int, ahead: float | None = None, **options: Any) -> Solver:
    """A solver on 300 windows after some passes at C, looking ahead to another C."""
    codes, y = acceptors(16, 300)
    given: dict[str, Any] = {"C": C, "block_rows": 128, "memory": "1GiB"} | options
    job = make_job(fcl.open_data(codes, y=y), "kmers:d=3", TrainOptions.checked(**given))
    prepared: PreparedRows = job.prepare(job.train, lambda share: None)
    cache = ColumnCache(1 << 22, 1000, job.train.n, job.options.block_rows, True, job.family.step)
    passes_over = local_passes(job.objective(), job.family, prepared)
    solver = Solver(passes_over, cache, tol=1e-3, entries=1 << 16, staging=1 << 20)
    if ahead is not None:
        solver.outer.look_ahead(ahead)
    for number in range(passes):
        if number:
            solver.admit()
            solver.train()
            solver.propose(solver.proposal())
        solver.price(number)
    return solver


def count_pricings(solver: Solver) -> list[int]:
    """A list that grows with each pricing of the family."""
    counted: list[int] = []
    price = solver.passes.price

    def counting(*arguments: Any) -> Any:
        counted.append(1)
        return price(*arguments)

    solver.passes.price = counting  # type: ignore[method-assign]
    return counted


@pytest.mark.parametrize(
    ("passes", "l1_ratio", "looks", "pricings"),
    [(1, 1.0, False, 0), (4, 1.0, True, 0), (4, 1.0, False, 1), (4, 0.6, True, 1)],
    ids=["null model", "looked ahead", "threshold too high", "elastic net"],
)
def test_the_certificate_is_that_of_a_fresh_pricing(
    passes: int, l1_ratio: float, looks: bool, pricings: int
) -> None:
    C, new = 0.5, 0.8
    solver = solver_at(C, passes, new if looks else None, l1_ratio=l1_ratio)
    counted = count_pricings(solver)
    solver.change_C(new)
    reused = solver.price()
    assert len(counted) == pricings
    objective = solver.objective
    margins, point = solver.passes.vectors.accepted, solver.outer.point
    penalty = solver.outer.conditions.value(point)
    assert reused.objective == objective.value(penalty, margins, point.intercept)

    fresh = solver_at(
        new, 0, l1_ratio=l1_ratio
    )  # the same point in a solver that began at the new C
    fresh.price()
    fresh._place(point)
    fresh.outer.accept(point, reused.objective)
    fresh.outer.bound = -np.inf
    expected = fresh.price()
    for name in ("objective", "bound", "gap", "max_violation", "n_priced"):
        assert getattr(reused, name) == getattr(expected, name), name
    violating = solver._prices, fresh._prices
    ids = [p.ids[np.abs(p.gradients) > solver.outer.conditions.limit] for p in violating if p]
    cached = solver.cache.ids
    np.testing.assert_array_equal(ids[0], np.setdiff1d(ids[1], cached))


def test_the_admitted_features_change_the_watched_ones() -> None:
    solver = solver_at(0.5, 4, 0.8)
    solver.admit()
    counted = count_pricings(solver)
    solver.change_C(0.8)
    solver.price()
    assert counted
