"""Lines of BED, narrowPeak and tables of sites as columns, slice by slice."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fcl.checks import shown
from fcl.convert.files import InputFile
from fcl.convert.labels import find_column
from fcl.convert.letters import Ints
from fcl.errors import InputError

__all__ = ["Intervals", "read_intervals"]

_SKIPPED = (b"#", b"track", b"browser")
_BED = ("chrom", "start", "end", "name", "score", "strand")
#: narrowPeak has so many columns; the last one is the summit, counted from the start
_PEAK_COLUMNS = 10
_ALIASES = {"chr": "chrom", "chromosome": "chrom", "seqname": "chrom"} | {
    "chromstart": "start",
    "chromend": "end",
    "stop": "end",
    "peak": "summit",
}
#: Columns that a line has at most.
_MOST_COLUMNS = 1000


@dataclass(frozen=True)
class Intervals:
    """The lines of a slice.

    Attributes
    ----------
    file : InputFile
    lines : int64 (m,)
        Line numbers, from 1.
    start, end : int64 (m,)
        0 <= start < end.
    """

    file: InputFile
    lines: Ints
    start: Ints
    end: Ints
    _cells: list[bytes]
    _columns: Columns

    def __len__(self) -> int:
        return len(self.lines)

    def has(self, name: str) -> bool:
        """Whether there is a column ``name``, ``strand`` or ``summit``."""
        return name in self._columns.places

    def text(self, column: str | int) -> list[str]:
        """The cells of a column, by its name or its index from 0."""
        at = column if isinstance(column, int) else self._columns.places[column]
        cells = self._cells[at :: self._columns.number]
        separator = b"" if at == self._columns.number - 1 else b"\n"
        return separator.join(cells).decode("utf-8", "replace").removesuffix("\n").split("\n")

    def letters(self, column: str, alphabet: str) -> np.ndarray:
        """Indices of the letters of a column in an alphabet, int8 (m,); -1 for other cells."""
        words = self.text(column)
        code = np.full(256, -1, np.int8)
        code[list(alphabet.encode())] = np.arange(len(alphabet))
        joined = np.frombuffer("\n".join([*words, ""]).encode(), np.uint8)
        if len(joined) == 2 * len(words) and (joined[1::2] == ord("\n")).all():
            return code[joined[::2]]
        return np.array(
            [code[ord(w)] if len(w) == 1 and w.isascii() else -1 for w in words], np.int8
        )

    def integers(self, column: str) -> Ints:
        """The integers of a column."""
        return _integers(self.file, self.lines, self._cells, self._columns, column)

    def find(self, column: str) -> int:
        """Index of the column that an option names, by its name or its number from 1."""
        header = self._columns.header
        places = self._columns.places
        if column.lower() in places:
            return places[column.lower()]
        first = header or [str(number) for number in range(1, self._columns.number + 1)]
        return find_column(self.file.name, first, column)[0]

    def where(self, row: int) -> str:
        """File and line of a row."""
        return f"{self.file.name}: line {self.lines[row]}"


@dataclass(frozen=True)
class Columns:
    """The columns of a file: their number, their places by name, and the header, if there is one."""

    number: int
    places: dict[str, int]
    header: list[str] | None

    @classmethod
    def of(cls, file: InputFile, line: int, first: bytes) -> Columns:
        """Find out the columns from the first line that is no comment."""
        cells = [cell.decode("utf-8", "replace").strip() for cell in first.split(b"\t")]
        if not 3 <= len(cells) <= _MOST_COLUMNS:
            raise InputError(
                f"{file.name}: line {line}: expected at least 3 columns (contig, start, end), "
                f"separated by tabs, got {len(cells)}"
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
    """Read the lines of a file in slices; comments, ``track`` and ``browser`` lines are skipped.

    Raises
    ------
    InputError
        A line has another number of columns than the first one, or start and end are not integers
        0 <= start < end; the message names file and line.
    """
    columns: Columns | None = None
    line, carry = 1, b""
    for data in itertools.chain(file.slices(slice_bytes), (b"\n",)):
        text, _, rest = (carry + data).rpartition(b"\n")
        carry = rest
        count = text.count(b"\n") + 1
        body, lines = _body(text, line)
        line += count
        if len(lines) and columns is None:
            first, _, others = body.partition(b"\n")
            columns = Columns.of(file, int(lines[0]), first)
            if columns.header is not None:
                body, lines = others, lines[1:]
        if len(lines) and columns is not None:
            yield _parse(file, body, lines, columns)


def _body(text: bytes, first_line: int) -> tuple[bytes, Ints]:
    """The lines to parse, without the last line end, and their numbers."""
    text = text.replace(b"\r", b"")
    lines = np.arange(first_line, first_line + text.count(b"\n") + 1)
    if (
        b"\t" not in text
        or b"\n\n" in text
        or text[:1] in (b"", b"\n")
        or text[-1:] == b"\n"
        or any(text.startswith(word) or b"\n" + word in text for word in _SKIPPED)
    ):
        split = text.split(b"\n")
        keep = [i for i, each in enumerate(split) if each.strip() and not each.startswith(_SKIPPED)]
        lines = lines[keep]
        kept = (split[i] for i in keep)
        text = b"\n".join(each if b"\t" in each else b"\t".join(each.split()) for each in kept)
    return text, lines


def _parse(file: InputFile, body: bytes, lines: Ints, columns: Columns) -> Intervals:
    # the line end stays with the last cell of its line, where it shows that the columns are aligned
    number = columns.number
    cells = (body + b"\n").replace(b"\n", b"\n\t").split(b"\t")[:-1]
    last = b"".join(cells[number - 1 :: number])
    if len(cells) != number * len(lines) or last.count(b"\n") != len(lines):
        for line, each in zip(lines.tolist(), body.split(b"\n"), strict=True):
            if each.count(b"\t") != number - 1:
                raise InputError(
                    f"{file.name}: line {line}: expected {number} columns, as in the first line, got "
                    f"{each.count(bytes([9])) + 1}"
                )
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
    file: InputFile, lines: Ints, cells: list[bytes], columns: Columns, name: str
) -> Ints:
    found = cells[columns.places[name] :: columns.number]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            # several times as fast as a conversion of each cell
            numbers = np.fromstring(b" ".join(found), np.int64, sep=" ")
        except (ValueError, DeprecationWarning):
            numbers = np.empty(0, np.int64)
    if len(numbers) == len(found):
        return numbers
    wrong = (i for i, cell in enumerate(found) if not _is_integer(cell.decode("latin-1")))
    at = next(wrong, 0)
    raise InputError(
        f"{file.name}: line {lines[at]}: expected an integer {name}, got "
        f"{shown(found[at].decode('utf-8', 'replace').strip())}"
    )


def _is_integer(text: str) -> bool:
    return text.strip().lstrip("+-").isdecimal() and len(text.strip()) < 19
