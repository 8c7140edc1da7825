"""Parquet files, read by pyarrow in batches of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.convert.contract import Budget, ConvertSource
from fcl.convert.files import InputFile
from fcl.convert.rereading import RereadableFile
from fcl.convert.tables.columns import ColumnOptions
from fcl.convert.tables.contract import (
    ColumnSelection,
    TableBatch,
    TableFile,
    floats_of,
    import_pyarrow,
    least_rows,
    texts_of,
)
from fcl.convert.tables.source import TableSource
from fcl.errors import InputError
from fcl.units import counted, format_bytes

#: A batch in memory: as pyarrow has it, as float64, and as X.
_COPIES = 4
#: Bytes read from a file at a time; without it, pyarrow reads the whole column of a group of rows.
_BUFFER = 1 << 18
#: A page of values and one of distinct values, which pyarrow holds for each column. Files do not say how
#: large their pages are; most writers fill them up to 1 MiB.
_PAGES = 2 << 20


@dataclass(frozen=True)
class Options(ColumnOptions):
    """The options of ``fcl convert`` that Parquet takes."""


def open_source(inputs: list[InputFile], options: Options, budget: Budget) -> ConvertSource:
    """Open Parquet files with the same columns."""
    import_pyarrow()
    for file in inputs:
        if file.is_stdin or file.compressed:
            raise InputError(
                f"{file.name}: a Parquet file is read from its end, so it must be an "
                "uncompressed file on disk; save it first"
            )
    files = [_ParquetFile(RereadableFile(file, budget.scratch), budget) for file in inputs]
    return TableSource(inputs, files, options, budget)


class _ParquetFile(TableFile):
    is_typed = True

    def __init__(self, file: RereadableFile, budget: Budget) -> None:
        super().__init__(file)
        self._budget = budget
        self._missing = frozenset([""])
        with self._open() as opened:
            self._schema = opened.schema_arrow
        self.columns = list(self._schema.names)
        for name, count in Counter(self.columns).items():
            if count > 1:
                raise InputError(
                    f"{self.name}: {count} columns have the name {shown(name)}; rename one of them"
                )
        indices = (self._schema.pandas_metadata or {}).get("index_columns", [])
        self.index_columns = {at for at, name in enumerate(self.columns) if name in indices}
        self._kinds = [_kind(field.type) for field in self._schema]
        self.looks_like_text = [kind != "number" for kind in self._kinds]
        self.looks_like_date = [kind == "date" for kind in self._kinds]

    def read(self, selection: ColumnSelection, last: bool) -> Iterator[TableBatch]:
        pyarrow = import_pyarrow()
        for column in (*selection.numbers, *selection.texts):
            self._check_kind(column)
        names = [self.columns[at] for at in (*selection.numbers, *selection.texts)]
        texts = [self.columns[at] for at in selection.texts if self._kinds[at] == "text"]
        try:
            with self._open(texts) as file:
                self._check_pages(file.metadata, set(names))
                rows = self._block_rows(names, _text_bytes(file.metadata, set(texts)))
                for batch in file.iter_batches(rows, columns=names, use_threads=False):
                    for part in self._parts(batch, selection):
                        yield self._converted(part, selection)
        except (OSError, pyarrow.ArrowException) as error:
            raise self._damaged(error) from None

    def _block_rows(self, names: Sequence[str], text_bytes: float) -> int:
        """How many rows make a batch, if the texts of a row have so many bytes."""
        row_bytes = int(_COPIES * (8 * max(1, len(names)) + text_bytes))
        return self._budget.block_rows(row_bytes, least_rows(len(names)))

    def _parts(self, batch: Any, selection: ColumnSelection) -> Iterator[Any]:
        """Parts of a batch that are small enough when texts that repeat are copied."""
        text_bytes = 0.0
        for at in selection.texts:
            column = batch.column(self.columns[at])
            found = getattr(column, "dictionary", column)
            text_bytes += found.nbytes / max(1, len(found))
        step = self._block_rows(batch.schema.names, text_bytes)
        for start in range(0, len(batch), step):
            yield batch.slice(start, step)

    def _check_pages(self, metadata: Any, names: Set[str]) -> None:
        """Refuse a group of rows whose pages do not fit the budget."""
        for group, chunks in _chunks(metadata, names):
            size = sum(
                min(chunk.total_uncompressed_size, _PAGES)
                + min(chunk.total_compressed_size, _BUFFER)
                for chunk in chunks
            )
            self._budget.check(
                f"{self.name}: the pages of {counted(len(names), 'column')} in a group of "
                f"{counted(group.num_rows, 'row')} "
                f"({format_bytes(group.total_byte_size)})",
                size * 5 // 4,
                part=1,
                advice=", name fewer columns with --x, or write the file with smaller groups of rows",
            )

    def _converted(self, batch: Any, selection: ColumnSelection) -> TableBatch:
        from pyarrow import compute

        pyarrow = import_pyarrow()
        numbers = np.empty((len(batch), len(selection.numbers)))
        for place, at in enumerate(selection.numbers):
            numbers[:, place] = self._floats(batch.column(self.columns[at]), at)
        texts = []
        for at in selection.texts:
            column = compute.cast(batch.column(self.columns[at]), pyarrow.string())
            texts.append(texts_of(column, self._missing))
        return TableBatch(numbers, texts)

    def _floats(self, column: Any, at: int) -> np.ndarray:
        from pyarrow import compute

        pyarrow = import_pyarrow()
        is_integer = pyarrow.types.is_integer(column.type)
        try:
            found = compute.cast(column, pyarrow.float64(), safe=is_integer)
        except pyarrow.ArrowInvalid as error:
            raise InputError(
                f"{self.name}: the column {shown(self.columns[at])} has integers beyond 2^53, "
                f"which are not exact as numbers ({error}); leave it out, or read it as --categorical"
            ) from None
        return floats_of(found)

    def _open(self, texts: Sequence[str] = ()) -> Any:
        """Open the file; texts that repeat in the columns ``texts`` are stored once in each batch."""
        from pyarrow import parquet

        pyarrow = import_pyarrow()
        try:
            return parquet.ParquetFile(
                self.file.file.path,
                buffer_size=_BUFFER,
                pre_buffer=False,
                read_dictionary=list(texts) or None,
            )
        except (OSError, pyarrow.ArrowException) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> InputError:
        first = str(error).partition("\n")[0]
        return InputError(
            f"{self.name} is not a complete Parquet file ({first}); is it cut off? copy it again"
        )

    def _check_kind(self, column: int) -> None:
        if self._kinds[column] == "other":
            kind = self._schema.field(column).type
            raise InputError(
                f"{self.name}: the column {shown(self.columns[column])} is of the type {kind}; "
                "expected numbers, booleans, text or dates: leave it out with --x "
                f"'!{self.columns[column]}'"
            )


def _chunks(metadata: Any, names: Set[str]) -> Iterator[tuple[Any, list[Any]]]:
    """The groups of rows of a file, each with the parts of its columns that have these names."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(at) for at in range(group.num_columns)]
        yield group, [chunk for chunk in chunks if chunk.path_in_schema in names]


def _text_bytes(metadata: Any, names: Set[str]) -> float:
    """Bytes of the texts of a row: the largest mean of a group of rows; those that repeat count once."""
    return max(
        (
            sum(chunk.total_uncompressed_size for chunk in chunks) / max(1, group.num_rows)
            for group, chunks in _chunks(metadata, names)
        ),
        default=0.0,
    )


def _kind(found: Any) -> str:
    """What a type of pyarrow is read as: number, text, date, or other."""
    types = import_pyarrow().types
    if types.is_dictionary(found):
        found = found.value_type
    numbers = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null
    if any(test(found) for test in numbers):
        return "number"
    if types.is_date(found) or types.is_timestamp(found):
        return "date"
    texts = types.is_string, types.is_large_string, types.is_string_view
    return "text" if any(test(found) for test in texts) else "other"
