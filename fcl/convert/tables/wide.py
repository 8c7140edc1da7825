"""CSV files with very many columns.

pyarrow takes memory and time for each column of each block. Here the values of a block are one column,
which pyarrow converts at once; rows and columns are recovered from the positions.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from fcl.convert.files import InputFile
from fcl.convert.rereading import complete_lines
from fcl.convert.tables.contract import (
    ColumnSelection,
    TableBatch,
    TextInNumbersError,
    floats_of,
    import_pyarrow,
    texts_of,
)
from fcl.convert.tables.csvtable import CsvTable
from fcl.errors import InputError

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
