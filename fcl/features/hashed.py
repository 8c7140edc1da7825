"""A family whose features are hashed into 2^bits weights.

Feature h of a hashed family is the sum of the features j with hash(j) = h (Weinberger et al., "Feature
hashing for large scale multitask learning", ICML 2009, without signs, as in Vowpal Wabbit). 2^bits
weights thus serve a family of any size. The hashed family is a family of its own: models, predictions and
certificates are exact for the hashed features, and say nothing about the optimum over the features that
were hashed. Several features share a weight, so that no weight has a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fcl import kernels
from fcl.checks import whole
from fcl.data.base import RowReader
from fcl.data.prepared import PreparedRows
from fcl.data.sparse import SparseRows
from fcl.errors import InputError
from fcl.features.base import Family
from fcl.features.generator.contract import Generator
from fcl.features.generator.family import GeneratedFamily
from fcl.features.generator.forms import RowForm, SparseColumns, form_for, form_from_config
from fcl.features.generator.pricing import PART_FEATURES, GeneratedPricer, Powers, pricing_bytes
from fcl.features.prices import Pricer
from fcl.features.rows import RowChunk, RowLister, id_type
from fcl.types import Floats, Ids

LEAST_BITS, MOST_BITS = 4, 31
#: Features whose penalty factors are looked at together.
PIECE = 1 << 22


class HashedView(RowLister):
    """Lists the rows of a view with the places of their features."""

    def __init__(self, view: RowLister, bits: int) -> None:
        self._view, self._bits = view, bits

    def chunks(self, raw: Any, order: Ids | None = None) -> Iterator[RowChunk]:
        return map(self._hashed, self._view.chunks(raw, order))

    def most_listed(self, n_rows: int) -> int | None:
        return self._view.most_listed(n_rows)

    def listed(self, raw: Any, rows: Ids) -> RowChunk:
        return self._hashed(self._view.listed(raw, rows))

    def _hashed(self, chunk: RowChunk) -> RowChunk:
        longest = int(np.diff(chunk.indptr).max(initial=0))
        last = np.full(1 << (2 * longest + 1).bit_length(), -1, np.int32)
        indptr = np.empty(len(chunk) + 1, np.int64)
        ids, values = np.empty(len(chunk.ids), id_type(1 << self._bits)), chunk.values.copy()
        start = int(chunk.indptr[0])
        given = (chunk.indptr - start, chunk.ids[start:], chunk.values[start:])
        used = kernels.hashing.hash_rows(*given, self._bits, last, indptr, ids, values)
        return RowChunk(indptr, ids[:used], values[:used])


class Hashed(Generator):
    """The features of a family, hashed to 2^bits: all columns, sums and margins come from listed rows."""

    rows = "any"
    name = "hashed"

    def __init__(self, family: Family, bits: int) -> None:
        self.view = HashedView(family.row_view(), bits)
        self.n_features = 1 << bits

    def fit(self, sample: Any) -> None:
        """Learn nothing."""

    def options(self) -> dict[str, Any]:
        return {"bits": self.n_features.bit_length() - 1}

    def describe(self, feature: int) -> str:
        return f"hash {feature}"

    def chunks(self, block: Any) -> Iterator[tuple[slice, RowChunk]]:
        """The rows of a block in chunks, with their places in the block."""
        at = 0
        for chunk in self.view.chunks(_raw(block)):
            yield slice(at, at + len(chunk)), chunk
            at += len(chunk)

    def columns(self, ids: Ids, block: Any) -> np.ndarray:
        n = block.n_rows if isinstance(block, SparseColumns) else len(block)
        out = np.zeros((n, len(ids)))
        for rows, chunk in self.chunks(block):
            at = np.minimum(np.searchsorted(ids, chunk.ids), len(ids) - 1)
            own = ids[at] == chunk.ids
            numbers = np.repeat(np.arange(rows.start, rows.stop), np.diff(chunk.indptr))
            out[numbers[own], at[own]] = chunk.values[own]
        return out

    def gradients(self, first: int, last: int, block: Any, residuals: Floats) -> Floats:
        return self.sums(first, last, block, residuals, 1)

    def sums(self, first: int, last: int, block: Any, v: Floats, power: int) -> Floats:
        """sum_i v_i phi_ij^power over a block, for the features ``first`` to ``last`` - 1."""
        out = np.zeros(last - first)
        for rows, chunk in self.chunks(block):
            kernels.hashing.add_sums(
                chunk.indptr, chunk.ids, chunk.values, v[rows], power, first, out
            )
        return out

    def largest(self, block: Any) -> float:
        every = (np.abs(chunk.values).max(initial=0.0) for _, chunk in self.chunks(block))
        return float(max(every, default=0.0))

    def margins(self, ids: Ids, weights: Floats, block: Any) -> Floats:
        every = np.zeros(self.n_features)
        every[ids] = weights
        parts = []
        for _, chunk in self.chunks(block):
            parts.append(np.empty(len(chunk)))
            kernels.hashing.write_margins(chunk.indptr, chunk.ids, chunk.values, every, parts[-1])
        return np.concatenate(parts)

    def price_parts(self) -> int:
        # few, since the rows are listed for each
        return -(-self.n_features // PART_FEATURES)

    def pricer(self, family: GeneratedFamily, prepared: PreparedRows, keep: int) -> Pricer:
        return HashedPricer(family, prepared, keep)

    def pricing_bytes(self, block_rows: int, dense: bool) -> int:
        return pricing_bytes(self.n_features, self.price_parts()) + 8 * self.n_features

    def pricing_extra(self, prepared: PreparedRows, dense: bool) -> int:
        return 0


class HashedPricer(GeneratedPricer):
    """Prices hashed features; counts and squares, too, come from listed rows."""

    def _block_powers(self, request: Powers, block: Any, number: int, v: Floats) -> Floats:
        generator, ids = self._family.generator, request.ids
        assert isinstance(generator, Hashed)
        out = np.empty((len(v), len(ids)))
        for first in range(0, generator.n_features, PART_FEATURES):
            last = min(first + PART_FEATURES, generator.n_features)
            some = slice(*np.searchsorted(ids, [first, last]))
            if some.start < some.stop:
                for output, own in zip(out, v, strict=True):
                    found = generator.sums(first, last, block, own, request.power)
                    output[some] = found[ids[some] - first]
        return out


class HashedFamily(GeneratedFamily):
    """A family bound to the rows of a data set, hashed.

    inner : the family whose features share the places.
    """

    penalty_factors = Family.penalty_factors  # all are 1

    @property
    def thread_safe(self) -> bool:
        return self.inner.thread_safe

    def __init__(self, inner: Family, bits: int, form: RowForm) -> None:
        self.inner, self.bits = inner, whole("hash_bits", bits, LEAST_BITS)
        if bits > MOST_BITS:
            raise InputError(f"hash_bits: expected {LEAST_BITS} to {MOST_BITS}, got {bits}")
        super().__init__(Hashed(inner, bits), form)

    @classmethod
    def from_parts(cls, inner: Family, config: dict[str, Any]) -> HashedFamily:
        """Restore a family from :meth:`to_config`, given its restored inner family."""
        form = form_from_config(config["form"])
        if (form.kind == "sequences") != (inner.row_kind == "sequences"):
            raise InputError(f"model: expected rows of {inner.row_kind}, got {form.kind}")
        if form.width != inner.row_width:
            raise InputError(f"model: expected {inner.row_width} columns, got {form.width}")
        return cls(inner, config["bits"], form)

    @property
    def name(self) -> str:
        return f"{self.inner.name} hashed to 2^{self.bits}"

    def row_view(self) -> RowLister:
        generator = self.generator
        assert isinstance(generator, Hashed)
        return generator.view

    def check_rows(self, rows: RowReader[Any]) -> None:
        self.inner.check_rows(rows)

    def to_config(self) -> dict[str, Any]:
        return {
            "family": "hashed",
            "bits": self.bits,
            "inner": self.inner.to_config(),
            "form": self.form.to_config(),
        }


def hashed_family(family: Family, bits: int, rows: RowReader[Any]) -> HashedFamily:
    """Hash a family that is bound to the rows of a data set.

    Raises InputError if the number of bits is wrong or makes no table smaller, if the features have
    different penalty factors, or if the family cannot list the features of a row.
    """
    kind = "sequences" if family.row_kind == "sequences" else "any"
    found = HashedFamily(family, bits, form_for(kind, rows))
    p = family.n_features
    if found.n_features >= p:
        raise InputError(
            f"hash_bits: expected 2^hash_bits below the {p:,} features of {family.name}, got 2^{bits}: "
            "each feature can have a weight of its own; leave it out"
        )
    if type(family).penalty_factors is not Family.penalty_factors:
        for first in range(0, p, PIECE):
            if (family.penalty_factors(np.arange(first, min(first + PIECE, p))) != 1.0).any():
                raise InputError(
                    "hash_bits: expected features of penalty factor 1, since features that share a "
                    f"weight share its penalty, got other factors in {family.name}; leave the factors out"
                )
    return found


def refuse_hashed(family: Family, name: str) -> None:
    """Raise InputError for a hashed family where each feature needs a weight; name : of the argument."""
    if isinstance(family, HashedFamily):
        raise InputError(
            f"{name}: expected a weight for each feature, got {family.name} weights, which features "
            "share; learn without hash_bits, or continue with fcl online and the same hash_bits"
        )


def _raw(block: Any) -> Any:
    """Raw rows, as views take them, of a block in the form that generators get."""
    if not isinstance(block, SparseColumns):
        return np.array(block, order="C")
    csr = block.to_scipy().tocsr()
    csr.sort_indices()
    indices = csr.indices.astype(id_type(block.n_columns))
    return SparseRows(csr.indptr.astype(np.int64), indices, csr.data, block.n_columns)
