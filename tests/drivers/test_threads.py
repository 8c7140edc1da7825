"""A fit has the same bits with any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
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


def windows() -> tuple[np.ndarray, np.ndarray]:
    codes, y = acceptors(14, N)
    codes = codes.copy()
    codes[::7, 3:6] = 4  # unknown letters
    return codes, y


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
