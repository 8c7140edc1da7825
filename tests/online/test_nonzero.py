"""A table of the weights that are not 0 has the bits of the dense one."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from online_eager import chunk_of, stream
from scipy.sparse import csr_array
from scipy.sparse import random as sparse_random
from stops import After
from windows import examples

import fcl
from fcl.drivers.online.train import plan_online
from fcl.features.rows import RowChunk
from fcl.kernels import nonzero as kernels
from fcl.online import OnlineOptions, make_learner
from fcl.online import nonzero as module
from fcl.online.nonzero import NonzeroTruncatedGradient
from fcl.online.truncated import TruncatedGradient
from tests import by_name
from tests.online.conftest import feed


def pair(p: int, options: OnlineOptions, factors: Any = None) -> tuple[Any, Any]:
    """A learner with a dense table, and one with a table of the weights that are not 0."""
    sparse = replace(options, most_nonzero=p)
    found = make_learner("truncated-gradient", p, sparse, factors)
    assert isinstance(found, NonzeroTruncatedGradient)
    return make_learner("truncated-gradient", p, options, factors), found


def same(dense: Any, sparse: Any) -> None:
    for one, other in zip(dense.point()[:2], sparse.point()[:2], strict=True):
        assert one.tobytes() == other.tobytes()
    assert dense.intercept == sparse.intercept and dense.state.tobytes() == sparse.state.tobytes()


@pytest.mark.slow
@given(st.integers(0, 2**31), st.data())
@examples(40)
def test_the_same_bits_as_the_dense_table(seed: int, data: st.DataObject) -> None:
    n, p = 120, 40
    loss = data.draw(st.sampled_from(["logistic", "squared", "hinge"]))
    rho = data.draw(st.sampled_from([1.0, 1.0, 0.5]))
    rounding = rho == 1.0 and data.draw(st.booleans())
    theta = data.draw(st.sampled_from([0.02, 0.1])) if rounding else math.inf
    options = OnlineOptions(
        data.draw(st.sampled_from([0.01, 0.3])), loss, 0.1,
        data.draw(st.sampled_from([0.0, 0.5])),
        step=data.draw(st.sampled_from(["implicit", "explicit"])),
        period=data.draw(st.sampled_from([1, 5])), theta=theta,
        truncation="round" if rounding else "soft", l1_ratio=rho,
        weights=data.draw(st.sampled_from(["float64", "float32"])),
    )  # fmt: skip
    X, y, s = stream(seed, n, p, loss)
    X *= np.random.default_rng(seed).random((n, p)) < 0.2
    factors = np.random.default_rng(seed).choice([0.5, 2.0, np.inf], p) if rho == 1.0 else None
    cuts = data.draw(st.lists(st.integers(0, n), max_size=3))
    before, module.FIRST = module.FIRST, 8  # so that it is often full
    try:
        dense, sparse = pair(p, options, factors)
        for _ in range(2):
            assert feed(dense, X, y, s).tobytes() == feed(sparse, X, y, s, cuts).tobytes()
            same(dense, sparse)
            # states of either kind restore the other
            states = dense.saved(), sparse.saved()
            dense, sparse = pair(p, options, factors)
            dense.restore(states[1])
            sparse.restore(states[0])
            same(dense, sparse)
            dense.end_pass()
            sparse.end_pass()
            same(dense, sparse)
    finally:
        module.FIRST = before


def test_features_whose_weights_are_0_leave() -> None:
    """Each row has features of its own, whose weights are soon truncated to 0."""
    n, p, k = 1000, 20_000, 20
    X = np.zeros((100, p))
    options = OnlineOptions(0.05, "logistic", 0.1, 0.0, step="explicit", period=5)
    dense, sparse = pair(p, options)
    random, largest = np.random.default_rng(0), 0
    for first in range(0, n, 100):
        X[:] = 0.0
        for i in range(100):
            X[i, (first + i) * k : (first + i + 1) * k] = 1.0
        y = random.choice([-1.0, 1.0], 100)
        for learner in (dense, sparse):
            feed(learner, X, y, np.ones(100))
        same(dense, sparse)
        largest = max(largest, len(sparse.keys))
    assert largest <= module.FIRST  # of 20,000 features that had a weight
    assert sum(array.nbytes for array in sparse.arrays()) < dense.table.nbytes / 3


def test_entries_are_found_however_they_collide() -> None:
    random = np.random.default_rng(1)
    keys, table = np.full(64, kernels.FREE), np.zeros((64, 2))
    ids = np.unique(random.integers(0, 2**62, 60))
    kernels.fill(keys, table, ids, np.column_stack([ids * 1.0, -ids * 1.0]))
    for id in ids.tolist():
        at = kernels.entry_of(keys, id)
        assert keys[at] == id and table[at].tolist() == [float(id), -float(id)]
    assert keys[kernels.entry_of(keys, 5)] == kernels.FREE
    assert (keys != kernels.FREE).sum() == len(ids)


def test_first_weights_and_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, sparse = pair(50, OnlineOptions(0.01))
    for learner in (dense, sparse):
        learner.start_from(np.array([3, 7]), np.array([0.5, -1.0]), 0.25)
    same(dense, sparse)
    monkeypatch.setattr(module, "FIRST", 8)
    X, y, s = stream(2, 60, 50, "logistic")
    small = make_learner("truncated-gradient", 50, OnlineOptions(1e-9, most_nonzero=10))
    done = small.learn(chunk_of(X), y, s, np.zeros(60))
    assert done == small.rows and small.is_full and small.rows < 60
    assert len(small.point()[0]) <= 10  # as the plan counts


def test_a_full_table_has_the_weights_of_the_plan() -> None:
    most, n = 20_000, 100_000
    learner = make_learner("truncated-gradient", n, OnlineOptions(1e-12, most_nonzero=most))
    X = sparse_random(900, n, 0.0005, format="csr", random_state=np.random.default_rng(0))
    chunk = RowChunk(X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data)
    learner.learn(chunk, np.resize([1.0, -1.0], 900), np.ones(900), np.zeros(900))
    assert learner.is_full and 0.9 * most < len(learner.point()[0]) <= most
    planned = learner.bytes_for(n, learner.options)
    assert sum(array.nbytes for array in learner.arrays()) <= planned


# -- jobs ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fcl.ConvergenceWarning")
def test_the_plan_chooses_the_smaller_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows of many features: the same model, and less memory; either state continues the other."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 4, (80, 20), dtype=np.uint8)
    data = fcl.open_data(codes, y=np.where(codes[:, 3] == codes[:, 7], 1, -1))
    given: dict[str, Any] = {
        "features": "kmers:d=7", "method": "truncated-gradient", "alpha": 1e-3, "rate": 0.02,
        "passes": 2, "block_rows": 64,
    }  # fmt: skip
    parts = dict(plan_online(data, **given).parts)
    assert any("weights that are not 0" in name for name in parts)
    given["certify"] = False
    found = fcl.train_online(data, **given)
    with monkeypatch.context() as context:
        context.setattr(TruncatedGradient, "drops_zeros", classmethod(lambda cls, options: False))
        dense = fcl.train_online(data, **given)
        fcl.train_online(data, **given, should_stop=After(1)).save(tmp_path / "dense.fcl")
    assert type(dense.learner) is TruncatedGradient
    assert found.model.weights.tobytes() == dense.model.weights.tobytes()
    assert found.model.ids.tobytes() == dense.model.ids.tobytes()
    assert sum(a.nbytes for a in found.learner.arrays()) < dense.learner.table.nbytes / 3
    more = fcl.train_online(data, resume=tmp_path / "dense.fcl", passes=2, certify=False)
    assert more.model.weights.tobytes() == dense.model.weights.tobytes()


@pytest.mark.filterwarnings("ignore::fcl.ConvergenceWarning")
def test_a_budget_below_the_dense_table(tmp_path: Path) -> None:
    """Rows may have most of the features, but few weights are not 0 at a time."""
    random = np.random.default_rng(1)
    p, n, k = 1 << 18, 1000, 100
    indices = np.sort(random.integers(0, p // k, (n, k)) + np.arange(k) * (p // k), axis=1)
    matrix = csr_array((np.ones(n * k), indices.ravel(), np.arange(0, n * k + 1, k)), shape=(n, p))
    data = fcl.open_data(matrix, y=random.integers(0, 2, n))
    given: dict[str, Any] = {
        "features": "columns", "method": "truncated-gradient", "alpha": 0.1, "rate": 0.1,
        "period": 10, "shuffle": False,
    }  # fmt: skip
    dense = plan_online(data, **given)
    assert not any("not 0" in name for name, _ in dense.parts)
    memory = dense.total - (10 << 20)
    found = by_name.train_online(data, **given, memory=memory, certify=False)
    whole = by_name.train_online(data, **given, certify=False)
    assert isinstance(found.learner, NonzeroTruncatedGradient)
    assert found.model.weights.tobytes() == whole.model.weights.tobytes()
    assert plan_online(data, **given, memory=memory).total <= memory
    # with hardly any penalty, too many weights are not 0
    little = given | {"alpha": 1e-9, "memory": dense.total - (16 << 20), "certify": False}
    full = by_name.train_online(data, **little)
    assert full.reason == "memory" and "the memory has no room for more than" in full.message
    # the model so far resumes with more memory, to the same bits
    full.save(tmp_path / "full.fcl")
    more = fcl.train_online(data, resume=tmp_path / "full.fcl", certify=False)
    end = by_name.train_online(data, **given | {"alpha": 1e-9}, certify=False)
    assert more.model.weights.tobytes() == end.model.weights.tobytes()
    stream = fcl.FCLOnlineClassifier(
        method="truncated-gradient", alpha=0.1, rate=0.1, period=10, passes=1, shuffle=False,
        memory=memory,
    ).fit(matrix, data.target)  # fmt: skip
    assert isinstance(stream.learners_[0], NonzeroTruncatedGradient)
    assert stream.models_[0].weights.tobytes() == whole.model.weights.tobytes()
