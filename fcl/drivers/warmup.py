"""Compile every kernel once, so that later runs only load them."""

from __future__ import annotations

from typing import Any

import numpy as np


class Compiler:
    """The role of a child that compiles, and does not stay: compilers leave much memory behind."""

    def __init__(self, link: object) -> None:
        pass

    def run(self) -> None:
        """Compile all kernels."""
        warmup()


def warmup() -> None:
    """Train and predict on a few made-up rows in every way that reaches another kernel."""
    from fcl.cache import ColumnCache
    from fcl.data import open_data
    from fcl.data.sparse import SparseRows
    from fcl.drivers.train import train
    from fcl.features.base import DenseColumns, StepColumns
    from fcl.kernels import descent, mark_compiled

    random = np.random.default_rng(0)
    codes = random.integers(0, 4, (256, 16)).astype(np.uint8)
    labels = np.where(codes[:, 5] == 2, 1, -1)
    labels[:16] = -labels[:16]
    codes[::7, 3] = 4
    data = open_data(codes, y=labels)
    # few letters: unknown ones are many enough to count as a fifth; many: too many for some tables
    for features, loss in (
        ("kmers:d=3", "logistic"),
        ("kmers:d=3", "squared"),
        ("bag:d=3,strands=both", "logistic"),
        ("bag:d=3,value=presence", "logistic"),
        ("bag:d=3,strands=both,wildcards=true", "logistic"),
        ("bag:d=3,value=presence,wildcards=true", "logistic"),
        ("kmers:d=10", "squared_hinge"),
    ):
        result = train(
            data,
            features,
            C=1.0,
            loss=loss,
            tol=1e-2,
            block_rows=128,
            memory="1GiB",
            valid_fraction=0.2,
        )
    scorer = result.model.family.scorer(
        np.array([4 * 5**9 - 1 - 5**9, 5**9 - 1], np.int64), np.ones(2)
    )
    scorer.margins(codes)
    scorer = result.model.family.scorer(np.array([0], np.int64), np.ones(1))
    scorer.margins(codes)

    # numbers as they are, dense and sparse, of both types
    for dtype in (np.float32, np.float64):
        numbers = np.where(codes == 2, 1.5, 0.0).astype(dtype)
        indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(numbers, axis=1))])
        entries = np.nonzero(numbers)
        sparse = SparseRows(indptr, entries[1].astype(np.int32), numbers[entries], 16)
        matrices: tuple[Any, ...] = (numbers, sparse)
        for rows in matrices:
            result = train(
                open_data(rows, y=labels),
                "columns",
                C=1.0,
                tol=1e-2,
                block_rows=128,
                memory="1GiB",
                valid_fraction=0.2,
            )
            result.model.margins(rows)

    # what k-mers need not: columns with values, eviction
    cache = ColumnCache(1 << 20, 8, 128, 64, binary=False)
    values = np.zeros((2, 64), np.float32)
    values[0, :3] = values[1, :] = 1.0
    staged = cache.measure(np.arange(2), [DenseColumns(values, 64), DenseColumns(values, 64)])
    cache.admit(staged, 0)
    cache.admit(staged, 1)
    cache.evict(np.array([False, True]))
    steps = StepColumns(np.ones((1, 64), np.int8), 64, 0.5)
    cache.admit(cache.measure(np.arange(1), [steps, steps]), 0)
    descent.violations(np.zeros(1), np.zeros(1), np.zeros(1))
    descent.choose_by(np.ones(1), 1, np.empty(1, np.bool_))
    mark_compiled()
