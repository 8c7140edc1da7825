"""The certificate of any linear model, against the judge, optima of fcl, and other optimisers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import ALL_LOSSES, Problem
from rows import acceptors
from scipy.optimize import minimize

import fcl
from fcl.errors import BudgetError
from fcl.features import Columns
from fcl.objective import find_loss
from fcl.solve.certify import highest
from tests import by_name

N, P = 40, 5


def problem_of(seed: int, loss: str, rho: float, C: float, **how: Any) -> Problem:
    """A random problem; how : weights, offset, factors and intercept, whether it has them."""
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(N, P)) * rng.choice([0.3, 1.0, 3.0], P)
    margin = phi[:, 0] - phi[:, 1] + rng.normal(size=N)
    y = margin + 3.0
    if find_loss(loss).classifies:
        y = np.where(margin > 0.0, 1.0, -1.0)
    elif loss == "poisson":
        y = rng.poisson(np.exp(0.5 * np.clip(margin, -3, 3))).astype(float)
    return Problem(
        phi,
        y,
        rng.uniform(0.2, 3.0, N) if how.get("weights") else np.ones(N),
        loss,
        C,
        intercept=how.get("intercept", True),
        rho=rho,
        factors=rng.uniform(0.5, 2.0, P) if how.get("factors") else None,
        offset=rng.normal(size=N) if how.get("offset") else 0.0,
    )


def opened(problem: Problem) -> fcl.DataSet:
    offset = problem.offset if np.ndim(problem.offset) else None
    return fcl.open_data(problem.phi, y=problem.y, weights=problem.s, offset=offset)


def asked(problem: Problem) -> dict[str, Any]:
    """The arguments of :func:`fcl.certify` and :func:`fcl.train` for a problem."""
    features = Columns(None if problem.factors is None else problem.factors.tolist())
    return {
        "features": features,
        "loss": problem.loss,
        "l1_ratio": problem.rho,
        "intercept": problem.intercept,
    }


def certified(problem: Problem, w: np.ndarray, b: float, C: Any = None, **more: Any) -> Any:
    C = problem.C if C is None else C
    return by_name.certify((w, b), opened(problem), C, **asked(problem), **more)


def losses(problem: Problem, w: np.ndarray, b: float) -> float:
    return float(problem.s @ problem.losses(problem.margins(w, b)))


def best_in_ball(problem: Problem, radius: float) -> float:
    """A sum of losses that the ball attains, near the smallest one, by an optimiser of scipy."""

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        w, b = x[:P] - x[P : 2 * P], x[2 * P] * problem.intercept
        r = problem.residuals(w, b)
        g = r @ problem.phi
        return losses(problem, w, b), np.concatenate([g, -g, [r.sum() * problem.intercept]])

    norm = np.concatenate([problem.f, problem.f, [0.0]])
    found = minimize(
        value,
        np.zeros(2 * P + 1),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, None)] * (2 * P) + [(None, None)],
        constraints={"type": "ineq", "fun": lambda x: radius - norm @ x, "jac": lambda x: -norm},
        options={"maxiter": 300, "ftol": 1e-12},
    )
    x = found.x
    x[: 2 * P] = np.maximum(x[: 2 * P], 0.0)
    x[: 2 * P] *= min(1.0, radius / max(float(norm @ x), 1e-300))
    return float(value(x)[0])


PROBLEMS = {
    "seed": st.integers(0, 2**20),
    "loss": st.sampled_from(ALL_LOSSES),
    "rho": st.sampled_from([1.0, 1.0, 0.5, 0.05]),
    "weights": st.booleans(),
    "offset": st.booleans(),
    "factors": st.booleans(),
    "intercept": st.booleans(),
    "size": st.sampled_from([0.0, 0.1, 1.0]),
    "C": st.sampled_from([0.01, 0.1, 1.0]),
}


@pytest.mark.slow
@settings(max_examples=40)
@given(**PROBLEMS)
def test_any_point_against_the_judge_and_the_optimum(
    seed: int, loss: str, rho: float, size: float, C: float, **how: bool
) -> None:
    problem = problem_of(seed, loss, rho, C, **how)
    rng = np.random.default_rng(seed + 1)
    w = size * rng.normal(size=P) * (rng.random(P) < 0.7)
    b = float(rng.normal()) * problem.intercept
    found = certified(problem, w, b)
    best = float(found.intercept)

    value = problem.objective(w, best)
    assert found.objective == pytest.approx(value, rel=1e-11)
    assert found.own_objective == pytest.approx(problem.objective(w, b), rel=1e-11)
    assert found.losses == pytest.approx(losses(problem, w, best), rel=1e-11)
    assert found.penalty == pytest.approx(problem.penalty(w), rel=1e-12, abs=1e-300)
    r = problem.residuals(w, best)
    if problem.intercept:  # it is the best one
        assert abs(r.sum()) <= 1e-9 * np.abs(r).sum()
    # no better than the best dual value on the ray, and the same violation
    assert found.bound <= problem.bound(r) + 1e-9 * abs(value)
    assert found.certificate.max_violation == pytest.approx(
        np.abs(problem.pulls(w, best)).max(), rel=1e-9
    )
    assert found.n_active == np.count_nonzero(w)

    optimum = by_name.train(opened(problem), C=C, tol=1e-7, warn=False, **asked(problem))
    lowest = optimum.certificate
    assert found.bound <= lowest.objective * (1.0 + 1e-9)
    assert lowest.bound <= found.objective * (1.0 + 1e-9)
    helped = certified(problem, w, b, bound=optimum.model)
    assert helped.bound == pytest.approx(max(found.bound, lowest.bound), rel=1e-12)
    assert helped.own_bound == found.bound and helped.gap <= found.gap

    violations = problem.violations(w, best)
    order = np.sort(violations)[::-1]
    named = [row.violation for row in found.violators]
    assert named == pytest.approx(order[: len(named)], rel=1e-6, abs=1e-8)
    for row in found.violators:
        assert row.weight == w[row.id] and row.feature == f"x{row.id}"
        assert row.slope == pytest.approx(abs(problem.pulls(w, best)[row.id]), rel=1e-9)


@pytest.mark.slow
@settings(max_examples=25)
@given(**PROBLEMS, stretch=st.sampled_from([1.0, 1.5]))
def test_the_gap_of_the_ball_is_never_below_the_truth(
    seed: int, loss: str, rho: float, size: float, C: float, stretch: float, **how: bool
) -> None:
    problem = problem_of(seed, loss, rho, C, **how)
    w = size * np.random.default_rng(seed + 1).normal(size=P)
    norm = float(problem.f @ np.abs(w))
    radius = stretch * norm if norm else 0.5
    found = certified(problem, w, 0.0, radius=radius)
    own = losses(problem, w, float(found.intercept))
    assert own - best_in_ball(problem, radius) <= found.ball_gap + 1e-9 * own
    assert certified(problem, w, 0.0).radius == pytest.approx(norm, rel=1e-12)


@pytest.mark.slow
@settings(max_examples=40)
@given(**PROBLEMS)
def test_no_neighbour_of_the_best_C_is_better(
    seed: int, loss: str, rho: float, size: float, C: float, **how: bool
) -> None:
    problem = problem_of(seed, loss, rho, C, **how)
    w = size * np.random.default_rng(seed + 1).normal(size=P)
    found = certified(problem, w, 0.0, "best")
    assert found.best_C == found.C and found.best_gap == found.own_gap
    for factor in (1.0 - 1e-3, 1.0 + 1e-3, 0.8, 1.25):
        near = certified(problem, w, 0.0, found.C * factor)
        assert found.gap <= near.gap + 1e-9
    if rho == 1.0:
        other = certified(problem, w, 0.0, 3.0)
        assert other.best_C == pytest.approx(found.C, rel=1e-9)
        assert other.best_gap == pytest.approx(found.gap, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("loss", "rho"), [("logistic", 1.0), ("poisson", 0.5)])
def test_an_optimum_is_most_nearly_optimal_at_its_own_C(loss: str, rho: float) -> None:
    problem = problem_of(7, loss, rho, 0.2, weights=True)
    model = by_name.train(opened(problem), C=0.2, tol=1e-9, warn=False, **asked(problem)).model
    assert pytest.approx(0.2, rel=1e-3) == fcl.certify(model, opened(problem), "best").C


def test_the_best_C_of_an_empty_model_is_the_largest_at_which_it_is_optimal() -> None:
    problem = problem_of(3, "logistic", 1.0, 1.0)
    found = certified(problem, np.zeros(P), 0.0, "best")
    assert pytest.approx(problem.null()[1], rel=1e-9) == found.C and found.gap <= 1e-9


def test_without_prices_no_C_is_the_best() -> None:
    data = fcl.open_data(np.eye(4), y=np.array([3.0, 5.0, 5.0, 5.0]))
    exact = np.array([-2.0, 0.0, 0.0, 0.0])
    given = {"loss": "squared", "intercept": True}
    found = fcl.certify((exact, 5.0), data, 1.0, **given)
    assert found.losses == 0.0 and found.best_C == math.inf and found.to_dict()["best_C"] is None


def test_the_search_interpolates_in_few_evaluations() -> None:
    tried = []

    def dual(x: float) -> float:
        tried.append(x)
        return 2.0 - 1.3 * x - math.exp(1.5 * x)

    x, value = highest(dual, lambda x: 1.0 + 0.4 * math.exp(-x))
    assert len(tried) <= 9 and value == 2.0 - 1.3 * x - math.exp(1.5 * x)
    grid = np.linspace(-3.0, 0.0, 30_001)
    heights = (2.0 - 1.3 * grid - np.exp(1.5 * grid)) / (1.0 + 0.4 * np.exp(-grid))
    assert x == pytest.approx(grid[int(heights.argmax())], abs=3e-4)


# -- models of fcl ---------------------------------------------------------------------------------

NUMBERS = np.random.default_rng(1).normal(size=(300, 8))
CLASSES = np.digitize(NUMBERS[:, 0] - NUMBERS[:, 1], [-1.0, 1.0])
BINARY = (NUMBERS[:, 0] - NUMBERS[:, 2] + NUMBERS[:, 7] > 0.2).astype(int)
TARGETS = NUMBERS[:, :2] * 2.0 + 30.0
DATA = fcl.open_data(NUMBERS, y=BINARY)
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "columns": (NUMBERS, BINARY, {}),
    "standardize": (NUMBERS * 10.0 ** np.arange(-4, 4), BINARY, {"standardize": True}),
    "elastic": (NUMBERS, BINARY, {"l1_ratio": 0.3}),
    "weighted": (NUMBERS, BINARY, {"class_weight": {0: 1.0, 1: 7.0}}),
    "balanced": (NUMBERS, BINARY, {"class_weight": "balanced", "loss": "squared_hinge"}),
    "held out": (NUMBERS, BINARY, {"valid_fraction": 0.3, "seed": 4}),
    "origin": (NUMBERS, BINARY, {"intercept": False}),
    "offset": (NUMBERS, BINARY, {"offset": NUMBERS[:, 3]}),
    "covariates": (NUMBERS, BINARY, {"covariates": NUMBERS[:, 4:6] + 3.0}),
    "shifted": (NUMBERS, TARGETS[:, 0], {"loss": "squared", "offset": NUMBERS[:, 3] + 1e3}),
    "softmax": (NUMBERS, CLASSES, {"loss": "softmax"}),
    "group": (NUMBERS, CLASSES, {"loss": "softmax", "group": True, "l1_ratio": 0.8}),
    "targets": (NUMBERS, TARGETS, {"loss": "squared", "C": 0.01}),
    "products": (NUMBERS, BINARY, {"features": "products:degree=2"}),
    "fourier": (NUMBERS, BINARY, {"features": "fourier:n=50"}),
    "joined": (NUMBERS, BINARY, {"features": "columns + products:degree=2 * 3"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_certificate_of_the_training_is_found_again(name: str, tmp_path: Path) -> None:
    rows, y, how = MODELS[name]
    how = {"C": 0.2, "tol": 1e-6, "features": "columns", "warn": False} | how
    added = {key: how.pop(key, None) for key in ("offset", "covariates")}
    data = fcl.open_data(rows, y=y).with_added(**added)
    model = by_name.train(data, **how).model
    model.save(tmp_path / "m.fcl")
    found = fcl.certify(tmp_path / "m.fcl", data, keep_model=True)
    stored = model.certificate
    assert found.same_data and found.C == model.C
    assert found.objective == pytest.approx(stored.objective, rel=1e-12)
    # the training keeps the best bound of all its passes
    assert stored.bound - 3e-6 * stored.objective <= found.bound
    assert found.bound <= stored.objective * (1.0 + 1e-12)
    assert found.certificate.max_violation == pytest.approx(stored.max_violation, rel=2e-3)
    assert found.certificate.n_priced == stored.n_priced
    again = found.model
    assert again is not None and np.array_equal(again.ids, model.ids)
    assert again.weights == pytest.approx(model.weights, rel=1e-12)
    assert again.intercepts == pytest.approx(model.intercepts, rel=1e-9, abs=1e-9)
    assert np.array_equal(again.support, model.support) and again.labels == model.labels
    assert again.options["features"] == model.options["features"]
    again.save(tmp_path / "again.fcl")
    assert fcl.load_model(tmp_path / "again.fcl").history[0]["active"] == len(model.ids)
    other = fcl.certify(model, data, bound=model)
    assert other.bound == pytest.approx(max(found.bound, stored.bound), rel=1e-12)


def test_a_bound_that_rounding_hides_is_found_again() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 4)) * 10.0 ** np.arange(-2, 2)
    data = fcl.open_data(rows, y=rows[:, 1] * 10.0 + rng.normal(size=3000) > 0.0)
    for C in (1e7, 1e8, 1e9):  # the residuals themselves prove little at 1e8
        model = by_name.train(data, "columns", C=C, tol=1e-6, warn=False).model
        found = fcl.certify(model, data)
        assert found.gap <= 1e-6 and found.own_gap == found.gap
        assert found.best_gap is not None and found.best_gap <= found.gap


def test_windows_give_the_same_bits_as_the_training() -> None:
    codes, y = acceptors(20, 600)
    data = fcl.open_data(codes.astype(np.uint8), y=y)
    for features in ("kmers:d=4,origin=3", "bag:d=3,strands=both"):
        model = fcl.train(data, features, C=0.5, tol=1e-3).model
        found = fcl.certify(model, data)
        assert found.objective == model.certificate.objective
        assert found.bound == model.certificate.bound
        assert found.own_objective == found.objective


def test_other_rows_keep_alpha() -> None:
    data = fcl.open_data(NUMBERS, y=BINARY)
    model = fcl.train(data, "columns", C=0.2).model
    half = fcl.certify(model, fcl.open_data(NUMBERS[::2], y=BINARY[::2]))
    assert half.same_data is False and half.alpha == model.alpha
    assert pytest.approx(0.4) == half.C and half.gap > 1e-2
    assert fcl.certify(model, data, 0.7).C == 0.7
    assert pytest.approx(1.0 / 3.0) == fcl.certify(model, data, alpha=0.01).C


def test_a_sampled_family_is_certified_over_the_sample() -> None:
    data = fcl.open_data(NUMBERS, y=BINARY)
    model = by_name.train(data, "fourier", C=0.2, max_passes=3, warn=False).model
    found = fcl.certify(model, data)
    assert "sampled" in found.certificate.scope_text
    assert found.objective == pytest.approx(model.certificate.objective, rel=1e-12)


@pytest.mark.slow
def test_the_scratch_file_changes_nothing(tmp_path: Path) -> None:
    codes, y = acceptors(20, 600)
    data = fcl.open_data(np.tile(codes, (340, 1)).astype(np.uint8), y=np.tile(y, 340))
    model = fcl.train(data, "kmers:d=2", C=0.1, tol=1e-2).model
    whole = fcl.certify(model, data)
    with pytest.raises(BudgetError, match="needs at least") as refused:
        fcl.certify(model, data, memory="300MiB", scratch=tmp_path)
    least = fcl.certify(model, data, memory=refused.value.smallest + (1 << 12), scratch=tmp_path)
    assert least.bound == whole.bound and least.objective == whole.objective
    assert not list(tmp_path.iterdir())


def test_a_small_budget_is_not_told_of_options_of_the_training() -> None:
    data = fcl.open_data(np.ones((20_000, 400), np.float32), y=np.arange(20_000) % 2)
    with pytest.raises(BudgetError, match="needs at least") as refused:
        fcl.certify((np.zeros(400), 0.0), data, 1.0, memory="1MiB")
    assert "--block-rows" not in str(refused.value)


# -- models of other programs ----------------------------------------------------------------------


def test_weights_by_id_are_those_of_the_whole_family() -> None:
    w = np.where(np.arange(8) % 3 == 1, 0.2, 0.0)
    whole = fcl.certify((w, 0.1), DATA, 1.0)
    ids = np.array([7, 2, 4, 1], np.uint32)
    assert fcl.certify((ids, w[ids], 0.1), DATA, 1.0).to_dict() == whole.to_dict()
    codes, y = acceptors(20, 600)
    data = fcl.open_data(codes.astype(np.uint8), y=y)
    model = fcl.train(data, "kmers:d=8", C=0.5).model
    found = fcl.certify(
        (model.ids, model.weights, model.intercept), data, 0.5, features="kmers:d=8"
    )
    assert found.bound == model.certificate.bound


@pytest.mark.parametrize("kind", ["csr_matrix", "csr_array", "csc_array", "coo_array"])
def test_sparse_weights_of_an_estimator(kind: str) -> None:
    """``coef_`` after ``sparsify()`` certifies as the dense one."""
    import scipy.sparse

    random = np.random.default_rng(0)
    x = random.normal(size=(80, 4))
    data = fcl.open_data(x, y=(x[:, 0] > 0).astype(int))
    dense = np.array([[0.7, 0.0, -0.2, 0.0]])
    sparse = getattr(scipy.sparse, kind)(dense)
    problem: dict[str, Any] = {"features": "columns", "C": 1.0}
    expected = fcl.certify((dense, [0.1]), data, **problem).certificate
    assert fcl.certify((sparse, [0.1]), data, **problem).certificate == expected
