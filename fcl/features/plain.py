"""The data's own columns as features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl import kernels
from fcl.checks import shown
from fcl.errors import InputError
from fcl.features.base import Family, ListedColumns
from fcl.features.generator.contract import Generator
from fcl.features.generator.forms import SparseColumns
from fcl.features.rows import MatrixView, RowLister
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.features.generator.family import GeneratedFamily

#: Share of nonzeros up to which columns of sparse rows are made as lists.
LISTED = 0.5


def columns_named(
    texts: Iterable[str], n_columns: int, names: Sequence[str] | None = None
) -> dict[str, int]:
    """The columns with these names; x0, x1, ... without names.

    Raises InputError for a name that several columns have.
    """
    wanted = set(texts)
    if names is None:
        texts = (text for text in wanted if text[:1] == "x" and text.isascii())
        numbers = {text: text[1:] for text in texts if text[1:].isdecimal()}
        own = {text: int(number) for text, number in numbers.items() if len(number) < 19}
        return {text: j for text, j in own.items() if j < n_columns}
    found: dict[str, int] = {}
    for j, name in enumerate(names):
        if name in wanted and found.setdefault(name, j) != j:
            raise InputError(
                f"columns: expected different names, got {shown(name)} for the columns {found[name]} "
                f"and {j} (from 0); rename one of them"
            )
    return found


def less(name: str, number: str | float) -> str:
    """A name minus a number, such as ``year - 2000``."""
    text = number if isinstance(number, str) else repr(number).removesuffix(".0")
    return f"{name} + {text[1:]}" if text[0] == "-" else f"{name} - {text}"


class Columns(Generator):
    """The unchanged columns of dense or sparse numbers: feature j is column j.

    Parameters
    ----------
    factors : list of float or None
        Penalty factor of each column, above 0; ``inf`` excludes the column. None: 1 for all columns.

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [3.0, 0.0]])
    >>> data = fcl.open_data(X, y=np.array([0.0, 1.0, 2.0, 3.0]))
    >>> fcl.train(data, fcl.Columns(factors=[1.0, np.inf]), C=1.0, loss="squared").model.ids
    array([0])
    """

    rows = "any"
    name = "columns"
    # Columns of dense rows may be centred (fcl.features.centred): column ``centred_[t]`` minus
    # ``centres_[t]``; uncentred families lack both attributes.
    centred_: Ids
    centres_: Floats

    def __init__(self, factors: Sequence[float] | None = None) -> None:
        self.factors = factors

    @property
    def warns_of_scales(self) -> bool:  # type: ignore[override]
        return self.factors is None

    @property
    def may_be_centred(self) -> bool:  # type: ignore[override]
        # a class derived from this one may compute other features
        return type(self) is Columns

    @property
    def separate(self) -> bool:  # type: ignore[override]
        # a class derived from this one may compute other features
        return type(self) is Columns

    def options(self) -> dict[str, Any]:
        if self.factors is None:
            return {}
        given = np.asarray(self.factors, np.float64).tolist()
        # JSON has no infinity
        return {"factors": [f if np.isfinite(f) else str(f) for f in given]}

    def fit(self, sample: Any) -> None:
        self.n_features = sample.n_columns if isinstance(sample, SparseColumns) else sample.shape[1]
        if self.factors is None:
            return
        if len(self.factors) != self.n_features:
            raise InputError(
                f"columns: expected {self.n_features} penalty factors, one per column, got "
                f"{len(self.factors)}"
            )
        factors = np.asarray(self.factors, np.float64)
        wrong = np.flatnonzero(~(factors > 0.0))
        if len(wrong):
            raise InputError(
                f"columns: expected penalty factors above 0, got {factors[wrong[0]]:g} for column "
                f"{wrong[0]}; inf excludes a column"
            )

    def check_restored(self, width: int) -> None:
        if self.n_features != width or (self.factors is not None and len(self.factors) != width):
            raise InputError(
                f"columns: expected the {width} columns of the rows, got {self.n_features} features"
                + ("" if self.factors is None else f" and {len(self.factors)} penalty factors")
            )
        if self._centred:
            ids, values = (getattr(self, name, None) for name in ("centred_", "centres_"))
            if not _are_centres(ids, values, width):
                raise InputError("columns: expected a centre for each of some different columns")

    def penalty_factors(self, ids: Ids) -> Floats:
        if self.factors is None:
            return np.ones(len(ids))
        return np.asarray(self.factors, np.float64)[ids]

    @property
    def _centred(self) -> bool:
        """Whether any columns are centred."""
        return hasattr(self, "centred_") or hasattr(self, "centres_")

    def centres_at(self, ids: Ids) -> Floats:
        """The centres of some columns, float64 (k,); 0 for columns that are not centred."""
        if not self._centred:
            return np.zeros(len(ids))
        at = np.minimum(np.searchsorted(self.centred_, ids), len(self.centred_) - 1)
        return np.where(self.centred_[at] == ids, self.centres_[at], 0.0)

    def columns(self, ids: Ids, block: Any) -> np.ndarray:
        if not isinstance(block, SparseColumns):
            found = np.asarray(block[:, ids])
            centres = self.centres_at(ids)
            return found - centres if centres.any() else found
        out = np.zeros((len(ids), block.n_rows), block.values.dtype)
        kernels.matrix.sparse_columns(block.entries(), ids, out)
        return out.T

    def listed_columns(self, ids: Ids, block: Any, dtype: Any) -> ListedColumns | None:
        if not self._reads_entries(block):
            return None
        at = np.searchsorted(block.columns, ids)
        at = at[at < len(block.columns)]
        at = at[block.columns[at] == ids[: len(at)]]
        held = int((block.start[at + 1] - block.start[at]).sum())
        if held > LISTED * len(ids) * block.n_rows:
            return None
        start, rows = np.empty(len(ids) + 1, np.int64), np.empty(held, np.uint16)
        values = np.empty(held, dtype)
        kernels.matrix.listed_columns(block.entries(), ids, start, rows, values)
        n = start[-1]
        return ListedColumns(start, rows[:n], values[:n], block.n_rows)

    def power_sums(self, ids: Ids, block: Any, power: int, v: Floats) -> Floats | None:
        if power == 0 and self._centred:  # of the plain columns
            return np.asarray(v @ (block[:, ids] != 0.0))
        if not self._reads_entries(block):
            return None
        out = np.zeros((len(v), len(ids)))
        for own, sums in zip(v, out, strict=True):
            kernels.matrix.sparse_powers(block.entries(), ids, power, own, sums)
        return out

    def _reads_entries(self, block: Any) -> bool:
        """Whether the features are the columns of sparse rows; a derived class may compute others."""
        return isinstance(block, SparseColumns) and type(self).columns is Columns.columns

    def gradients(self, first: int, last: int, block: Any, residuals: Floats) -> Floats:
        if not isinstance(block, SparseColumns):
            return self.gradients_of_several(first, last, block, residuals[None])[0]
        out = np.zeros(last - first)
        kernels.matrix.sparse_sums(block.entries(), first, last, residuals, out)
        return out

    def gradients_of_several(self, first: int, last: int, block: Any, residuals: Floats) -> Floats:
        out = np.zeros((len(residuals), last - first))
        if isinstance(block, SparseColumns):
            kernels.matrix.sparse_sums_of_several(block.entries(), first, last, residuals, out)
        else:
            centres = self.centres_at(np.arange(first, last)) if self._centred else None
            kernels.matrix.dense_sums(block.T[first:last], centres, residuals, out)
        return out

    def moments(self, first: int, last: int, block: Any, weights: Floats) -> Floats:
        out = np.empty((5, last - first))
        if isinstance(block, SparseColumns):
            kernels.matrix.sparse_moments(block.entries(), first, last, weights, out)
        else:
            kernels.matrix.dense_moments(block.T[first:last], weights, out)
        if self._centred:  # the origin, the least and the largest value
            out[[0, 3, 4]] -= self.centres_at(np.arange(first, last))
        return out

    def margins(self, ids: Ids, weights: Floats, block: Any) -> Floats:
        if isinstance(block, SparseColumns):
            out = np.zeros(block.n_rows)
            kernels.matrix.sparse_margins(block.entries(), ids, weights, out)
        else:
            out = np.zeros(block.shape[0])
            centres = self.centres_at(ids)
            own = centres if centres.any() else None
            kernels.matrix.dense_margins(block.T, ids, own, weights, out)
        return out

    def largest(self, block: Any) -> float:
        if self._centred:
            centres = self.centres_at(np.arange(block.shape[1]))
            high, low = block.max(axis=0) - centres, block.min(axis=0) - centres
            return max(float(high.max()), -float(low.min()), 0.0)
        values = block.values if isinstance(block, SparseColumns) else block
        return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))

    def row_view(self, family: GeneratedFamily) -> RowLister:
        # a class derived from this one may compute other features
        return MatrixView(self.n_features) if type(self) is Columns else Family.row_view(family)

    def columns_read(self, ids: Ids) -> Ids | None:
        # a class derived from this one may compute other features
        return ids if type(self) is Columns else None

    def find(self, texts: Sequence[str], names: Sequence[str] | None = None) -> Ids:
        found = columns_named(texts, self.n_features, names)
        return np.array([found.get(text, -1) for text in texts], np.int64)

    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        return f"x{feature}" if names is None else names[feature]


def _are_centres(ids: Any, values: Any, width: int) -> bool:
    """Whether there is a finite centre for each of some columns, in increasing order."""
    if not all(isinstance(array, np.ndarray) and array.ndim == 1 for array in (ids, values)):
        return False
    fits = ids.dtype == np.int64 and values.dtype == np.float64 and len(ids) == len(values) > 0
    if not fits or ids[0] < 0 or ids[-1] >= width:
        return False
    return bool((np.diff(ids) > 0).all() and np.isfinite(values).all())
