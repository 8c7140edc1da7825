"""Fourier features in training: a finite family to its optimum, and an infinite one, pass by pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explicit import make_solver
from judge import Problem, confirm

import fcl
from fcl.cli.progress import pass_items, started_line
from fcl.cli.report import model_lines
from fcl.drivers.result import TrainResult
from fcl.facts import aligned
from fcl.features import Fourier, bind_features
from fcl.features.prices import Prices
from fcl.model.certificate import Scope
from fcl.objective import Penalty
from fcl.run.events import Event, PassDone, Started
from fcl.solve.conditions import Conditions
from fcl.solve.outer import Certified, Outer
from fcl.solve.state import Point
from tests.drivers.conftest import bits, fit

DRIVERS = ("inline", "processes")
PER_PASS = 150


def rows(n: int = 500) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    x = random.standard_normal((n, 4))
    y = np.cos(2.0 * x[:, 0] + x[:, 1]) + 0.3 * random.standard_normal(n)
    return x, np.where(y > 0.0, 1.0, -1.0)


def train(features: Fourier, **options: Any) -> TrainResult:
    x, y = rows()
    options = {"C": 0.5, "memory": "2GiB", "block_rows": 128, **options}
    return fit(fcl.open_data(x, y=y), features, **options)


def problem_of(family: Any, ids: np.ndarray) -> Problem:
    """The problem with only some features of the family."""
    x, y = rows()
    phi = family.generator.columns(ids, family.generator.prepare(x)).astype(np.float64)
    return Problem(phi, y, np.ones(len(y)), "logistic", 0.5)


def weights_in(ids: np.ndarray, point: Any) -> np.ndarray:
    w = np.zeros(len(ids))
    at = np.searchsorted(ids, point.ids)
    assert (ids[at] == point.ids).all()
    w[at] = point.weights
    return w


# -- a family without end --------------------------------------------------------------------------


def test_each_pass_certifies_what_it_priced() -> None:
    """The certificate of every pass is recomputed from the columns of all features that it priced."""
    x, y = rows()
    family: Any = bind_features(Fourier(per_pass=PER_PASS), fcl.open_data(x, y=y).rows)
    assert family.n_features == (1 << 40) - (1 << 40) % PER_PASS
    problem = problem_of(family, np.arange(PER_PASS))
    solver = make_solver(family, x, problem, block_rows=128)
    bounds, objectives = [], []
    for number in range(12):
        point, cached = solver.outer.point, solver.cache.ids.copy()
        certified = solver.price(number)
        drawn = np.arange(number * PER_PASS, (number + 1) * PER_PASS)
        ids = np.unique(np.concatenate([drawn, cached, point.ids]))
        restricted = problem_of(family, ids)
        optimum = restricted.solve(1e-8) if number % 4 == 3 else None
        confirm(restricted, weights_in(ids, point), point.intercept, certified, optimum)
        assert certified.n_priced == len(ids)
        assert certified.scope is Scope.SAMPLE
        bounds.append(certified.bound)
        objectives.append(certified.objective)
        solver.admit()
        solver.train()
        solver.propose(solver.proposal())
    # the bound of one pass does not hold for the next pass
    assert np.diff(bounds).min() < -0.01 * objectives[0]
    assert np.diff(objectives).max() <= 0.0


@pytest.mark.parametrize("driver", DRIVERS)
def test_both_drivers_draw_by_the_number_of_the_pass(driver: str) -> None:
    result = train(Fourier(per_pass=PER_PASS), driver=driver, max_passes=9, tol=1e-9)
    model, certificate = result.model, result.certificate
    assert [r["number"] for r in model.history] == list(range(result.passes))
    last = model.history[-1]
    assert certificate.bound == last["bound"] and certificate.n_priced == last["priced"]
    number = result.passes - 1
    drawn = np.arange(number * PER_PASS, (number + 1) * PER_PASS)
    ids = np.union1d(drawn, model.ids)
    assert (ids < (number + 1) * PER_PASS).all() and len(model.ids) > 5
    # cached features without a weight were priced too: they can only lower the optimum
    problem = problem_of(model.family, ids)
    assert certificate.n_priced >= len(ids)
    confirm(problem, weights_in(ids, model), model.intercept, certificate, problem.solve(1e-8))
    # the first pass prices what it draws and no more: its numbers are known
    null = problem_of(model.family, np.arange(PER_PASS))
    b, smallest = null.null()
    first = model.history[0]
    assert first["priced"] == PER_PASS and first["bound"] <= null.solve(1e-8).objective
    assert first["max_violation"] == pytest.approx(0.5 / smallest, rel=1e-6)
    assert first["objective"] == pytest.approx(null.objective(np.zeros(PER_PASS), b))


def test_a_resumed_run_draws_the_same(tmp_path: Path) -> None:
    options = {"tol": 1e-9, "checkpoint": tmp_path}
    features = Fourier(per_pass=PER_PASS, dtype="int8")
    whole = train(features, max_passes=8, tol=1e-9)
    train(features, max_passes=3, **options)
    assert bits(train(features, max_passes=8, resume=tmp_path, **options)) == bits(whole)


def test_no_word_of_all_features() -> None:
    events: list[Event] = []
    result = train(Fourier(per_pass=PER_PASS), max_passes=2, tol=1e-9, progress=events.append)
    n = result.certificate.n_priced
    scope = f"{n:,} sampled features priced at this point, not over all"
    assert result.certificate.scope_text == scope
    assert result.message.endswith(f"over {scope}; raise max_passes or tol")
    for lines in (aligned(result.facts()), model_lines(result.model, "a model", 3)):
        text = "\n".join(lines)
        assert f"over {scope}" in text and Scope.FAMILY.value not in text and "C_min" not in text
        assert f"{result.model.family.n_features:,}" not in text
    assert "sampled from an unlimited number" in text
    passes = [event for event in events if isinstance(event, PassDone)]
    assert passes[-1].to_dict()["scope"] == scope
    assert dict(pass_items(passes[-1], None))["priced"] == f"{n:,} sampled"
    started = next(event for event in events if isinstance(event, Started))
    assert started.to_dict()["n_sampled"] == PER_PASS
    assert f"{PER_PASS} features sampled each pass" in started_line(started)
    assert result.model.options["C_min"] is None


def test_a_bound_above_the_objective_is_refused() -> None:
    """Rounding may raise it slightly above; a larger excess means that the features are inconsistent."""
    nothing = Point(np.empty(0, np.int64), np.empty(0), 0.0)
    conditions = Conditions(Penalty(), 1.0, lambda ids: np.ones(len(ids)))
    outer = Outer(conditions, 1e-3, 5, nothing, 10.0)
    assert outer.raise_bound(8.0).gap == pytest.approx(0.2)
    assert outer.raise_bound(10.0 * (1.0 + 1e-12)).gap == 0.0
    with pytest.raises(
        fcl.InputError, match=r"the objective, 10, is below its lower bound, 10\.001"
    ):
        outer.raise_bound(10.001)


def test_a_point_newer_than_its_pricing() -> None:
    """The previous sample certifies the point only if it contains all its features."""
    none = np.empty(0, np.int64)
    conditions = Conditions(Penalty(), 1.0, lambda ids: np.ones(len(ids)))
    outer = Outer(conditions, 1e-3, None, Point(none, np.empty(0), 0.0), 10.0)

    def certify(largest: float, bound: float, drawn: range | None, *watch: int) -> Certified:
        watched = np.zeros(len(watch))
        prices = Prices(none, np.empty(0), largest, watched, 0, np.zeros(1))
        return outer.certify(prices, np.array(watch, np.int64), bound, drawn)

    unknown = outer.certified()
    assert unknown.bound == -np.inf and unknown.gap == np.inf and unknown.n_priced == 0
    with pytest.raises(ValueError, match="drawn features for a sampled family"):
        certify(2.0, 4.0, None)
    assert certify(2.0, 4.0, range(100, 200), 7, 150).n_priced == 101
    outer.accept(Point(np.array([7, 199]), np.ones(2), 0.0), 8.0)
    known = outer.certified()
    assert (known.bound, known.gap, known.max_violation) == (4.0, 0.5, np.inf)
    assert known.n_priced == 101 and known.scope is Scope.SAMPLE_BEFORE
    outer.accept(Point(np.array([7, 200]), np.ones(2), 0.0), 7.0)
    assert outer.certified().bound == -np.inf and outer.certified().scope is Scope.NOTHING
    # and a later bound that is lower is the one that counts
    assert certify(3.0, 2.0, range(200, 300), 7).bound == 2.0

    restored = Outer(conditions, 1e-3, None, Point(none, np.empty(0), 0.0), 10.0)
    restored.restore(outer.state())
    assert restored.certified().bound == -np.inf


def test_bounds_of_samples_are_no_progress() -> None:
    sampled = [Certified(5.0, bound, 0.1, 1.0, 10, "10 sampled features") for bound in (1.0, 4.0)]
    whole = [Certified(5.0, bound, 0.1, 1.0, 10) for bound in (1.0, 4.0)]
    assert not sampled[1].progressed(sampled[0]) and whole[1].progressed(whole[0])
