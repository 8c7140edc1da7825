"""Write blocks of rows into a Zarr group that ``fcl.open_data`` reads.

X                 codes uint8 (n, letters), numbers (n, columns), or a CSR matrix as anndata has it
y, weights        (n,), or a categorical
obs/NAME          (n,), text that repeats as a categorical; obs/source_row: record of the input
var/_index        names of the columns
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fcl.convert.arrays import TEXT, Appended, ArrayStore, Growing, StoreLayout, write_rows
from fcl.convert.contract import TEXT_BYTES, Categorical, Column, ConvertedRows, OutputLayout
from fcl.data.sparse import SparseRows
from fcl.errors import InputError

#: What a text takes beside its letters, as an array and as the objects that zarr makes of it.
_TEXT_BYTES = 64
#: Texts that are turned into an array at a time.
_STEP = 1 << 16


class TextArray(Growing):
    """An array of text (n,) to which values are appended; it is written chunk by chunk.

    All chunks of an array have the same number of rows. If later texts are so long that a chunk would
    exceed the limit of bytes, the rows that are stored already are written again in smaller chunks.

    store : its layout limits the rows, a power of two, and the bytes of a chunk.
    """

    def __init__(self, store: ArrayStore, path: str) -> None:
        super().__init__(store, path)
        self._chunk = store.layout.chunk_rows
        self._limit = store.layout.column_bytes
        self._waiting: list[np.ndarray] = []
        self._n_waiting, self._bytes = 0, 0
        self._n_rows = 0

    def append(self, values: np.ndarray) -> None:
        """Append texts of any dtype of NumPy; bytes are read as UTF-8."""
        if values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8", "replace")
        values = values.astype(TEXT, copy=False)
        while len(values):
            here = values[: self._chunk - self._n_waiting]
            sizes = self._bytes + np.cumsum(np.strings.str_len(here) + _TEXT_BYTES)
            fits = int(np.searchsorted(sizes, self._limit, side="right"))
            if fits < len(here) and self._chunk > 1:
                values = np.concatenate([*self._waiting, values])
                self._shrink(self._n_waiting + fits)
                self._start_chunk()
                continue
            self._waiting.append(here)
            self._n_waiting += len(here)
            self._bytes = int(sizes[-1])
            values = values[len(here) :]
            if self._n_waiting == self._chunk:
                self._flush()

    def finish(self) -> None:
        """Write what is left, and wait until all is written."""
        if self._n_waiting or self._array is None:
            self._chunk = self._chunk if self._n_rows else max(1, self._n_waiting)
            self._flush()
        self._wait()

    def _start_chunk(self) -> None:
        self._waiting, self._n_waiting, self._bytes = [], 0, 0

    def _flush(self) -> None:
        self._wait()
        if self._array is None:
            self._array = self._create()
        values = np.concatenate([np.empty(0, TEXT), *self._waiting])
        self._n_rows += len(values)
        self._submit(self._n_rows, values)
        self._start_chunk()

    def _create(self) -> Any:
        return self._store.create(self._path, TEXT, (self._chunk,))

    def _shrink(self, rows: int) -> None:
        """Make chunks of at most so many rows, also of the rows that are stored already."""
        before = self._chunk
        while self._chunk > max(1, rows):
            self._chunk //= 2
        self._wait()
        if self._array is None:
            return
        with self._store.moved_away(self._path) as old:
            self._array = self._create()
            for start in range(0, self._n_rows, before):
                values = old[start : start + before]
                write_rows(self._array, start + len(values), values)


def write_texts(store: ArrayStore, path: str, values: Sequence[str]) -> None:
    """Write an array of text."""
    array = TextArray(store, path)
    for start in range(0, len(values), _STEP):
        array.append(np.array(values[start : start + _STEP], TEXT))
    array.finish()


#: Distinct targets that the summary counts; with more, the target is numeric.
MOST_CLASSES = 20


class _Part(Protocol):
    """A part of the output to which blocks are appended."""

    def append(self, values: Any, /) -> None: ...

    def finish(self) -> None: ...


class RowWriter:
    """A Zarr group to which blocks of rows are appended; used as a context.

    n_rows : ConvertedRows written so far.
    classes : rows by value of y; None without y, or if there are more than ``MOST_CLASSES`` values.
    """

    def __init__(self, folder: Path, layout: StoreLayout) -> None:
        self._store = ArrayStore(folder, layout)
        self._x: _Part | None = None
        self._columns: dict[str, _Part] = {}
        self.n_rows = 0
        self.classes: Counter[Any] | None = None

    def __enter__(self) -> RowWriter:
        self._store.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._store.__exit__(*error)

    def has(self, path: str) -> bool:
        """Whether the rows have an array, such as ``y`` or ``weights``."""
        return path in self._columns

    @property
    def held_bytes(self) -> int:
        """Bytes of the categories, which are written at the end."""
        parts = self._columns.values()
        return sum(part.held_bytes for part in parts if isinstance(part, _CategoricalColumn))

    def append(self, rows: ConvertedRows, layout: OutputLayout) -> None:
        """Append a block; the first one with rows decides which columns there are, and their dtypes."""
        if not len(rows):
            return
        columns = _columns(rows)
        if self._x is None:
            store, dtype = self._store, layout.dtype
            x: _Part = (
                _Csr(store, "X", dtype)
                if layout.kind == "sparse"
                else store.array("X", dtype, layout.width)
            )
            self._x = x
            self.classes = None if rows.y is None else Counter()
            self._columns = {
                path: _open_column(self._store, path, columns[path]) for path in columns
            }
        if columns.keys() != self._columns.keys():
            raise AssertionError(f"columns {sorted(columns)}, expected {sorted(self._columns)}")
        self._x.append(rows.x)
        for path, values in columns.items():
            self._columns[path].append(values)
        self._count(rows.y)
        self.n_rows += len(rows)

    def finish(self, layout: OutputLayout, attributes: dict[str, Any]) -> None:
        """Write the rest, the names of the columns, and the attributes of the group."""
        for part in (self._x, *self._columns.values()):
            assert part is not None
            part.finish()
        if isinstance(self._x, _Csr):
            self._x.store_as(layout.dtype)
            self._store.root["X"].update_attributes({"shape": [self.n_rows, layout.width]})
        if layout.names is not None:
            more: dict[str, Any] = {"_index": "_index", "column-order": list(layout.var)}
            self._store.group("var", "dataframe", "0.2.0", **more)
            write_texts(self._store, "var/_index", layout.names)
            for name, values in layout.var.items():
                part = _open_column(self._store, f"var/{name}", values)
                part.append(values)
                part.finish()
        self._store.root.update_attributes(attributes)

    def _count(self, y: Column | None) -> None:
        """Add the targets of a block to the counts of classes."""
        if y is None or self.classes is None:
            return
        if isinstance(y, Categorical):
            counts = np.bincount(y.codes, minlength=len(y.categories)).tolist()
            found: Iterable[tuple[Any, int]] = zip(y.categories, counts, strict=False)
        else:
            values, numbers = np.unique(y, return_counts=True)
            found = zip(values[: MOST_CLASSES + 1].tolist(), numbers.tolist(), strict=False)
        self.classes.update({value: count for value, count in found if count})
        if len(self.classes) > MOST_CLASSES:
            self.classes = None


def _columns(rows: ConvertedRows) -> dict[str, Column]:
    """The columns of a block beside X, by path."""
    columns: dict[str, Column] = {}
    if rows.y is not None:
        columns["y"] = rows.y
    if rows.weights is not None:
        columns["weights"] = rows.weights
    for name, values in rows.obs.items():
        columns[f"obs/{_checked_name(name)}"] = values
    return columns | {"obs/source_row": rows.source_row}


def _checked_name(name: str) -> str:
    if not name or "/" in name or name.startswith((".", "__")) or name == "zarr.json":
        raise InputError(
            f"the column {name!r} cannot be stored under its name; expected a name without / that does "
            "not begin with . or __: rename the column"
        )
    return name


def _open_column(store: ArrayStore, path: str, values: Column) -> _Part:
    if isinstance(values, Categorical):
        return _CategoricalColumn(store, path)
    if values.dtype.kind in "OSUT":
        return TextArray(store, path)
    return store.column(path, values.dtype)


class _CategoricalColumn:
    """Text that repeats: codes, and the categories at the end."""

    def __init__(self, store: ArrayStore, path: str) -> None:
        store.group(path, "categorical", "0.2.0", ordered=False)
        self._store, self._path = store, path
        self._codes: Appended = store.column(f"{path}/codes", np.dtype(np.int32))
        self._categories: list[str] = []
        self._n_counted = 0
        self.held_bytes = 0

    def append(self, values: Categorical) -> None:
        self._codes.append(values.codes)
        self._categories = values.categories
        added = values.categories[self._n_counted :]
        self._n_counted += len(added)
        self.held_bytes += TEXT_BYTES * len(added) + sum(map(len, added))

    def finish(self) -> None:
        self._codes.finish()
        write_texts(self._store, f"{self._path}/categories", self._categories)


class _Csr:
    """Rows of a sparse matrix; the shape is set at the end, when it is known."""

    def __init__(self, store: ArrayStore, path: str, dtype: np.dtype) -> None:
        store.group(path, "csr_matrix", "0.1.0", shape=[0, 0])
        # shards of X would exceed the budget, which counts with one array of them
        self._indptr = store.column(f"{path}/indptr", np.dtype(np.int64))
        self._indices = store.column(f"{path}/indices", np.dtype(np.int32))
        self._store, self._path = store, path
        self._data: Appended = store.column(f"{path}/data", dtype)
        self._indptr.append(np.zeros(1, np.int64))

    def append(self, rows: SparseRows) -> None:
        self._indptr.append(rows.indptr[1:] + self._indices.n_rows)
        self._indices.append(rows.indices)
        self._data.append(rows.data)

    def finish(self) -> None:
        for array in (self._indptr, self._indices, self._data):
            array.finish()

    def store_as(self, dtype: np.dtype) -> None:
        """Store the values again if it turned out at the end that they have another dtype."""
        if dtype == self._data.dtype:
            return
        path = f"{self._path}/data"
        with self._store.moved_away(path) as old:
            found = self._store.column(path, dtype)
            step = old.shards[0] if old.shards else old.chunks[0]
            for start in range(0, old.shape[0], step):
                found.append(old[start : start + step].astype(dtype))
            found.finish()
        self._data = found
