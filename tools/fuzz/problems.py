"""Random small optimisation problems, whose certificates are checked on the explicit matrix.

The problems cover all families, losses, and scales of columns, weights and targets, several outputs,
covariates, and the drivers. The judge has the matrix of all features and computes in extended precision.
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from typing import Any

import numpy as np

import fcl
from fcl.drivers.train import run_training
from fcl.objective import find_loss
from tests.judge import Problem
from tools.fuzz.case import Case
from tools.fuzz.certify import ROUNDINGS, false_claims, rounding_of
from tools.fuzz.draw import SINCE_GENERAL, RandomProblem, make_problem
from tools.fuzz.general import General
from tools.fuzz.run import PATIENCE, ROOT

#: Seconds of processor time of a problem.
SECONDS = 2.0 * PATIENCE
#: Number of tries before the run that counts.
CHANCES = 4


def judge(
    problem: RandomProblem, result: Any, seconds: float, spent: float, figures: dict[str, Any]
) -> list[str]:
    """Check a result on the explicit matrix.

    seconds, spent : the most seconds of processor time, and those that it took.
    figures : filled with measurements.
    """
    claimed = result.certificate
    w: Any
    b: Any
    exact: Any
    if problem.options.get("limits") is not None:  # which General does not know
        assert isinstance(problem.problem, Problem)
        exact, model = problem.problem, result.model
        w, b = np.zeros(exact.phi.shape[1]), float(model.intercept)
        w[model.ids] = model.weights
        off_value, off_price = rounding_of(exact, w, b)
        with np.errstate(all="ignore"):
            best = exact.objective(*exact.polish(w, b))
    else:
        own = problem.problem
        exact = (own if isinstance(own, General) else General.of(own)).extended()
        w, b = exact.point(result.model)
        off_value, off_price = exact.rounding(w, b)
        with np.errstate(all="ignore"):
            *_, best = exact.better(w, b)
    value = float(exact.objective(w, b))
    largest = float(exact.largest(w, b))
    least = min(float(best), value)
    figures |= {
        "reason": result.reason,
        "seconds": round(spent, 3),
        "passes": result.passes,
        "gap": claimed.gap,
        "true_gap": (value - least) / (value or 1.0),
        "rounding": [off_value, off_price],
    }
    # the solver subtracts the offset from the target; rounding of the difference changes the problem
    translated = problem.offset is not None and find_loss(problem.options["loss"]).translates
    off_bound = off_value if translated else 0.0
    offs = off_value, off_price, off_bound
    faults = false_claims(claimed, value, largest, least, 1e-12, *offs)
    if claimed.n_priced != exact.phi.shape[1]:
        faults.append(f"priced {claimed.n_priced} of {exact.phi.shape[1]} features")
    if result.reason == "tolerance":
        if not claimed.gap <= problem.options["tol"]:
            faults.append(f"tolerance is not reached: gap {claimed.gap:.1e}")
        if spent > seconds:
            faults.append(f"unfinished after {spent:.1f} s of processor time")
    elif claimed.gap > ROUNDINGS * (off_value + off_price):
        end = "stalled" if result.reason == "stalled" else "unfinished"
        faults.append(f"{end} at a gap of {claimed.gap:.1e}")
    return faults


def solve(problem: RandomProblem, seconds: float) -> tuple[Any, float]:
    """Train; return the result, and the seconds of processor time in this process."""
    driver = problem.driver
    begun, clock = time.process_time(), time.process_time
    # more wall-clock time, because other programs use the processor too
    limits: dict[str, Any] = {"max_time": 5.0 * seconds}
    if driver == "inline":
        limits["should_stop"] = lambda: clock() - begun > seconds
    elif driver == "processes":
        limits |= {"driver": "processes", "writers": 2}
    else:
        limits |= {"driver": "dask", "dask": "local:2"}
    limits |= {"memory": "1GiB", "warn": False}
    with tempfile.TemporaryDirectory() as folder:
        data = problem.stored(folder) if driver == "dask" else problem.data()
        result = run_training(data=data, features=problem.features, **problem.options, **limits)
    return result, clock() - begun


def run(problem: RandomProblem, seconds: float, figures: dict[str, Any]) -> list[str]:
    """Train and judge. A run that takes too long is repeated, because it may have compiled kernels."""
    try:
        for chance in range(CHANCES + 1):
            try:
                result, spent = solve(problem, seconds)
            except KeyboardInterrupt:  # should_stop was true before the first pass
                if chance == CHANCES:
                    return ["unfinished: no pass in time"]
                continue
            if spent <= seconds:
                break
    except fcl.InputError as error:
        return [f"refused: {str(error)[:400]}"]
    except Exception as error:
        return ["raised: " + "".join(traceback.format_exception(error))[-1500:]]
    return judge(problem, result, seconds, spent, figures)


def run_case(case: Case) -> list[str]:
    """Run the problem of a case; return what is wrong."""
    tests = str(ROOT / "tests")  # for the families "generators:..."
    if tests not in sys.path:
        sys.path.insert(1, tests)
    hard = case.kind == "hard"
    # the general problems begin at a number
    number = case.number if hard else case.number + SINCE_GENERAL
    problem = make_problem(number, case.seed, hard)
    case.figures.update(problem.describe())
    case.note(f"{problem.options['loss']}, {problem.features[:60]}")
    case.outcome = "solved"
    return run(problem, SECONDS, case.figures)
