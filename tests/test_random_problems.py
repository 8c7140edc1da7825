"""Random small problems: a fixed sample of the kind "problem" of tools/fuzz, and tests of its judge."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.judge import LOSSES, Problem
from tests.windows import THOROUGH
from tools.fuzz import problems, reference
from tools.fuzz.draw import RandomProblem, explicit_matrix, make_problem

#: Seconds of processor time for a problem; far more than it takes, because machines differ.
SECONDS = 20.0


#: Problems that earlier solvers did not solve: weights over 12 orders with more features than rows,
#: flat directions that no weight ends, rows at the kink of the squared hinge, scales of 10^8 that float32
#: cannot tell apart, intercepts of 10^5, a ridge larger than the loss.
ONCE_UNSOLVED = (
    509, 526, 566, 896, 925, 1038, 1562, 1984, 2427,
    2882, 2944, 3518, 3585, 3964, 4239, 4305, 4636,
)  # fmt: skip


def assert_good(problem: RandomProblem) -> dict[str, Any]:
    figures = problem.describe()
    assert problems.run(problem, SECONDS, figures) == [], figures
    return figures


@pytest.mark.slow
@pytest.mark.parametrize("number", [*range(60 if THOROUGH else 20), *ONCE_UNSOLVED])
def test_every_problem_is_solved_and_its_certificate_true(number: int) -> None:
    assert_good(make_problem(number))


@pytest.mark.thin(3)
@pytest.mark.usefixtures("coordinate_descent")
@pytest.mark.parametrize("number", range(60 if THOROUGH else 20))
def test_sweeps_solve_them_too(number: int) -> None:
    assert_good(make_problem(number))


@pytest.mark.parametrize("number", range(8 if THOROUGH else 4))
def test_hard_problems_are_solved(number: int) -> None:
    assert_good(make_problem(number, hard=True))


#: Eleven problems with their options: scales that differ by up to 10^36, C far above the least that gives
#: a model, nearly interpolated rows, weak elastic nets. The optimum of one of them is 10^-15 of the
#: objective of the empty model, with residuals far below what rounding leaves of margins.
HARD_SMALL = np.load(Path(__file__).with_name("hard_small.npz"))
HARD_OPTIONS = {case.pop("key"): case for case in json.loads(str(HARD_SMALL["meta"]))}


def hard_small(key: str, random: np.random.Generator | None = None) -> RandomProblem:
    """One of the problems; with a generator, its rows and columns in random order."""
    options = dict(HARD_OPTIONS[key])
    features = options.pop("spec")
    # tests/generators.py has the classes that the file names
    features = features.replace("hard_features:Pairs", "generators:Pairs")
    features = features.replace("hard_features:Steps", "generators:Hinges")
    x, y = HARD_SMALL[f"{key}_X"], HARD_SMALL[f"{key}_y"]
    weights = HARD_SMALL.get(f"{key}_w")
    if random is not None:
        rows = random.permutation(len(y))
        x, y = np.ascontiguousarray(x[rows][:, random.permutation(x.shape[1])]), y[rows]
        weights = None if weights is None else weights[rows]
    s = np.ones(len(y)) if weights is None else weights.copy()
    if isinstance(options["class_weight"], dict):
        options["class_weight"] = {float(k): v for k, v in options["class_weight"].items()}
        s[y == 1.0] *= options["class_weight"][1.0]
    elif options["class_weight"] == "balanced":
        total = s.sum()
        for label in (-1.0, 1.0):
            s[y == label] *= 0.5 * total / s[y == label].sum()
    keep = s > 0.0
    phi, factors = explicit_matrix(features, x, keep, 400)
    problem = Problem(
        *(phi[keep], y[keep], s[keep], options["loss"], options["C"]),
        *(options["intercept"], options["l1_ratio"], factors),
    )
    return RandomProblem(0, x, y, weights, features, options, [], problem)


def assert_solved(problem: RandomProblem) -> None:
    assert assert_good(problem)["gap"] <= problem.options["tol"]


@pytest.mark.parametrize("key", HARD_OPTIONS)
def test_hard_small_problems_are_solved(key: str) -> None:
    assert_solved(hard_small(key))


@pytest.mark.parametrize("seed", range(20 if THOROUGH else 4))
def test_the_most_rounded_one_is_solved_in_any_order(seed: int) -> None:
    """Margins near 1 round residuals of 1e-20; the order of rows and columns decides how."""
    assert_solved(hard_small("s321", np.random.default_rng(seed)))


#: Problems of several outputs and with covariates: their outputs, loss, and what is special.
GENERAL = {
    10003: ("classes", "softmax", []),
    10013: ("classes", "softmax", ["group"]),
    10007: ("targets", "squared", ["group"]),
    10052: ("targets", "squared", []),
    10057: ("labels", "logistic", ["group", "offsets"]),
    10034: ("labels", "logistic", []),
    10017: ("one", "logistic", []),
    10056: ("one", "squared", []),
    10043: ("one", "poisson", []),
    10041: ("one", "logistic", ["offsets"]),
}


@pytest.mark.parametrize("number", GENERAL)
def test_outputs_and_covariates(number: int) -> None:
    case, (outputs, loss, traits) = make_problem(number), GENERAL[number]
    assert (case.outputs, case.options["loss"]) == (outputs, loss)
    assert (case.covariates is not None) == (outputs == "one") and set(traits) <= set(case.traits)
    assert_good(case)


@pytest.fixture(scope="module", params=[0, 10008, 10046])
def solved(request: pytest.FixtureRequest) -> tuple[RandomProblem, Any]:
    case = make_problem(request.param)
    return case, problems.solve(case, SECONDS)[0]


FALSE: dict[str, dict[str, Any]] = {
    "objective": {"objective": lambda c: c.objective * (1.0 - 1e-9)},
    "violation": {"max_violation": lambda c: c.max_violation * (1.0 - 1e-8)},
    "bound": {"bound": lambda c: c.objective, "gap": lambda c: 0.0},
    "gap": {"gap": lambda c: 0.5 * c.gap},
    "priced": {"n_priced": lambda c: c.n_priced - 1},
    "tolerance": {"gap": lambda c: 0.5},
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FALSE)
def test_the_judge_sees_a_false_certificate(solved: Any, fault: str) -> None:
    case, result = solved
    assert problems.judge(case, result, SECONDS, 0.0, {}) == []
    changes = {name: change(result.certificate) for name, change in FALSE[fault].items()}
    false = SimpleNamespace(
        model=result.model,
        certificate=replace(result.certificate, **changes),
        reason=result.reason,
        passes=result.passes,
    )
    found = problems.judge(case, false, SECONDS, 0.0, {})
    assert any(words.startswith(fault) for words in found)


@pytest.mark.thin(2)
@pytest.mark.parametrize("reason", ["stalled", "max-time", "interrupted"])
def test_the_judge_sees_a_run_that_gave_up(solved: Any, reason: str) -> None:
    case, result = solved
    ended = replace(result, reason=reason)
    fault = "stalled" if reason == "stalled" else "unfinished"
    (words,) = problems.judge(case, ended, SECONDS, 0.0, {})
    assert words.startswith(fault)


def test_problems_of_a_number_are_the_same() -> None:
    for number in range(5):
        first, second = make_problem(number), make_problem(number)
        assert first.describe() == second.describe()
        assert first.problem.phi.tobytes() == second.problem.phi.tobytes()


@pytest.mark.parametrize("rho", [1.0, 0.5])
@pytest.mark.parametrize("loss", LOSSES)
def test_two_solvers_agree(loss: str, rho: float) -> None:
    random = np.random.default_rng(3)
    phi = random.normal(size=(60, 25)) * 10.0 ** random.uniform(-1, 1, 25)
    y = phi[:, 0] / np.abs(phi[:, 0]).max() + random.normal(size=60)
    y = y if loss == "squared" else np.where(y > 0.0, 1.0, -1.0)
    problem = Problem(phi, y, random.uniform(0.5, 2.0, 60), loss, 1.0, rho=rho)
    found, other = reference.solve(problem), problem.solve(1e-9)
    assert found.objective - found.bound <= 1e-14 * found.objective
    assert found.objective <= other.objective * (1.0 + 1e-14)
    assert found.objective == pytest.approx(other.objective, rel=2e-9)
