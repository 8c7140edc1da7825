"""Held-out accuracy of the estimators against time, for several tolerances.

Each of the shared data sets is fitted with C = 1 (the default) once for each tolerance, from 1e-2 to
1e-6, and to 1e-8 for reference weights::

    python tools/bench/tolerance.py [a9a 20news magic mnist splice] [--C 1] [--max-time 60]

Seconds are processor time on one core, so other work on the machine matters little; every kernel
is compiled or loaded before the clock starts. A star marks a fit that stopped before its tolerance.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score

from fcl import FCLClassifier

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common
from tools.bench.products import read_libsvm

TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
REFERENCE = 1e-8
#: Times are given relative to the time of this tolerance.
TIMED_BY = 1e-6
#: Number of digits to fit, so few that the fits take seconds.
DIGITS = 3_000


class Problem(NamedTuple):
    """Rows and labels for the fit, others for the scores, and the family of features."""

    X: Any
    y: np.ndarray
    held_X: Any
    held_y: np.ndarray
    features: str = "columns"


def main() -> None:
    """Fit, score, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of {', '.join(DATA)} (default: all)"
    )
    parser.add_argument("--C", type=float, default=1.0, help="weight of the losses (default 1)")
    parser.add_argument(
        "--max-time", type=float, default=60.0, help="most seconds for one fit (default 60)"
    )
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")
    args = parser.parse_args()
    if unknown := set(args.names) - set(DATA):
        parser.error(f"expected some of {', '.join(DATA)}; got {', '.join(sorted(unknown))}")
    if not common.SHARED.exists():
        sys.exit(f"expected the data in {common.SHARED}, which does not exist")
    common.pin(args.core)
    warnings.simplefilter("ignore")  # the star marks a fit that stopped before its tolerance
    rows: list[list[str]] = []
    for name in args.names or DATA:
        rows += measure(name, DATA[name](), args.C, args.max_time)
    print(common.machine())
    print(common.table(HEADER, rows))


HEADER = ("data", "tol", "accuracy", "AUPRC", "weights off by", "seconds", "of 1e-6's", "passes")


def measure(name: str, problem: Problem, C: float, max_time: float) -> list[list[str]]:
    """Fit one problem with every tolerance, and return the table rows."""

    def fit(tol: float, X: Any, y: np.ndarray) -> tuple[FCLClassifier, float]:
        model = FCLClassifier(problem.features, C=C, tol=tol, max_time=max_time)
        since = time.process_time()
        model.fit(X, y)
        return model, time.process_time() - since

    every = max(1, len(problem.y) // 500)
    fit(REFERENCE, problem.X[::every], problem.y[::every])
    fits = {}
    for tol in (*TOLERANCES, REFERENCE):
        fits[tol] = model, seconds = fit(tol, problem.X, problem.y)
        print(f"{name}, tol {tol:.0e}: {seconds:.2f} s", file=sys.stderr)
    best = weights_of(fits[REFERENCE][0])
    unit = fits[TIMED_BY][1]
    rows = []
    for tol, (model, seconds) in fits.items():
        off = distance(weights_of(model), best)
        star = "" if model.converged_ else "*"
        accuracy, precision = scores(model, problem)
        rows.append(
            [
                name,
                f"{tol:.0e}".replace("e-0", "e-") + star,
                f"{accuracy:.4f}",
                f"{precision:.4f}",
                f"{off:.1e}" if off else "0",
                f"{seconds:.2f}",
                f"{seconds / unit:.2f}",
                str(model.n_iter_),
            ]
        )
    return rows


def scores(model: FCLClassifier, problem: Problem) -> tuple[float, float]:
    """Accuracy on the held-out rows, and average precision (the mean over several classes)."""
    margins = model.decision_function(problem.held_X)
    truth = problem.held_y
    if margins.ndim == 1:
        precision = average_precision_score(truth == model.classes_[1], margins)
    else:
        each = zip(model.classes_, margins.T, strict=True)
        precision = np.mean([average_precision_score(truth == label, m) for label, m in each])
    return model.score(problem.held_X, truth), float(precision)


def weights_of(model: FCLClassifier) -> dict[tuple[int, int], float]:
    """Weights by class and feature."""
    return {
        (k, int(feature)): float(weight)
        for k, one in enumerate(model.models_)
        for feature, weight in zip(one.ids, one.weights, strict=True)
    }


def distance(weights: dict[Any, float], best: dict[Any, float]) -> float:
    """The norm of the difference divided by the norm of the best weights."""
    difference = [weights.get(key, 0.0) - best.get(key, 0.0) for key in weights.keys() | best]
    return float(np.linalg.norm(difference) / np.linalg.norm(list(best.values())))


# -- data ------------------------------------------------------------------------------------------


def a9a() -> Problem:
    """a9a: census income, 123 binary columns, with its own test rows."""
    (X, y), (held_X, held_y) = (read_libsvm(common.SHARED / f"a9a{s}.gz") for s in ("", ".t"))
    held = np.zeros((len(held_y), X.shape[1]))
    held[:, : held_X.shape[1]] = held_X  # the last column of the test rows is always 0
    return Problem(X.astype(float), y, held, held_y)


def newsgroups() -> Problem:
    """20 newsgroups: raw counts of 83,021 words, one group against the rest, split by date."""
    from scipy import sparse

    X = sparse.load_npz(common.SHARED / "20news_counts.npz").tocsr().astype(float)
    y = np.load(common.SHARED / "20news_y.npy") == 0
    held = np.load(common.SHARED / "20news_is_test.npy").astype(bool)
    return Problem(X[~held], y[~held], X[held], y[held])


def magic() -> Problem:
    """MAGIC gamma telescope: 10 raw columns of numbers; a quarter of the rows held out."""
    with gzip.open(common.SHARED / "magic04.data.gz", "rt") as lines:
        rows = list(csv.reader(lines))
    return _split(np.array([row[:10] for row in rows], float), np.array([r[10] for r in rows]))


def mnist() -> Problem:
    """MNIST: raw pixels, digit 3 against the rest, with its own test rows."""
    data = np.load(common.SHARED / "mnist.npz")
    X, held_X = (data[name].astype(float) for name in ("train_x", "test_x"))
    y, held_y = (data[name] == 3 for name in ("train_y", "test_y"))
    return Problem(X[:DIGITS], y[:DIGITS], held_X, held_y)


def splice() -> Problem:
    """UCI splice: k-mers of windows of 60 bases, three classes; a quarter of the rows held out."""
    with open(common.SHARED / "uci_splice.csv", newline="") as lines:
        rows = [(row["label"], row["sequence"].strip()) for row in csv.DictReader(lines)]
    return _split(np.array([s for _, s in rows]), np.array([label for label, _ in rows]))._replace(
        features="kmers:d=3"
    )


def _split(X: np.ndarray, y: np.ndarray) -> Problem:
    held = np.random.default_rng(0).random(len(y)) < 0.25
    return Problem(X[~held], y[~held], X[held], y[held])


DATA: dict[str, Callable[[], Problem]] = {
    "a9a": a9a,
    "20news": newsgroups,
    "magic": magic,
    "mnist": mnist,
    "splice": splice,
}


if __name__ == "__main__":
    main()
