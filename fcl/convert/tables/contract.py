"""What the formats of tables have in common: named columns that are read in batches of rows."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from fcl.checks import listed, shortened
from fcl.convert.rereading import RereadableFile
from fcl.extras import import_extra

#: Texts that mean that there is no value.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null")
#: A number as text.
NUMBER = r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?(inf|INF|Inf)(inity)?"


_TIME = r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|[-+][0-9]{2}:?[0-9]{2})?)?"
_DATE = re.compile(r"([0-9]{4})([-/])([0-9]{2})\2([0-9]{2})" + _TIME)
_SHORT_DATE = re.compile(r"([0-9]{1,2})([./-])([0-9]{1,2})\2([0-9]{4})" + _TIME)


def parse_date(text: str, order: str | None = None) -> datetime | None:
    """The time that a text means, in UTC if it names no zone; None if it is no date.

    order : {"dmy", "mdy"} or None, of day and month in dates such as 03/04/2021; None rejects them.
    """
    if found := _DATE.fullmatch(text):
        year, month, day, time = found[1], found[3], found[4], found[5]
    elif order is not None and (found := _SHORT_DATE.fullmatch(text)):
        year, time = found[4], found[5]
        day, month = (found[1], found[3]) if order == "dmy" else (found[3], found[1])
    else:
        return None
    try:
        date = datetime.fromisoformat(f"{year}-{month:0>2}-{day:0>2}{time or ''}")
        return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
    except (ValueError, OverflowError):  # the 30th of February
        return None


class TextInNumbersError(Exception):
    """A column that was read as numbers holds a text; ``row`` counts from 0 in the file."""

    def __init__(self, column: int, row: int, value: str) -> None:
        super().__init__(column, row, value)
        self.column, self.row, self.value = column, row, value


@dataclass(frozen=True)
class ColumnSelection:
    """Indices of the columns to read as numbers, and of the columns to read as text.

    Of the numbers, ``dates`` are stored as dates, and ``grouped`` have marks between thousands.
    """

    numbers: Sequence[int]
    texts: Sequence[int]
    dates: frozenset[int] = frozenset()
    grouped: frozenset[int] = frozenset()

    def places(self) -> tuple[dict[int, int], dict[int, int]]:
        """Column -> its place among the numbers, and among the texts."""
        numbers = {column: place for place, column in enumerate(self.numbers)}
        return numbers, {column: place for place, column in enumerate(self.texts)}


@dataclass(frozen=True)
class Texts:
    """A column of text: codes (m,) are indices of values; -1 is a missing value."""

    codes: np.ndarray
    values: list[str]

    def part(self, rows: slice | np.ndarray) -> Texts:
        """Some of the rows, with the values that they have if there are fewer of them than rows."""
        codes = self.codes[rows]
        if len(codes) >= len(self.values):
            return Texts(codes, self.values)
        used, codes = np.unique(codes, return_inverse=True)
        lacks = int(used[:1].tolist() == [-1])
        return Texts(codes - lacks, [self.values[code] for code in used[lacks:].tolist()])

    def recoded(self, codes: dict[str, int]) -> np.ndarray:
        """The codes of the values in another list, int64 (m,); -1 for a value that it lacks."""
        table = np.array([codes.get(value, -1) for value in self.values] + [-1], np.int64)
        return table[self.codes]


@dataclass(frozen=True)
class TableBatch:
    """Rows of a table.

    numbers : float64 (m, k), the columns of the selection, in its order; NaN is a missing value.
    texts : the columns of the selection, in its order.
    """

    numbers: np.ndarray
    texts: list[Texts]

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, rows: slice | np.ndarray) -> TableBatch:
        """Some of the rows."""
        return TableBatch(self.numbers[rows], [texts.part(rows) for texts in self.texts])


class TableFile(ABC):
    """A file with named columns.

    columns : those of the file, then parts of its dates.
    looks_like_text : by column: whether its first values are text.
    looks_like_date : by column of the file: whether its first values are dates.
    looks_grouped : columns of the file whose first values have marks between thousands.
    date_parts : dict of int to (int, str), the columns that are parts of dates, with the column of the
        dates and the name of the part.
    index_columns : columns that only number the rows.
    first_row : the number of the first row in messages: 2 after a header, as spreadsheets count.
    is_typed : whether the file says that a column is text, so that "7" and "x" may stand in one column.
    """

    first_row = 1
    is_typed = False

    def __init__(self, file: RereadableFile) -> None:
        self.file = file
        self.name = file.name
        self.columns: list[str] = []
        self.looks_like_text: list[bool] = []
        self.looks_like_date: list[bool] = []
        self.looks_grouped: set[int] = set()
        self.date_parts: dict[int, tuple[int, str]] = {}
        self.index_columns: set[int] = set()

    def is_number(self, text: str) -> bool:
        """Whether a text is a number."""
        return re.fullmatch(NUMBER, text) is not None

    def is_grouped(self, text: str) -> bool:
        """Whether a text is a number with marks between thousands."""
        return False

    def parse_grouped(self, text: str) -> float | None:
        """The number of a text that may have marks between thousands; None if it is no number."""
        return float(text) if self.is_number(text) else None

    def parse_date(self, text: str) -> datetime | None:
        """The time that a text means, in UTC if it names no zone; None if it is no date."""
        return parse_date(text)

    @property
    def width(self) -> int:
        """Number of columns of the file."""
        return len(self.columns) - len(self.date_parts)

    @abstractmethod
    def read(self, selection: ColumnSelection, last: bool) -> Iterator[TableBatch]:
        """Iterate over all rows; ``last`` says whether this reading counts as progress.

        The selection has neither dates, parts of dates nor numbers with marks between thousands.
        """

    def where(self, row: int) -> str:
        """A row in words, for messages; ``row`` counts from 0."""
        header = " (the header is row 1)" if self.first_row > 1 else ""
        return f"{self.name}: row {row + self.first_row}{header}"


def import_pyarrow() -> Any:
    """The module pyarrow; raises InputError if it is not installed."""
    return import_extra("CSV and Parquet need", "'fcl[tables]'", "pyarrow")


def floats_of(column: Any) -> np.ndarray:
    """An array of float64 of pyarrow, NaN for null: its ``to_numpy`` would import pandas."""
    batch = import_pyarrow().RecordBatch.from_arrays([column], ["values"])
    return np.asarray(batch.to_tensor(null_to_nan=True).to_numpy()[:, 0])


def texts_of(column: Any, missing: frozenset[str]) -> Texts:
    """The texts of an array of pyarrow, without blanks around them."""
    # pyarrow imports pandas, which takes memory, to fill missing values, and in to_numpy
    found = column.dictionary_encode(null_encoding="encode")
    codes = np.from_dlpack(found.indices)
    values = [(value or "").strip() for value in found.dictionary.to_pylist()]
    if lacking := [code for code, value in enumerate(values) if value in missing]:
        codes = np.where(np.isin(codes, lacking), -1, codes)
    return Texts(codes, values)


def least_rows(n_columns: int) -> int:
    """Rows that a block of a table should have, since it takes time for each column."""
    return min(64, n_columns // 16)


def shown_columns(names: Sequence[str]) -> str:
    """Some names of columns, for messages."""
    return listed(names, 12, lambda name: shortened(name, 40))
