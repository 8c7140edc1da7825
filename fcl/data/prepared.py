"""Prepared rows: the compact form in which a family reads the data in every pass.

The data are decoded only once: each row block is kept as one record of fixed size, whose content the
family defines, and a few *side* arrays, such as the unknown letters or the entries of sparse rows. Both
are kept in memory, or in an unlinked scratch file. Records, or the same part of many records, are
read from the file with ``preadv`` into one reused buffer of the size of a record. Large side arrays of a
block are mapped while they are in use, so that only the pages that are touched are read. Mapped pages
count as memory of the process, so at most one block is mapped at a time. Small ones stay in memory.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fcl.data.record_buffer import RecordBuffer
from fcl.errors import InputError, reason

SideArrays = tuple[np.ndarray, ...]
#: Packed side arrays begin at multiples of this many bytes, so that any dtype is aligned.
ALIGNMENT = 64
#: Bytes of packed side arrays beyond the arrays, at most, for up to four arrays.
PACKING = 1 << 9
#: Bytes of a block's side arrays up to which they stay in memory, since mapping them takes long.
SMALL_SIDES = 1 << 12
#: Bytes of records up to which a file that was just written is taken to be in the page cache.
SMALL_FILE = 1 << 28


class PreparedRows:
    r"""Records and side arrays of row blocks, in memory or in a scratch file.

    n_rows, block_rows : number of rows, and rows per block (the last block may have fewer).
    record_shape : shape of the uint8 record of a block.
    scratch : None keeps everything in memory, a folder in an unlinked file there.
    records : uint8 (blocks, \*record_shape) or None, memory for the records that another object owns.
    file, file_start : descriptor of a file that another object owns, and the position of the records in
        it; it is not closed here.
    load_sides : returns the side arrays of a block that was prepared elsewhere. Large ones of a file are
        loaded again for each request.
    checksums : uint64 (blocks,) or None, checksums that another object owns; :meth:`commit` updates them
        in place.

    Raises InputError: the scratch folder has no room for the records, or cannot be written to.
    """

    def __init__(
        self,
        n_rows: int,
        block_rows: int,
        record_shape: tuple[int, ...],
        scratch: str | os.PathLike[str] | None = None,
        *,
        records: npt.NDArray[np.uint8] | None = None,
        file: int | None = None,
        file_start: int = 0,
        load_sides: Callable[[int], SideArrays] | None = None,
        checksums: npt.NDArray[np.uint64] | None = None,
    ) -> None:
        self._own_file = self._file = None
        self.n_rows = n_rows
        self.block_rows = block_rows
        self.record_shape = record_shape
        self.n_blocks = -(-n_rows // block_rows)
        self._record_bytes = int(np.prod(record_shape))
        self._end = self.n_blocks * self._record_bytes  # of our own file
        if scratch is not None:
            self._folder = Path(scratch)
            self._own_file = file = _allocate(self._folder, self._end)
        elif records is None and file is None:
            records = np.empty((self.n_blocks, *record_shape), np.uint8)
        self._records, self._file, self._file_start = records, file, file_start
        self._buffer = RecordBuffer(record_shape, self.n_blocks) if records is None else None
        self._load_sides = load_sides
        # of each block: the side arrays, or their position and bytes in our own file
        self._sides: list[SideArrays | None] = [None] * self.n_blocks
        self._places: dict[int, tuple[int, int]] = {}
        self._checksums = np.zeros(self.n_blocks, np.uint64) if checksums is None else checksums
        self._at_once = checksums is not None or file is not None  # else when they are asked for
        self._unsummed: set[int] = set()  # blocks without a checksum yet

    @property
    def checksums(self) -> npt.NDArray[np.uint64]:
        """Checksums of the prepared blocks, which show whether two reads gave the same rows: uint64.

        Those of blocks in memory are made when they are asked for.
        """
        for block in sorted(self._unsummed):
            assert self._records is not None
            self._checksums[block] = _checksum(self._records[block], self.sides(block))
        self._unsummed.clear()
        return self._checksums

    @property
    def in_memory(self) -> bool:
        return self._records is not None

    def rows_of(self, block: int) -> slice:
        start = block * self.block_rows
        return slice(start, min(start + self.block_rows, self.n_rows))

    def numbers(self, blocks: range | None) -> range:
        """The numbers of the given blocks; None: of all."""
        return range(self.n_blocks) if blocks is None else blocks

    def blocks(self) -> Iterator[tuple[int, slice]]:
        """Iterate over the numbers and row ranges of all blocks, in order."""
        return ((b, self.rows_of(b)) for b in range(self.n_blocks))

    def find(
        self, rows: npt.NDArray[np.int64]
    ) -> Iterator[tuple[int, npt.NDArray[np.intp], npt.NDArray[np.int64]]]:
        """Iterate over the blocks that contain some of these rows.

        Yields the number of a block, the positions in ``rows`` of the rows that it contains, and their
        positions in the block.
        """
        source = rows // self.block_rows
        for number in np.unique(source).tolist():
            here = np.flatnonzero(source == number)
            yield number, here, rows[here] - number * self.block_rows

    def writable(self, block: int) -> npt.NDArray[np.uint8]:
        """The zeroed record of a block, to be filled; call :meth:`commit` afterwards."""
        record = self._own_record(block)
        record[...] = 0
        return record

    def _own_record(self, block: int) -> npt.NDArray[np.uint8]:
        """The memory in which a record is prepared."""
        if self._buffer is not None:
            return self._buffer.record
        assert self._records is not None
        return self._records[block]

    def commit(self, block: int, sides: Sequence[np.ndarray]) -> None:
        """Save the record that :meth:`writable` returned, with its side arrays."""
        record = self._own_record(block)
        if self._at_once:
            self._checksums[block] = _checksum(record, sides)
        else:
            self._unsummed.add(block)
        if self._file is None:
            self._sides[block] = tuple(sides)
        else:
            at = self._file_start + block * self._record_bytes
            write_all(self._file, at, [record.data.cast("B")])
        if self._own_file is not None:
            at = -(-self._end // ALIGNMENT) * ALIGNMENT
            try:
                self._end = write_all(self._own_file, at, pack_sides(sides))
            except OSError as error:
                raise _no_room(self._folder, self._end, reason(error)) from error
            self._places[block] = (at, self._end - at)

    def read(
        self, block: int, part: slice = slice(None)
    ) -> tuple[npt.NDArray[np.uint8], SideArrays]:
        """Record and side arrays of a block.

        part : the range of the first axis that is needed. A record from a scratch file has arbitrary
            content outside this range, and is valid only until the next call.
        """
        sides = self.sides(block)
        if self._buffer is None:
            assert self._records is not None
            return self._records[block], sides
        first, stop, _ = part.indices(self.record_shape[0])
        return self._buffer.read(block, first, stop, self._fill), sides

    def _fill(self, block: int, start: int, view: memoryview) -> None:
        """Read some bytes of a record from the file."""
        assert self._file is not None
        at = self._file_start + block * self._record_bytes + start
        while view:
            got = os.preadv(self._file, [view], at)
            if got == 0:
                raise OSError(f"scratch file ended inside row block {block}")
            view, at = view[got:], at + got

    def together(self, blocks: range, part: slice) -> list[range]:
        """Split blocks into ranges, each of which should be read as often as needed before the next.

        If the records, or these parts of them, are in memory or fit in the buffer together, this is one
        range, which is read from the file once. Else the ranges are single blocks, so that what was read
        is used while it is in the caches of the core.

        part : the range of the first axis, as for :meth:`read`.
        """
        first, stop, _ = part.indices(self.record_shape[0])
        if self._buffer is None or len(blocks) <= self._buffer.places(first, stop):
            return [blocks]
        return [blocks[at : at + 1] for at in range(len(blocks))]

    def reader(self) -> PreparedRows:
        """The same rows for another thread: rows of a file need a buffer for each."""
        if self.in_memory:
            return self
        return PreparedRows(
            self.n_rows,
            self.block_rows,
            self.record_shape,
            file=self._file,
            file_start=self._file_start,
            load_sides=self.sides,
            checksums=self._checksums,
        )

    @property
    def at_hand(self) -> bool:
        """Whether the records are in memory, or in a file so small that the system keeps it there."""
        return self.in_memory or self.n_blocks * self._record_bytes <= SMALL_FILE

    def sides(self, block: int) -> SideArrays:
        """The side arrays of a block; large ones of a file are mapped as long as they exist."""
        sides = self._sides[block]
        if sides is not None:
            return sides
        if self._own_file is not None and block in self._places:
            sides = unpack_sides(map_file(self._own_file, *self._places[block]))
        elif self._load_sides is not None:
            sides = self._load_sides(block)
        else:
            raise AssertionError(f"row block {block} was never prepared")
        if self.in_memory:
            self._sides[block] = sides
        elif sum(side.nbytes for side in sides) <= SMALL_SIDES:
            sides = tuple(side.copy() for side in sides)  # a view would keep the file mapped
            self._sides[block] = sides
        return sides

    def forget_sides(self, block: int) -> None:
        """Free the side arrays of a block, which ``load_sides`` returns from now on."""
        self._sides[block] = None

    def side_bytes(self) -> npt.NDArray[np.int64]:
        """Bytes of the side arrays of each block, int64 (n_blocks,)."""
        sizes = [sum(a.nbytes for a in self.sides(b)) for b in range(self.n_blocks)]
        return np.array(sizes, np.int64)

    def close(self) -> None:
        """Free the records and close the file; the object cannot be used afterwards."""
        self._records = self._file = None
        if self._own_file is not None:
            os.close(self._own_file)
        self._own_file = None

    def __del__(self) -> None:
        self.close()


class Readers:
    """Prepared rows that threads read at the same time."""

    def __init__(self, prepared: PreparedRows) -> None:
        self._prepared, self._idle = prepared, [prepared]

    @contextmanager
    def one(self) -> Iterator[PreparedRows]:
        """The rows, for one thread at a time."""
        if self._prepared.in_memory:
            yield self._prepared
            return
        try:
            own = self._idle.pop()
        except IndexError:
            own = self._prepared.reader()
        try:
            yield own
        finally:
            self._idle.append(own)


def write_all(file: int, at: int, parts: Iterable[bytes | memoryview]) -> int:
    """Write buffers of bytes one after the other into a file from a position on; returns the end."""
    for part in parts:
        view = memoryview(part)
        while view:
            written = os.pwrite(file, view, at)
            view, at = view[written:], at + written
    return at


def map_file(file: int, at: int, size: int) -> npt.NDArray[np.uint8]:
    """Map a range of a file; the mapping lives as long as the array."""
    skipped = at % mmap.ALLOCATIONGRANULARITY
    mapped = mmap.mmap(file, skipped + size, offset=at - skipped)
    return np.frombuffer(mapped, np.uint8, size, skipped)


def pack_sides(sides: Sequence[np.ndarray]) -> list[bytes | memoryview]:
    """Buffers that together encode one-dimensional side arrays, for :func:`unpack_sides`."""
    header = json.dumps([[array.dtype.str, len(array)] for array in sides]).encode("ascii")
    header += b" " * (-len(header) % ALIGNMENT)
    parts: list[bytes | memoryview] = [len(header).to_bytes(ALIGNMENT, "little"), header]
    for array in sides:
        parts += [
            np.ascontiguousarray(array).view(np.uint8).data,
            b"\0" * (-array.nbytes % ALIGNMENT),
        ]
    return parts


def unpack_sides(data: npt.NDArray[np.uint8]) -> SideArrays:
    """The side arrays of :func:`pack_sides`, as views of the bytes."""
    start = ALIGNMENT + int.from_bytes(data[:ALIGNMENT].tobytes(), "little")
    arrays = []
    for dtype, count in json.loads(data[ALIGNMENT:start].tobytes()):
        size = np.dtype(dtype).itemsize * count
        arrays.append(data[start : start + size].view(dtype))
        start += size + -size % ALIGNMENT
    return tuple(arrays)


def _checksum(record: np.ndarray, sides: Sequence[np.ndarray]) -> int:
    """CRC-32 of a record in the high 32 bits, and of its side arrays in the low 32 bits."""
    side = 0
    for array in sides:
        side = zlib.crc32(np.ascontiguousarray(array).data, side)
    return zlib.crc32(record.data) << 32 | side


def check_room(folder: Path, size: int) -> None:
    """Raise InputError if the disk of the scratch folder has less room than ``size`` bytes."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:  # the error of the first file says more
        return
    if free < size:
        raise _no_room(folder, size, f"{free / 2**20:.0f} MiB")


def _allocate(folder: Path, size: int) -> int:
    """Open, unlink and allocate a scratch file, so that a full disk is noticed before the run."""
    try:
        handle, path = tempfile.mkstemp(prefix="fcl-scratch-", dir=folder)
    except OSError as error:
        raise InputError(
            f"scratch folder {folder}: cannot create a file ({error.strerror}); "
            "name another folder with --scratch"
        ) from error
    try:
        os.unlink(path)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, max(size, 1))
        else:
            os.truncate(handle, size)
    except OSError as error:
        os.close(handle)
        raise _no_room(folder, size, reason(error)) from error
    return handle


def _no_room(folder: Path, size: int, got: str) -> InputError:
    return InputError(
        f"scratch folder {folder}: expected room for {size / 2**20:.0f} MiB of prepared rows, "
        f"got {got}; make room or name another folder with --scratch"
    )
