"""What ``fcl convert`` stored about the rows of DATA, beside their scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fcl.convert.contract import ConvertedRows
from fcl.data.base import RowReader
from fcl.data.open import open_columns
from fcl.model.outputs import table_scores
from fcl.model.text_output import text_output
from fcl.scoring.lines import TableLines, cells_of, known_column, known_names

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.model.predictor import Predictor
    from fcl.model.scores import OnMargins

#: Which arrays in ``obs`` are written; ``source_row`` shows that fcl convert wrote the data.
_COLUMNS = ("chromosome", "start", "strand", "name", "group", "reverse_complement", "family", "sex")
_MARK = "source_row"
#: Rows that become text at a time.
_BLOCK_ROWS = 1 << 14


@dataclass(frozen=True)
class KnownColumns:
    """The columns that are written before the scores; none for data that fcl convert did not make.

    width : letters or columns of a row.
    readers : column -> its values.
    """

    width: int = 0
    readers: dict[str, RowReader[np.ndarray]] = field(default_factory=dict)

    @classmethod
    def of(cls, data: DataSet) -> KnownColumns:
        """Open the columns of a data set in a file."""
        if data.source is None or len(data.rows.shape) != 2:
            return cls()
        paths = {name: f"obs/{name}" for name in (*_COLUMNS, _MARK)}
        found = open_columns(data.source, paths, data.n_rows)
        return cls(data.rows.shape[1], found) if found.pop(_MARK, None) is not None else cls()

    def rows(self, start: int, stop: int) -> ConvertedRows:
        """Some of the rows, without X."""
        obs = {name: column.read(start, stop) for name, column in self.readers.items()}
        x = np.broadcast_to(np.uint8(0), (stop - start, self.width))
        return ConvertedRows(x, np.arange(start, stop), obs=obs)

    def names(self) -> list[str]:
        """The columns in the order of the table."""
        return known_names(self.rows(0, 0))

    def before(self, start: int, lines: Sequence[str]) -> Iterator[str]:
        """The lines of the rows from ``start`` on, with the columns before them."""
        rows = self.rows(start, start + len(lines))
        columns = [cells_of(known_column(rows, name)) for name in known_names(rows)]
        return map("\t".join, zip(*columns, lines, strict=True))


def write_known_scores(
    model: Predictor,
    data: DataSet,
    known: KnownColumns,
    out: str,
    overwrite: bool,
    on_margins: OnMargins,
    kind: str = "",
) -> int:
    """Write the columns, the margin, and the probability or the mean, as for files of rows.

    known : of the data.
    out : a name that ends in ``.tsv`` or ``.tsv.gz``; ``-`` is standard output.
    on_margins : as for :func:`fcl.model.scores.write_scores`.
    kind : of the score; ``predicted`` adds the label.

    Returns the number of rows.
    """
    lines = TableLines(table_scores(model, kind))
    model.added_margins(data)  # raises before a file is opened
    with text_output(out, overwrite) as file:
        file.write(lines.head(known.rows(0, 0)))
        for start, stop, margins in model.iter_margins(data, _BLOCK_ROWS):
            file.write(b"".join(lines.lines(known.rows(start, stop), margins)))
            on_margins(start, stop, margins)
    return data.n_rows
