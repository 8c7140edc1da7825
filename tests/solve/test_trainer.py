"""The trainer lowers the local objective, leaves no tiny weights, and stops at its target."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from explicit import make_solver, run
from judge import ALL_LOSSES, Problem, kmer_matrix
from rows import STRENGTHS, acceptors, targets

from fcl.features import KmerFamily
from fcl.solve import inner, inner_descent, single, trainer
from fcl.solve.exact import ExactModel
from fcl.solve.inner import InnerModel
from fcl.solve.line import Line, Share, search_share
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
        solved = solver.local.trainer.solve(
            solver.local.view, solver.local.working, solver.outer.point.free, target, 50
        )
        assert solved.violation <= target
        cached = solver.cache.ids
        violations = problem.violations(trained(solver), solved.free.sum())[cached]
        # those at rest were near no violation when the anchor was priced
        moving = (trained(solver)[cached] != 0.0) | (
            np.abs(problem.C * solver.local.working.gradients[: len(cached)]) > 0.8
        )
        assert violations[moving].max() == pytest.approx(solved.violation, rel=1e-3, abs=1e-11)


def test_early_steps_use_no_whole_hessian_unless_it_is_cheap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While violations are large, a sampled model is enough."""
    solver, _ = ready("logistic", 1)
    n, k = len(solver.objective.y), solver.cache.n
    monkeypatch.setattr(single, "CHEAP_HESSIAN", 2.0 * n * k * k)
    monkeypatch.setattr(single, "CHEAP_WORK", 0.0)
    called: list[int] = []
    whole = ExactModel.minimise

    def minimise(self: ExactModel, *arguments: Any) -> Any:
        called.append(1)
        return whole(self, *arguments)

    monkeypatch.setattr(ExactModel, "minimise", minimise)
    for early, expected in ((0.0, []), (math.inf, [1])):
        monkeypatch.setattr(solver.local.trainer, "_early", early)
        solver.local.return_to_anchor()
        assert solver.local.step(0.0).moved and called == expected


def test_no_steps_allowed_changes_nothing() -> None:
    solver, _ = ready("logistic", 2)
    before = solver.local.working.weights.copy()
    solved = solver.local.trainer.solve(
        solver.local.view, solver.local.working, solver.outer.point.free, 1e-9, 0
    )
    assert (solved.steps, solved.decrease) == (0, 0.0)
    assert (solver.local.working.weights == before).all()


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_it_continues_from_its_own_point(loss: str) -> None:
    """Two calls with one step each: the second starts where the first ended."""
    solver, problem = ready(loss, 1)
    args = (solver.local.view, solver.local.working, solver.outer.point.free, 1e-9, 1)
    first = solver.local.trainer.solve(*args)
    mid = problem.objective(trained(solver), first.free.sum())
    second = solver.local.trainer.solve(*args)
    end = problem.objective(trained(solver), second.free.sum())
    # each call finds the intercept again from the anchor's, so it is not part of the kept state
    assert end < mid
    assert solver.outer.objective - end >= first.decrease


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


def test_seeds_change_the_way_and_not_the_end() -> None:
    ends = []
    for seed in (0, 1, 2):
        solver, _ = ready("logistic", 1, seed=seed)
        solver.train()
        ends.append((solver.local.working.weights.tobytes(), run(solver, 60)[-1].objective))
    assert len({bits for bits, _ in ends}) == 3
    objectives = [objective for _, objective in ends]
    assert objectives == pytest.approx([objectives[0]] * 3, rel=2e-9)


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


@pytest.fixture
def gathers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each sample on which columns are gathered, in turn."""
    rows: list[int] = []
    gather = InnerModel.gather

    def watched(model: InnerModel, *args: Any) -> int:
        rows.append(gather(model, *args))
        return rows[-1]

    monkeypatch.setattr(InnerModel, "gather", watched)
    return rows


@pytest.mark.parametrize("dear", [False, True])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_dear_steps_that_gain_little_use_the_last_model(
    monkeypatch: pytest.MonkeyPatch, gathers: list[int], dear: bool, share: float
) -> None:
    """They do not gather the columns again, and lead to the same optimum."""
    monkeypatch.setattr(inner_descent, "DEAR_SWEEP", 0 if dear else 1 << 60)
    monkeypatch.setattr(trainer, "NEARLY_SAME", share)
    monkeypatch.setattr(trainer, "SETTLED", 0.0)
    monkeypatch.setattr(single, "DEAR_HESSIAN", 0.0)  # sweeps only
    monkeypatch.setattr(single, "MOST_GROWN", 1.0)
    monkeypatch.setattr(inner, "LEAST_ROWS", 150)
    monkeypatch.setattr(inner, "ROWS_A_COLUMN", 0)
    solver, _ = ready("logistic", 2, tol=1e-6)
    gathers.clear()
    steps = solver.local.solve(1e-6, 6).steps
    assert steps > 2
    assert (len(gathers) < steps) == (dear and share > 0.0)
    optimum = run(ready("logistic", 1)[0], 60)[-1].objective
    assert run(solver, 100)[-1].objective == pytest.approx(optimum, rel=2e-6)


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


def test_long_steps_leave_the_last_digits_of_their_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer sweeps a step, and the same end."""
    monkeypatch.setattr(inner_descent, "LITTLE", 0.2)
    sweeps, ends = [], []
    for dear in (math.inf, 0):
        monkeypatch.setattr(inner_descent, "DEAR_SWEEP", dear)
        solver, _ = ready("logistic", 3, tol=1e-6)
        solved = solver.train()
        sweeps.append(solved.sweeps / solved.steps)
        passes = run(solver, 60)
        assert passes[-1].gap <= 1e-6
        ends.append(passes[-1].objective)
    assert sweeps[1] < sweeps[0]
    assert ends[1] == pytest.approx(ends[0], rel=2e-6)


def test_dear_steps_end_once_they_gain_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer steps from an anchor, and the same end."""
    monkeypatch.setattr(inner_descent, "DEAR_SWEEP", 0)
    steps, ends = [], []
    for share in (0.0, 0.5):
        monkeypatch.setattr(trainer, "SETTLED", share)
        solver, _ = ready("logistic", 3, tol=1e-6)
        solver.outer.sharpness = 1e-6  # else the first step reaches the target
        steps.append(solver.train().steps)
        passes = run(solver, 90)
        assert passes[-1].gap <= 1e-6
        ends.append(passes[-1].objective)
    assert 0 < steps[1] < steps[0]
    assert ends[1] == pytest.approx(ends[0], rel=2e-6)


@pytest.mark.parametrize(
    ("foresees", "far", "change", "again"),
    [
        (True, 0.0, {}, False),
        (False, 0.0, {}, True),
        (True, math.inf, {}, True),
        (True, 0.0, {"left": 0.9}, True),  # the model did not hold
        (True, 0.0, {"beta": 0.9, "left": 0.0}, True),  # a share of the step
        (True, 0.0, {"seen": False}, True),  # rounding hides the decrease
    ],
)
def test_a_step_far_from_the_optimum_is_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, foresees: bool, far: float, change: dict[str, Any], again: bool
) -> None:
    """If a pass is quicker, and the slope along the whole step fell as far as the violation should."""
    search = Line.search

    def changed(line: Line) -> Share:
        found = search(line)
        assert found is not None
        return replace(found, **change)

    monkeypatch.setattr(trainer, "FAR", far)
    monkeypatch.setattr(Line, "search", changed)
    solver, problem = ready("logistic")
    own = solver.local.trainer
    own.foresees, own.most_decrease = foresees, solver.outer.gap
    localise, looks = own._localise, []
    monkeypatch.setattr(own, "_localise", lambda *args: looks.append(0) or localise(*args))
    solved = solver.local.solve(0.5 * (solver.outer.max_violation - 1.0), 6)
    assert (len(looks) > solved.steps) == again
    assert problem.objective(trained(solver), solved.free.sum()) < solver.outer.objective


@pytest.mark.parametrize("at", [0.4, 1.0, 1.5])
def test_the_slope_that_a_step_leaves(at: float) -> None:
    """Of a quadratic it is the share that is left of the way to the minimum."""
    found = search_share(lambda b: (b * b / 2 - at * b, b - at, 1.0), -at, 1e-16)
    assert found is not None
    assert found.left == pytest.approx(abs(found.beta - at) / at, abs=1e-12)
    assert found.decrease == pytest.approx(at * found.beta - found.beta**2 / 2)


def test_a_settled_problem_stays_settled_unless_a_weight_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inner_descent, "DEAR_SWEEP", 0)
    monkeypatch.setattr(trainer, "SETTLED", 0.5)
    solver, _ = ready("logistic", 3, tol=1e-6)
    solver.outer.sharpness = 1e-6
    assert solver.train().steps
    local, target = solver.local, solver.outer.target()
    n = solver.cache.n
    moved = local.working.weights[:n] != local.working.anchor_weights[:n]
    resting = np.flatnonzero(~moved & (local.working.weights[:n] == 0.0))
    assert len(resting)
    local.evict(~np.isin(np.arange(n), resting))
    assert not local.step(target).moved
    keep = np.ones(solver.cache.n, bool)
    keep[np.flatnonzero(moved[~np.isin(np.arange(n), resting)])[0]] = False
    local.evict(keep)
    assert local.step(target).moved


def test_steps_that_together_exceed_the_gap_are_refused() -> None:
    """The first step is always taken; a refusal lasts until the local problem is started again."""
    solver, _ = ready("logistic", 2)
    local = solver.local
    own, args = local.trainer, (local.view, local.working, solver.outer.point.free)
    first = own.solve(*args, 1e-9, 1).decrease
    for gap, steps in ((math.inf, 3), (0.9 * first, 1), (0.0, 1)):
        local.return_to_anchor()
        own.most_decrease = gap
        solved = own.solve(*args, 1e-9, 3)
        assert solved.steps == steps
    assert solved.sweeps and not own.step(1e-9).sweeps
    own.columns_changed()
    assert not own.step(1e-9).moved
    local.return_to_anchor()
    assert own.step(1e-9).moved


def test_after_a_refusal_columns_are_not_judged_by_slopes_of_others() -> None:
    """Without another look, slopes of the last step belong to columns that have other numbers now."""
    solver, _ = ready("logistic", 2)
    local = solver.local
    own, args = local.trainer, (local.view, local.working, solver.outer.point.free)
    first = own.solve(*args, 1e-9, 1).decrease
    local.return_to_anchor()
    own.most_decrease = 0.9 * first
    own.solve(*args, 1e-9, 3)
    assert own.seen[0].max() >= 2
    keep = np.zeros(solver.cache.n, bool)
    keep[:2] = True
    local.evict(keep)
    own.columns_changed()
    assert not local.step(1e-9).moved
    assert local.wanted(set(solver.cache.ids.tolist())).all()


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
