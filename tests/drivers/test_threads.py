"""A fit has the same bits with any number of threads."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from rows import acceptors

import fcl
from fcl import parallel
from fcl.features.kmers import pricing
from fcl.solve import admission, inner_descent

N = 900


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share even the little work of these problems."""
    monkeypatch.setattr(parallel, "LEAST_ENTRIES", 0)
    monkeypatch.setattr(admission, "LEAST_PIECE", 1)
    monkeypatch.setattr(inner_descent, "LONG_SWEEP", 2000)
    monkeypatch.setattr(inner_descent, "LEAST_PLAIN", 1000)
    monkeypatch.setattr(pricing, "PAIR_ROWS", 0)


def digest(result: fcl.TrainResult) -> str:
    """Of everything that a run found, but times and memory."""
    model, found = result.model, hashlib.sha256()
    for part in (model.ids, model.weights, np.asarray(model.intercept), model.support):
        found.update(np.ascontiguousarray(part).tobytes())
    found.update(repr(result.certificate).encode())
    for entry in model.history:
        found.update(repr([entry[k] for k in ("objective", "bound", "cached", "beta")]).encode())
    return found.hexdigest()[:16]


def same_bits(X: Any, y: Any, features: Any, **options: Any) -> None:
    options = {"C": 0.3, "tol": 1e-5, "block_rows": 128, "memory": "2GiB", "warn": False} | options
    data = fcl.open_data(X, y=y)
    found = [fcl.train(data, features, threads=t, **options) for t in (1, 2, 3)]
    assert len(found[0].model.ids) > 1
    assert len({digest(result) for result in found}) == 1


def windows() -> tuple[np.ndarray, np.ndarray]:
    codes, y = acceptors(14, N)
    codes = codes.copy()
    codes[::7, 3:6] = 4  # unknown letters
    return codes, y


@pytest.mark.usefixtures("coordinate_descent")
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.parametrize("fast", [0.0, 0.75])
def test_plain_sweeps_over_words(monkeypatch: pytest.MonkeyPatch, loss: str, fast: float) -> None:
    """Also where they do not suffice, so that others gain momentum after them."""
    enough = []
    plainly = inner_descent.Descent._plainly

    def watched(self: Any, *args: Any) -> bool:
        enough.append(plainly(self, *args))
        return enough[-1]

    monkeypatch.setattr(inner_descent, "FAST", fast)
    monkeypatch.setattr(inner_descent.Descent, "_plainly", watched)
    rng = np.random.default_rng(3)
    X = sp.random(N, 200, 0.1, format="csr", random_state=rng)
    X.data = np.ceil(3.0 * X.data)
    margins = X @ rng.normal(size=200) + rng.normal(size=N)
    y = np.sign(margins) if loss == "logistic" else np.digitize(margins, [-1.0, 1.0])
    same_bits(X, y, "columns", loss=loss, C=1.0)
    if loss == "logistic":
        assert any(enough) if fast else not all(enough)


def test_the_plan_does_not_depend_on_the_threads() -> None:
    codes, y = windows()
    data = fcl.open_data(codes, y=y)
    plans = [fcl.plan_training(data, "kmers:d=8", C=1.0, threads=t) for t in (1, 2, 64)]
    assert plans[0] == plans[1] == plans[2] and plans[0].most_threads > 1
    tight = fcl.plan_training(data, "kmers:d=8", C=1.0, memory="420MiB")
    assert tight.most_threads < plans[0].most_threads


def test_progress_is_reported_in_the_callers_thread() -> None:
    import threading

    codes, y = windows()
    seen = set()
    fcl.train(
        fcl.open_data(codes, y=y),
        "kmers:d=5",
        C=1.0,
        threads=4,
        block_rows=128,
        progress=lambda event: seen.add(threading.get_ident()),
    )
    assert seen == {threading.get_ident()}
