"""Labels and groups of records: by a regular expression over headers, or by name from a table."""

from __future__ import annotations

import io
import itertools
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fcl.checks import shown
from fcl.convert.cells import fields_of, find_column
from fcl.convert.contract import TEXT_BYTES, Budget, Categorical, Column
from fcl.convert.files import InputFile, named_twice
from fcl.convert.tables.contract import MISSING
from fcl.errors import InputError
from fcl.numerals import read_number
from fcl.units import counted

#: The prefix of ``--label header:REGEX``.
HEADER = "header:"


def numbers_of(values: Sequence[str]) -> np.ndarray | None:
    """Text as finite float64 numbers; None if a value is not a finite number."""
    text = " ".join(values)
    if not text.isascii() or "_" in text or "," in text:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            # about four times as fast as a conversion of each value
            found = np.fromstring(text, np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            return None
    return found if len(found) == len(values) and np.isfinite(found).all() else None


def column_of(values: Sequence[str]) -> Column:
    """A whole column: integers, finite numbers, or else a categorical of text."""
    found = numbers_of(values)
    if found is None:
        return Categories().encode(values)
    whole = np.abs(found).max(initial=0.0) < 2**53 and bool((found == np.rint(found)).all())
    return found.astype(np.int64) if whole else found


class Categories:
    """Text as a categorical, block by block."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def encode(self, values: Sequence[str]) -> Categorical:
        """The codes of a block; new values become new categories."""
        codes = self._codes
        if values and values.count(values[0]) == len(values):  # as in files sorted by contig
            distinct: Iterable[str] = values[:1]
        else:
            distinct = dict.fromkeys(values)
        for value in distinct:
            if value not in codes:
                codes[value] = len(codes)
                self.texts.append(value)
        if isinstance(distinct, dict):
            found = np.fromiter(map(codes.__getitem__, values), np.int32, len(values))
        else:
            found = np.full(len(values), codes[values[0]], np.int32)
        return Categorical(found, self.texts)


@dataclass
class TextColumn:
    """A column of text, block by block, as numbers or a categorical.

    what : the option that names the column, for messages.
    is_number : whether all values must be numbers; None if the first value decides.
    least : the smallest number that is accepted, such as 0 for weights.
    """

    what: str
    is_number: bool | None = None
    least: float = -np.inf
    _categories: Categories = field(default_factory=Categories)
    _is_decided: bool = field(default=False, init=False)  # by the first value

    def encode(self, values: Sequence[str], where: Callable[[int], str]) -> Column:
        """The values of a block; an InputError names the place of a wrong one."""
        if self.is_number is None and values:
            self._is_decided, self.is_number = True, is_number(values[0])
        if not self.is_number:
            return self._encode_text(values, where)
        numbers = numbers_of(values)
        if numbers is None:
            at = next((i for i, value in enumerate(values) if not is_number(value)), 0)
            self._check_value(values[at], where(at))
            raise InputError(
                f"{where(at)}: {self.what}: expected a finite number, as in the first row, got "
                f"{shown(values[at])}"
            )
        if (numbers < self.least).any():
            at = int((numbers < self.least).argmax())
            raise InputError(
                f"{where(at)}: {self.what}: expected numbers >= {self.least:g}, got {numbers[at]:g}; "
                "correct it, or remove the line"
            )
        return numbers

    def _encode_text(self, values: Sequence[str], where: Callable[[int], str]) -> Categorical:
        known = len(self._categories.texts)
        found = self._categories.encode(values)
        wrong = next(
            (
                text
                for text in found.categories[known:]
                if not text or (self._is_decided and (not _has_value(text) or is_number(text)))
            ),
            None,
        )
        if wrong is None:
            return found
        place = where(list(values).index(wrong))
        self._check_value(wrong, place)
        raise InputError(
            f"{place}: {self.what}: expected text, as in the first row ({shown(found.categories[0])}), "
            f"got the number {shown(wrong)}; give text alone, or numbers alone"
        )

    def _check_value(self, text: str, place: str) -> None:
        if _has_value(text):
            return
        what = "value" if text in MISSING else "finite number"
        raise InputError(
            f"{place}: {self.what}: expected a {what}, got {shown(text) if text else 'an empty cell'}; "
            "fill it in, or remove the line"
        )


def is_number(text: str) -> bool:
    """Whether a text is a finite number."""
    number = read_number(text)
    return number is not None and math.isfinite(number)


def _has_value(text: str) -> bool:
    """Whether the text of a target is neither a missing value nor an infinite number."""
    number = read_number(text)
    return text not in MISSING and (number is None or math.isfinite(number))


@dataclass(frozen=True)
class HeaderPattern:
    """``header:REGEX``: the first group of the expression, or without groups the whole match."""

    pattern: re.Pattern[str]

    @classmethod
    def parse(cls, option: str, text: str) -> HeaderPattern:
        """Compile the expression of an option; raises InputError if it is wrong."""
        try:
            return cls(re.compile(text.removeprefix(HEADER)))
        except re.error as error:
            raise InputError(
                f"{option}: {text.removeprefix(HEADER)!r} is not a regular expression: {error}"
            ) from None

    def find(self, header: str, where: Callable[[int], str], record: int) -> str:
        """The text in a header; InputError names the place if the expression does not match."""
        match = self.pattern.search(header)
        value = match and match[1 if self.pattern.groups else 0]
        if value is None:
            raise InputError(
                f"{where(record)}: expected a header that matches {self.pattern.pattern!r}, got "
                f"{shown(header)}"
            )
        return value


@dataclass(frozen=True)
class NameTable:
    """Values by name of a record, from a table whose first column holds the names.

    rows : name -> row of the column.
    column : numbers, or a categorical.
    """

    file: InputFile
    rows: dict[str, int]
    column: Column

    @classmethod
    def read(cls, option: str, text: str, budget: Budget) -> NameTable:
        """Read ``TABLE:COLUMN``; a column is a name in the first line, or a number from 1."""
        path, _, column = text.rpartition(":")
        if not path or not column:
            raise InputError(
                f"{option}: expected header:REGEX or TABLE.tsv:COLUMN, got {shown(text)}"
            )
        file = InputFile(path)
        content = file.read_text()
        n_lines = content.count("\n")
        budget.check(
            f"{option}: the names in the {counted(n_lines, 'line')} of {file.name}",
            TEXT_BYTES * n_lines + 2 * len(content),
            part=1,
        )
        first = next((line for _, line in _lines(content)), None)
        if first is None:
            raise InputError(f"{file.name}: expected a table, got an empty file")
        at, has_header = find_column(file.name, fields_of(first), column)
        rows, values = cls._read_lines(file, content, at, has_header)
        if not has_header and not is_number(values[0]) and numbers_of(values[1:]) is not None:
            # the first line is a header; a record of its name has no label
            rows.pop(fields_of(first)[0])
            values[0] = values[-1]
        return cls(file, rows, column_of(values))

    @staticmethod
    def _read_lines(
        file: InputFile, content: str, at: int, has_header: bool
    ) -> tuple[dict[str, int], list[str]]:
        """Row by name, and the values of a column."""
        rows: dict[str, int] = {}
        values: list[str] = []
        for number, line in itertools.islice(_lines(content), int(has_header), None):
            cells = fields_of(line)
            if len(cells) <= at or not _has_value(cells[at]):
                found = shown(cells[at]) if len(cells) > at and cells[at] else "none"
                raise InputError(
                    f"{file.name}: line {number}: expected a value in column {at + 1}, got {found}; fill "
                    "it in, or remove the line, which drops the record"
                )
            if cells[0] in rows:
                lines = itertools.islice(_lines(content), int(has_header), None)
                first = next(i for i, each in lines if fields_of(each)[0] == cells[0])
                raise named_twice(file.name, "name", cells[0], first, number)
            rows[cells[0]] = len(values)
            values.append(sys.intern(cells[at]))
        return rows, values

    def find(self, names: Sequence[str]) -> np.ndarray:
        """The rows of the table of these names; -1 for a name that it lacks."""
        return np.array([self.rows.get(name, -1) for name in names], np.int64)


def _lines(content: str) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, with their numbers from 1; a list of them would take memory."""
    lines = enumerate(io.StringIO(content, newline=None), 1)
    return ((number, line) for number, line in lines if line.strip())
