#!/usr/bin/env python3
"""Random small optimisation problems, whose certificates are checked on the explicit matrix.

    python tools/fuzz/problems.py [--runs 5000] [--seed 0] [--jobs 2] [--driver inline] [--seconds 2]
    python tools/fuzz/problems.py --hard                  500 badly scaled problems, to 1e-8
    python tools/fuzz/problems.py --only 17 [--hard]      one problem, with all its figures

The problems cover all families, losses, and scales of columns, weights and targets; from number 10,000 on
(``--first``) also several outputs, covariates, and the drivers processes and dask. Seed and number
determine a problem. The judge has the matrix of all features and computes in extended precision. It
reports these faults:

    objective    the reported objective is wrong by more than 1e-12 and more than rounding of the margins
    violation    the reported largest violation is below the true one by more than 1e-9 and more than
                 rounding of the margins
    bound        the bound is above the objective of the reference, or of the model itself, by 1e-12
    gap          the gap does not follow from objective and bound
    unfinished   the tolerance was not reached within --seconds of processor time (driver "processes":
                 5 times as many seconds of wall-clock time)
    stalled      the run gave up, and the gap is more than 10 times what rounding explains
    tolerance    the run reports that it converged, but its gap is above the tolerance
    refused      the problem was refused as input
    raised       an exception; "hung", "died": no answer at all

It also counts runs that gave up because of rounding ("rounding"), and objectives and violations that
rounding of the margins changes by more than 1e-12 and 1e-9 ("objective off", "violation off"). The script
prints a line of JSON for each problem with a fault, and a summary. The exit code is 1 if there was a
fault. Needs the extra ``test``.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(
    1, str(Path(__file__).resolve().parents[2] / "tests")
)  # for the families "generators:..."

import fcl
from fcl.objective import find_loss
from tests.judge import Problem
from tools.bench.common import table
from tools.fuzz import reference
from tools.fuzz.draw import Case, make_case
from tools.fuzz.general import General

#: Seconds after which a silent worker is killed.
PATIENCE = 300.0
#: Number of tries before the run that counts.
CHANCES = 4
#: Rounding explains a gap of up to this many times the rounding of its sums.
ROUNDINGS = 10.0


# -- the judge ---------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """The faults, notes and figures of a problem."""

    case: dict[str, Any]
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A dictionary that is ready for JSON."""
        return {**self.case, "faults": self.faults, "notes": self.notes, **self.figures}


def rounding_of(exact: Problem, w: np.ndarray, b: Any) -> tuple[float, float]:
    """How much rounding of float64 margins may change objective (relative) and violation.

    To first order, the error of a margin is eps times the sum of the absolute values of its terms, in any
    order of summation. A function of the margin has this error times its derivative. A gradient also has
    an error of eps times the absolute values of its own terms.
    """
    eps = float(np.finfo(np.float64).eps)
    m = exact.margins(w, b)
    off = eps * (np.abs(exact.phi) @ np.abs(w) + abs(b) + np.abs(exact.y) + np.abs(exact.offset))
    slopes = np.abs(exact.slopes(m))
    value = exact.objective(w, b)
    objective = float(exact.C * (exact.s @ (slopes * off)))
    sizes = exact.s * (exact.bends(m) * off + eps * slopes)
    price = exact.C * (sizes @ np.abs(exact.phi)) / (exact.rho * exact.f)
    return float(objective / value) if value else 0.0, float(price.max(initial=0.0))


def judge(case: Case, result: Any, seconds: float, spent: float) -> Verdict:
    """Check a result on the explicit matrix; ``spent`` : seconds of processor time that it took."""
    verdict = Verdict(case.describe())
    claimed, tol = result.certificate, case.options["tol"]
    w: Any
    b: Any
    exact: Any
    if isinstance(case.problem, General):
        exact = case.problem.extended()
        w, b = exact.point(result.model)
        off_value, off_price = exact.rounding(w, b)
        with np.errstate(all="ignore"):
            *_, found = exact.better(w, b)
        proved = {"reference": float(found)}
    else:
        exact = reference.extended(case.problem)
        w = np.zeros(exact.phi.shape[1], reference.Long)
        w[result.model.ids] = result.model.weights
        b = reference.Long(result.model.intercept)
        off_value, off_price = rounding_of(exact, w, b)
        best = reference.solve(case.problem)
        gap = float((best.objective - best.bound) / (best.objective or 1.0))
        proved = {"reference": float(best.objective), "reference_gap": gap}
    value = float(exact.objective(w, b))
    largest = float(np.abs(exact.pulls(w, b)).max(initial=0.0))
    least = min(proved["reference"], value)
    size = value or 1.0
    explained = ROUNDINGS * (off_value + off_price)
    verdict.figures = {
        "reason": result.reason,
        "seconds": round(spent, 3),
        "passes": result.passes,
        "gap": claimed.gap,
        "true_gap": (value - least) / size,
        "objective": claimed.objective,
        "objective_off": (claimed.objective - value) / size,
        "violation": claimed.max_violation,
        "violation_off": (claimed.max_violation - largest) / max(largest, 1e-300),
        "bound_above": (claimed.bound - least) / size,
        "rounding": [off_value, off_price],
        **proved,
    }
    if claimed.n_priced != exact.phi.shape[1]:
        verdict.faults.append("priced")
    if abs(claimed.objective - value) > size * (1e-12 + off_value):
        verdict.faults.append("objective")
    if largest > claimed.max_violation * (1.0 + 1e-9):
        explains = largest - claimed.max_violation <= off_price
        (verdict.notes if explains else verdict.faults).append(
            "violation off" if explains else "violation"
        )
    # the solver subtracts the offset from the target; rounding of the difference changes the problem
    translated = case.offset is not None and find_loss(case.options["loss"]).translates
    data_off = off_value if translated else 0.0
    if not claimed.bound <= least + (1e-12 + data_off) * size:
        verdict.faults.append("bound")
    if abs(claimed.objective - value) > 1e-12 * size:
        verdict.notes.append("objective off")
    gap = max(0.0, claimed.objective - claimed.bound) / (claimed.objective or 1.0)
    if not abs(claimed.gap - gap) <= 1e-12:
        verdict.faults.append("gap")
    if result.reason == "tolerance":
        if not claimed.gap <= tol:
            verdict.faults.append("tolerance")
        if spent > seconds:
            verdict.faults.append("unfinished")
    elif claimed.gap <= explained:
        verdict.notes.append("rounding")
    else:
        verdict.faults.append("stalled" if result.reason == "stalled" else "unfinished")
    return verdict


def solve(case: Case, seconds: float, driver: str = "inline") -> tuple[Any, float]:
    """Train; return the result, and the seconds of processor time in this process."""
    begun, clock = time.process_time(), time.process_time
    # more wall-clock time, because other programs use the processor too
    limits: dict[str, Any] = {"max_time": 5.0 * seconds}
    if driver == "inline":
        limits["should_stop"] = lambda: clock() - begun > seconds
    elif driver == "processes":
        limits |= {"driver": "processes", "writers": 2}
    else:
        limits |= {"driver": "dask", "dask": "local:2"}
    with tempfile.TemporaryDirectory() as folder:
        data = case.stored(folder) if driver == "dask" else case.data()
        options = case.options | limits
        result = fcl.train(data, case.features, **options, memory="1GiB", warn=False)
    return result, clock() - begun


def run(case: Case, seconds: float, driver: str = "inline") -> Verdict:
    """Train and judge. A run that takes too long is repeated, because it may have compiled kernels."""
    try:
        for _ in range(CHANCES):
            try:
                result, spent = solve(case, seconds, driver)
                if spent <= seconds:
                    break
            except KeyboardInterrupt:  # should_stop was true before the first pass
                continue
        else:
            result, spent = solve(case, seconds, driver)
    except fcl.InputError as error:
        return Verdict(case.describe(), ["refused"], figures={"message": str(error)[:400]})
    except KeyboardInterrupt:
        return Verdict(case.describe(), ["unfinished"], figures={"reason": "no pass in time"})
    except Exception as error:
        text = "".join(traceback.format_exception(error))[-1500:]
        return Verdict(case.describe(), ["raised"], figures={"message": text})
    return judge(case, result, seconds, spent)


# -- many of them ------------------------------------------------------------------------------------


def work(args: argparse.Namespace, numbers: Sequence[int]) -> Iterator[Verdict]:
    """Yield the verdicts of some problems, in this process."""
    warnings.simplefilter("ignore")
    for number in numbers:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        case = make_case(number, args.seed, args.hard)
        yield run(case, args.seconds, args.driver or case.driver)
        faulthandler.cancel_dump_traceback_later()


def share_out(args: argparse.Namespace, take: Any) -> None:
    """Run all problems in ``--jobs`` processes; a process that dies is replaced."""

    def one(job: int) -> None:
        numbers = list(range(args.first + job, args.first + args.runs, args.jobs))
        while numbers:
            command = [sys.executable, __file__, "--worker", "--first", str(numbers[0])]
            command += ["--runs", str(numbers[-1] + 1 - numbers[0]), "--jobs", str(args.jobs)]
            command += ["--seed", str(args.seed), "--seconds", str(args.seconds)]
            command += ["--driver", args.driver] if args.driver else []
            command += ["--hard"] if args.hard else []
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as worker:
                assert worker.stdout is not None and worker.stderr is not None
                for line in worker.stdout:
                    take(json.loads(line))
                    numbers.pop(0)
                said = worker.stderr.read()
            if numbers:
                fault = "hung" if "Timeout" in said else "died"
                case = make_case(numbers.pop(0), args.seed, args.hard)
                take(Verdict(case.describe(), [fault], figures={"message": said[-1500:]}).to_dict())

    threads = [threading.Thread(target=one, args=(job,)) for job in range(args.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def family_class(features: str) -> str:
    """The family of a problem, or "concat" for several."""
    names = []
    for member in features.split(" + "):
        parts = member.partition(" * ")[0].split(":")
        name = parts[1] if parts[0] == "generators" else parts[0]
        if name == "fourier" and "int8" in member:
            name += " int8"
        names.append(name)
    return " + ".join(sorted(set(names))) if len(set(names)) < 2 else "concat"


def summary(found: Sequence[Mapping[str, Any]]) -> str:
    """Counts of faults by class of problems."""
    rows: list[list[object]] = []
    faults = sorted({fault for one in found for fault in one["faults"]})
    notes = sorted({note for one in found for note in one["notes"]})
    classes: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for one in found:
        classes["all"].append(one)
        classes["family: " + family_class(one["features"])].append(one)
        classes["loss: " + one["loss"]].append(one)
        for name in ("outputs", "covariates", "driver", "view", "l1_ratio"):
            classes[f"{name}: {one[name]}"].append(one)
        classes[f"tol: {one['tol']:.0e}"].append(one)
        for trait in one["traits"]:
            classes["with: " + trait].append(one)
    for name in ["all", *sorted(set(classes) - {"all"})]:
        counts = Counter(word for one in classes[name] for word in (*one["faults"], *one["notes"]))
        bad = sum(bool(one["faults"]) for one in classes[name])
        cells = [counts[word] or "" for word in (*faults, *notes)]
        rows.append([name, len(classes[name]), bad or "", *cells])
    text = table(["problems", "number", "with faults", *faults, *(f"({n})" for n in notes)], rows)
    gaps = [one["reference_gap"] for one in found if "reference_gap" in one]
    if gaps:
        shares = ", ".join(
            f"{np.mean(np.array(gaps) <= g):.2%} to {g:g}" for g in (1e-12, 1e-8, 1e-4)
        )
        text += f"\n\nThe reference proved its own optimum: {shares}."
    return text


def main() -> None:
    """Run the problems, and report those with faults."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, help="problems (default 5000; 500 with --hard)")
    parser.add_argument("--first", type=int, default=0, help="number of the first problem")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="number of parallel processes")
    parser.add_argument("--only", type=int, nargs="+", help="only these problems, in full")
    parser.add_argument(
        "--driver", choices=["inline", "processes", "dask"], help="for all problems"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="time limit of a problem")
    parser.add_argument("--hard", action="store_true", help="only badly scaled problems, to 1e-8")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.runs = args.runs or (500 if args.hard else 5000)
    found: list[dict[str, Any]] = []

    def take(one: dict[str, Any]) -> None:
        found.append(one)
        if one["faults"] or args.only:
            print(json.dumps(one, indent=2 if args.only else None), flush=True)
        if len(found) % 100 == 0:
            bad = sum(bool(one["faults"]) for one in found)
            print(f"{len(found)} problems, {bad} with faults", file=sys.stderr, flush=True)

    if args.worker:
        numbers = range(args.first, args.first + args.runs, args.jobs)
        for verdict in work(args, numbers):
            print(json.dumps(verdict.to_dict()), flush=True)
        return
    if args.only:
        for verdict in work(args, args.only):
            take(verdict.to_dict())
    else:
        share_out(args, take)
        print(summary(found))
    sys.exit(any(one["faults"] for one in found))


if __name__ == "__main__":
    main()
