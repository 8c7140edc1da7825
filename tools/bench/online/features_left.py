#!/usr/bin/env python3
"""How many features truncated gradient leaves without a loss of accuracy: the protocol of Figure 1.

    python tools/bench/online/features_left.py [--cases wdbc,magic04,...] [--few]

Langford, Li and Zhang, *Sparse online learning via truncated gradient*, NIPS 2008, section 5. Truncated
gradient with K = 1 and theta = inf, explicit steps of one rate within a pass; rate, gravity, number of
passes and decay of the rate after a pass are chosen by cross-validation on the training rows: the fewest
features whose accuracy is at most one point below the best one without gravity (regression: squared
loss at most 1 % above), or whose area under the ROC curve is not below it. The chosen parameters learn
all training rows; scores are those of test rows. Each set also has a version with 1,000 columns of
noise, each 1 with probability 0.05. The loss is that of ``--loss``; squared for numbers.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from fcl.features.rows import RowChunk
from fcl.online import OnlineOptions, make_learner
from tools.bench import common
from tools.bench.online import sparsity
from tools.bench.online.sparsity import Split

Floats = npt.NDArray[np.float64]
#: Rates, decays and gravities.
Grid = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]
#: What cross-validation chooses from; a run of the most passes also gives the results after fewer.
RATES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
DECAYS = (1.0, 0.5)
PASSES = (1, 3, 10)
GRAVITIES = (0.0, *np.logspace(-4.0, -0.5, 11).tolist())
#: The same with ``--few``.
FEW = (0.1, 0.01, 0.001), (0.5,), (0.0, *np.logspace(-4.0, -0.5, 6).tolist())
#: Points of accuracy, or share of the squared loss, that may be lost.
TOLERANCE = 0.01
CASES = "wdbc,magic04,splice,diabetes,a9a,20news"


class Parameters(NamedTuple):
    """What is chosen by cross-validation."""

    rate: float
    decay: float
    gravity: float
    passes: int


class Score(NamedTuple):
    """Quality on held-out rows: higher is better."""

    quality: float  #: accuracy, or minus the mean squared error
    area: float  #: under the ROC curve; NaN for numbers
    features: float


def split_of(name: str, noise: bool) -> Split:
    """Training and test rows of a set, scaled, with or without columns of noise."""
    if name == "20news":
        return _newsgroups()
    given = None
    if name == "splice":
        given = (*_splice(), None, np.empty(0))
    elif name == "diabetes":
        from sklearn.datasets import load_diabetes

        X, y = load_diabetes(return_X_y=True)
        given = (X, (y - y.mean()) / y.std(), None, y)
    return sparsity.load(name, noise, given)


def _splice() -> tuple[Floats, Floats]:
    """Letters at 60 places, each a column; junctions of either kind against none."""
    with (common.SHARED / "uci_splice.csv").open() as file:
        rows = [(row["label"], row["sequence"].strip()) for row in csv.DictReader(file)]
    letters = np.array([list(sequence) for _, sequence in rows])
    y = np.array([-1.0 if label == "N" else 1.0 for label, _ in rows])
    names = np.unique(letters)
    X = (letters[:, :, None] == names).reshape(len(letters), -1).astype(float)
    return X[:, X.any(axis=0)], y


def _newsgroups() -> Split:
    """The rows of 20 newsgroups by date, logarithms of counts; ten classes against ten."""
    from scipy import sparse

    counts = sparse.load_npz(common.SHARED / "20news_counts.npz").tocsr().astype(float)
    counts.data = np.log1p(counts.data)
    length = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    X = sparse.csr_matrix(sparse.diags(1.0 / np.maximum(length, 1e-12)) @ counts)
    y = np.where(np.load(common.SHARED / "20news_y.npy") < 10, 1.0, -1.0)
    test = np.load(common.SHARED / "20news_is_test.npy").astype(bool)
    order = np.random.default_rng(0).permutation(np.flatnonzero(~test))
    return Split(X[order], y[order], X[test], y[test], X.shape[1])


def learnt(
    X: Any, y: Floats, loss: str, rate: float, decay: float, gravity: float
) -> Iterator[tuple[int, Floats, float]]:
    """Passes, weights and intercept after each number of passes of ``PASSES``."""
    p, n = X.shape[1], len(y)
    options = OnlineOptions(gravity, loss, rate, 0.0, decay, step="explicit", period=1)
    learner = make_learner("truncated-gradient", p, options)
    rows = RowChunk(X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data)
    for number in range(1, max(PASSES) + 1):
        if learner.learn(rows, y, np.ones(n), np.zeros(n)) < n:
            return  # it diverged
        learner.end_pass()
        if number in PASSES:
            w = np.zeros(p)
            ids, weights, b = learner.point()
            w[ids] = weights
            yield number, w, b


def score(X: Any, y: Floats, w: Floats, b: float) -> Score:
    """The score of a model on rows."""
    from sklearn.metrics import roc_auc_score

    margins = np.clip(X @ w + b, -1e100, 1e100)
    features = float(np.count_nonzero(w))
    if len(np.unique(y)) > 2:
        return Score(-float(np.mean((margins - y) ** 2)), np.nan, features)
    area = float(roc_auc_score(y, margins)) if len(np.unique(y)) > 1 else np.nan
    return Score(float(np.mean((margins > 0.0) == (y > 0.0))), area, features)


def validated(split: Split, loss: str, folds: int, grid: Grid) -> dict[Parameters, Score]:
    """The mean scores over the folds of all parameters that never diverge."""
    n = len(split.y)
    fold = np.random.default_rng(1).permutation(n) % folds
    found: dict[Parameters, list[Score]] = {}
    for k, rate, decay, gravity in itertools.product(range(folds), *grid):
        train, held = fold != k, fold == k
        for passes, w, b in learnt(split.X[train], split.y[train], loss, rate, decay, gravity):
            own = found.setdefault(Parameters(rate, decay, gravity, passes), [])
            own.append(score(split.X[held], split.y[held], w, b))
    return {key: Score(*np.mean(own, axis=0)) for key, own in found.items() if len(own) == folds}


def chosen(found: dict[Parameters, Score]) -> dict[str, Parameters]:
    """The best parameters without gravity, and the sparsest of those that keep its quality, or area."""
    free = {key: own for key, own in found.items() if key.gravity == 0.0}
    first = max(free, key=lambda key: free[key].quality)
    best = free[first]
    lost = TOLERANCE * (-best.quality if np.isnan(best.area) else 1.0)
    picked = {"without gravity": first}
    near = [key for key, own in found.items() if own.quality >= best.quality - lost]
    picked["1 % lost"] = min(near, key=lambda key: (found[key].features, -found[key].quality))
    equal = [key for key, own in found.items() if own.area >= best.area]
    if equal:
        picked["equal AUC"] = min(equal, key=lambda key: (found[key].features, -found[key].area))
    return picked


def compared(name: str, noise: bool, loss: str, folds: int, grid: Grid) -> list[list[str]]:
    """The lines of a set in the table."""
    begun = time.perf_counter()
    split = split_of(name, noise)
    loss = "squared" if name == "diabetes" else loss
    if name == "20news":  # rows of length 1 allow larger steps, and words are rare
        rates, decays, gravities = grid
        grid = (
            tuple(1000.0 * rate for rate in rates),
            decays,
            tuple(1e-3 * g for g in gravities),
        )
    picked = chosen(validated(split, loss, folds, grid))
    lines, full = [], None
    for label, given in picked.items():
        models = {passes: (w, b) for passes, w, b in learnt(split.X, split.y, loss, *given[:3])}
        w, b = models[given.passes]
        own = score(split.tests, split.of_tests, w, b)
        full = own if full is None else full
        informative = np.count_nonzero(w[: split.informative])
        lines.append(
            [
                f"{name}{' + noise' if noise else ''}",
                label,
                f"{int(own.features):,}",
                f"{informative:,}",
                f"{own.features / full.features:.3f}",
                f"{own.quality:.4f}",
                f"{own.area:.4f}",
                f"{own.area / full.area:.4f}",
                f"{given.rate:g}, {given.decay:g}, {given.gravity:.1e}, {given.passes}",
            ]
        )
    print(
        f"{name}, noise {noise}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True
    )
    return lines


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cases", default=CASES, help="default %(default)s")
    parser.add_argument("--loss", choices=("logistic", "squared"), default="logistic")
    parser.add_argument("--few", action="store_true", help="an eighth of the parameters")
    parser.add_argument("--folds", type=int, default=10, help="default 10")
    parser.add_argument("--data", type=Path, help="folder of the sets (default: shared/data)")
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")
    args = parser.parse_args()
    if args.data is not None:
        common.SHARED = args.data
    common.pin(args.core)
    print(common.machine(), flush=True)
    head = ["rows", "chosen", "features", "of them no noise", "fraction left", "accuracy", "AUC"]
    head += ["AUC ratio", "rate, decay, gravity, passes"]
    lines: list[list[str]] = []
    for name in args.cases.split(","):
        for noise in (False, True) if name != "20news" else (False,):
            grid = FEW if args.few else (RATES, DECAYS, GRAVITIES)
            found = compared(name, noise, args.loss, args.folds, grid)
            lines += found
            print(common.table(head, found), file=sys.stderr, flush=True)
    print(common.table(head, lines), flush=True)


if __name__ == "__main__":
    main()
