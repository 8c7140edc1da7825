"""Forms in which rows are stored for generators: a column-major matrix, or sparse columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.checks import choice, shown, whole
from fcl.data.numeric import NumericReader, check_columns
from fcl.data.prepared import PACKING, PreparedRows
from fcl.data.sparse import SparseRows
from fcl.errors import InputError
from fcl.features.windows import window_reader
from fcl.types import Ids

if TYPE_CHECKING:
    from fcl.data.base import RowReader
    from fcl.data.sparse import SparseRows

#: Up to this many columns per entry, entries are counted for every column, empty ones included.
MOST_COUNTED = 4
#: Largest number of columns of the rows: pricing 2^31 columns takes about a minute.
MOST_COLUMNS = 1 << 31
#: dtypes of numeric rows, and of the rows that a class may prepare.
_NUMBER_DTYPES = ("<f4", "<f8", ">f4", ">f8")
_RECORD_DTYPES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
Keep = npt.NDArray[np.bool_] | None


class Stored:
    """Stores blocks as records: by default a matrix (n, width), column by column."""

    width: int
    dtype: str

    def record_shape(self, block_rows: int) -> tuple[int, ...]:
        """Shape of the uint8 record of a block."""
        return (self.width, block_rows * np.dtype(self.dtype).itemsize)

    def prepare(self, raw: Any, record: npt.NDArray[np.uint8]) -> Sequence[np.ndarray]:
        """Fill the record of a block; returns the side arrays."""
        record.view(self.dtype)[:, : len(raw)] = raw.T
        return ()

    def block(self, prepared: PreparedRows, number: int) -> Any:
        """Read a prepared block; a matrix is Fortran-contiguous if the block is full."""
        rows = prepared.rows_of(number)
        record, _ = prepared.read(number)
        return record.view(self.dtype)[:, : rows.stop - rows.start].T

    def select(self, prepared: PreparedRows, rows: Ids, chosen: PreparedRows, number: int) -> None:
        """See :meth:`fcl.features.base.Family.select`."""
        wanted = rows[chosen.rows_of(number)]
        matrix = np.empty((len(wanted), self.width), self.dtype, order="F")
        for source, here, own in prepared.find(wanted):
            matrix[here] = self.block(prepared, source)[own]
        chosen.commit(number, self.prepare(matrix, chosen.writable(number)))


@dataclass(frozen=True)
class MatrixRecord(Stored):
    """The layout of what a generator's ``prepare`` returns."""

    width: int
    dtype: str

    def __post_init__(self) -> None:
        whole("model: columns of prepared rows", self.width, 1)
        if not isinstance(self.dtype, str) or self.dtype[-2:] not in _RECORD_DTYPES:
            raise InputError(
                f"model: expected prepared rows of a plain dtype such as <f4, got {shown(self.dtype)}"
            )


class RowForm(Stored, ABC):
    """Reads raw rows, stores them as records, and returns blocks in the form that generators get.

    kind : kind of the rows, in configurations.
    width : number of columns of the rows.
    """

    kind: ClassVar[str]

    def to_config(self) -> dict[str, Any]:
        """The configuration from which :func:`form_from_config` restores the form."""
        return {"rows": self.kind, **vars(self)}

    @abstractmethod
    def check(self, rows: RowReader[Any]) -> None:
        """Raise InputError unless the rows have this form."""

    @abstractmethod
    def read(
        self, rows: RowReader[Any], block_rows: int, keep: Keep, first: int, last: int | None
    ) -> Iterator[tuple[int, int, Any]]:
        """Yield blocks (start, stop, raw rows)."""

    @abstractmethod
    def block_of(self, raw: Any) -> Any:
        """Convert raw rows to a block."""


@dataclass(frozen=True)
class SequenceForm(RowForm):
    """Windows of letters: uint8 codes (n, L)."""

    kind = "sequences"
    width: int
    dtype: ClassVar[str] = "u1"  # type: ignore[misc]

    def check(self, rows: RowReader[Any]) -> None:
        window_reader(rows, self.width)

    def read(
        self, rows: RowReader[Any], block_rows: int, keep: Keep, first: int, last: int | None
    ) -> Iterator[tuple[int, int, Any]]:
        return window_reader(rows, self.width, keep).iter_codes(block_rows, first, last)

    def block_of(self, raw: Any) -> Any:
        return raw


class _NumericForm(RowForm):
    """Base class of dense and sparse numbers, which reads either kind of rows."""

    sparse: ClassVar[bool]

    def check(self, rows: RowReader[Any]) -> None:
        NumericReader(rows)
        check_columns(rows, self.width)

    def read(
        self, rows: RowReader[Any], block_rows: int, keep: Keep, first: int, last: int | None
    ) -> Iterator[tuple[int, int, Any]]:
        """Yield blocks of this form; dense and sparse rows are converted to each other if needed."""
        check_columns(rows, self.width)
        reader = NumericReader(rows, keep)
        for start, stop, block in reader.iter_blocks(block_rows, first, last):
            if reader.sparse == self.sparse:
                yield start, stop, block
            elif reader.sparse:
                yield start, stop, block.to_dense()
            else:
                yield start, stop, _to_sparse_rows(block)
            del block  # before the next one is read


@dataclass(frozen=True)
class NumberForm(_NumericForm):
    """Numbers: float32 or float64 (n, m)."""

    kind = "numbers"
    width: int
    dtype: str
    sparse = False

    def block_of(self, raw: Any) -> Any:
        return np.asarray(raw, self.dtype)


@dataclass(frozen=True, eq=False)
class SparseColumns:
    """A block of sparse rows in column order, without the empty columns.

    The entries of column ``columns[t]`` are at ``start[t] : start[t + 1]`` of ``rows`` and ``values``.

    columns : int64 (c,), increasing.
    start : int64 (c + 1,).
    rows : uint16 (entries,), increasing within a column.
    values : float32 or float64 (entries,).
    """

    columns: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    rows: npt.NDArray[np.uint16]
    values: np.ndarray
    n_rows: int
    n_columns: int

    @classmethod
    def of(cls, rows: SparseRows, dtype: str) -> SparseColumns:
        """Convert at most 65,536 sparse rows; values get the given dtype."""
        columns, indices = None, rows.indices
        if rows.n_columns > MOST_COUNTED * max(1, rows.nnz):  # most of very many columns are empty
            columns, inverse = np.unique(indices, return_inverse=True)
            indices = inverse.astype(indices.dtype)  # the dtype for which the kernel was compiled
        start = np.zeros((rows.n_columns if columns is None else len(columns)) + 1, np.int64)
        at = np.empty(rows.nnz, np.uint16)
        values = np.empty(rows.nnz, dtype)
        indptr, indices, data = read_only(rows.indptr), read_only(indices), read_only(rows.data)
        kernels.matrix.by_columns(indptr, indices, data, start, at, values)
        if columns is None:
            columns = np.flatnonzero(np.diff(start))
            start = np.append(start[columns], rows.nnz)
        return cls(
            read_only(columns.astype(np.int64)),
            read_only(start),
            read_only(at),
            read_only(values),
            len(rows),
            rows.n_columns,
        )

    def entries(self) -> kernels.matrix.Entries:
        """The arrays in the form that kernels read."""
        return kernels.matrix.Entries(self.columns, self.start, self.rows, self.values)

    def to_scipy(self) -> Any:
        """Convert to ``scipy.sparse.csc_array`` (n, m)."""
        from scipy.sparse import csc_array

        counts = np.zeros(self.n_columns + 1, np.int64)
        counts[self.columns + 1] = np.diff(self.start)
        shape = (self.n_rows, self.n_columns)
        return csc_array((self.values, self.rows.astype(np.int32), np.cumsum(counts)), shape=shape)


@dataclass(frozen=True)
class SparseForm(_NumericForm):
    """Sparse numbers, stored by columns in side arrays."""

    kind = "sparse"
    width: int
    dtype: str
    sparse = True

    def record_shape(self, block_rows: int) -> tuple[int, ...]:
        return (8,)  # the smallest possible record; all entries are in the side arrays

    def prepare(self, raw: Any, record: npt.NDArray[np.uint8]) -> Sequence[np.ndarray]:
        found = SparseColumns.of(raw, self.dtype)
        record.view(np.int64)[0] = found.n_rows
        return (found.columns, found.start, found.rows, found.values)

    def most_side_bytes(self, entries: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """See :meth:`fcl.features.base.Family.most_side_bytes`."""
        columns = np.minimum(entries, self.width)
        return PACKING + 8 * (2 * columns + 1) + (2 + np.dtype(self.dtype).itemsize) * entries

    def block(self, prepared: PreparedRows, number: int) -> SparseColumns:
        rows = prepared.rows_of(number)
        columns, start, entry_rows, values = (read_only(side) for side in prepared.sides(number))
        n = rows.stop - rows.start
        return SparseColumns(columns, start, entry_rows, values, n, self.width)

    def block_of(self, raw: Any) -> SparseColumns:
        return SparseColumns.of(raw, self.dtype)

    def select(self, prepared: PreparedRows, rows: Ids, chosen: PreparedRows, number: int) -> None:
        wanted = rows[chosen.rows_of(number)]
        parts = []
        for source, here, own in prepared.find(wanted):
            block = self.block(prepared, source)
            new = np.full(block.n_rows, -1, np.int64)
            new[own] = here
            counts = np.empty(len(block.columns), np.int64)
            n = kernels.matrix.count_chosen(block.entries(), new, counts)
            at, values = np.empty(n, np.uint16), np.empty(n, block.values.dtype)
            kernels.matrix.write_chosen(block.entries(), new, at, values)
            some = np.flatnonzero(counts)
            parts.append((block.columns[some], counts[some], at, values))
        # within a column the rows of the parts, and of each part, increase already
        columns = np.unique(np.concatenate([part[0] for part in parts]))
        places = [np.searchsorted(columns, part[0]) for part in parts]
        start = np.zeros(len(columns) + 1, np.int64)
        for place, part in zip(places, parts, strict=True):
            start[place + 1] += part[1]
        np.cumsum(start, out=start)
        free = start[:-1].copy()
        at, values = np.empty(start[-1], np.uint16), np.empty(start[-1], self.dtype)
        for place, part in zip(places, parts, strict=True):
            kernels.matrix.append_entries(place, *part[1:], free, at, values)
        chosen.writable(number).view(np.int64)[0] = len(wanted)
        chosen.commit(number, (columns, start, at, values))


def read_only(array: np.ndarray) -> np.ndarray:
    """A read-only view, which protects rows that are read again from writes by a user's class."""
    view = array.view()
    view.flags.writeable = False
    return view


_FORMS: dict[str, Any] = {form.kind: form for form in (SequenceForm, NumberForm, SparseForm)}


def form_for(kind: str, rows: RowReader[Any]) -> RowForm:
    """The form that a generator asks for, bound to the rows of a data set; reads no rows."""
    if kind == "sequences":
        from fcl.data.sequences import SequenceReader

        return SequenceForm(SequenceReader(rows).length)
    reader = NumericReader(rows)
    if kind == "any":
        kind = "sparse" if reader.sparse else "numbers"
    _check_width(rows.name, reader.n_columns)
    form: RowForm = _FORMS[kind](reader.n_columns, reader.dtype.str)
    return form


def _check_width(name: str, width: int) -> None:
    """Raise InputError if there are so many columns that a pass over them would take too long."""
    if width > MOST_COLUMNS:
        raise InputError(
            f"{name}: expected at most {MOST_COLUMNS:,} columns, got {shown(width)}; drop the columns "
            "that are empty in all rows and renumber the others"
        )


def form_from_config(config: dict[str, Any]) -> RowForm:
    """Restore a form from :meth:`RowForm.to_config`; InputError for any other configuration."""
    options = dict(config)
    kind = choice("model: rows of its features", options.pop("rows"), tuple(_FORMS))
    width = whole("model: columns of its rows", options.get("width"), 1)
    _check_width("model", width)
    if kind != "sequences":
        choice("model: dtype of its rows", options.get("dtype"), _NUMBER_DTYPES)
    form: RowForm = _FORMS[kind](**options)
    return form


def _to_sparse_rows(block: np.ndarray) -> SparseRows:
    row, column = np.nonzero(block)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(block)))])
    return SparseRows(indptr, column.astype(np.int32), block[row, column], block.shape[1])
