"""Converts blocks of numbers to the layout that the kernels read."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcl.features.generator.forms import SparseColumns

#: Arrays of a block for kernels: matrix, columns, start, rows, values (see fcl.kernels.products).
Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def kernel_block(block: Any) -> tuple[Parts, int]:
    """The arrays of a block for kernels, and its number of rows.

    block : a dense array (n, m), or :class:`SparseColumns`.
    """
    if isinstance(block, SparseColumns):
        nothing = np.empty((0, 0), block.values.dtype)
        return (nothing, block.columns, block.start, block.rows, block.values), block.n_rows
    matrix = block.T
    if matrix.strides[1] != matrix.itemsize:  # rows that were not prepared
        matrix = np.ascontiguousarray(matrix)
    empty = np.empty(0, np.int64)
    parts = (matrix, empty, empty, np.empty(0, np.uint16), np.empty(0, matrix.dtype))
    return parts, matrix.shape[1]


def buffers(degree: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Buffers ``at``, ``value`` and ``count`` of the kernels for products over n rows."""
    return np.empty((degree, n), np.int32), np.empty((degree, n)), np.empty(degree, np.int64)
