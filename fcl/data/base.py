"""The contract between containers, readers and the rest of fcl.

A *container* holds named arrays: a Zarr group, an HDF5 file or a folder of ``.npy`` files. It opens
arrays as *row readers*, which return rows as plain numpy arrays, or as ``SparseRows``. Nothing above this
level knows the format.
"""

from __future__ import annotations

import difflib
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from numbers import Number
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

import numpy as np

from fcl.checks import listed, shortened, shown
from fcl.data.stamps import Stamp
from fcl.errors import FclError, InputError
from fcl.memory.allowance import allow
from fcl.store import Location
from fcl.units import counted

# Storage without chunks (.npy, contiguous HDF5) is read in steps of about this size: large enough for
# sequential disk speed, small enough to be negligible in a memory plan.
STEP_BYTES = 8 << 20

# Bytes requested ahead of their use from an object store, unless a memory plan says otherwise.
MOST_AHEAD = 64 << 20

# dtype of text of variable length, whose width is unknown before it is read. Rows that are read have the
# width of their longest text.
VARIABLE_TEXT = np.dtype("U")

# Approximate overhead of a Python str beyond its letters, while variable-length text is decoded.
STR_OVERHEAD_BYTES = 64

# The type of the rows that a reader returns: a numpy array, or SparseRows.
Block_co = TypeVar("Block_co", covariant=True)

Numbers = np.ndarray | range  # of rows, increasing


class RowReader(ABC, Generic[Block_co]):
    """Rows of one stored array, read in ranges.

    Attributes
    ----------
    name : str
        For messages, such as ``train.zarr:X``.
    shape : tuple
        (n,) or (n, columns), no axis empty.
    dtype : dtype
        As stored; never object. Text of variable length has the dtype ``U`` without a width.
    chunk_rows : int
        Rows of one storage chunk. Reading ranges that end at multiples of it decodes each chunk once; a
        range that cuts a chunk decodes all of it.
    most_ahead : int
        Bytes of stored chunks that a reader of an object store may request before they are read.
    """

    most_ahead = MOST_AHEAD
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    chunk_rows: int

    @abstractmethod
    def read(self, start: int, stop: int) -> Block_co:
        """Read the rows ``start`` to ``stop`` (exclusive), shape ``(stop - start, *shape[1:])``.

        The block may share memory with the source, so it must not be modified. Raises ``InputError``
        naming array, chunk and file if stored bytes cannot be decoded.
        """

    @property
    def chunk_bytes(self) -> int:
        """Decoded bytes of ``chunk_rows`` rows, which a read holds at once.

        For text of variable length this is estimated from the first row. The compressed bytes are not
        included; they are fewer, unless the data do not compress.
        """
        if self.dtype == VARIABLE_TEXT:
            row = np.asarray(self.read(0, 1))
            row_bytes = row.nbytes + row.size * STR_OVERHEAD_BYTES
        else:
            row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        return self.chunk_rows * row_bytes

    @property
    def ahead_bytes(self) -> int:
        """Bytes of stored chunks that are requested before they are read; 0 on a local disk."""
        return 0

    @property
    def reading_bytes(self) -> int:
        """Bytes held while rows are read in order.

        A chunk is there twice, decoded and compressed (at most about as large), besides what is ahead.
        """
        return 2 * self.chunk_bytes + self.ahead_bytes

    def ahead(self, ranges: Iterable[tuple[int, int]]) -> AbstractContextManager[None]:
        """Announce the ranges that are read in order within the context.

        Readers of object stores request what is stored there ahead of its use, many chunks at once.
        """
        return nullcontext()

    def read_all(self) -> Block_co:
        """Read all rows; raises InputError if they need more memory than the budget.

        A file of a few bytes may declare any number of rows that were never written.
        """
        item = max(8, self.dtype.itemsize)  # numbers become float64
        if self.dtype == VARIABLE_TEXT:
            item = STR_OVERHEAD_BYTES
        values = math.prod(self.shape)
        needed = item * values + self.chunk_bytes
        allow(f"{self.name} has {values:,} values, which need", needed)
        return self.read(0, self.shape[0])

    def allow_rows(self, count: int, chunk: int = 0) -> None:
        """Raise InputError unless the budget has room for so many rows, and for a chunk in bytes."""
        if self.dtype != VARIABLE_TEXT:  # whose size is known when it is read
            row = self.dtype.itemsize * math.prod(self.shape[1:])
            what = f"{self.name}: reading {counted(count, 'row')} of {self.dtype} in whole chunks needs"
            allow(what, max(count * row, chunk))

    def missing_chunks(self) -> int:
        """Number of storage chunks that were never written; their rows read as the fill value."""
        return 0


class ChunkedReader(RowReader[np.ndarray]):
    """Rows of an array that the library of its format decodes chunk by chunk."""

    #: shape of the chunks that are decoded one by one
    _chunks: tuple[int, ...]

    @property
    def chunk_bytes(self) -> int:
        # a chunk is decoded as a whole, however much of it lies outside the array
        stored = self.dtype.itemsize * math.prod(self._chunks)  # 0 for text of variable length
        return max(super().chunk_bytes, stored)

    @abstractmethod
    def _read_cell(self, cell: tuple[slice, ...]) -> np.ndarray:
        """Read a part of the array.

        Any error but FclError and MemoryError means that the array is damaged.
        """

    @abstractmethod
    def _where(self, index: tuple[int, ...]) -> str:
        """Where a chunk is stored, given its index in the grid of chunks."""

    def read(self, start: int, stop: int) -> np.ndarray:
        # a chunk is decoded as a whole, however much of it lies outside the array
        self.allow_rows(stop - start, self.dtype.itemsize * math.prod(self._chunks))
        try:
            return self._read_cell((slice(start, stop),))
        except (MemoryError, FclError):
            raise
        except Exception as error:  # each library and codec raises its own errors
            self._raise_for_chunk(start, stop, error)

    def _raise_for_chunk(self, start: int, stop: int, cause: Exception) -> NoReturn:
        """After a failed read, read chunk by chunk, and raise InputError naming the faulty one."""
        first, *sizes = self._chunks
        grid = [range(start // first, -(-stop // first))]
        grid += [range(-(-n // c)) for n, c in zip(self.shape[1:], sizes, strict=True)]
        for index in itertools.product(*grid):
            cell = tuple(
                slice(i * c, min(n, (i + 1) * c))
                for i, c, n in zip(index, self._chunks, self.shape, strict=True)
            )
            try:
                self._read_cell(cell)
            except (MemoryError, FclError):
                raise
            except Exception as error:
                raise InputError(
                    f"{self.name}: chunk {index}, rows {cell[0].start}-{cell[0].stop - 1}, cannot be "
                    f"read: {one_line(error)}; {self._where(index)}. The file is damaged or "
                    "incomplete: restore it, or write the array again"
                ) from error
        raise InputError(
            f"{self.name}: rows {start}-{stop - 1} could not be read: {one_line(cause)}. A second "
            "attempt succeeded, so the storage is unreliable"
        ) from cause


class BlockReader:
    """The kept rows of a data set, in blocks; the base of readers that convert and validate them.

    keep : bool (n,) or None, rows to read; None for all. Other rows are neither counted nor validated,
        and chunks without a kept row are not read.
    n_rows : number of kept rows.
    """

    def __init__(self, rows: RowReader[Any], keep: np.ndarray | None = None) -> None:
        if keep is not None and (keep.dtype != np.bool_ or keep.shape != rows.shape[:1]):
            raise ValueError(f"keep must be bool {rows.shape[:1]}, got {keep.dtype} {keep.shape}")
        self.rows = rows
        self._keep = keep
        self.n_rows = rows.shape[0] if keep is None else int(np.count_nonzero(keep))

    def _pieces(self, block_rows: int, first: int, last: int | None) -> Iterator[Piece]:
        """Divide the kept rows ``first`` to ``last`` among blocks, each by storage chunks, in order.

        Every storage chunk is decoded once. The caller must forget a piece before it asks for the next
        one, so that one chunk is held at a time.
        """
        last = self.n_rows if last is None else last
        start, filled = first, 0
        ranges = ((int(n[0]), int(n[-1]) + 1) for n in self._by_chunk(first, last))
        with self.rows.ahead(ranges):
            for numbers in self._by_chunk(first, last):
                left, origin = numbers, int(numbers[0])
                chunk = self.rows.read(origin, int(numbers[-1]) + 1)
                while len(left):
                    stop = min(start + block_rows, last)
                    count = stop - start - filled
                    here, left = left[:count], left[count:]
                    yield Piece(start, stop, filled, here, chunk, origin)
                    filled += len(here)
                    if start + filled == stop:
                        start, filled = stop, 0
                del chunk  # before the next one is read

    def _by_chunk(self, first: int, last: int) -> Iterator[Numbers]:
        """The numbers of the kept rows ``first`` to ``last`` in each storage chunk that has any."""
        seen = 0
        for chunk_start, chunk_stop in chunk_ranges(self.rows):
            if seen >= last:
                return
            numbers: Numbers = range(chunk_start, chunk_stop)
            if self._keep is not None and not self._keep[chunk_start:chunk_stop].all():
                numbers = chunk_start + np.flatnonzero(self._keep[chunk_start:chunk_stop])
            n = len(numbers)
            numbers = numbers[max(first - seen, 0) : max(last - seen, 0)]
            seen += n
            if len(numbers):
                yield numbers


class Piece(NamedTuple):
    """Rows of a storage chunk that belong to the same block."""

    start: int  #: range of kept rows of the block
    stop: int
    filled: int  #: number of rows of the block in earlier pieces
    numbers: Numbers  #: of the stored rows
    chunk: Any  #: the stored rows from number ``origin`` on
    origin: int

    @property
    def ends_block(self) -> bool:
        """Whether the block is complete with this piece."""
        return self.start + self.filled + len(self.numbers) == self.stop

    def take(self, some: slice = slice(None)) -> Any:
        """The values of the rows, or of some of them; shares memory if they are consecutive."""
        numbers = self.numbers[some]
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first == len(numbers) - 1:
            return self.chunk[first - self.origin : last + 1 - self.origin]
        return self.chunk[np.asarray(numbers) - self.origin]


class Container(ABC):
    """A place that holds named arrays.

    name : for messages, such as ``train.zarr`` or ``train.h5::/fold1``.
    """

    name: str

    @abstractmethod
    def open_array(self, path: str, may_be_empty: bool = False) -> RowReader[np.ndarray]:
        """Open the array at ``path``; raises ``InputError`` if it does not exist or cannot be read.

        may_be_empty : accept an empty array, as the parts of a sparse matrix without entries are.
        """

    def open_rows(self, path: str) -> RowReader[np.ndarray]:
        """Open the array of rows, X; containers of a single array override this."""
        return self.open_array(path)

    def is_group(self, path: str) -> bool:
        """Whether there is a group of arrays at ``path``; False if the container has no groups."""
        return False

    def attribute(self, path: str, name: str) -> Any:
        """An attribute of the array or group at ``path``; None if it does not exist.

        Numbers and text are Python values, arrays are lists. A reference to another array is its path
        from the root of the container, with a leading slash.
        """
        return None

    @abstractmethod
    def stamps(self) -> list[Stamp]:
        """Stamps of the files that show whether the arrays opened so far have changed."""


class GroupContainer(Container):
    """One group of a file whose arrays are in a tree of groups.

    Subclasses set ``_stamps``, the stamps of the files that were read.
    """

    _stamps: list[Stamp]

    def __init__(self, path: Location, group: str) -> None:
        self._path = path
        self._group_path = group.strip("/")
        place = f"::/{self._group_path}" if self._group_path else ""
        self.name = path.resolve().name + place

    @abstractmethod
    def _node(self, path: str) -> Any:
        """The array or group at a path; None if it does not exist."""

    @abstractmethod
    def _is_array(self, node: Any) -> bool:
        """Whether a node is an array."""

    @abstractmethod
    def _array_paths(self) -> list[str]:
        """The names that ``open_data`` can open, see :func:`array_names`."""

    @abstractmethod
    def _open_node(self, node: Any, name: str, may_be_empty: bool) -> RowReader[np.ndarray]:
        """Open a node that is an array."""

    def open_array(self, path: str, may_be_empty: bool = False) -> RowReader[np.ndarray]:
        node = self._node(path)
        if node is None:
            raise no_such_array(self.name, path, self._array_paths())
        if not self._is_array(node):
            raise InputError(f'"{path}" in {self.name} is a group, expected an array')
        inside = "/".join(part for part in (self._group_path, path.strip("/")) if part)
        return self._open_node(node, f"{self._path.resolve().name}:{inside}", may_be_empty)

    def is_group(self, path: str) -> bool:
        node = self._node(path)
        return node is not None and not self._is_array(node)

    def stamps(self) -> list[Stamp]:
        return self._stamps


def chunk_ranges(
    reader: RowReader, start: int = 0, stop: int | None = None
) -> Iterator[tuple[int, int]]:
    """Cut the rows ``start`` to ``stop`` at the boundaries of the storage chunks."""
    stop = reader.shape[0] if stop is None else stop
    while start < stop:
        end = min(stop, (start // reader.chunk_rows + 1) * reader.chunk_rows)
        yield start, end
        start = end


def rows_per_step(n_rows: int, row_bytes: int) -> int:
    """Rows to read at a time from storage without chunks."""
    return max(1, min(n_rows, STEP_BYTES // max(1, row_bytes)))


def check_array(
    name: str, shape: tuple[int, ...], dtype: np.dtype, may_be_empty: bool = False
) -> None:
    """Raise InputError for arrays that no part of fcl can use, before anything is read."""
    if len(shape) not in (1, 2):
        raise InputError(
            f"{name} has {len(shape)} dimensions, shape {shape}; expected one or two, rows first"
        )
    if not all(0 <= n < 1 << 62 for n in shape):
        raise InputError(f"{name} has the shape {shown(shape)}; expected lengths below 2^62")
    if 0 in shape and not may_be_empty:
        raise InputError(
            f"{name} is empty, shape {shape}; expected at least one row and one column"
        )
    if dtype.kind == "O":
        raise InputError(
            f"{name} holds Python objects; expected numbers or text. Store it with a plain dtype, "
            "such as uint8 or a string type"
        )
    if dtype.kind not in "biufSUT":
        raise InputError(f"{name} has dtype {dtype}; expected numbers or text")


def is_missing(item: Any) -> bool:
    """Whether a Python object stands for a missing value: None, NaN, or NA and NaT of pandas."""
    if isinstance(item, float):
        return math.isnan(item)
    return item is None or type(item).__name__ in ("NAType", "NaTType")


def check_none_missing(name: str, items: Sequence[Any]) -> None:
    """Raise InputError if a value among numbers or texts is missing, which text cannot say."""
    missing = [row for row, item in enumerate(items) if is_missing(item)]
    others = {type(item) for item in items if not is_missing(item)}
    if missing and all(issubclass(kind, str | bytes | Number) for kind in others):
        raise InputError(
            f"{name}: row {missing[0]} is missing (NA), as are {len(missing)} of {len(items)} values; "
            "expected a value everywhere: drop these rows, or give them a value of their own"
        )


def fixed_text(values: np.ndarray, name: str) -> np.ndarray:
    """Convert text in Python objects or ``StringDType`` to a fixed-width ``U`` or ``S`` array."""
    items = values.ravel().tolist()
    letters = max(map(_length, items), default=0)
    what = f"{name}: {counted(len(items), 'text')} of up to {letters:,} letters need"
    allow(what, 4 * len(items) * letters)
    kinds = {type(item) for item in items}
    if not kinds <= {str} and not kinds <= {bytes}:
        check_none_missing(name, items)
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InputError(
            f"{name} holds Python objects ({found}); expected numbers or text. Convert it first, "
            "for instance with .astype(float) or .astype(str)"
        )
    return np.array(items, dtype="S" if kinds == {bytes} else "U").reshape(values.shape)


def _length(item: Any) -> int:
    return len(item) if isinstance(item, str | bytes) else 0


# Groups that count as one array: anndata stores sparse matrices and columns of tables in them.
ENCODED_GROUPS = (
    "csr_matrix",
    "csc_matrix",
    "categorical",
    "nullable-integer",
    "nullable-boolean",
    "nullable-string-array",
)


def array_names(nodes: Iterable[tuple[str, bool, Any]]) -> list[str]:
    """The names that ``open_data`` can open, among the nodes of a container.

    nodes : for each node its path, whether it is an array, and its attribute ``encoding-type``.
    """
    nodes = list(nodes)
    encoded = [path for path, is_array, kind in nodes if not is_array and kind in ENCODED_GROUPS]
    inside = tuple(path + "/" for path in encoded)
    return encoded + [
        path for path, is_array, _ in nodes if is_array and not path.startswith(inside)
    ]


def no_such_array(container: str, path: str, present: Iterable[str]) -> InputError:
    """The error for an array that does not exist; lists those that do, and suggests the nearest."""
    names = sorted(present)
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(path.lower(), list(by_lower), n=1)
    known = listed(names, 12, lambda name: f'"{name}"') or "no arrays at all"
    guess = f'; did you mean "{by_lower[near[0]]}"?' if near else ""
    return InputError(f'{container} has no array "{path}"; it holds {known}{guess}')


def one_line(error: BaseException) -> str:
    """An error of another library, cut to its first line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {shortened(lines[0], 400)}" if lines else type(error).__name__
