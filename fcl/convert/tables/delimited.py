"""CSV and TSV files, parsed by pyarrow."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from fcl.convert.contract import Budget, ConvertSource
from fcl.convert.files import InputFile
from fcl.convert.rereading import ByteStream, RereadableFile, complete_lines
from fcl.convert.tables.contract import (
    ColumnSelection,
    TableBatch,
    TextInNumbersError,
    floats_of,
    import_pyarrow,
    texts_of,
)
from fcl.convert.tables.csvtable import CsvTable, Options
from fcl.convert.tables.source import TableSource
from fcl.errors import InputError

#: With more columns, pyarrow takes too much memory: about 12 KB for each.
MOST_COLUMNS = 2000
_PARSE_ERROR = re.compile(r"(?:In CSV column #(\d+): )?Row #(\d+): CSV conversion error to (.*)")


def open_source(inputs: list[InputFile], options: Options, budget: Budget) -> ConvertSource:
    """Open CSV or TSV files with the same columns."""
    import_pyarrow()
    files = [
        DelimitedFile(RereadableFile(file, budget.scratch), options, budget) for file in inputs
    ]
    source = TableSource(inputs, files, options, budget)
    source.notes += dict.fromkeys(note for file in files for note in file.notes)
    return source


class DelimitedFile(CsvTable):
    """A CSV or TSV file, read by pyarrow."""

    def read(self, selection: ColumnSelection, last: bool) -> Iterator[TableBatch]:
        file = self.file.open_last() if last else self.file.reopen()
        if self.is_empty:  # pyarrow has no clear message for it
            return iter(())
        if self.width > MOST_COLUMNS:
            return wide_batches(self, file, selection)
        return self._narrow_batches(file, selection)

    # -- files with few columns --------------------------------------------------------------------

    @property
    def _block(self) -> int:
        # pyarrow reads up to 32 blocks ahead
        return max(256, self.block_bytes // 4)

    def _narrow_batches(self, file: InputFile, selection: ColumnSelection) -> Iterator[TableBatch]:
        pyarrow = import_pyarrow()
        stream = ByteStream(file, self._block)
        ragged: list[Any] = []
        n_rows = 0
        try:
            for batch in self._open(pyarrow, stream, selection, ragged):
                n_rows += len(batch)
                yield _converted(batch, len(selection.numbers), self.missing)
        except pyarrow.ArrowInvalid as error:
            raise self._explained(str(error), ragged, n_rows) from None
        if self.quote and stream.quotes % 2:
            raise InputError(
                f"{self.name}: has an odd number of quotation marks ({stream.quotes:,}), so that "
                "one of them does not end; close it, or give --no-quotes if the marks are part "
                "of the text"
            )

    def _open(
        self, pyarrow: Any, stream: ByteStream, selection: ColumnSelection, ragged: list[Any]
    ) -> Iterator[Any]:
        from pyarrow import csv as arrow_csv

        def refuse(row: Any) -> str:
            ragged.append(row)
            return "error"

        types = {str(index): pyarrow.float64() for index in selection.numbers}
        types |= {str(index): pyarrow.string() for index in selection.texts}
        return iter(
            arrow_csv.open_csv(
                stream,
                # threads would lose the numbers of rows in errors
                arrow_csv.ReadOptions(
                    use_threads=False,
                    block_size=self._block,
                    skip_rows=self.skipped_lines,
                    skip_rows_after_names=self.first_row - 1,
                    column_names=[str(index) for index in range(self.width)],
                ),
                arrow_csv.ParseOptions(
                    delimiter=self.delimiter,
                    quote_char='"' if self.quote else False,
                    newlines_in_values=self.quote,
                    invalid_row_handler=refuse,
                ),
                arrow_csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    null_values=self.null_values,
                    decimal_point=self.decimal,
                ),
            )
        )

    def _explained(self, message: str, ragged: list[Any], n_rows: int) -> Exception:
        """The error of the file for an error of pyarrow after so many rows."""
        if ragged:
            row = ragged[0]
            number = row.number - self.skipped_lines - self.first_row
            return self.ragged(number, row.actual_columns, row.text)
        if "straddling" in message:
            return InputError(
                f"{self.where(n_rows)}: this row or a row soon after it has more than "
                f"{self._block:,} bytes; is a quotation mark not "
                "closed (--no-quotes)? otherwise raise --memory"
            )
        found = _PARSE_ERROR.match(message)
        if found is None:
            return InputError(f"{self.name}: cannot be parsed as a table: {message}")
        column, row = int(found[1]), int(found[2]) - self.first_row
        value = re.search(r"invalid value '(.*)'", found[3], re.DOTALL)
        if value is not None:
            return TextInNumbersError(column, row, value[1])
        return self.not_utf8(row, column)


def _converted(batch: Any, n_numbers: int, missing: frozenset[str]) -> TableBatch:
    """A batch of pyarrow, whose first columns are numbers."""
    numbers = np.empty((len(batch), 0))
    if n_numbers:
        tensor = batch.select(list(range(n_numbers))).to_tensor(null_to_nan=True, row_major=True)
        numbers = tensor.to_numpy()
    return TableBatch(numbers, [texts_of(column, missing) for column in batch.columns[n_numbers:]])


# -- files with very many columns ------------------------------------------------------------------
# pyarrow takes memory and time for each column of each block. Here the values of a block are one
# column, which pyarrow converts at once; rows and columns are recovered from the positions.

#: No value holds it, so that the values of a block are parsed as one column.
_NO_DELIMITER = "\x01"


def wide_batches(
    table: CsvTable, file: InputFile, selection: ColumnSelection
) -> Iterator[TableBatch]:
    """Iterate over the rows of a CSV file; see :meth:`TableFile.batches`."""
    row = 0
    is_first = True
    for _, text in complete_lines(file, table.block_bytes):
        lines = text.replace(b"\r\n", b"\n").strip(b"\n").split(b"\n")
        lines = [line for line in lines if line.strip(b" ")]  # tabs separate missing values
        if is_first and lines:
            is_first = False
            lines = lines[table.first_row - 1 :]
        if lines:
            yield _batch(_values(table, lines, row), table, selection, row)
            row += len(lines)


def _values(table: CsvTable, lines: list[bytes], row: int) -> Any:
    """The values of the lines, row after row, as an array of text of pyarrow."""
    pyarrow = import_pyarrow()
    delimiter = table.delimiter.encode()
    if table.quote and any(b'"' in line for line in lines):
        return _quoted_values(table, lines, row)
    for number, line in enumerate(lines):
        if line.count(delimiter) + 1 != table.width:
            text = line[:200].decode("utf-8", "replace")
            raise table.ragged(row + number, line.count(delimiter) + 1, text)
    flat = b"\n".join(lines).replace(delimiter, b"\n") + b"\n"
    try:
        return _one_column(table, flat)
    except pyarrow.ArrowInvalid as error:
        place = re.search(r"Row #(\d+): CSV conversion", str(error))
        at, column = divmod(int(place[1]) - 1 if place else 0, table.width)
        raise table.not_utf8(row + at, column) from None


def _one_column(table: CsvTable, flat: bytes) -> Any:
    """The lines as an array of text; null without a value."""
    from pyarrow import csv as arrow_csv

    for mark in (_NO_DELIMITER, "\r"):  # pyarrow would end a value at a carriage return
        if mark.encode() in flat:
            raise InputError(
                f"{table.name}: expected text, found the control character {ord(mark):02x}; remove it"
            )
    pyarrow = import_pyarrow()
    found = arrow_csv.read_csv(
        pyarrow.py_buffer(flat),
        arrow_csv.ReadOptions(use_threads=False, block_size=len(flat) + 1, column_names=["values"]),
        arrow_csv.ParseOptions(delimiter=_NO_DELIMITER, quote_char=False, ignore_empty_lines=False),
        arrow_csv.ConvertOptions(
            column_types={"values": pyarrow.string()},
            null_values=table.null_values,
            strings_can_be_null=True,
        ),
    )
    return found.column(0).combine_chunks()


def _quoted_values(table: CsvTable, lines: list[bytes], row: int) -> Any:
    values: list[str] = []
    for number, line in enumerate(lines):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            column = line.count(table.delimiter.encode(), 0, error.start)
            raise table.not_utf8(row + number, min(column, table.width - 1)) from None
        try:
            record = next(csv.reader([text], delimiter=table.delimiter, strict=True))
        except csv.Error as error:
            raise InputError(
                f"{table.where(row + number)}: a quotation mark is not closed in this line ({error}); "
                "close it, give --no-quotes, or remove line breaks from values"
            ) from None
        if len(record) != table.width:
            raise table.ragged(row + number, len(record), table.delimiter.join(record)[:200])
        values += record
    return _one_column(table, "\n".join(values).encode() + b"\n")


def _batch(values: Any, table: CsvTable, selection: ColumnSelection, row: int) -> TableBatch:
    width = table.width
    n_rows = len(values) // width
    starts = np.arange(n_rows) * width
    columns = np.asarray(selection.numbers, np.int64)
    numbers = values
    if len(columns) < width:
        numbers = _taken(values, (starts[:, None] + columns).ravel())
    texts = [texts_of(_taken(values, starts + at), table.missing) for at in selection.texts]
    shape = n_rows, len(columns)
    return TableBatch(_numbers(numbers, table, selection, row).reshape(shape), texts)


def _taken(values: Any, places: np.ndarray) -> Any:
    """The values at these places; pyarrow would import pandas to convert the places."""
    pyarrow = import_pyarrow()
    buffers = [None, pyarrow.py_buffer(np.ascontiguousarray(places, np.int64))]
    return values.take(pyarrow.Array.from_buffers(pyarrow.int64(), len(places), buffers))


def _numbers(values: Any, table: CsvTable, selection: ColumnSelection, row: int) -> np.ndarray:
    """The values as numbers, NaN if missing: float64 (m * k,)."""
    from pyarrow import compute

    pyarrow = import_pyarrow()
    plain = values = compute.ascii_trim_whitespace(values)
    if table.decimal != ".":
        # a point is no mark of decimals then
        points = compute.replace_substring(values, ".", "?")
        plain = compute.replace_substring(points, table.decimal, ".")
    try:
        found = compute.cast(plain, pyarrow.float64())
    except pyarrow.ArrowInvalid:
        for place, value in enumerate(values.to_pylist()):
            if value is not None and (table.is_grouped(value) or not table.is_number(value)):
                line, column = divmod(place, len(selection.numbers))
                raise TextInNumbersError(selection.numbers[column], row + line, value) from None
        raise
    return floats_of(found)
