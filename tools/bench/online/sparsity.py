#!/usr/bin/env python3
"""Compare ways to sparse models: area under the ROC curve against the number of features.

    python tools/bench/online/sparsity.py [--cases wdbc,magic04,a9a] [--passes 10] [--no-plot]

Langford, Li and Zhang, *Sparse online learning via truncated gradient*, NIPS 2008, section 5 and
Figure 2: truncated gradient with theta = inf and theta = g, rounding every K = 10 rows, sub-gradients
that are rounded at the end, and the batch Lasso, by fcl to a gap of 1e-6. Rows have 1,000 further
columns, each 1 with probability 0.05 whatever the label. Numbers are scaled to mean 0 and standard
deviation 1. Steps are explicit, as in the paper, with the rate ``rate`` / sqrt(t) for row t, the best of
a grid for the unpenalised model on a fifth of the training rows. Scores are those of test rows: a fifth
of the rows, or the test file of a9a. Sub-gradients have one gravity, and are rounded at many sizes.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
import fcl
from fcl.features.rows import RowChunk
from fcl.online import OnlineOptions, make_learner
from tools.bench import common
from tools.bench.online import picture
from tools.bench.online.ball import best_rate

Floats = npt.NDArray[np.float64]
#: Columns of noise, and the probability of a 1 in them.
NOISE, OFTEN = 1000, 0.05
#: Rows between truncations.
PERIOD = 10
#: Gravities and sizes of rounding that are tried, and the gravity of sub-gradients.
GRAVITIES = np.logspace(-6, -1, 16)
SIZES = np.logspace(-4, 0.5, 16)
SUBGRADIENT = 1e-4


class Split(NamedTuple):
    """Training and test rows, CSR, with labels -1 and +1."""

    X: Any
    y: Floats
    tests: Any
    of_tests: Floats
    informative: int  #: columns before those of noise


def numbers(name: str) -> tuple[Any, Floats, Any, Floats]:
    """Rows and labels for training, and those of a test file or None."""
    if name == "a9a":
        from sklearn.datasets import load_svmlight_file

        found: list[Any] = []
        for file in ("a9a.gz", "a9a.t.gz"):
            with gzip.open(common.SHARED / file) as stream:
                X, y = load_svmlight_file(stream, n_features=123)
            found += [X.toarray(), y]
        return found[0], found[1], found[2], found[3]
    if name == "wdbc":
        from sklearn.datasets import load_breast_cancer

        X, y = load_breast_cancer(return_X_y=True)
        return X, 2.0 * y - 1.0, None, y
    with gzip.open(common.SHARED / "magic04.data.gz", "rt") as text:
        cells = [line.strip().split(",") for line in text if line.strip()]
    X = np.array([row[:-1] for row in cells], np.float64)
    return X, np.array([1.0 if row[-1] == "g" else -1.0 for row in cells]), None, X[:, 0]


def load(name: str, noise: bool = True, given: Any = None) -> Split:
    """The rows of a case in random order, scaled, with or without columns of noise.

    given : what :func:`numbers` returns, for a case that it does not have.
    """
    from scipy import sparse

    X, y, tests, of_tests = numbers(name) if given is None else given
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    X, y = X[order], y[order]
    if tests is None:
        cut = len(y) // 5
        tests, of_tests, X, y = X[:cut], y[:cut], X[cut:], y[cut:]
    if name not in ("a9a", "splice"):  # columns of 0 and 1
        mean, sd = X.mean(axis=0), X.std(axis=0)
        X, tests = (X - mean) / sd, (tests - mean) / sd
    wide = [np.hstack([rows, rng.random((len(rows), NOISE)) < OFTEN]) for rows in (X, tests)]
    noisy = [sparse.csr_matrix(rows) for rows in (wide if noise else (X, tests))]
    return Split(noisy[0], y, noisy[1], of_tests, X.shape[1])


def online(split: Split, passes: int, rate: float, **options: Any) -> tuple[Floats, float]:
    """Weights and intercept of truncated gradient, by fcl's learner."""
    p = split.X.shape[1]
    given = {"alpha": 0.0, "step": "explicit", "period": PERIOD, "rate": rate, **options}
    learner = make_learner("truncated-gradient", p, OnlineOptions(**given))
    matrix = RowChunk(
        split.X.indptr.astype(np.int64), split.X.indices.astype(np.int64), split.X.data
    )
    for _ in range(passes):
        learner.learn(matrix, split.y, np.ones(len(split.y)), np.zeros(len(split.y)))
        learner.end_pass()
    w = np.zeros(p)
    ids, weights, intercept = learner.point()
    w[ids] = weights
    return w, intercept


def models(
    split: Split, passes: int, rate: float
) -> Iterator[tuple[str, float, tuple[Floats, float]]]:
    """Method, gravity or size, and model."""
    n, p = split.X.shape
    data = fcl.open_data(split.X, y=split.y)
    for g in GRAVITIES:
        yield "truncated gradient, theta = inf", g, online(split, passes, rate, alpha=g)
        yield "truncated gradient, theta = g", g, online(split, passes, rate, alpha=g, theta=g)
        model = fcl.train(data, "columns", C=1.0 / (g * n), tol=1e-6).model
        w = np.zeros(p)
        w[model.ids] = model.weights
        yield "batch Lasso (fcl)", g, (w, model.intercept)
    for size in SIZES:
        options = {"truncation": "round", "theta": size}
        yield "rounding", size, online(split, passes, rate, **options)
        options = {"truncation": "subgradient", "theta": size, "alpha": SUBGRADIENT}
        yield "sub-gradient, rounded at the end", size, online(split, passes, rate, **options)


def area(X: Any, y: Floats, model: tuple[Floats, float]) -> float:
    """Area under the ROC curve."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, X @ model[0] + model[1]))


def chosen_rate(split: Split, passes: int) -> float:
    """The best rate of the unpenalised model on the last fifth of the training rows."""
    cut = len(split.y) * 4 // 5
    part = Split(split.X[:cut], split.y[:cut], split.X[cut:], split.y[cut:], split.informative)

    def cost(rate: float) -> float:
        w, b = online(part, passes, rate)
        return float(np.logaddexp(0.0, -part.of_tests * (part.tests @ w + b)).mean())

    return best_rate(0.1, cost)


def compared(name: str, passes: int) -> tuple[dict[str, picture.Curve], list[list[str]]]:
    """The curves of a case, and lines of the table."""
    split = load(name)
    rate = chosen_rate(split, passes)
    print(
        f"{name}: {len(split.y):,} rows, {split.informative} columns and {NOISE} of noise, "
        f"rate {rate:.3g}"
    )
    found: dict[str, list[tuple[int, float, int]]] = {}
    for method, _, model in models(split, passes, rate):
        active = np.flatnonzero(model[0])
        score = area(split.tests, split.of_tests, model)
        noise = int((active >= split.informative).sum())
        found.setdefault(method, []).append((len(active), score, noise))
    best = max(score for values in found.values() for _, score, _ in values)
    lines = []
    for method, values in found.items():
        most = max(values, key=lambda value: value[1])
        near = min(value for value in values if value[1] >= most[1] - 0.01)
        lines.append(
            [name, method, f"{most[1]:.4f}", f"{most[0]:,}", f"{near[0]:,}", f"{near[2]:,}"]
        )
    print(f"  best of all {best:.4f}", flush=True)
    curves: dict[str, picture.Curve] = {}
    for method, values in found.items():
        shown = sorted({value[:2] for value in values if value[0]})
        curves[method] = ([float(k) for k, _ in shown], [score for _, score in shown])
    return curves, lines


def main() -> None:
    """Compare, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cases", default="wdbc,magic04,a9a", help="default %(default)s")
    parser.add_argument("--passes", type=int, default=10, help="default 10")
    parser.add_argument("--data", type=Path, help="folder of the sets (default: shared/data)")
    parser.add_argument("--no-plot", action="store_true", help="print alone")
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")
    args = parser.parse_args()
    if args.data is not None:
        common.SHARED = args.data
    common.pin(args.core)
    print(common.machine(), flush=True)
    panels: dict[str, dict[str, picture.Curve]] = {}
    table: list[list[str]] = []
    for name in args.cases.split(","):
        panels[name], lines = compared(name, args.passes)
        table += lines
    head = ["rows", "method", "best AUC", "features", "features within 0.01", "of them noise"]
    print(common.table(head, table), flush=True)
    if not args.no_plot:
        picture.draw("sparsity", panels, "features", "area under the ROC curve", logarithmic="x")


if __name__ == "__main__":
    main()
