"""The same input, options and seed give the same bits, wherever the rows are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import acceptors

import fcl
from fcl.drivers.train import TrainResult
from tests import by_name
from tests.drivers.conftest import bits


def train(codes: np.ndarray, y: np.ndarray, **options: Any) -> TrainResult:
    options = {"C": 1.0, "tol": 1e-7, "block_rows": 256, "memory": "1GiB"} | options
    return by_name.train(fcl.open_data(codes, y=y), fcl.Kmers(3), **options)


@pytest.mark.usefixtures("coordinate_descent")  # whole Hessians need no seed
def test_a_seed_of_any_size() -> None:
    """A large seed after a small one: kernels keep the type for which they were first compiled."""
    codes, y = acceptors(14, 700)
    first = bits(train(codes, y))
    assert bits(train(codes, y, seed=1)) != first
    for seed in (2**31, 2**32, 2**62):
        result = train(codes, y, seed=seed)
        assert result.model.options["seed"] == seed
        assert bits(result) == first
    assert bits(train(codes, y, seed=5_000_000_000)) != first
    assert train(codes, y, seed=2**62 - 1, driver="processes", writers=1).converged


def test_blocks_of_rows_change_rounding_alone() -> None:
    codes, y = acceptors(14, 700)
    objectives = [
        train(codes, y, tol=1e-10, block_rows=rows).certificate.objective
        for rows in (64, 256, 65536)
    ]
    assert objectives == pytest.approx([objectives[0]] * 3, rel=3e-10)
