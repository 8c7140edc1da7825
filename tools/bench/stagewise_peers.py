"""Classifiers of scikit-learn, liblinear and Vowpal Wabbit on the data of the stagewise benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench.stagewise_data import COMPONENTS, Point, Split

#: What is done between two points of a method that iterates.
STEPS = {
    "lbfgs": (10, 30, 100),
    "saga": (1, 3, 10),
    "sgd": (1, 3, 10, 20),
    "liblinear": (5, 20),
    "vw": (1, 3, 10),
}
#: The six solvers of liblinear in figure 2a of the paper, by their number there, as options of LinearSVC;
#: none: logistic regression.
LIBLINEAR: dict[str, dict[str, Any] | None] = {
    "liblinear-0": None,
    "liblinear-1": {"loss": "squared_hinge", "dual": True},
    "liblinear-2": {"loss": "squared_hinge", "dual": False},
    "liblinear-3": {"loss": "hinge", "dual": True},
    "liblinear-4": {"multi_class": "crammer_singer"},
    "liblinear-5": {"penalty": "l1", "loss": "squared_hinge", "dual": False},
}


def _ridge(x: Any, y: np.ndarray) -> Iterator[tuple[str, Any]]:
    from sklearn.linear_model import RidgeClassifier

    yield "exact solution", RidgeClassifier(alpha=1.0).fit(x, y)


def _logistic(solver: str) -> Callable[[Any, np.ndarray], Iterator[tuple[str, Any]]]:
    def fits(x: Any, y: np.ndarray) -> Iterator[tuple[str, Any]]:
        from sklearn.linear_model import LogisticRegression

        done = 0
        # saga continues from its coefficients; lbfgs starts over, and pays for the shorter runs too
        model = LogisticRegression(solver=solver, C=1.0, tol=1e-6, warm_start=solver == "saga")
        for steps in STEPS[solver]:
            model.set_params(max_iter=steps - (done if solver == "saga" else 0)).fit(x, y)
            done = steps
            yield f"{steps} iterations", model

    return fits


def _sgd(x: Any, y: np.ndarray) -> Iterator[tuple[str, Any]]:
    from sklearn.linear_model import SGDClassifier

    model, done = SGDClassifier(loss="log_loss", alpha=1e-6, random_state=0), 0
    order = np.random.default_rng(0)
    for steps in STEPS["sgd"]:
        for _ in range(steps - done):
            some = order.permutation(len(y))
            model.partial_fit(x[some], y[some], classes=np.unique(y))
        done = steps
        yield f"{steps} epochs", model


def _liblinear(options: dict[str, Any] | None) -> Callable[..., Iterator[tuple[str, Any]]]:
    def fits(x: Any, y: np.ndarray) -> Iterator[tuple[str, Any]]:
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.svm import LinearSVC

        for steps in STEPS["liblinear"]:
            if options is None:
                one = LogisticRegression(solver="liblinear", C=1.0, max_iter=steps)
                model = OneVsRestClassifier(one)
            else:
                model = LinearSVC(C=1.0, max_iter=steps, random_state=0, **options)
            yield f"{steps} iterations", model.fit(x, y)

    return fits


class _VowpalWabbit:
    """One against all others with the logistic loss."""

    def __init__(self, folder: Path, passes: int) -> None:
        self._folder, self._passes = folder, passes

    def fit(self, y: np.ndarray) -> _VowpalWabbit:
        """Train on rows.vw in the folder."""
        self._run(
            ("-d", "rows.vw"),
            ("-f", "model"),
            ("--oaa", str(int(y.max()) + 1), "--loss_function", "logistic"),
            ("--cache", "-k", "--holdout_off", "--passes", str(self._passes)),
        )
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        """The class of each row."""
        write_vw(x, np.zeros(len(x), int), self._folder / "test.vw")
        self._run(("-d", "test.vw"), ("-i", "model"), ("-p", "predictions"), ("-t",))
        return np.loadtxt(self._folder / "predictions", ndmin=2)[:, 0].astype(int) - 1

    def _run(self, *options: tuple[str, ...]) -> None:
        from vowpalwabbit import Workspace

        files = ("-d", "-f", "-i", "-p")
        given = [
            str(self._folder / word) if option[0] in files and place else word
            for option in options
            for place, word in enumerate(option)
        ]
        Workspace(arg_list=[*given, "--quiet"]).finish()


def _vowpal_wabbit(x: Any, y: np.ndarray) -> Iterator[tuple[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as name:
        write_vw(x, y, Path(name) / "rows.vw")
        yield "rows written", None
        for passes in STEPS["vw"]:
            yield f"{passes} passes", _VowpalWabbit(Path(name), passes).fit(y)


def write_vw(x: np.ndarray, y: np.ndarray, path: Path) -> None:
    """Write dense rows with classes from 0 as lines of Vowpal Wabbit, whose classes begin at 1."""
    names = [f"{j}:" for j in range(x.shape[1])]
    with path.open("w") as file:
        for row, code in zip(x, y.tolist(), strict=True):
            cells = " ".join(map("%s%.5g".__mod__, zip(names, row.tolist(), strict=True)))
            file.write(f"{code + 1} | {cells}\n")


#: Name -> a function that yields (work in words, fitted model); None: work that does not count, as the
#: paper does not count the reading of rows. liblinear and vw fit one against the rest.
METHODS: dict[str, Callable[[Any, np.ndarray], Iterator[tuple[str, Any]]]] = {
    "ridge": _ridge,
    "lbfgs": _logistic("lbfgs"),
    "saga": _logistic("saga"),
    "sgd": _sgd,
    **{name: _liblinear(options) for name, options in LIBLINEAR.items()},
    "vw": _vowpal_wabbit,
}


def on_rows(method: str, data: Split) -> list[Point]:
    """Test errors on the rows as they are."""
    return _points(method, data, lambda: (data.x, data.test_x))


def on_cosines(method: str, data: Split, n: int, gamma: float) -> list[Point]:
    """Test errors on n cosines of principal components, as scikit-learn makes them, whose time counts."""

    return _points(method, data, lambda: sampled(data, n, gamma))


def sampled(data: Split, n: int, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """n cosines of the training and of the test rows, float32, by scikit-learn."""
    from sklearn.decomposition import PCA
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.pipeline import make_pipeline

    sampler = RBFSampler(gamma=gamma, n_components=n, random_state=0)
    pipeline = make_pipeline(PCA(COMPONENTS, random_state=0), sampler)
    # RBFSampler scales its cosines by sqrt(2 / n); unit cosines are those of fcl
    scale = np.float32(np.sqrt(n / 2.0))
    x = (pipeline.fit_transform(data.x) * scale).astype(np.float32)
    return x, (pipeline.transform(data.test_x) * scale).astype(np.float32)


def adelie(python: str, data: Split, size: int, ratio: float, limit: float) -> list[Point]:
    """Test errors along the path of adelie's multinomial group lasso; empty if it takes too long.

    python : an interpreter that has adelie.
    size, ratio : values of lambda, and the smallest of them relative to the largest.
    limit : seconds after which it is stopped.
    """
    from scipy.sparse import issparse, save_npz

    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as name:
        folder = Path(name)
        for array, rows in (("x", data.x), ("test_x", data.test_x)):
            (save_npz if issparse(rows) else np.save)(folder / array, rows)
        np.save(folder / "y.npy", data.y)
        np.save(folder / "test_y.npy", data.test_y)
        script = Path(__file__).with_name("stagewise_adelie.py")
        command = [python, str(script), name, str(size), str(ratio)]
        try:
            done = subprocess.run(command, check=True, capture_output=True, timeout=limit)
        except subprocess.TimeoutExpired:
            print(f"adelie: stopped after {limit:.0f} s, without a result", file=sys.stderr)
            return []
    points = json.loads(done.stdout.splitlines()[-1])
    return [Point(f"lambda {lmda:.3g}", *rest) for lmda, *rest in points]


def _points(method: str, data: Split, made: Callable[[], tuple[Any, Any]]) -> list[Point]:
    def now() -> np.ndarray:
        return np.array([time.process_time(), time.perf_counter()])

    spent, points, since = np.zeros(2), [], now()
    x, test_x = made()
    spent += now() - since
    since = now()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the shorter runs do not converge
        for what, model in METHODS[method](x, data.y):
            if model is not None:
                spent += now() - since
                error = float(np.mean(model.predict(test_x) != data.test_y))
                points.append(Point(what, error, *spent))
            since = now()
    return points
