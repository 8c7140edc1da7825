"""The data's own columns as features."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcl.features.base import Floats, Ids
from fcl.features.generated.forms import SparseColumns
from fcl.features.generator import Generator

__all__ = ["Columns"]


class Columns(Generator):
    """The columns of dense or sparse numbers, as they are: feature j is column j."""

    rows = "any"
    name = "columns"

    def __init__(self) -> None:
        pass

    def fit(self, sample: Any) -> None:
        self.n_features = sample.n_columns if isinstance(sample, SparseColumns) else sample.shape[1]

    def columns(self, ids: Ids, block: Any) -> np.ndarray:
        from fcl.kernels import matrix

        if not isinstance(block, SparseColumns):
            return np.asarray(block[:, ids])
        out = np.zeros((len(ids), block.n_rows), block.values.dtype)
        matrix.sparse_columns(block.columns, block.start, block.rows, block.values, ids, out)
        return out.T

    def gradients(self, first: int, last: int, block: Any, residuals: Floats) -> Floats:
        from fcl.kernels import matrix

        out = np.zeros(last - first)
        if isinstance(block, SparseColumns):
            parts = (block.columns, block.start, block.rows, block.values)
            matrix.sparse_sums(*parts, first, last, residuals, out)
        else:
            matrix.dense_sums(block.T[first:last], residuals, out)
        return out

    def margins(self, ids: Ids, weights: Floats, block: Any) -> Floats:
        from fcl.kernels import matrix

        if isinstance(block, SparseColumns):
            out = np.zeros(block.n_rows)
            parts = (block.columns, block.start, block.rows, block.values)
            matrix.sparse_margins(*parts, ids, weights, out)
        else:
            out = np.zeros(block.shape[0])
            matrix.dense_margins(block.T, ids, weights, out)
        return out

    def largest(self, block: Any) -> float:
        values = block.values if isinstance(block, SparseColumns) else block
        return float(np.abs(values).max(initial=0.0))

    def describe(self, feature: int) -> str:
        return f"x{feature}"
