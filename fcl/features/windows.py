"""Base class of the families over windows of letters: reads, packs and unpacks their rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.arrays import Arrays, zeros
from fcl.data.prepared import PreparedRows
from fcl.data.sequences import SequenceReader
from fcl.errors import InputError
from fcl.features.base import Family
from fcl.types import Ids
from fcl.units import counted

if TYPE_CHECKING:
    from fcl.data.base import RowReader
    from fcl.data.sequences import SequenceReader
    from fcl.kernels.kmers import WindowBlock, WindowBuffers

#: Letters that are packed at a time: they stay in the cache of the core.
_PACKED_LETTERS = 1 << 17
#: Letters of patterns, indexed by their digit; the last is the wildcard.
LETTERS = "ACGT."


@cache
def _block_class() -> type[kernels.kmers.WindowBlock]:
    """The class of blocks, which is imported once: an import takes as long as making a block."""
    return kernels.kmers.WindowBlock


def window_length(rows: RowReader, d: int, name: str) -> int:
    """Letters per window of a data set; InputError if there are fewer than d."""
    length = SequenceReader(rows).length
    if length < d:
        raise InputError(
            f"{rows.name}: windows of {counted(length, 'letter')} are shorter than d = {d}; "
            f"choose {name}:d={length} or less"
        )
    return length


def window_reader(
    rows: RowReader,
    length: int,
    keep: npt.NDArray[np.bool_] | None = None,
    takes_shorter: bool = False,
) -> SequenceReader:
    """A reader of the kept rows of a data set; InputError unless windows have ``length`` letters."""
    reader = SequenceReader(rows, keep=keep)
    if reader.length > length or (reader.length < length and not takes_shorter):
        raise InputError(
            f"{rows.name}: windows of {counted(reader.length, 'letter')}, but the features are made for "
            f"windows of {length}"
        )
    return reader


def pattern_text(code: int, d: int, radix: int) -> str:
    """The letters of a pattern, without trailing wildcards, from its code in base ``radix``."""
    letters = ""
    for _ in range(d):
        code, digit = divmod(code, radix)
        letters = LETTERS[digit] + letters
    return letters.rstrip(".")


def pattern_code(name: str, pattern: str, d: int, radix: int) -> int:
    """The code of a pattern such as ``"TT.AG"``; with radix 5 it may have fewer than d letters."""
    padded = pattern.upper().replace("U", "T")
    wanted = f"{d} letters of ACGT"
    if radix == 5:
        padded = padded.ljust(d, ".")
        wanted = f"at most {d} letters of ACGT or '.', the first not '.'"
    if len(padded) != d or not set(padded) <= set(LETTERS[:radix]) or padded[0] == ".":
        raise InputError(f"{name}: expected {wanted}, got {pattern!r}")
    code = 0
    for letter in padded:
        code = code * radix + LETTERS.index(letter)
    return code


def found_by(texts: Sequence[str], form: re.Pattern[str], number: Callable[..., int]) -> Ids:
    """The features whose descriptions have a form, -1 for other texts, int64 (k,).

    number : called with the groups of the form; returns an id, or raises InputError.
    """
    out = np.full(len(texts), -1, np.int64)
    for at, text in enumerate(texts):
        match = form.fullmatch(text.strip())
        with suppress(InputError):
            out[at] = -1 if match is None else number(*match.groups())
    return out


def window_rows(n_rows: int) -> Arrays:
    """The buffers of a window that have a number for each row."""
    return Arrays(("u4", n_rows, "masks"), ("i4", n_rows, "rows"))


def window_buffers(n_rows: int) -> kernels.kmers.WindowBuffers:
    """Buffers for blocks of up to ``n_rows`` rows."""
    codes, sums = np.empty(kernels.kmers.CHUNK, np.uint32), np.empty(kernels.kmers.CHUNK)
    return kernels.kmers.WindowBuffers(codes, sums, **window_rows(n_rows).allocate(zeros))


def buffers_for(block: WindowBlock) -> WindowBuffers:
    """Buffers for one block; without unknown letters only codes are needed."""
    return window_buffers(block.n_rows if len(block.unknown_rows) else 0)


class WindowFamily(Family):
    """A family of patterns of d letters over windows of ``length``; records hold 2 bits per letter."""

    d: int
    length: int
    takes_shorter = False  #: whether shorter sequences may be filled up with unknown letters
    row_kind = "sequences"
    quick_passes = True

    @property
    def row_width(self) -> int:
        return self.length

    @property
    def record_key(self) -> object:
        return ("letters", self.length)

    @property
    def n_positions(self) -> int:
        """Number of positions of a pattern in a window."""
        return self.length - self.d + 1

    def read_rows(
        self,
        rows: RowReader,
        block_rows: int,
        keep: npt.NDArray[np.bool_] | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> Iterator[tuple[int, int, np.ndarray]]:
        reader = window_reader(rows, self.length, keep, self.takes_shorter)
        return reader.iter_codes(block_rows, first, last, self.length)

    def check_rows(self, rows: RowReader) -> None:
        window_reader(rows, self.length, takes_shorter=self.takes_shorter)

    def record_shape(self, block_rows: int) -> tuple[int, ...]:
        return (-(-self.length // 4), block_rows)

    def prepare(
        self, raw: np.ndarray, record: npt.NDArray[np.uint8], block_rows: int
    ) -> Sequence[np.ndarray]:
        _pack_planes(raw, record)
        start = np.zeros(self.length + 1, np.int64)
        unknown = np.empty(0, np.int32)
        if raw.max(initial=0) > 3:
            kernels.kmers.list_unknown(raw, start, unknown)
            unknown = np.empty(int(start[-1]), np.int32)
            kernels.kmers.list_unknown(raw, start, unknown)
        return (start, unknown)

    def most_side_bytes(self, entries: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where the unknown letters of each position begin; the letters are known once they are read."""
        return np.full(len(entries), 8 * (self.length + 1), np.int64)

    def block(
        self, prepared: PreparedRows, number: int, letters: slice = slice(None)
    ) -> WindowBlock:
        """One prepared block, or at least the given range of its letters.

        A block from a scratch file may hold no other letters, and is valid until the next is read.
        """
        record, (start, unknown) = prepared.read(number, self._planes(letters))
        rows = prepared.rows_of(number)
        return _block_class()(record, start, unknown, rows.start, rows.stop - rows.start)

    def together(self, prepared: PreparedRows, blocks: range, letters: slice) -> list[range]:
        """Split blocks into ranges; see :meth:`PreparedRows.together`."""
        return prepared.together(blocks, self._planes(letters))

    def _planes(self, letters: slice) -> slice:
        """The planes that hold a range of letters."""
        first, stop, _ = letters.indices(self.length)
        return slice(first // 4, -(-stop // 4))

    def block_of(self, raw: np.ndarray) -> WindowBlock:
        """Prepare raw rows as one block."""
        record = np.zeros(self.record_shape(len(raw)), np.uint8)
        start, unknown = self.prepare(raw, record, len(raw))
        return _block_class()(record, start, unknown, 0, len(raw))

    def select(self, prepared: PreparedRows, rows: Ids, chosen: PreparedRows, number: int) -> None:
        wanted = rows[chosen.rows_of(number)]
        raw = np.empty((len(wanted), self.length), np.uint8)
        for source, here, own in prepared.find(wanted):
            raw[here] = self._letters(self.block(prepared, source), own)
        sides = self.prepare(raw, chosen.writable(number), chosen.block_rows)
        chosen.commit(number, sides)

    def _letters(self, block: WindowBlock, rows: Ids) -> npt.NDArray[np.uint8]:
        """Letters, as codes 0-4, of some rows of a prepared block: uint8 (len(rows), L)."""
        planes = block.planes[:, rows].T
        letters = np.stack([planes >> s & 3 for s in (6, 4, 2, 0)], axis=2)
        codes = letters.reshape(len(rows), -1)[:, : self.length]
        lookup = np.full(block.n_rows, -1, np.int64)
        lookup[rows] = np.arange(len(rows))
        column = np.repeat(np.arange(self.length), np.diff(block.unknown_start))
        at = lookup[block.unknown_rows]
        codes[at[at >= 0], column[at >= 0]] = 4
        return codes


def _pack_planes(codes: npt.NDArray[np.uint8], planes: npt.NDArray[np.uint8]) -> None:
    """Write the 2-bit planes of a block of rows to ``planes``; unknown letters (code 4) become 0.

    codes : uint8 (m, L), 0-4.
    planes : uint8 (ceil(L / 4), >= m).
    """
    n_rows, length = codes.shape
    n_planes = -(-length // 4)
    step = max(1, _PACKED_LETTERS // length)
    padded = np.zeros((min(n_rows, step), 4 * n_planes), np.uint8)
    for start in range(0, n_rows, step):
        part = codes[start : start + step]
        padded[: len(part), :length] = part
        four = padded[: len(part)].view("<u4") & np.uint32(0x03030303)
        # moves four letters from 8 bits each to 2 bits each in the highest byte, the first one on top
        four *= np.uint32(1 << 30 | 1 << 20 | 1 << 10 | 1)
        four >>= np.uint32(24)
        planes[:n_planes, start : start + len(part)] = four.astype(np.uint8).T
