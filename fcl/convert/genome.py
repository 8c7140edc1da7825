"""A genome as codes in a scratch file, from which windows are cut."""

from __future__ import annotations

import mmap
import tempfile
from dataclasses import dataclass
from typing import IO

import numpy as np

from fcl.convert.contract import TEXT_BYTES, Budget
from fcl.convert.files import InputFile, named_twice
from fcl.convert.letters import Codes, reverse_complement
from fcl.convert.records import pieces
from fcl.data.sequences import UNKNOWN
from fcl.errors import InputError
from fcl.types import Ints
from fcl.units import counted

_SLICE_BYTES = 4 << 20
#: Bytes that Linux maps around an address that is read.
_FAULT_BYTES = 1 << 16
_TWO_BIT = (b"\x43\x27\x41\x1a", b"\x1a\x41\x27\x43")


@dataclass(frozen=True)
class Windows:
    """m windows of one length.

    contig : int64 (m,), numbers of contigs.
    first : int64 (m,), first base in the contig, from 0; may lie outside.
    reverse : bool (m,), whether the window is read from the reverse strand.
    """

    contig: Ints
    first: Ints
    reverse: np.ndarray

    def select(self, index: np.ndarray | slice) -> Windows:
        """Some of the windows, by number or range."""
        return Windows(self.contig[index], self.first[index], self.reverse[index])


class Genome:
    """The contigs of a FASTA file, one after the other in a scratch file of one byte a base.

    names : name of a contig -> its number.
    lengths : int64 (contigs,)
    """

    def __init__(self, file: InputFile, budget: Budget) -> None:
        if file.head[:4] in _TWO_BIT:
            raise InputError(
                f"{file.name} is a 2bit file; expected FASTA: convert it with twoBitToFa"
            )
        self.file_name = file.name
        self.names: dict[str, int] = {}
        with tempfile.TemporaryFile(dir=budget.scratch) as scratch:
            starts = self._write(file, budget, scratch)
            scratch.flush()
            if not starts[-1]:
                raise InputError(f"{file.name}: expected contigs with letters, found none")
            self._map = mmap.mmap(scratch.fileno(), int(starts[-1]), access=mmap.ACCESS_READ)
        self._starts, self.lengths = starts[:-1], np.diff(starts)
        self._codes = np.frombuffer(self._map, np.uint8)
        self._mapped = budget.total // 4
        self._copied = 0  # bytes by letters() since the mapped pages were discarded

    def _write(self, file: InputFile, budget: Budget, scratch: IO[bytes]) -> Ints:
        """Write the codes; returns where each contig begins, and the end."""
        lines: list[int] = []
        starts: list[int] = []
        end = 0
        for piece in pieces(file, min(budget.block, _SLICE_BYTES)):
            scratch.write(piece.continued.data)
            scratch.write(piece.codes.data)
            end += len(piece.continued)
            for header, line in zip(piece.headers, piece.lines().tolist(), strict=True):
                name = (header.split() or [b""])[0].decode("utf-8", "replace")
                if name in self.names:
                    raise named_twice(file.name, "contig", name, lines[self.names[name]], line)
                self.names[name] = len(lines)
                lines.append(line)
            budget.check(
                f"{file.name}: the names of {counted(len(lines), 'contig')}",
                TEXT_BYTES * len(lines),
            )
            starts += (end + np.cumsum(piece.lengths) - piece.lengths).tolist()
            end += len(piece.codes)
        return np.array([*starts, end], np.int64)

    def inside(self, windows: Windows, length: int) -> np.ndarray:
        """Whether windows of this length lie inside their contigs, bool (m,)."""
        last = self.lengths[windows.contig] - length
        return (windows.first >= 0) & (windows.first <= last)

    def cut(self, windows: Windows, length: int) -> Codes:
        """Cut windows of this length; bases outside a contig are unknown."""
        inside = self.inside(windows, length)
        first = self._starts[windows.contig] + windows.first
        if inside.all():
            rows = self._cut(first, length)
        else:
            rows = np.empty((len(first), length), np.uint8)
            rows[inside] = self._cut(first[inside], length)
            for row in np.flatnonzero(~inside).tolist():
                begin = int(windows.first[row])
                rows[row] = self.letters(int(windows.contig[row]), begin, begin + length)
        if windows.reverse.any():
            rows[windows.reverse] = reverse_complement(rows[windows.reverse])
        return rows

    def filled(self, windows: Windows, length: int) -> Ints:
        """How many bases of each window of this length lie outside its contig, int64 (m,)."""
        return letters_outside(windows.first, length, self.lengths[windows.contig])

    def letters(self, contig: int, first: int, stop: int) -> Codes:
        """Codes of the bases ``first`` to ``stop`` of a contig, copied; unknown outside the contig."""
        found = np.full(max(0, stop - first), UNKNOWN, np.uint8)
        low, high = max(first, 0), min(stop, int(self.lengths[contig]))
        if low < high:
            start = int(self._starts[contig])
            found[low - first : high - first] = self._codes[start + low : start + high]
            self._discard_pages(high - low)
        return found

    def _discard_pages(self, copied: int) -> None:
        """Count bytes that were copied, and discard mapped pages before they exceed their share."""
        self._copied += copied + _FAULT_BYTES
        if self._copied > self._mapped:
            self._map.madvise(mmap.MADV_DONTNEED)
            self._copied = 0

    def _cut(self, first: Ints, length: int) -> Codes:
        """Cut windows inside the genome; mapped pages, which count as memory, stay in the budget."""
        if not len(first):
            return np.empty((0, length), np.uint8)
        views = np.lib.stride_tricks.sliding_window_view(self._codes, length)
        if len(self._codes) <= self._mapped:
            return views[first]
        rows = np.empty((len(first), length), np.uint8)
        order = np.argsort(first, kind="stable")
        pages = np.cumsum(np.diff(first[order] // _FAULT_BYTES, prepend=-1) > 0)
        part = pages // max(1, self._mapped // _FAULT_BYTES)
        for some in np.split(order, np.flatnonzero(np.diff(part)) + 1):
            rows[some] = views[first[some]]
            self._map.madvise(mmap.MADV_DONTNEED)
        return rows


def letters_outside(first: Ints, length: int, contig_length: Ints | int) -> Ints:
    """How many letters of windows that begin at these bases lie outside their contigs, int64 (m,)."""
    inside = np.minimum(first + length, contig_length) - np.maximum(first, 0)
    return length - np.maximum(inside, 0)
