"""Models of products of columns against solvers on the matrix of all products, for both drivers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from judge import Problem
from product_matrix import make_rows, product_matrix, stored

from fcl import open_data
from fcl.drivers.train import train
from fcl.features import Products
from tests.drivers.conftest import check

N_ROWS = 500


def target(X: np.ndarray, loss: str) -> np.ndarray:
    """Depends on a pair and a triple of columns."""
    random = np.random.default_rng(5)
    m = 2.0 * X[:, 0] * X[:, 2] - X[:, 1] * X[:, 2] * X[:, 4] + 0.5 * X[:, 3]
    m = m - m.mean() + 0.3 * m.std() * random.normal(size=len(m))
    return m if loss == "squared" else np.where(m > 0.0, 1.0, -1.0)


@pytest.mark.parametrize("degree", [1, 3])
def test_thirty_binary_columns(degree: int) -> None:
    random = np.random.default_rng(degree)
    X = random.random((N_ROWS, 30)) < random.uniform(0.1, 0.7, 30)
    y = target(X.astype(float), "logistic")
    result = train(open_data(X, y=y), f"products:degree={degree}", C=0.3, tol=1e-6)
    phi = product_matrix(X, degree, repeats=False)
    assert phi.shape[1] == {1: 30, 3: 4525}[degree]
    check(result, Problem(phi, y, np.ones(N_ROWS), "logistic", 0.3), rel=2e-6)


def test_liblinear_finds_the_same_optimum() -> None:
    """Without an intercept, which it would penalise."""
    from sklearn.svm import LinearSVC

    degree, random = 2, np.random.default_rng(2)
    X = (random.random((N_ROWS, 30)) < random.uniform(0.1, 0.7, 30)).astype(np.float32)
    y = target(X, "logistic")
    options = {"C": 0.05, "loss": "squared_hinge", "tol": 1e-6}
    result = train(open_data(X, y=y), Products(degree, binary=True), intercept=False, **options)
    assert result.converged
    phi = product_matrix(X, degree, repeats=False)
    reference = LinearSVC(
        penalty="l1",
        loss="squared_hinge",
        dual=False,
        C=0.05,
        fit_intercept=False,
        tol=1e-8,
        max_iter=100_000,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        w = reference.fit(phi, y).coef_[0]
    problem = Problem(phi, y, np.ones(N_ROWS), "squared_hinge", 0.05, intercept=False)
    assert result.certificate.objective == pytest.approx(problem.objective(w, 0.0), rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "degree", "loss", "sparse"),
    [
        ("small", 3, "logistic", False),
        ("signed", 3, "squared", True),
        ("counts", 3, "squared_hinge", True),
        ("counts", 2, "squared_hinge", False),
    ],
)
def test_real_columns(kind: str, degree: int, loss: str, sparse: bool) -> None:
    X = make_rows(4, N_ROWS, 8, kind)
    y = target(X.astype(float), loss)
    C = {"logistic": 1.0, "squared": 0.02, "squared_hinge": 0.01}[loss]
    data = open_data(stored(X, sparse), y=y)
    options = {"C": C, "loss": loss, "tol": 1e-6, "block_rows": 192}
    result = train(data, Products(degree), **options, memory="3GiB")
    phi = product_matrix(X, degree, repeats=True)
    check(result, Problem(phi, y, np.ones(N_ROWS), loss, C), rel=2e-6)
