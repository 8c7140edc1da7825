"""Lines of BED, narrowPeak and tables of sites as columns, slice by slice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fcl.checks import shown
from fcl.convert.cells import find_column
from fcl.convert.files import InputFile
from fcl.convert.rereading import complete_lines
from fcl.errors import InputError
from fcl.types import Ints

_SKIPPED = re.compile(rb"#|(track|browser)(\s|$)")
#: Bytes at the beginning of a line that may have to be skipped.
_SPECIAL = np.isin(np.arange(256), list(b"#tb \t\n\v\f\r"))
_INTEGER = re.compile(rb"[-+]?[0-9]{1,18}")
_BED = ("chrom", "start", "end", "name", "score", "strand")
#: narrowPeak has so many columns; the last one is the summit, counted from the start
_PEAK_COLUMNS = 10
_ALIASES = {"chr": "chrom", "chromosome": "chrom", "seqname": "chrom"} | {
    "chromstart": "start",
    "chromend": "end",
    "stop": "end",
    "peak": "summit",
}
#: NUL bytes before the first line, so that each cell has a word of 8 bytes that ends with it.
_WORD = 8
#: Columns that a line has at most.
_MOST_COLUMNS = 1000
#: Bytes that a line has at most.
_MOST_LINE = 16 << 20


@dataclass(frozen=True)
class Intervals:
    """The lines of a slice.

    lines : int64 (m,), line numbers, from 1.
    start, end : int64 (m,), 0 <= start < end.
    """

    file: InputFile
    lines: Ints
    start: Ints
    end: Ints
    _cells: BedCells
    _columns: BedColumns

    def __len__(self) -> int:
        return len(self.lines)

    def has(self, name: str) -> bool:
        """Whether there is a column ``name``, ``strand`` or ``summit``."""
        return name in self._columns.places

    def text(self, column: str) -> list[str]:
        """The cells of a column."""
        # one text is decoded many times as fast as its cells
        return (
            b"\n".join(self._cells.words(self.find(column))).decode("utf-8", "replace").split("\n")
        )

    def distinct(self, column: str, rows: np.ndarray | None = None) -> tuple[list[str], Ints]:
        """The distinct cells of a column in some of the rows, and which of them each row has."""
        words, codes = self._cells.distinct(self.find(column), rows)
        return [word.decode("utf-8", "replace") for word in words], codes

    def integers(self, column: str) -> Ints:
        """The integers of a column."""
        return _integers(self.file, self.lines, self._cells, self._columns, column)

    def find(self, column: str) -> int:
        """Index of the column that an option names, by its name or its number from 1."""
        header = self._columns.header
        places = self._columns.places
        name = _ALIASES.get(column.lower(), column.lower())
        if name in places:
            return places[name]
        first = header or [str(number) for number in range(1, self._columns.number + 1)]
        return find_column(self.file.name, first, column)[0]

    def where(self, row: int) -> str:
        """File and line of a row."""
        return f"{self.file.name}: line {self.lines[row]}"


@dataclass(frozen=True)
class BedCells:
    """The cells of m lines.

    text : the lines, behind ``_WORD`` NUL bytes.
    ends : where each cell ends, int64 (m, columns).
    """

    text: bytes
    ends: Ints

    def bounds(self, at: int) -> tuple[Ints, Ints]:
        """Where the cells of a column begin and end."""
        if at:
            return self.ends[:, at - 1] + 1, self.ends[:, at]
        return np.concatenate([[_WORD], self.ends[:-1, -1] + 1]), self.ends[:, 0]

    def words(self, at: int, rows: np.ndarray | None = None) -> list[bytes]:
        """The cells of a column."""
        first, end = (bound if rows is None else bound[rows] for bound in self.bounds(at))
        return [self.text[i:j] for i, j in zip(first.tolist(), end.tolist(), strict=True)]

    def keys(self, end: Ints, width: Ints) -> np.ndarray:
        """The last ``width`` bytes, 0 to 8, before ``end`` as uint64, in the high bytes."""
        found = np.lib.stride_tricks.sliding_window_view(np.frombuffer(self.text, np.uint8), _WORD)
        shift = (64 - 8 * width).astype(np.uint64)  # a shift by 64 gives 0
        return found[end - _WORD].view("<u8")[:, 0] >> shift << shift

    def distinct(self, at: int, rows: np.ndarray | None) -> tuple[list[bytes], Ints]:
        """The distinct cells of a column, and which of them each row has."""
        first, end = (bound if rows is None else bound[rows] for bound in self.bounds(at))
        width = end - first
        if width.max(initial=0) > _WORD:
            words = self.words(at, rows)
            place = {word: i for i, word in enumerate(dict.fromkeys(words))}
            return list(place), np.fromiter(map(place.__getitem__, words), np.int64, len(words))
        keys = self.keys(end, width)
        if len(keys) and (keys == keys[0]).all():  # as in files sorted by contig
            where, codes = np.zeros(1, np.int64), np.zeros(len(keys), np.int64)
        else:
            _, where, codes = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(where)  # as they appear
        bounds = zip(first[where[order]].tolist(), end[where[order]].tolist(), strict=True)
        return [self.text[i:j] for i, j in bounds], np.argsort(order)[codes]

    def integers(self, at: int) -> Ints | None:
        """The numbers of a column of 1 to 16 digits; None if it has other cells."""
        first, end = self.bounds(at)
        width = end - first
        if width.min(initial=1) < 1 or width.max(initial=1) > 2 * _WORD:
            return None
        low = _eight_digits(self.keys(end, np.minimum(width, _WORD)), np.minimum(width, _WORD))
        if low is None or width.max(initial=1) <= _WORD:
            return low
        long = np.flatnonzero(width > _WORD)
        high = _eight_digits(self.keys(end[long] - _WORD, width[long] - _WORD), width[long] - _WORD)
        if high is None:
            return None
        low[long] += high * 10**_WORD
        return low


def _eight_digits(keys: np.ndarray, width: Ints) -> Ints | None:
    """The numbers that keys of ``width`` digits hold, several digits at once; None for other keys."""
    zeros = np.uint64(0x3030303030303030)
    shift = (64 - 8 * width).astype(np.uint64)
    digits = (keys ^ zeros) >> shift << shift
    above_9 = digits + np.uint64(0x7676767676767676) | digits
    if (above_9 & np.uint64(0x8080808080808080)).any():
        return None
    for factor, bits, mask in (
        (10, 8, 0x00FF00FF00FF00FF),
        (100, 16, 0x0000FFFF0000FFFF),
        (10_000, 32, 0x00000000FFFFFFFF),
    ):
        digits = digits * np.uint64((factor << bits) + 1) >> np.uint64(bits) & np.uint64(mask)
    return digits.astype(np.int64)


@dataclass(frozen=True)
class BedColumns:
    """The columns of a file: their number, their places by name, and the header, if there is one."""

    number: int
    places: dict[str, int]
    header: list[str] | None

    @classmethod
    def of(cls, file: InputFile, line: int, first: bytes) -> BedColumns:
        """Find out the columns from the first line that is no comment."""
        cells = [cell.decode("utf-8", "replace").strip() for cell in first.split(b"\t")]
        if not 3 <= len(cells) <= _MOST_COLUMNS:
            mark = next((each for each in ",;" if first.count(each.encode()) >= 2), None)
            advice = f"; write tabs in place of {mark!r} between the columns" if mark else ""
            raise InputError(
                f"{file.name}: line {line}: expected at least 3 columns (contig, start, end), "
                f"separated by tabs, got {len(cells)}{advice}"
            )
        if _is_integer(cells[1]) or _is_integer(cells[2]):
            places = {name: at for at, name in enumerate(_BED[: len(cells)])}
            if len(cells) == _PEAK_COLUMNS:
                places["summit"] = _PEAK_COLUMNS - 1
            return cls(len(cells), places, None)
        lower = [cell.lower() for cell in cells]
        places = {_ALIASES.get(cell, cell): at for at, cell in enumerate(lower)}
        missing = [name for name in _BED[:3] if name not in places]
        if missing:
            raise InputError(
                f"{file.name}: line {line}: expected contig, start and end, or a header with "
                f"chrom, start and end, got {shown(cells[:6])}"
            )
        return cls(len(cells), places, cells)


def read_intervals(file: InputFile, slice_bytes: int) -> Iterator[Intervals]:
    """Read the lines of a file in slices; comments, ``track`` and ``browser`` lines are skipped."""
    columns: BedColumns | None = None
    file.check_lines()
    for number, text in complete_lines(
        file, slice_bytes, _MOST_LINE, "is this a file of intervals?"
    ):
        body, lines = _body(file, text if text.endswith(b"\n") else text + b"\n", number)
        if len(lines) and columns is None:
            first, _, others = body.partition(b"\n")
            columns = BedColumns.of(file, int(lines[0]), first)
            if columns.header is not None:
                body, lines = others, lines[1:]
        if len(lines) and columns is not None:
            yield _parse(file, body, lines, columns)


def _body(file: InputFile, text: bytes, first_line: int) -> tuple[bytes, Ints]:
    """The lines to parse, and their numbers."""
    if b"\0" in text:
        line = first_line + text.count(b"\n", 0, text.index(b"\0"))
        raise InputError(f"{file.name}: line {line}: expected text in UTF-8, got a NUL byte")
    text = text.replace(b"\r\n", b"\n")
    letters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(letters == ord("\n"))
    lines = np.arange(first_line, first_line + len(ends))
    begins = letters[np.concatenate([[0], ends[:-1] + 1])] if len(ends) else letters
    if b"\t" not in text or _SPECIAL[begins].any():
        split = text.split(b"\n")[:-1]
        keep = [i for i, each in enumerate(split) if each.strip() and not _SKIPPED.match(each)]
        lines = lines[keep]
        kept = (split[i] for i in keep)
        text = b"".join(
            (each if b"\t" in each else b"\t".join(each.split())) + b"\n" for each in kept
        )
    return text, lines


def _parse(file: InputFile, body: bytes, lines: Ints, columns: BedColumns) -> Intervals:
    number = columns.number
    text = bytes(_WORD) + body
    letters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero((letters == ord("\t")) | (letters == ord("\n")))
    if len(ends) != number * len(lines) or (letters[ends[number - 1 :: number]] != ord("\n")).any():
        for line, each in zip(lines.tolist(), body.split(b"\n"), strict=False):
            if each.count(b"\t") != number - 1:
                raise InputError(
                    f"{file.name}: line {line}: expected {number} columns, as in the first line, got "
                    f"{each.count(bytes([9])) + 1}"
                )
    cells = BedCells(text, ends.reshape(-1, number))
    start = _integers(file, lines, cells, columns, "start")
    end = _integers(file, lines, cells, columns, "end")
    for wrong, rule in ((start < 0, "start >= 0"), (end <= start, "end > start")):
        if wrong.any():
            at = int(wrong.argmax())
            raise InputError(
                f"{file.name}: line {lines[at]}: expected {rule}, got start {start[at]}, end {end[at]}; "
                "BED counts from 0, and the end is the first base behind the interval"
            )
    return Intervals(file, lines, start, end, cells, columns)


def _integers(
    file: InputFile, lines: Ints, cells: BedCells, columns: BedColumns, name: str
) -> Ints:
    numbers = cells.integers(columns.places[name])
    if numbers is not None:
        return numbers
    words = [word.strip() for word in cells.words(columns.places[name])]
    for line, word in zip(lines.tolist(), words, strict=True):
        if not _INTEGER.fullmatch(word):
            raise InputError(
                f"{file.name}: line {line}: expected an integer {name}, got "
                f"{shown(word.decode('utf-8', 'replace'))}"
            )
    return np.array([int(word) for word in words], np.int64)


def _is_integer(text: str) -> bool:
    return text.isascii() and _INTEGER.fullmatch(text.strip().encode()) is not None
