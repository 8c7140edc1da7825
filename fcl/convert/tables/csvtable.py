"""What a CSV file looks like: delimiter, header, and which columns hold text, from its first lines."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from fcl.checks import shown
from fcl.convert.contract import Budget
from fcl.convert.files import InputFile, decoded, recoding
from fcl.convert.rereading import RereadableFile
from fcl.convert.tables.columns import ColumnOptions
from fcl.convert.tables.contract import MISSING, TableFile, parse_date
from fcl.data.foreign import plain_suffix
from fcl.errors import InputError
from fcl.units import counted

#: Rows of the sample that tells which columns look like text.
_SAMPLE_ROWS = 1000
#: A block of text takes several times its size when it is parsed.
_BLOCKS = 4
_SMALLEST_BLOCK = 1 << 16
#: Blanks before a missing value.
_BLANKS = 16
_DELIMITERS = ",;\t|"
_WITH_COMMA = re.compile(r"[-+]?[0-9]+(,[0-9]+)?")
_WITH_POINT = re.compile(r"[-+]?[0-9]*\.[0-9]+")


@dataclass(frozen=True)
class Options(ColumnOptions):
    """The options of ``fcl convert`` that CSV and TSV take."""

    delimiter: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    date_order: str | None = None
    no_header: bool = False
    no_quotes: bool = False
    na: str | None = None


class CsvTable(TableFile):
    """A CSV or TSV file whose first lines were read.

    decimal : the mark before decimals.
    quote : whether quotation marks enclose values.
    missing : texts without a value.
    block_bytes : text that is parsed at a time.
    skipped_lines : empty lines before the header.
    """

    def __init__(self, file: RereadableFile, options: Options, budget: Budget) -> None:
        super().__init__(file)
        self.quote = not options.no_quotes
        self.decimal = options.decimal or "."
        self._date_order = options.date_order
        self._thousands = " \u00a0\u202f" if options.thousands == "space" else options.thousands
        self.missing = frozenset(MISSING + tuple((options.na or "").split(",")))
        self.block_bytes = max(_SMALLEST_BLOCK, budget.block // _BLOCKS)
        self.first_row = 1 if options.no_header else 2
        sample = _Sample.of(file.reopen(), 4 * self.block_bytes)
        self.skipped_lines = sample.skipped_lines
        self.delimiter = _delimiter(options, file, sample.text)
        usual = "\t" if plain_suffix(file.file.path) == ".tsv" else ","
        odd = self.delimiter != usual and options.delimiter is None
        self.notes = [f"delimiter: {self.delimiter!r} (--delimiter)"] if odd else []
        records = self._records(sample)
        self.is_empty = sample.whole and len(records) < self.first_row
        self.columns = [str(number) for number in range(1, len(records[0]) + 1)]
        if not options.no_header:
            self.columns = [name.strip() for name in records.pop(0)]
            self._check_header()
        samples = [self._sample(index, records) for index in range(len(self.columns))]
        if options.decimal is None and self.delimiter != "," and _has_decimal_commas(samples):
            self.decimal = ","
            self.notes.append("decimal: ',' (--decimal)")
        if self._thousands == self.decimal:
            raise InputError(
                f"--thousands {self.decimal}: is the mark before decimals, too; give another --decimal"
            )
        self.looks_grouped = {
            at for at, values in enumerate(samples) if any(map(self.is_grouped, values))
        }
        self.looks_like_text = [not self.is_number((*values, "0")[0]) for values in samples]
        self.looks_like_date = [
            bool(values) and all(map(self.parse_date, values)) for values in samples
        ]

    @property
    def null_values(self) -> list[str]:
        """Texts without a value for pyarrow, which compares before it removes blanks."""
        padded = {" " * blanks + text for text in self.missing for blanks in range(_BLANKS)}
        return [*(padded | {text + " " * blanks for text in padded for blanks in (1, 2)})]

    def is_number(self, text: str) -> bool:
        """Whether a text is a number, written with the marks of the file."""
        return super().is_number(self._swapped(text)) or self.is_grouped(text)

    def is_grouped(self, text: str) -> bool:
        """Whether a text is a number with marks between thousands."""
        return self._thousands is not None and self._grouped.fullmatch(text) is not None

    def parse_grouped(self, text: str) -> float | None:
        if self.is_grouped(text):
            text = re.sub(f"[{self._thousands}]", "", text)
        return float(self._swapped(text)) if self.is_number(text) else None

    def parse_date(self, text: str) -> datetime | None:
        return parse_date(text, self._date_order)

    @cached_property
    def _grouped(self) -> re.Pattern[str]:
        decimals = f"({re.escape(self.decimal)}[0-9]*)?"
        return re.compile(f"[-+]?[0-9]{{1,3}}([{self._thousands}][0-9]{{3}})+{decimals}")

    def _swapped(self, text: str) -> str:
        """A text in which a point is the mark before decimals."""
        return text.translate(str.maketrans(f".{self.decimal}", f"{self.decimal}."))

    def ragged(self, row: int, found: int, text: str) -> InputError:
        """The error of a row that has another number of values than the header."""
        return InputError(
            f"{self.where(row)}: expected {counted(self.width, 'value')}, got {found:,}: "
            f"{shown(text)}; enclose values that contain the delimiter in quotation marks, or "
            "give --delimiter"
        )

    def not_utf8(self, row: int, column: int) -> InputError:
        """The error of bytes that are not UTF-8."""
        return InputError(
            f"{self.where(row)}: the column {shown(self.columns[column])} is not UTF-8 text, but perhaps "
            f"Latin-1: {recoding(self.name, 'LATIN1')}"
        )

    # -- the sample --------------------------------------------------------------------------------

    def _records(self, sample: _Sample) -> list[list[str]]:
        quoting: Any = csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE
        text = io.StringIO(sample.text, newline="")
        reader = csv.reader(text, delimiter=self.delimiter, quoting=quoting)
        records: list[list[str]] = []
        try:
            for record in reader:
                records += [record] if record else []
                if len(records) > _SAMPLE_ROWS:
                    break
        except csv.Error as error:
            raise InputError(
                f"{self.name}: line {reader.line_num}: {error}; is a quotation mark not closed? "
                "give --no-quotes if the marks are part of the text"
            ) from None
        if len(records) > 1 and not sample.whole and len(records) <= _SAMPLE_ROWS:
            records.pop()  # it may be cut off
        return records

    def _check_header(self) -> None:
        seen: dict[str, int] = {}
        for number, name in enumerate(self.columns, 1):
            if name and seen.setdefault(name, number) != number:
                raise InputError(
                    f"{self.name}: the columns {seen[name]} and {number} have the same name "
                    f"{shown(name)}; rename one of them, or give --no-header if the first line "
                    "holds values"
                )
        if all(self.is_number(name) for name in self.columns):
            self.notes.append("header: the first line, although it holds numbers (--no-header)")
        fractions = [
            re.fullmatch(r"[-+]?[0-9]*\.[0-9]+(e[-+]?[0-9]+)?", name) for name in self.columns
        ]
        if 2 * sum(map(bool, fractions)) > len(self.columns):
            raise InputError(
                f"{self.name}: expected the names of the columns in the first line, got numbers "
                f"such as {next(name for name in self.columns if name)}; give --no-header"
            )

    def _sample(self, column: int, records: Sequence[Sequence[str]]) -> list[str]:
        """The first values of a column, without missing ones."""
        values = (record[column].strip() for record in records if len(record) > column)
        return [value for value in values if value not in self.missing]


def _has_decimal_commas(samples: Sequence[Sequence[str]]) -> bool:
    """Whether commas mark decimals: in columns of numbers, of which none has a point."""
    found = False
    for values in samples:
        if any(map(_WITH_POINT.fullmatch, values)):
            return False
        is_number = values and all(map(_WITH_COMMA.fullmatch, values))
        # of 1,234 the comma may mark thousands
        found |= bool(is_number) and any("," in text and text[-4:-3] != "," for text in values)
    return found


@dataclass(frozen=True)
class _Sample:
    """The beginning of a file; ``whole`` if it is all of it."""

    text: str
    whole: bool
    skipped_lines: int

    @classmethod
    def of(cls, file: InputFile, size: int) -> _Sample:
        """Read complete lines, of which at least two if there are so many."""
        file.check_encoding()
        content, whole = b"", True
        for piece in file.slices(1 << 16):
            content += piece
            if len(content) > size or (len(content) > 1 << 20 and content.count(b"\n") > 2):
                whole = False
                content = content[: content.rfind(b"\n") + 1]
                break
        if not content and not whole:
            raise InputError(f"{file.name}: line 1 has more than {size:,} bytes; raise --memory")
        text = decoded(file.name, content)
        if not text.strip():
            raise InputError(f"{file.name}: expected a table, got an empty file")
        lines = text.splitlines()
        skipped = next(number for number, line in enumerate(lines) if line.strip())
        return cls(text, whole, skipped)


def _delimiter(options: Options, file: RereadableFile, text: str) -> str:
    """The delimiter that the user gave, or the most frequent one of the first line."""
    given = options.delimiter
    if given is not None:
        found = {"tab": "\t", "\\t": "\t"}.get(given, given)
        if len(found) != 1 or found in '"\r\n':
            raise InputError(f"--delimiter: expected one character, or tab, got {shown(given)}")
        return found
    line = re.sub('"[^"]*"', "", next(line for line in text.splitlines() if line.strip()))
    default = "\t" if plain_suffix(file.file.path) == ".tsv" else ","
    # the mark before decimals separates columns only if no other mark does, as in "1,5","2,5"
    marks = (default + _DELIMITERS).replace(options.decimal or ".", "")
    if default in marks and line.count(default):
        return default
    found = max(marks, key=line.count)
    return found if line.count(found) else default
