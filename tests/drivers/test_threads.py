"""A fit has the same bits with any number of threads."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from generators import Tanh
from rows import acceptors, pyrimidines

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


LETTERS = [
    "kmers:d=3",
    "kmers:d=7",
    "bag:d=3,strands=both",
    "bag:d=3,wildcards=true",
    "bag:d=3,value=presence",
    "bag:d=2,value=presence,wildcards=true,strands=both",
    "kmers:d=2 + bag:d=3 * 2",
]
LOSSES = ["squared_hinge", "squared", "huber", "poisson", "softmax"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("features", "loss"),
    [
        *((features, "logistic") for features in LETTERS),
        *((features, "softmax") for features in LETTERS[1:]),
        *(("kmers:d=3", loss) for loss in LOSSES),
    ],
)
def test_letters(features: str, loss: str) -> None:
    codes, y = windows()
    counts = pyrimidines(N)
    targets = {"logistic": y, "squared_hinge": y, "softmax": codes[:, 5] % 3}
    same_bits(codes, targets.get(loss, np.abs(np.rint(counts))), features, loss=loss, tol=1e-3)


def numbers() -> np.ndarray:
    return np.random.default_rng(5).normal(size=(N, 24)) * np.linspace(0.5, 2.0, 24)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.parametrize(
    ("features", "options"),
    [
        ("columns", {}),
        ("columns", {"standardize": True, "l1_ratio": 0.7}),
        ("products:degree=2", {}),
        ("products:degree=3", {}),
        ("fourier:n=300", {}),
        ("fourier:n=300,kernel=laplace", {}),
        ("columns + products:degree=2 * 2", {}),
        (Tanh(), {}),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_numbers(features: Any, options: dict[str, Any], loss: str, sparse: bool) -> None:
    X = numbers()
    signal = X[:, 0] - X[:, 1] * X[:, 2]
    y = {"logistic": np.sign(signal), "softmax": np.digitize(signal, [-1.0, 1.0])}.get(loss, signal)
    if sparse:
        if not isinstance(features, str) or features.startswith("fourier"):
            pytest.skip("takes dense rows")
        X = sp.csr_array(np.where(np.abs(X) > 0.9, X, 0.0))
    same_bits(X, y, features, loss=loss, tol=1e-3, C=0.1, **options)


@pytest.mark.parametrize(
    ("loss", "group"), [("squared", True), ("logistic", False), ("logistic", True)]
)
def test_several_targets(loss: str, group: bool) -> None:
    codes, _ = windows()
    targets = np.stack([codes[:, 5] == k for k in range(3)], axis=1).astype(np.float64)
    same_bits(codes, targets, "kmers:d=3", loss=loss, group=group, tol=1e-4)
    same_bits(numbers(), targets + 0.0, "columns", loss=loss, group=group, tol=1e-3)


def test_covariates_and_offsets() -> None:
    codes, y = windows()
    rng = np.random.default_rng(0)
    same_bits(codes, y, "kmers:d=3", covariates=rng.normal(size=(N, 2)), offset=rng.normal(size=N))


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


@pytest.mark.usefixtures("coordinate_descent")
def test_a_sample_of_rows() -> None:
    codes, y = acceptors(14, 6000)
    same_bits(codes, y, "kmers:d=4", row_view=1024, C=0.1)


@pytest.mark.slow
def test_rows_in_a_scratch_file(tmp_path: Path) -> None:
    codes, y = acceptors(100, 4000)
    same_bits(codes, y, "kmers:d=2 + bag:d=3", memory="380MiB", scratch=tmp_path)
    assert not list(tmp_path.iterdir())


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
