"""Models of several outputs: their margins on raw rows, their features, and one output by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from fcl.checks import shown
from fcl.data.prepared import PreparedRows
from fcl.data.sparse import SparseRows
from fcl.errors import InputError
from fcl.features import Columns
from fcl.features.base import FINE_ROWS, Family
from fcl.model.explain import dense_columns
from fcl.model.frames import OutputFeature
from fcl.parallel import one_blas_thread
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from fcl.data import DataSet

#: Bytes of the float64 values of a batch of features on a block of rows, and of the maker's buffers.
BATCH_BYTES = 8 << 20
#: Share of nonzero weights below which a sparse product is faster.
SPARSE_SHARE = 0.1


class OutputModel(Protocol):
    """What this module needs of a :class:`fcl.Model` of several outputs."""

    @property
    def family(self) -> Family:
        """The family of the features."""

    @property
    def ids(self) -> Ids:
        """Ids of the features, increasing."""

    @property
    def weights(self) -> Floats:
        """Their weights, float64 (k, K)."""

    @property
    def support(self) -> Ids:
        """Training rows in which each feature is not 0, int64 (k,)."""

    @property
    def intercepts(self) -> Floats:
        """The intercept of each output, float64 (K,)."""

    @property
    def labels(self) -> tuple[Any, ...] | None:
        """The label of each output; None if they have no names."""

    def opened(self, data: DataSet) -> DataSet:
        """The rows, with each column that the features read at its position."""

    def require_offset(self, data: DataSet) -> None:
        """Raise InputError if the rows lack an offset that the model needs."""

    def covariate_margins(self, data: DataSet) -> Floats | None:
        """What covariates add to the margins, float64 (n, K); None without covariates."""

    def feature_text(self, index: int) -> str:
        """The description of a feature, by its index in ``ids``."""


class OutputScorer:
    """Computes the K margins of raw rows.

    Parameters
    ----------
    family : Family
    ids : int64 (k,)
        Increasing.
    weights : float64 (k, K)
    intercepts : float64 (K,)
    """

    def __init__(self, family: Family, ids: Ids, weights: Floats, intercepts: Floats) -> None:
        from scipy.sparse import csr_array

        self._family, self._ids, self._intercepts = family, ids, intercepts
        sparse = np.count_nonzero(weights) < SPARSE_SHARE * weights.size
        self._weights: Any = csr_array(weights) if sparse else weights

    def __call__(self, raw: Any) -> Floats:
        """The margins of a block of ``family.read_rows``, with intercepts: float64 (n, K)."""
        n = len(raw)
        out = np.empty((n, len(self._intercepts)))
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
        return out + self._intercepts

    def _dense_margins(self, raw: Any, block_rows: int) -> Floats:
        """The margins of at most FINE_ROWS rows, without intercepts; made from batches of columns."""
        family, n = self._family, len(raw)
        out = np.zeros((len(self._intercepts), n))
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


# -- features ------------------------------------------------------------------------------------


def output_texts(labels: Sequence[Any] | None, n_outputs: int) -> list[Any]:
    """The label of each output, or its number from 0 if outputs have no labels."""
    return list(range(n_outputs)) if labels is None else list(labels)


def output_number(model: OutputModel, output: Any) -> int:
    """The number of an output, given by its label or by its number if outputs have no labels.

    Raises InputError that lists the outputs.
    """
    known = output_texts(model.labels, model.weights.shape[1])
    if output not in known:
        few = ", ".join(shown(label) for label in known[:5]) + ", ..." * (len(known) > 5)
        raise InputError(
            f"output: expected one of the {len(known)} outputs of the model ({few}), got {shown(output)}"
        )
    return known.index(output)


def feature_sizes(weights: Floats, group: bool) -> Floats:
    """The sizes of features, float64 (k,): the norm of a row of weights (k, K), or its largest |weight|.

    group : whether the penalty is the sum of the norms.
    """
    if group:
        return np.linalg.norm(weights, axis=1)
    return np.abs(weights).max(axis=1, initial=0.0)


def iter_output_features(
    model: OutputModel, top: int | None = None, output: Any = None
) -> Iterator[OutputFeature]:
    """The nonzero weights by decreasing |weight|; ties by id, then by output.

    Parameters
    ----------
    model : OutputModel
        Of several outputs.
    top : int, optional
        The number of weights; None: all.
    output : optional
        The label of one output; None: all outputs together.
    """
    weights = model.weights
    rows, outputs = np.nonzero(weights)
    if output is not None:
        only = outputs == output_number(model, output)
        rows, outputs = rows[only], outputs[only]
    order = np.argsort(-np.abs(weights[rows, outputs]), kind="stable")[:top]
    labels = output_texts(model.labels, model.weights.shape[1])
    for i, k in zip(rows[order].tolist(), outputs[order].tolist(), strict=True):
        yield OutputFeature(
            int(model.ids[i]),
            model.feature_text(i),
            labels[k],
            float(weights[i, k]),
            int(model.support[i]),
        )


# -- one output ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneOutput:
    """One output of a model of several, with the features that it uses, to explain its margins.

    Attributes
    ----------
    model : OutputModel
    number : int
        Of the output.
    indices : int64 (m,)
        The features of the output, among those of the model.
    """

    model: OutputModel
    number: int
    indices: npt.NDArray[np.intp]

    @classmethod
    def of(cls, model: OutputModel, output: Any) -> OneOutput:
        """The output of a label; raises InputError for an unknown one."""
        number = output_number(model, output)
        return cls(model, number, np.flatnonzero(model.weights[:, number]))

    @property
    def family(self) -> Family:
        """The family of the features."""
        return self.model.family

    @property
    def ids(self) -> Ids:
        """Ids of the features, increasing."""
        return self.model.ids[self.indices]

    @property
    def weights(self) -> Floats:
        """Their weights in this output, float64 (m,)."""
        return self.model.weights[self.indices, self.number]

    @property
    def intercept(self) -> float:
        """The intercept of this output."""
        return float(self.model.intercepts[self.number])

    def opened(self, data: DataSet) -> DataSet:
        """The rows with the offset of this output."""
        data = self.model.opened(data)
        self.model.require_offset(data)
        return data if data.offset is None else data.with_offset(data.offset[:, self.number])

    def require_offset(self, data: DataSet) -> None:
        """Nothing to do: :meth:`opened` raises InputError for rows without an offset."""

    def covariate_margins(self, data: DataSet) -> Floats | None:
        """What covariates add to the margins of this output, float64 (n,); None without covariates."""
        found = self.model.covariate_margins(data)
        return None if found is None else found[:, self.number]

    def feature_text(self, index: int) -> str:
        """The description of a feature, by its index in ``ids``."""
        return self.model.feature_text(int(self.indices[index]))
