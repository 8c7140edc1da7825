"""Tables (TSV or CSV) with a column of sequences as rows of codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fcl.checks import shown
from fcl.convert.cells import cells_of, delimiter_of, find_column, is_sequence
from fcl.convert.contract import Budget, Column, ConvertedRows, ConvertSource
from fcl.convert.files import HEAD_BYTES, InputFile
from fcl.convert.labels import TextColumn, is_number
from fcl.convert.letters import SequenceSource, encode, first_invalid
from fcl.convert.rereading import complete_lines
from fcl.convert.tables.contract import MISSING
from fcl.errors import InputError
from fcl.types import Ints

_SLICE_BYTES = 1 << 20
#: Bytes that a line has at most.
_MOST_LINE = 64 << 20


@dataclass(frozen=True)
class Options:
    """The options of ``fcl convert`` that tables of sequences take."""

    x: str | None = None
    y: str | None = None
    weights: str | None = None
    groups: str | None = None
    name: str | None = None
    missing_target: str = "error"
    no_header: bool = False
    length: int | None = None
    anchor: str = "center"
    pad: bool = False
    max_unknown: float | None = None
    both_strands: bool = False


@dataclass(frozen=True)
class _Lines:
    """Lines of a table as cells."""

    file: InputFile
    numbers: list[int]
    cells: list[list[str]]

    def column(self, at: int) -> list[str]:
        return [line[at].strip() for line in self.cells]

    def where(self, row: int) -> str:
        return f"{self.file.name}: line {self.numbers[row]}"


def open_source(inputs: list[InputFile], options: Options, budget: Budget) -> ConvertSource:
    """Open a table; raises InputError for several tables, or one without a column of sequences."""
    if len(inputs) > 1:
        raise InputError(f"expected one table of sequences, got {len(inputs)}; join them")
    if options.x is None:
        raise InputError(f"{inputs[0].name}: name the column of the sequences: --x COLUMN")
    return _TableSource(inputs[0], options, budget)


_ROLES = ("x", "y", "weights", "groups", "name")


@dataclass(frozen=True)
class _Places:
    """Where the columns are that the options name.

    number : columns of a line.
    at : option -> index of its column.
    has_header : whether the first line holds names.
    """

    number: int
    at: dict[str, int]
    has_header: bool

    @classmethod
    def of(cls, file: InputFile, first: list[str], options: Options) -> _Places:
        """Find the columns in the first line; InputError names one that it lacks.

        The first line is a header if an option names a column by its name, or if none of its cells is
        a value: a sequence in column x, or a number in a column of numbers.
        """
        first = [cell.strip() for cell in first]
        known = [str(number) for number in range(1, len(first) + 1)] if options.no_header else first
        named = {role: getattr(options, role) for role in _ROLES}
        found = {role: find_column(file.name, known, text) for role, text in named.items() if text}
        at = {role: place for role, (place, _) in found.items()}
        if at.get("y") == at["x"]:
            raise InputError(
                f"{file.name}: a column can have one role, got --x {options.x}, --y {options.y}"
            )
        has_values = is_sequence(first[at["x"]]) or any(
            is_number(first[at[role]]) for role in ("y", "weights") if role in at
        )
        has_header = any(is_name for _, is_name in found.values()) or not has_values
        return cls(len(first), at, has_header and not options.no_header)


class _TableSource(SequenceSource):
    def __init__(self, file: InputFile, options: Options, budget: Budget) -> None:
        super().__init__([file], options)
        file.check_lines()
        first = file.head.decode("utf-8", "replace").partition("\n")[0].rstrip("\r")
        if len(first) >= HEAD_BYTES:
            raise InputError(
                f"{file.name}: line 1 is longer than {HEAD_BYTES:,} bytes; write long sequences as FASTA"
            )
        self._delimiter = delimiter_of(first)
        [cells] = cells_of([first], self._delimiter)
        self._places = _Places.of(file, cells, options)
        [self._file] = self.fit_longest([file], budget, lambda f: self._lengths(f, budget))
        self._drops_targets = options.missing_target == "drop"
        self._y, self._groups = TextColumn("--y"), TextColumn("--groups", is_number=False)
        self._weights = TextColumn("--weights", is_number=True, least=0)
        self.notes.append(
            f"header: the first line, {shown(', '.join(cells))}"
            if self._places.has_header
            else "header: none, the first line is a record (otherwise name the columns: --x NAME)"
        )

    def blocks(self, budget: Budget) -> Iterator[ConvertedRows]:
        for lines in self._lines(self._file, budget):
            yield from self._rows(lines, budget)

    def _lengths(self, file: InputFile, budget: Budget) -> Iterator[Ints]:
        """The letters of the sequences of a file."""
        for lines in self._lines(file, budget):
            yield np.array([len(word) for word in lines.column(self._places.at["x"])], np.int64)

    def _lines(self, file: InputFile, budget: Budget) -> Iterator[_Lines]:
        size = min(budget.block, _SLICE_BYTES)
        skip, advice = int(self._places.has_header), "write long sequences as FASTA"
        for number, text in complete_lines(file, size, _MOST_LINE, advice):
            content = text.removesuffix(b"\n").decode("utf-8", "replace").replace("\r\n", "\n")
            found = content.rstrip("\r").split("\n")
            cells = cells_of(found, self._delimiter)
            if len(cells) != len(found):
                raise InputError(
                    f"{file.name}: a quoted cell goes on in the next line; expected one line a row"
                )
            kept = [i for i, line in enumerate(cells) if line and number + i > skip]
            lines = _Lines(file, [number + i for i in kept], [cells[i] for i in kept])
            self._check(lines)
            yield lines

    def _check(self, lines: _Lines) -> None:
        for row, cells in enumerate(lines.cells):
            if len(cells) != self._places.number:
                raise InputError(
                    f"{lines.where(row)}: expected {self._places.number} columns, as in the first "
                    f"line, got {len(cells)}"
                )

    def _rows(self, lines: _Lines, budget: Budget) -> Iterator[ConvertedRows]:
        records = np.arange(self.rows_in, self.rows_in + len(lines.cells))
        self.rows_in += len(records)
        words = [word.encode() for word in lines.column(self._places.at["x"])]
        lengths = np.array([len(word) for word in words], np.int64)
        codes = np.frombuffer(b"".join(map(encode, words)), np.uint8)
        self._check_letters(lines, words, codes, lengths)
        has_letters = self.trimmer.keep(lengths, self.drop, lines.where)
        keep = np.flatnonzero(has_letters & self._has_target(lines, has_letters))
        starts = np.cumsum(lengths) - lengths
        y = self._column(self._y, "y", lines, keep)
        weights = self._column(self._weights, "weights", lines, keep)
        assert weights is None or isinstance(weights, np.ndarray)
        groups = self._column(self._groups, "groups", lines, keep)
        obs: dict[str, Column] = {} if groups is None else {"group": groups}
        if "name" in self._places.at:
            names = lines.column(self._places.at["name"])
            obs["name"] = np.array(names, np.dtypes.StringDType())[keep]
        rows = ConvertedRows(codes, records[keep], y, weights, obs)
        return self.cut_rows(rows, starts[keep], lengths[keep], budget)

    def _has_target(self, lines: _Lines, kept: np.ndarray) -> np.ndarray:
        """Which rows have a target; all, unless those without one are to be dropped."""
        found = np.ones(len(lines.cells), bool)
        if self._drops_targets and "y" in self._places.at:
            found = np.array(
                [text not in MISSING for text in lines.column(self._places.at["y"])], bool
            )
            self.drop("without a target", kept & ~found)
        return found

    def _check_letters(
        self, lines: _Lines, words: list[bytes], codes: np.ndarray, lengths: np.ndarray
    ) -> None:
        at = first_invalid(codes)
        row = int(np.searchsorted(np.cumsum(lengths), at, side="right")) if at >= 0 else -1
        blank = next((i for i, word in enumerate(words) if len(word.split()) > 1), -1)
        row = blank if row < 0 else row
        if row >= 0:
            raise InputError(
                f"{lines.where(row)}: expected a sequence of A, C, G, T, U and ambiguity codes in column "
                f"{self._places.at['x'] + 1}, got {shown(words[row].decode('utf-8', 'replace'))}"
            )

    def _column(
        self, column: TextColumn, option: str, lines: _Lines, keep: np.ndarray
    ) -> Column | None:
        if option not in self._places.at:
            return None
        values = lines.column(self._places.at[option])
        return column.encode([values[i] for i in keep], lambda i: lines.where(int(keep[i])))
