"""Small jobs of all kinds: every family, loss, penalty, view, and one or several outputs.

The contract suites of tests/contracts check each of them, and traces.py keeps what every pass found.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse

Rows = tuple[Any, np.ndarray]
#: Options of every job, which its own replace.
OPTIONS = {"tol": 1e-6, "block_rows": 256, "memory": "1GiB", "threads": 1, "warn": False}


@dataclass(frozen=True)
class Job:
    """A job: its name, a function that makes rows and targets, the family, and the other options."""

    name: str
    rows: Callable[[], Rows]
    features: str
    options: dict[str, Any] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """The options of fcl.train, with covariates and offsets as arrays."""
        options = OPTIONS | self.options
        own = np.random.default_rng(6).normal(size=(len(self.rows()[1]), 2))
        if options.get("covariates"):
            options["covariates"] = own
        if options.get("offset"):
            options["offset"] = own[:, 0]
        return options

    def train(self, **more: Any) -> Any:
        """Run the job on its rows, with other options."""
        import fcl
        from fcl.drivers.train import run_training

        X, y = self.rows()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = {"features": self.features, **self.arguments(), **more}
            return run_training(data=fcl.open_data(X, y=y), **given)


# -- rows ------------------------------------------------------------------------------------------


@cache
def letters(unknown: bool = False) -> Rows:
    """600 windows of 16 letters, of which two patterns raise the chance of a positive label."""
    random = np.random.default_rng(1)
    codes = random.integers(0, 4, (600, 16), np.uint8)
    score = 2.0 * (codes[:, 3] == 0) + 2.0 * ((codes[:, 7] == 2) & (codes[:, 8] == 3)) - 1.2
    y = np.where(random.random(600) < 1.0 / (1.0 + np.exp(-score)), 1, -1)
    if unknown:
        codes = np.where(random.random(codes.shape) < 0.05, 4, codes).astype(np.uint8)
    return codes, y


@cache
def numbers() -> Rows:
    """500 rows of 24 numbers of very different scales; the target depends on 4 of them."""
    random = np.random.default_rng(2)
    X = random.normal(size=(500, 24)) * np.logspace(-1, 1, 24)
    score = X[:, 0] * 5.0 - X[:, 12] + 0.1 * X[:, 23] + X[:, 3] * X[:, 4]
    return X, np.where(score + random.normal(size=500) > 0.0, 1, 0)


def even() -> Rows:
    """The numbers on one scale."""
    X, y = numbers()
    return X / X.std(axis=0), y


@cache
def words() -> Rows:
    """700 rows of counts of 900 words, sparse."""
    random = np.random.default_rng(3)
    X = scipy.sparse.random_array(
        (700, 900), density=0.02, format="csr", rng=random, dtype=np.float32
    )
    X.data = np.ceil(3.0 * X.data).astype(np.float32)
    weights = random.normal(size=900) * (random.random(900) < 0.1)
    return X, np.where(X @ weights + 0.3 * random.normal(size=700) > 0.0, 1, 0)


def measured() -> Rows:
    """The numbers with a numeric target."""
    X, y = numbers()
    return X, X[:, 0] * 5.0 + y + np.random.default_rng(4).normal(size=len(y))


def counted() -> Rows:
    """The windows with counts as targets."""
    codes, _ = letters()
    return codes, (codes == 3).sum(axis=1)


def three_classes(rows: Callable[[], Rows]) -> Callable[[], Rows]:
    """Rows with a third class."""

    def made() -> Rows:
        X, y = rows()
        some = np.random.default_rng(5).random(len(y)) < 0.3
        return X, np.where(some, 2, y > 0).astype(int)

    return made


def two_labels() -> Rows:
    """The windows with two labels each."""
    codes, y = letters()
    return codes, np.stack([y > 0, codes[:, 3] == 1], axis=1).astype(int)


def two_targets() -> Rows:
    """The numbers with two numeric targets."""
    X, y = measured()
    return X, np.stack([y, X[:, 12] - X[:, 0]], axis=1)


# -- jobs ------------------------------------------------------------------------------------------


def jobs() -> Iterator[Job]:
    """The jobs, by family, loss, number of outputs, penalty and view."""
    view = {"row_view": 256}
    for loss, C in (("logistic", 1.0), ("squared_hinge", 0.3), ("squared", 0.05)):
        yield Job(f"kmers-{loss}", letters, "kmers:d=3", {"loss": loss, "C": C})
    yield Job("kmers-huber", counted, "kmers:d=2", {"loss": "huber", "C": 0.1})
    pinball = {"loss": "pinball:tau=0.8,width=0.5", "C": 0.5}
    yield Job("kmers-pinball", counted, "kmers:d=2", pinball)
    yield Job("kmers-poisson", counted, "kmers:d=2", {"loss": "poisson", "C": 0.3})
    yield Job("kmers-unknown", lambda: letters(True), "kmers:d=3", {"C": 1.0})
    yield Job("kmers-sample", letters, "kmers:d=3", {"C": 1.0} | view)
    yield Job(
        "kmers-sample-hinge", letters, "kmers:d=3", {"C": 0.3, "loss": "squared_hinge"} | view
    )
    yield Job("kmers-elastic", letters, "kmers:d=3", {"C": 1.0, "l1_ratio": 0.5})
    yield Job("kmers-no-intercept", letters, "kmers:d=3", {"C": 1.0, "intercept": False})
    yield Job("kmers-balanced", letters, "kmers:d=3", {"C": 0.5, "class_weight": "balanced"})
    yield Job("kmers-strong", letters, "kmers:d=4", {"C": 10.0, "tol": 1e-3})
    yield Job("kmers-softmax", three_classes(letters), "kmers:d=2", {"C": 1.0, "loss": "softmax"})
    grouped = {"C": 1.0, "loss": "softmax", "group": True}
    yield Job("kmers-softmax-group", three_classes(letters), "kmers:d=2", grouped)
    yield Job("kmers-labels", two_labels, "kmers:d=2", {"C": 1.0})
    yield Job("kmers-labels-group", two_labels, "kmers:d=2", {"C": 1.0, "group": True})
    yield Job("kmers-softmax-sample", three_classes(letters), "kmers:d=2", {**grouped, **view})
    yield Job("bag", letters, "bag:d=3", {"C": 1.0})
    yield Job("bag-both", letters, "bag:d=3,strands=both", {"C": 1.0})
    yield Job("bag-presence", letters, "bag:d=3,value=presence", {"C": 1.0})
    yield Job("bag-wildcards", lambda: letters(True), "bag:d=3,wildcards=true", {"C": 1.0})
    search = "bag:d=3,value=presence,wildcards=true,strands=both"
    yield Job("bag-search", letters, search, {"C": 1.0})
    yield Job("columns", numbers, "columns", {"C": 1.0})
    yield Job("columns-hinge", numbers, "columns", {"C": 0.3, "loss": "squared_hinge"})
    squared = {"C": 0.05, "loss": "squared"}
    yield Job("columns-squared", measured, "columns", squared)
    yield Job("columns-targets", two_targets, "columns", squared)
    yield Job("columns-targets-group", two_targets, "columns", {**squared, "group": True})
    yield Job("columns-standardize", numbers, "columns", {"C": 1.0, "standardize": True})
    yield Job("columns-elastic", numbers, "columns", {"C": 1.0, "l1_ratio": 0.2})
    both = {"covariates": "own"}
    yield Job(
        "columns-softmax-covariates",
        three_classes(even),
        "columns",
        {"C": 1.0, "loss": "softmax"} | both,
    )
    yield Job(
        "columns-targets-covariates", two_targets, "columns", {"C": 0.05, "loss": "squared"} | both
    )
    yield Job("kmers-labels-covariates", two_labels, "kmers:d=2", {"C": 1.0, "group": True} | both)
    yield Job(
        "kmers-softmax-covariates", three_classes(letters), "kmers:d=2", grouped | view | both
    )
    yield Job("columns-covariates", numbers, "columns", {"C": 1.0, "covariates": "own"})
    yield Job("columns-offset", numbers, "columns", {"C": 1.0, "offset": "own"})
    yield Job("sparse", words, "columns", {"C": 1.0})
    yield Job("sparse-strong", words, "columns", {"C": 10.0, "loss": "squared_hinge"})
    yield Job("sparse-softmax", three_classes(words), "columns", {"C": 0.3, "loss": "softmax"})
    yield Job("products", even, "products:degree=2", {"C": 0.3})
    yield Job("products-3", even, "products:degree=3", {"C": 0.1, "loss": "squared_hinge"})
    yield Job("fourier", numbers, "fourier:n=500", {"C": 0.3})
    yield Job("fourier-steps", numbers, "fourier:n=500,dtype=int8", {"C": 0.3})
    yield Job("hinges", even, "hinges:n=6", {"C": 0.3})
    yield Job("kmers-positive", letters, "kmers:d=3", {"C": 1.0, "limits": "0:"})
    hinge = {"C": 0.3, "loss": "squared_hinge", "limits": ":0"} | view
    yield Job("kmers-negative-sample", letters, "kmers:d=3", hinge)
    named = {"*": "0:", "A at 3": "-1:0.3", "GT at 7": ":0.2", "CA at 6": "-0.05:", "C at 8": "0:0"}
    yield Job("kmers-limits", letters, "kmers:d=3", {"C": 1.0, "l1_ratio": 0.5, "limits": named})
    box = {"C": 1.0, "limits": "-0.1:0.15"}
    yield Job("columns-limits", numbers, "columns", box)
    named = {"x0": "0:2", "x5": ":0.05", "x12": "-0.05:", "x9": "0:", "x13": "-0.01:0.01"}
    yield Job("columns-limits-named", measured, "columns", {**squared, "limits": named})
    yield Job("sparse-positive", words, "columns", {"C": 1.0, "limits": "0:"})
    yield Job("union", letters, "kmers:d=2 + bag:d=2", {"C": 1.0})
    yield Job("union-numbers", numbers, "columns + fourier:n=200", {"C": 0.3})


JOBS = {job.name: job for job in jobs()}
#: Jobs that take less than half a second, of every loss, view, option and number of outputs.
QUICK = (
    "kmers-squared", "kmers-huber", "kmers-pinball", "kmers-poisson", "kmers-unknown", "kmers-sample",
    "kmers-labels", "bag-wildcards", "bag-search", "columns-hinge", "columns-targets-group",
    "columns-standardize", "columns-covariates", "columns-offset", "sparse-softmax", "products",
    "fourier-steps", "union-numbers", "kmers-negative-sample", "columns-limits", "columns-limits-named",
)  # fmt: skip
#: Run a test with the name of each job; those that are not quick are slow.
every_job = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in JOBS]
)
