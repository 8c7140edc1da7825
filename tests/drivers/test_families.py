"""Training over k-mers anywhere and over several families: optimum, drivers, model and prediction."""

from __future__ import annotations

import os
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judge import Problem, kmer_matrix
from rows import acceptors, splice
from saga import l1_saga
from scipy.sparse import csr_matrix

import fcl
from fcl.drivers import plan
from fcl.drivers.job import make_job
from fcl.features import Bag, Concat, Kmers
from tests.drivers.conftest import check, fit

LENGTH = 24
STRANDS = str.maketrans("ACGT", "TGCA")


def words(d: int) -> list[str]:
    """All words of d letters in order."""
    found = [""]
    for _ in range(d):
        found = [word + letter for word in found for letter in "ACGT"]
    return found


@cache
def rows() -> tuple[np.ndarray, np.ndarray]:
    """Windows of acceptors and splice junctions, the latter with unknown letters."""
    codes, labels = acceptors(LENGTH, 300)
    others, own = splice(LENGTH)
    unknown = np.flatnonzero((others == 4).any(axis=1))
    more = np.union1d(unknown, np.arange(0, len(others), 40))
    codes = np.concatenate([codes, others[more]])
    codes[:5, 3:9] = 4
    return codes, np.concatenate([labels, own[more]])


def texts() -> list[str]:
    return ["".join("ACGTN"[c] for c in row) for row in rows()[0]]


def count(pattern: str) -> np.ndarray:
    """The number of places in each window where the pattern occurs."""
    wanted = re.compile(f"(?={pattern.replace('.', '[ACGTN]')})")
    return np.array([len(wanted.findall(text)) for text in texts()], float)


@cache
def matrix(kind: str) -> np.ndarray:
    """The explicit features of a family, by its text."""
    if kind.startswith("kmers"):
        return kmer_matrix(rows()[0], int(kind[-1]))
    spec = fcl.features.parse_features(kind)
    assert isinstance(spec, Bag)
    features: list[set[str]] = []
    if spec.wildcards:
        firsts = words(1)
        every = [a + b + c for a in firsts for b in "ACGT." for c in "ACGT."]
        assert spec.d == 3
        for pattern in every:
            own = pattern.rstrip(".")
            other = own.translate(STRANDS)[::-1]
            padded = other.ljust(3, ".")
            if spec.strands == "one":
                features.append({own})
            elif ["ACGT.".index(c) for c in pattern] <= ["ACGT.".index(c) for c in padded]:
                features.append({own, other})
    else:
        for word in words(spec.d):
            other = word.translate(STRANDS)[::-1]
            if spec.strands == "one":
                features.append({word})
            elif word <= other:
                features.append({word, other})
    phi = np.array([sum(count(pattern) for pattern in some) for some in features]).T
    return np.minimum(phi, 1.0) if spec.value == "presence" else phi


BAGS = (
    "bag:d=3",
    "bag:d=3,strands=both",
    "bag:d=3,value=presence",
    "bag:d=4,value=presence,strands=both",
    "bag:d=3,wildcards=true",
    "bag:d=3,value=presence,wildcards=true",
    "bag:d=3,value=presence,strands=both,wildcards=true",
)
CONCATS = (
    "kmers:d=2 + bag:d=3",  # bits and values
    "kmers:d=2 * 0.5 + bag:d=3,value=presence,strands=both * 2",
    "bag:d=3 * 3 + kmers:d=1 + bag:d=3,strands=both * 0.7",
    "bag:d=3 * 1.5 + bag:d=3",  # every column twice
    "kmers:d=2 * 1.5",
)


def explicit(text: str, C: float, l1_ratio: float = 1.0, intercept: bool = True) -> Problem:
    """The problem on the explicit matrix."""
    parts, factors = [], []
    for member in text.split(" + "):
        kind, _, factor = member.partition(" * ")
        parts.append(matrix(kind))
        factors += [float(factor or 1.0)] * parts[-1].shape[1]
    y = rows()[1]
    return Problem(
        np.hstack(parts),
        y,
        np.ones(len(y)),
        "logistic",
        C,
        intercept,
        l1_ratio,
        np.array(factors),
    )


def train(text: Any, **options: Any) -> fcl.TrainResult:
    codes, y = rows()
    options = {"C": 0.2, "tol": 1e-8, "block_rows": 128} | options
    return fit(fcl.open_data(codes, y=y), text, **options)


def confirm(result: fcl.TrainResult, problem: Problem) -> np.ndarray:
    w = check(result, problem, rel=1e-7)
    assert np.count_nonzero(w) > 5
    return w


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "l1_ratio", "intercept"),
    [
        *((text, 1.0, True) for text in BAGS + CONCATS),
        *((text, 0.6, True) for text in (BAGS[1], BAGS[6], *CONCATS[:2])),
        *((text, 1.0, False) for text in (BAGS[0], CONCATS[1])),
    ],
)
def test_optimum(text: str, l1_ratio: float, intercept: bool) -> None:
    result = train(text, l1_ratio=l1_ratio, intercept=intercept)
    confirm(result, explicit(text, 0.2, l1_ratio, intercept))


@pytest.mark.slow
@pytest.mark.parametrize("text", [BAGS[3], CONCATS[1]])
def test_scikit_learn_agrees(text: str) -> None:
    """Factors by dividing columns: sum f |w| with x w is sum |v| with (x / f) v."""
    problem = explicit(text, 0.2)
    f = problem.f
    solver = l1_saga(C=0.2, tol=1e-9, max_iter=100_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solver.set_params(penalty="l1") if "penalty" in solver.get_params() else None
        solver.fit(problem.phi / f, problem.y)
    theirs = problem.objective(solver.coef_[0] / f, float(solver.intercept_[0]))
    ours = train(text).certificate
    assert ours.objective <= theirs * (1.0 + 1e-8)
    assert theirs <= ours.objective * (1.0 + 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("text", [BAGS[1], BAGS[4], CONCATS[0], CONCATS[2]])
def test_two_drivers_and_a_sample_agree(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = explicit(text, 0.2)
    here = train(text)
    both = train(text, driver="processes", writers=2, tol=1e-7)
    confirm(both, problem)
    assert both.certificate.objective == pytest.approx(here.certificate.objective, rel=1e-6)
    assert both.model.history[0]["bound"] == here.model.history[0]["bound"]
    monkeypatch.setattr(plan, "ALL_ROWS", 100)
    monkeypatch.setattr(plan, "LEAST_SAMPLE", 150)
    sampled = train(text, driver="processes", writers=1, tol=1e-6)
    confirm(sampled, problem)


@pytest.mark.parametrize("text", [BAGS[1], BAGS[3], *BAGS[4:], *CONCATS])
def test_model_comes_back_and_predicts(text: str, tmp_path: Path) -> None:
    codes, _ = rows()
    result = train(text, tol=1e-5)
    result.model.save(tmp_path / "m.fcl")
    again = fcl.load_model(tmp_path / "m.fcl")
    m = again.margins(fcl.open_data(codes, y=None))
    assert m.tobytes() == result.model.margins(fcl.open_data(codes, y=None)).tobytes()
    problem = explicit(text, 0.2)
    wanted = problem.phi[:, again.ids] @ again.weights + again.intercept
    np.testing.assert_allclose(m, wanted, rtol=0, atol=1e-10)
    names = [again.family.describe(int(j)) for j in again.ids]
    assert len(set(names)) == len(names)
    assert all((":" in name) == (" + " in text) for name in names)


@pytest.mark.parametrize("text", [CONCATS[1], "kmers:d=2 * 1.5", "kmers:d=2 + kmers:d=3"])
def test_scratch_files_change_nothing(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = train(text)

    def on_disk(*args: Any, **options: Any) -> plan.Plan:
        return plan.make_plan(*args, **{**options, "scratch": True})

    monkeypatch.setitem(make_job.__kwdefaults__, "divide", on_disk)
    read: list[int] = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *a: (read.append(a[2]), preadv(*a))[1])
    again = train(text, scratch=tmp_path)
    assert read
    assert again.certificate == kept.certificate
    assert again.model.weights.tobytes() == kept.model.weights.tobytes()


def test_of_equal_columns_the_cheaper_has_the_weight() -> None:
    w = confirm(train("bag:d=3 * 1.5 + bag:d=3"), explicit("bag:d=3 * 1.5 + bag:d=3", 0.2))
    assert not w[:64].any() and np.count_nonzero(w[64:]) > 5
    w = confirm(train("bag:d=3 + bag:d=3 * 1.5"), explicit("bag:d=3 + bag:d=3 * 1.5", 0.2))
    assert not w[64:].any() and np.count_nonzero(w[:64]) > 5


def test_specs_and_texts_are_the_same() -> None:
    spec = Concat([Kmers(2), (Bag(3), 2.0)])
    assert train(spec).certificate == train("kmers:d=2 + bag:d=3 * 2").certificate


def test_plan_counts_the_members() -> None:
    codes, y = rows()
    data = fcl.open_data(codes, y=y)
    one = fcl.drivers.train.plan_training(data, "kmers:d=8", C=1.0)
    two = fcl.drivers.train.plan_training(data, "kmers:d=8 + bag:d=8", C=1.0)
    tables = [dict(found.parts)["tables of a pass"] for found in (one, two)]
    assert tables[1] > tables[0] + 3 * 8 * 4**8 // 2


@pytest.mark.parametrize("driver", ["inline", "processes"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_generators_side_by_side(sparse: bool, driver: str) -> None:
    """Families of numbers: every column twice, with two penalty factors, and a user's class."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 12)) * (rng.random((300, 12)) < 0.3)
    y = np.where(x[:, 0] - x[:, 1] + 0.5 * rng.normal(size=300) > 0, 1.0, -1.0)
    given = csr_matrix(x) if sparse else x
    writers = 2 if driver == "processes" else None
    options: dict[str, Any] = {"C": 0.5, "tol": 1e-8, "driver": driver, "writers": writers}
    result = fit(fcl.open_data(given, y=y), "columns * 2 + columns", block_rows=128, **options)
    factors = np.repeat([2.0, 1.0], 12)
    problem = Problem(np.hstack([x, x]), y, np.ones(300), "logistic", 0.5, True, factors=factors)
    w = confirm(result, problem)
    assert not w[:12].any()
    margins = result.model.margins(fcl.open_data(given, y=None))
    np.testing.assert_allclose(margins, x @ w[12:] + result.model.intercept, rtol=0, atol=1e-12)
