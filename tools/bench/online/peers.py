#!/usr/bin/env python3
"""Compare the online learners of fcl, scikit-learn, Vowpal Wabbit and river on the same rows.

    python tools/bench/online/peers.py [--cases 20news,kmers,a9a] [--C 0.1] [--repeat 5] [--no-plot]

Each learner makes one pass over the rows in the same order, with the penalty alpha = 1 / (C n) and its
best rate of a grid, that with the least objective after the pass. ``as it comes`` is SGDClassifier with
its own choice of rates. The seconds are processor time on one core, the medians of passes that take
turns, with the rows in each learner's format. Vowpal Wabbit reads its cache file, and its time is half
the difference between three passes and one. river learns once, and ``--river-rows`` limits its rows.

The intercept of every model is fitted to the training rows before it is scored, and ``fcl.certify`` says
how far the model is from the optimum. Learners that are not installed are left out; to have them all,
pip install scikit-learn vowpalwabbit river.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
import fcl
from fcl.features.rows import RowChunk
from fcl.online import OnlineOptions, make_learner
from tools.bench import cases, common, peers
from tools.bench.online import picture
from tools.bench.online.ball import best_rate

Floats = npt.NDArray[np.float64]
#: Weights, and seconds of the pass.
Learnt = tuple[Floats, float]
EXAMPLE = common.ROOT / "examples" / "celegans"
#: Every k-th window of the example, and letters of its k-mers.
EVERY, LETTERS = 16, 4
#: Passes of Vowpal Wabbit whose time is compared with that of one.
PASSES = 3
#: Values of its --l1, relative to alpha; the best one counts.
SHARES = (1.0, 0.1, 0.01)
#: Rows on which the rate of river is chosen.
RIVER_TRIAL = 1000
TITLES = {"20news": "20 newsgroups", "kmers": "C. elegans, k-mers of d = 4", "a9a": "a9a"}
HEADER = ("learner", "rate", "rows/s", "to SGD", "above optimum", "own gap", "weights", "test loss")
SCORES = ("test errors", "AUPRC")


class Problem(NamedTuple):
    """Training and test rows, CSR float64 and labels -1 and +1; the penalty is 1 / (C n)."""

    X: Any
    y: Floats
    tests: Any
    of_tests: Any
    C: float

    @property
    def alpha(self) -> float:
        return 1.0 / (self.C * len(self.y))


@dataclass
class Entry:
    """A learner: ``learn(rate)`` makes one pass; without ``rates`` the rate is its own business."""

    learn: Callable[[float], Learnt]
    start: float | None = None  #: the rate in the middle of the grid
    rate: float = float("nan")
    once: bool = False  #: too slow to be repeated
    n_rows: int = 0  #: rows of a pass, if fewer than all
    others: tuple[Callable[[float], Learnt], ...] = ()  #: tried, too; the best is kept


# -- rows ----------------------------------------------------------------------------------------------


def rows_of(name: str, folder: Path) -> tuple[Any, Any, Any, Any]:
    """Training rows and labels, test rows and labels of a case."""
    from scipy import sparse

    if name == "a9a":
        from sklearn.datasets import load_svmlight_file

        found: list[Any] = []
        for file in ("a9a.gz", "a9a.t.gz"):
            with gzip.open(folder / file) as stream:
                found += load_svmlight_file(stream, n_features=123)
        return tuple(found)
    if name == "20news":
        held = np.load(folder / "20news_is_test.npy").astype(bool)
        X = sparse.load_npz(folder / "20news_counts.npz").tocsr()
        y = np.where(np.load(folder / "20news_y.npy") == 0, 1.0, -1.0)
        return X[~held], y[~held], X[held], y[held]
    import zarr

    found = []
    for part in ("train.zarr", "valid.zarr"):
        group = zarr.open_group(EXAMPLE / part, mode="r")
        codes, labels = (np.asarray(group[key])[::EVERY] for key in ("X", "y"))
        found += [cases.all_kmers(codes, LETTERS), labels]
    return tuple(found)


def load(name: str, folder: Path, C: float) -> Problem:
    """The rows of a case, those for training in random order."""
    from scipy import sparse

    X, y, tests, of_tests = rows_of(name, folder)
    order = np.random.default_rng(0).permutation(len(y))
    X, tests = (sparse.csr_matrix(rows, dtype=np.float64) for rows in (X[order], tests))
    return Problem(X, np.asarray(y[order], float), tests, np.asarray(of_tests, float), C)


# -- learners ------------------------------------------------------------------------------------------


def of_fcl(problem: Problem, method: str, **options: Any) -> Callable[[float], Learnt]:
    """A learner of fcl over the matrix; its time includes the weights as an array."""
    X, y = problem.X, problem.y
    chunk = RowChunk(X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data)
    ones = np.ones(len(y))
    odds = float(np.log((1.0 + np.sum(y > 0)) / (1.0 + np.sum(y < 0))))

    def learn(rate: float) -> Learnt:
        given = OnlineOptions(alpha=problem.alpha, rate=rate, **options)
        margins = np.zeros(len(y))
        begun = time.process_time()
        learner = make_learner(method, X.shape[1], given)
        learner.start_at(odds)
        learner.learn(chunk, y, ones, margins)
        learner.end_pass()
        ids, weights, _ = learner.point()
        took = time.process_time() - begun
        return dense(X.shape[1], ids, weights), took

    return learn


def dense(size: int, ids: Any, weights: Any) -> Floats:
    """Weights as a full vector."""
    w = np.zeros(size)
    w[ids] = weights
    return w


def sgd(problem: Problem, rates: str) -> Callable[[float], Learnt]:
    """SGDClassifier with the schedule ``rates``."""
    from sklearn.linear_model import SGDClassifier

    def learn(rate: float) -> Learnt:
        own = {} if rates == "optimal" else {"eta0": rate}
        model = SGDClassifier(
            loss="log_loss",
            penalty="l1",
            alpha=problem.alpha,
            learning_rate=rates,
            max_iter=1,
            tol=None,
            shuffle=False,
            power_t=0.5,
            **own,
        )
        begun = time.process_time()
        model.fit(problem.X, problem.y)
        return model.coef_[0], time.process_time() - begun

    return learn


def vowpal(
    problem: Problem, folder: Path, ftrl: bool, share: float = 1.0
) -> Callable[[float], Learnt]:
    """Vowpal Wabbit from its cache file, with ``--l1`` at a share of the penalty.

    ``--ftrl`` takes the penalty of the sum of the losses. Without it, ``--l1`` has another unit, since
    the rates are adaptive.
    """
    from vowpalwabbit import Workspace

    columns = problem.X.shape[1]
    rows, model = folder / "rows.vw", folder / "model.txt"
    if not rows.exists():
        peers.write_vw(problem.X, problem.y, rows)
    l1 = share / problem.C if ftrl else share * problem.alpha
    given = [
        "--loss_function",
        "logistic",
        "--l1",
        repr(l1),
        "-b",
        str(max(18, columns.bit_length())),
    ]
    given += [
        "-d",
        str(rows),
        "--cache",
        "--holdout_off",
        "--quiet",
        "--readable_model",
        str(model),
    ]

    def seconds(rate: float, passes: int) -> float:
        rates = ["--ftrl", "--ftrl_alpha", repr(rate)] if ftrl else ["-l", repr(rate)]
        begun = time.process_time()
        Workspace(arg_list=[*given, *rates, "--passes", str(passes)]).finish()
        return time.process_time() - begun

    def learn(rate: float) -> Learnt:
        more = seconds(rate, PASSES)
        one = seconds(rate, 1)
        return peers.read_vw(model.read_text(), columns)[0], (more - one) / (PASSES - 1)

    return learn


def river(problem: Problem, most: int) -> Callable[[float], Learnt]:
    """river's logistic regression, row by row; the dictionaries are made outside the clock."""
    from river import linear_model, optim

    X = problem.X

    def learn(rate: float, most: int = most) -> Learnt:
        schedule = optim.schedulers.InverseScaling(rate, 0.5)
        model = linear_model.LogisticRegression(
            optimizer=optim.SGD(schedule), intercept_lr=schedule, l1=problem.alpha
        )
        took = 0.0
        for i in range(min(most, len(problem.y))):
            cells = slice(X.indptr[i], X.indptr[i + 1])
            row = dict(zip(X.indices[cells].tolist(), X.data[cells].tolist(), strict=True))
            label = bool(problem.y[i] > 0)
            begun = time.process_time()
            model.learn_one(row, label)
            took += time.process_time() - begun
        found = model.weights
        return dense(X.shape[1], list(found), list(found.values())), took

    return learn


def entries(problem: Problem, folder: Path, river_rows: int) -> dict[str, Entry]:
    """The learners that are installed."""
    truncated: dict[str, Any] = {"method": "truncated-gradient"}
    found = {
        "fcl ftrl": Entry(of_fcl(problem, "ftrl"), 0.1),
        "fcl truncated-gradient, implicit": Entry(of_fcl(problem, **truncated), 0.3),
        "fcl truncated-gradient, explicit": Entry(
            of_fcl(problem, **truncated, step="explicit"), 0.1
        ),
        "fcl truncated-gradient, adagrad": Entry(of_fcl(problem, **truncated, step="adagrad"), 0.1),
    }
    if installed("sklearn", "scikit-learn"):
        found["SGDClassifier, invscaling"] = Entry(sgd(problem, "invscaling"), 0.1)
        found["SGDClassifier as it comes"] = Entry(sgd(problem, "optimal"))
    if installed("vowpalwabbit", "vowpalwabbit"):
        plain, *others = (vowpal(problem, folder, False, share) for share in SHARES)
        found["Vowpal Wabbit --l1"] = Entry(plain, 0.5, others=tuple(others))
        found["Vowpal Wabbit --ftrl"] = Entry(vowpal(problem, folder, True), 0.1)
    if installed("river", "river"):
        most = min(river_rows, len(problem.y))
        name = "river" if most == len(problem.y) else f"river, first {most:,} rows"
        found[name] = Entry(river(problem, most), 0.1, once=True, n_rows=most)
    return found


def installed(module: str, package: str) -> bool:
    """Whether a module can be imported; says so if not."""
    if find_spec(module) is None:
        print(
            f"{package} is not installed, and is left out (pip install {package})", file=sys.stderr
        )
        return False
    return True


# -- measuring -----------------------------------------------------------------------------------------


def fitted(problem: Problem, w: Floats) -> tuple[float, float]:
    """The best intercept for some weights, and the objective with it."""
    from scipy.optimize import minimize_scalar

    margins = problem.X @ w
    found = minimize_scalar(lambda b: float(np.logaddexp(0.0, -problem.y * (margins + b)).sum()))
    return float(found.x), float(np.abs(w).sum() + problem.C * found.fun)


def choose(problem: Problem, name: str, entry: Entry, learns: Sequence[Any]) -> None:
    """Set the rate of an entry, and the learner if there are several, to the best of a grid."""
    if entry.start is None:
        return
    costs: dict[tuple[int, float], float] = {}
    for which, learn in enumerate(learns):

        def cost(rate: float, which: int = which, learn: Any = learn) -> float:
            w = learn(rate)[0]
            found = fitted(problem, w)[1] if np.isfinite(w).all() else float("inf")
            costs[which, rate] = found
            return found

        best_rate(entry.start, cost)
    which, entry.rate = min(costs, key=lambda one: costs[one])
    if not entry.once:
        entry.learn = learns[which]
    print(f"{name}: rate {entry.rate:.3g}, choice {which}", file=sys.stderr)


def measure(problem: Problem, folder: Path, args: argparse.Namespace) -> Iterator[list[Any]]:
    """The lines of the table of one problem, with numbers."""
    from sklearn.metrics import average_precision_score

    data = fcl.open_data(problem.X, y=problem.y)
    optimum = fcl.train(data, "columns", C=problem.C, tol=1e-6).model
    least = optimum.certificate.objective
    found = entries(problem, folder, args.river_rows)
    few, more = slice(RIVER_TRIAL), len(problem.y) / RIVER_TRIAL  # the same alpha
    head = Problem(problem.X[few], problem.y[few], None, None, more * problem.C)
    for name, entry in found.items():
        if entry.once:
            choose(head, name, entry, [river(head, RIVER_TRIAL)])
        else:
            choose(problem, name, entry, [entry.learn, *entry.others])
    seconds: dict[str, list[float]] = {name: [] for name in found}
    seconds["fcl train to 1e-3"] = []
    weights = {}
    for turn in range(args.repeat):
        for name, entry in found.items():
            if not (entry.once and turn):
                weights[name], took = entry.learn(entry.rate)
                seconds[name].append(took)
        begun = time.process_time()
        model = fcl.train(data, "columns", C=problem.C, tol=1e-3).model
        seconds["fcl train to 1e-3"].append(time.process_time() - begun)
        weights["fcl train to 1e-3"] = dense(problem.X.shape[1], model.ids, model.weights)
    for name, w in weights.items():
        b, objective = fitted(problem, w)
        standing = fcl.certify((w, b), data, C=problem.C, top=0)
        margins = problem.tests @ w + b
        one = found.get(name)
        n_rows = (one and one.n_rows) or len(problem.y)
        yield [
            name,
            one.rate if one else float("nan"),
            n_rows / common.median(seconds[name]),
            objective / least - 1.0,
            standing.own_gap,
            int(np.count_nonzero(w)),
            float(np.logaddexp(0.0, -problem.of_tests * margins).mean()),
            float(np.mean((margins > 0) != (problem.of_tests > 0))),
            float(average_precision_score(problem.of_tests > 0, margins)),
        ]


def shown(lines: list[list[Any]]) -> str:
    """The table, with the speed relative to that of SGDClassifier."""
    speeds = {line[0]: line[2] for line in lines}
    other = speeds.get("SGDClassifier, invscaling", float("nan"))
    cells = []
    for name, rate, speed, above, gap, active, loss, errors, area in lines:
        texts = ["-" if np.isnan(rate) else f"{rate:.3g}", f"{speed:,.0f}", f"{speed / other:.3g}"]
        texts += [f"{above:.2%}", f"{gap:.2g}", f"{active:,}", f"{loss:.4f}", f"{errors:.2%}"]
        cells.append([name, *texts, f"{area:.3f}"])
    return common.table([*HEADER, *SCORES], cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--cases", default="20news,kmers,a9a", help="comma-separated (default: all)"
    )
    parser.add_argument(
        "--data", type=Path, default=common.SHARED, help="folder of 20 newsgroups and a9a"
    )
    parser.add_argument("--C", type=float, default=0.1, help="default 0.1")
    parser.add_argument("--repeat", type=int, default=5, help="passes of each (default 5)")
    parser.add_argument("--river-rows", type=int, default=12_000, help="most rows of river")
    parser.add_argument("--no-plot", action="store_true", help="draw no picture")
    parser.add_argument("--core", type=int, help="number of the core to run on")
    args = parser.parse_args()
    common.pin(args.core)
    panels = {}
    print(common.machine())
    for case in args.cases.split(","):
        problem = load(case, args.data, args.C)
        with tempfile.TemporaryDirectory() as folder:
            lines = list(measure(problem, Path(folder), args))
        n, p = problem.X.shape
        print(f"\n{TITLES[case]}: {n:,} rows, {p:,} features, {problem.X.nnz / n:,.0f} in a row\n")
        print(shown(lines), flush=True)
        panels[TITLES[case]] = {
            line[0].split(", first")[0]: ([line[2]], [max(line[3], 1e-4)]) for line in lines
        }
    if not args.no_plot:
        picture.draw("peers", panels, "rows a second", "objective above the optimum, relative")


if __name__ == "__main__":
    main()
