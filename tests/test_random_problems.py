"""Random small problems: a fixed sample of the kind "problem" of tools/fuzz."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.judge import Problem
from tests.windows import THOROUGH
from tools.fuzz import problems
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
