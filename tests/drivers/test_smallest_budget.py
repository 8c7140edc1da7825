"""The smallest budget that a message names trains to the same optimum, in every driver."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from judge import Problem, kmer_matrix
from rows import STRENGTHS, acceptors, pyrimidines, targets
from scipy.sparse import csr_array

import fcl
from fcl.cache import ColumnCache
from fcl.drivers.job import make_job
from fcl.errors import BudgetError
from tests import generators
from tests.drivers.conftest import fit

N = 300
TOL = 1e-3
#: For each loss, a C at which the model has 24 to 60 weights.
LOSSES = STRENGTHS | {"poisson": 0.06, "huber:delta=2": 0.05, "squared": 0.03}
drivers = pytest.mark.parametrize("driver", ["inline", "processes"])
views = pytest.mark.parametrize("view", ["all", 128])


def smallest(data: fcl.DataSet, features: Any, **options: Any) -> int | str:
    """The budget that the message about a small one names.

    In bytes, if the rows cannot make the job larger; else rounded up to MiB, as users read it.
    """
    with pytest.raises(BudgetError) as caught:
        fcl.train(data, features, memory="1MiB", **options)
    found = re.search(r"this job needs at least [^(]*\(--memory (\d+)MiB\)", str(caught.value))
    assert found is not None
    assert 0 <= (int(found[1]) << 20) - caught.value.smallest < 1 << 20
    return f"{found[1]}MiB" if "unknown letters" in str(caught.value) else caught.value.smallest


def train(data: fcl.DataSet, features: Any, **options: Any) -> fcl.TrainResult:
    """Train at the smallest budget."""
    options = {"tol": TOL, "block_rows": 64, "max_passes": 200} | options
    result = fit(data, features, memory=smallest(data, features, **options), **options)
    assert result.converged, result.message
    return result


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@views
@drivers
def test_losses(few: Callable[[int], None], driver: str, view: str | int, loss: str) -> None:
    few(20)
    codes, y = acceptors(14, N)[0], targets(loss, N)
    data = fcl.open_data(codes, y=y)
    result = train(data, "kmers:d=3", C=LOSSES[loss], loss=loss, driver=driver, row_view=view)
    best = problem(loss).solve(1e-9)
    assert best.objective <= result.certificate.objective * (1.0 + 1e-9)
    assert result.certificate.objective <= best.objective * (1.0 + TOL)
    assert len(result.model.ids) > 20 >= max(h["cached"] for h in result.history)


@pytest.fixture(autouse=True)
def _fixed_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache stays as small as the plan makes it, though bytes of the arena could become slots."""
    monkeypatch.setattr(ColumnCache, "grow", lambda self, slots: False)


@cache
def problem(loss: str) -> Problem:
    """The explicit problem."""
    phi = kmer_matrix(acceptors(14, N)[0], 3)
    return Problem(phi, targets(loss, N), np.ones(N), loss, LOSSES[loss])


def numbers() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(N, 30))


def sums(X: np.ndarray) -> np.ndarray:
    """A target that many columns explain."""
    return X @ np.random.default_rng(2).normal(size=X.shape[1])


def of_family(name: str) -> tuple[fcl.DataSet, Any]:
    """Rows and features of a family."""
    codes, labels = acceptors(14, N)
    X = numbers()
    if name.startswith(("kmers", "bag")):
        return fcl.open_data(codes, y=labels), name
    if name == "sparse":
        X *= np.random.default_rng(3).random(X.shape) < 0.3
        return fcl.open_data(csr_array(X), y=sums(X) > 0.0), "columns"
    if name == "generator":
        return fcl.open_data(X, y=sums(np.tanh(X)) > 0.0), generators.Tanh()
    if name.startswith("products"):
        X = X[:, :9]
    return fcl.open_data(X, y=sums(X) > 0.0), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        "columns",
        "sparse",
        "products:degree=2",
        "fourier:n=60",
        "generator",
        "bag:d=3",
        "bag:d=3,value=presence,wildcards=true",
        "kmers:d=2 + bag:d=2",
    ],
)
@views
@drivers
def test_families(few: Callable[[int], None], driver: str, view: str | int, family: str) -> None:
    few(12)
    data, features = of_family(family)
    options: dict[str, Any] = {"C": 0.3, "driver": driver, "row_view": view}
    result = train(data, features, **options)
    ample = fcl.train(data, features, C=0.3, tol=TOL)
    assert result.certificate.objective == pytest.approx(ample.certificate.objective, rel=2 * TOL)
    assert len(result.model.ids) > 12 >= max(h["cached"] for h in result.history)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["softmax", "softmax, group", "targets", "labels", "elastic", "scaled", "covariates"]
)
@views
@drivers
def test_outputs_and_options(
    few: Callable[[int], None], driver: str, view: str | int, kind: str
) -> None:
    few(12)
    codes, labels = acceptors(14, N)
    more: dict[str, Any] = {"C": 0.5}
    y, features, rows = labels, "kmers:d=2", codes
    if kind.startswith("softmax"):
        y, more["loss"] = (codes[:, 5] + (labels > 0)) % 3, "softmax"
        more |= {"group": "group" in kind, "C": 0.25}
    elif kind == "targets":
        X = numbers()
        y, rows, features, more["loss"] = (
            np.c_[sums(X), X[:, 0] + sums(X**2)],
            X,
            "columns",
            "squared",
        )
    elif kind == "labels":
        y, more["loss"] = np.c_[labels > 0, codes[:, 3] == 2].astype(float), "logistic"
    elif kind == "elastic":
        more["l1_ratio"] = 0.5
    elif kind == "scaled":
        X = numbers()
        rows, features, more["standardize"] = X, "columns", True
        y = sums(X) > 0.0
    elif kind == "covariates":
        more["covariates"] = np.c_[pyrimidines(N)]
    data = fcl.open_data(rows, y=y)
    result = train(data, features, driver=driver, row_view=view, **more)
    ample = fcl.train(data, features, tol=TOL, **more)
    assert result.certificate.objective == pytest.approx(ample.certificate.objective, rel=2 * TOL)
    assert len(result.model.ids) > 12 >= max(h["cached"] for h in result.history)


def test_the_smallest_budget_named_is_the_smallest_that_works() -> None:
    codes, y = acceptors(10, N)
    data = fcl.open_data(codes, y=y)
    least = int(str(smallest(data, "kmers:d=2", C=1.0)).removesuffix("MiB"))
    assert make_job(data, "kmers:d=2", C=1.0, memory=f"{least}MiB").plan.total <= least << 20
    with pytest.raises(BudgetError, match=f"--memory {least}MiB"):
        make_job(data, "kmers:d=2", C=1.0, memory=f"{least - 1}MiB")
