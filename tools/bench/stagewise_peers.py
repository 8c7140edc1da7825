"""Classifiers of scikit-learn, and liblinear, on the data of the benchmarks of stagewise models."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tools.bench.stagewise_data import COMPONENTS, Point, Split

#: What is done between two points of a method that iterates.
STEPS = {"lbfgs": (10, 30, 100), "saga": (1, 3, 10), "sgd": (1, 3, 10, 20), "liblinear": (5, 20)}


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


def _liblinear(x: Any, y: np.ndarray) -> Iterator[tuple[str, Any]]:
    from sklearn.svm import LinearSVC

    for steps in STEPS["liblinear"]:
        yield f"{steps} iterations", LinearSVC(C=1.0, max_iter=steps, random_state=0).fit(x, y)


#: Name -> a function that yields (work in words, fitted model); liblinear fits one against the rest.
METHODS: dict[str, Callable[[Any, np.ndarray], Iterator[tuple[str, Any]]]] = {
    "ridge": _ridge,
    "lbfgs": _logistic("lbfgs"),
    "saga": _logistic("saga"),
    "sgd": _sgd,
    "liblinear": _liblinear,
}


def on_rows(method: str, data: Split) -> list[Point]:
    """Test errors on the rows as they are."""
    return _points(method, data, lambda: (data.x, data.test_x))


def on_cosines(method: str, data: Split, n: int, gamma: float) -> list[Point]:
    """Test errors on n cosines of principal components, as scikit-learn makes them, whose time counts."""

    def made() -> tuple[Any, Any]:
        from sklearn.decomposition import PCA
        from sklearn.kernel_approximation import RBFSampler
        from sklearn.pipeline import make_pipeline

        sampler = RBFSampler(gamma=gamma, n_components=n, random_state=0)
        pipeline = make_pipeline(PCA(COMPONENTS, random_state=0), sampler)
        # RBFSampler scales its cosines by sqrt(2 / n); unit cosines are those of fcl
        scale = np.float32(np.sqrt(n / 2.0))
        x = (pipeline.fit_transform(data.x) * scale).astype(np.float32)
        return x, (pipeline.transform(data.test_x) * scale).astype(np.float32)

    return _points(method, data, made)


def _points(method: str, data: Split, made: Callable[[], tuple[Any, Any]]) -> list[Point]:
    clock, processor = time.perf_counter(), time.process_time()
    scoring = np.zeros(2)
    x, test_x = made()
    points = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the shorter runs do not converge
        for what, model in METHODS[method](x, data.y):
            now = np.array([time.process_time() - processor, time.perf_counter() - clock])
            error = float(np.mean(model.predict(test_x) != data.test_y))
            points.append(Point(what, error, *(now - scoring)))
            end = np.array([time.process_time() - processor, time.perf_counter() - clock])
            scoring += end - now
    return points
