"""CSV and TSV files, parsed by pyarrow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from fcl.convert.contract import Budget, ConvertSource
from fcl.convert.files import InputFile
from fcl.convert.rereading import ByteStream, RereadableFile
from fcl.convert.tables.contract import (
    ColumnSelection,
    TableBatch,
    TextInNumbersError,
    import_pyarrow,
    texts_of,
)
from fcl.convert.tables.csvtable import CsvTable, Options
from fcl.convert.tables.source import TableSource
from fcl.convert.tables.wide import wide_batches
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
