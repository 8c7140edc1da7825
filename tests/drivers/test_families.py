"""Training over several families: penalty factors, equal columns, texts, and the plan."""

from __future__ import annotations

from functools import cache
from typing import Any

import bag_matrix
import numpy as np
import pytest
from judge import Problem, kmer_matrix
from rows import acceptors
from scipy.sparse import csr_matrix

import fcl
from fcl.features import Kmers, bind_features, parse_features
from tests.drivers.conftest import check, fit

C = 0.2


@cache
def rows() -> tuple[np.ndarray, np.ndarray]:
    """Windows of 24 letters, a few of them unknown."""
    codes, labels = acceptors(24, 300)
    codes = codes.copy()
    codes[:5, 3:9] = 4
    return codes, labels


def data() -> fcl.DataSet:
    codes, y = rows()
    return fcl.open_data(codes, y=y)


@cache
def matrix(text: str) -> np.ndarray:
    """The explicit features of a family, by its text."""
    spec: Any = parse_features(text)
    if isinstance(spec, Kmers):
        return kmer_matrix(rows()[0], spec.d)
    return bag_matrix.matrix(bind_features(spec, data().rows), rows()[0])  # type: ignore[arg-type]


def train(text: Any, **options: Any) -> fcl.TrainResult:
    return fit(data(), text, **({"C": C, "tol": 1e-8, "block_rows": 128} | options))


def confirm(text: str) -> np.ndarray:
    """Train at the judge's optimum on the explicit matrix; returns the weights."""
    parts, factors = [], []
    for member in text.split(" + "):
        kind, _, factor = member.partition(" * ")
        parts.append(matrix(kind))
        factors += [float(factor or 1.0)] * parts[-1].shape[1]
    y, f = rows()[1], np.array(factors)
    problem = Problem(np.hstack(parts), y, np.ones(len(y)), "logistic", C, factors=f)
    result = train(text)
    w = check(result, problem, rel=1e-7)
    names = [result.model.family.describe(int(j)) for j in result.model.ids]
    assert 5 < np.count_nonzero(w) == len(set(names))
    assert all((":" in name) == (" + " in text) for name in names)
    return w


def test_of_equal_columns_the_cheaper_has_the_weight() -> None:
    w = confirm("bag:d=3 * 1.5 + bag:d=3")
    assert not w[:64].any() and np.count_nonzero(w[64:]) > 5
    w = confirm("bag:d=3 + bag:d=3 * 1.5")
    assert not w[64:].any() and np.count_nonzero(w[:64]) > 5


def test_plan_counts_the_members() -> None:
    one = fcl.plan_training(data(), "kmers:d=8", C=1.0)
    two = fcl.plan_training(data(), "kmers:d=8 + bag:d=8", C=1.0)
    tables = [dict(found.parts)["tables of a pass"] for found in (one, two)]
    assert tables[1] > tables[0] + 3 * 8 * 4**8 // 2


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_generators_side_by_side(sparse: bool) -> None:
    """Families of numbers: every column twice, with two penalty factors."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 12)) * (rng.random((300, 12)) < 0.3)
    y = np.where(x[:, 0] - x[:, 1] + 0.5 * rng.normal(size=300) > 0, 1.0, -1.0)
    given = csr_matrix(x) if sparse else x
    options: dict[str, Any] = {"C": 0.5, "tol": 1e-8, "block_rows": 128}
    result = fit(fcl.open_data(given, y=y), "columns * 2 + columns", **options)
    factors = np.repeat([2.0, 1.0], 12)
    problem = Problem(np.hstack([x, x]), y, np.ones(300), "logistic", 0.5, True, factors=factors)
    w = check(result, problem, rel=1e-7)
    assert not w[:12].any() and w[12:].any()
    margins = result.model.margins(fcl.open_data(given, y=None))
    np.testing.assert_allclose(margins, x @ w[12:] + result.model.intercept, rtol=0, atol=1e-12)
