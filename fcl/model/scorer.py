"""The margins of blocks of raw rows, with a column for each output."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.data.sparse import SparseRows
from fcl.features import Columns
from fcl.features.base import FINE_ROWS, Family
from fcl.model.explain import dense_columns
from fcl.parallel import one_blas_thread
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Bytes of the float64 values of a batch of features on a block of rows, and of the maker's buffers.
BATCH_BYTES = 8 << 20
#: Share of nonzero weights below which a sparse product is faster.
SPARSE_SHARE = 0.1


def row_scorer(
    family: Family, ids: Ids, weights: Floats, constants: Floats
) -> Callable[[Any], Floats]:
    """A function from a block of ``family.read_rows`` to its margins, float64 (n, K).

    Families have kernels for the margins of one output.

    ids : int64 (k,), increasing.
    weights : float64 (k, K)
    constants : float64 (K,)
    """
    if weights.shape[1] > 1:
        return OutputScorer(family, ids, weights, constants)
    scorer = family.scorer(ids, weights[:, 0])

    def margins(block: Any) -> Floats:
        with one_blas_thread():
            return (scorer.margins(block) + constants)[:, None]

    return margins


class OutputScorer:
    """Computes the K margins of raw rows; arguments as of :func:`row_scorer`."""

    def __init__(self, family: Family, ids: Ids, weights: Floats, constants: Floats) -> None:
        from scipy.sparse import csr_array

        self._family, self._ids, self._constants = family, ids, constants
        sparse = np.count_nonzero(weights) < SPARSE_SHARE * weights.size
        self._weights: Any = csr_array(weights) if sparse else weights

    def __call__(self, raw: Any) -> Floats:
        """The margins of a block of ``family.read_rows``, with constants: float64 (n, K)."""
        n = len(raw)
        out = np.empty((n, len(self._constants)))
        with one_blas_thread():  # the number of threads changes the rounding
            entries = _sparse_entries(self._family, raw)
            if entries is not None:
                product = entries[:, self._ids] @ self._weights
                out[:] = product.toarray() if hasattr(product, "toarray") else product
            else:
                size = min(FINE_ROWS, self._family.most_block_rows())
                for start in range(0, n, size):
                    some = slice(start, min(start + size, n))
                    out[some] = self._dense_margins(raw[some], size)
        return out + self._constants

    def _dense_margins(self, raw: Any, block_rows: int) -> Floats:
        """The margins of at most FINE_ROWS rows, without constants; made from batches of columns."""
        family, n = self._family, len(raw)
        out = np.zeros((len(self._constants), n))
        prepared = PreparedRows(n, block_rows, family.record_shape(block_rows))
        prepared.commit(0, family.prepare(raw, prepared.writable(0), block_rows))
        maker = family.column_maker(prepared, BATCH_BYTES)
        batch = min(maker.batch, max(1, BATCH_BYTES // (8 * n)))
        for at in range(0, len(self._ids), batch):
            (columns,) = maker.make(self._ids[at : at + batch])
            values = dense_columns(columns).astype(np.float64, copy=False)
            out += self._weights[at : at + batch].T @ values
        return out.T


def _sparse_entries(family: Family, raw: Any) -> csr_array | None:
    """Sparse rows as a matrix (n, p) if the features are their columns; None otherwise."""
    from scipy.sparse import csr_array

    # a class derived from Columns may compute other features
    if not isinstance(raw, SparseRows) or type(getattr(family, "generator", None)) is not Columns:
        return None
    return csr_array((raw.data, raw.indices, raw.indptr), shape=(len(raw), family.row_width))
