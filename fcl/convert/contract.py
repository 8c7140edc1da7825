"""The contract between the readers of foreign formats and the writer.

A reader is a module with a dataclass ``Options`` and a function ``open_source``; see
``fcl/convert/registry.py``. It returns a :class:`ConvertSource`, which yields blocks of rows in the order
of the input, in bounded memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fcl.convert.files import InputFile
from fcl.data.columns import VARIANT_COLUMNS, ColumnRecord, KnownVariants, Variant
from fcl.data.sparse import SparseRows
from fcl.errors import BudgetError, InputError
from fcl.units import format_bytes

#: What Python takes for a short text that a list and a dictionary hold, beside its letters.
TEXT_BYTES = 160
#: The part of a budget that a block of few, wide rows may take.
_WIDE_PART = 16


@dataclass(frozen=True)
class OutputLayout:
    """What X is.

    kind : {"codes", "dense", "sparse"}, nucleotide codes 0-4 (uint8), an array of numbers, or a CSR
        matrix.
    dtype : of the codes, the numbers, or the entries.
    width : letters or columns.
    names : names of the columns, of which there are ``width``.
    var : mapping of str to array (width,), what else is known about named columns: numbers, or text of
        ``StringDType``.
    first_id : of svmlight rows, the id of the first column.
    is_stated : whether the user stated this id.
    """

    kind: Literal["codes", "dense", "sparse"]
    dtype: np.dtype
    width: int
    names: Sequence[str] | None = None
    var: Mapping[str, np.ndarray] = field(default_factory=dict)
    first_id: int | None = None
    is_stated: bool = False

    @property
    def record(self) -> ColumnRecord:
        """What is known about the columns, for a model that reads the rows."""
        variants = None
        if self.names is not None and "a1" in self.var:
            columns = (self.var[name].tolist() for name in VARIANT_COLUMNS)
            found = zip(*columns, strict=True)
            variants = KnownVariants({at: Variant(*cells) for at, cells in enumerate(found)})
        return ColumnRecord(self.names, self.first_id, self.is_stated, variants)


@dataclass(frozen=True)
class Categorical:
    """A column of text that repeats.

    codes : integers (m,), indices of categories.
    categories : one list for all blocks of a source. It may grow, and its elements keep their places.
    """

    codes: np.ndarray
    categories: list[str]


#: Numbers (m,), text (m,) of any numpy dtype, or a categorical
Column = np.ndarray | Categorical


@dataclass(frozen=True)
class ConvertedRows:
    """A block of m rows; every block of a source has the same columns, of the same dtypes.

    x : array (m, width) or SparseRows, as the layout of the source says. The ``n_columns`` of sparse rows
        are ignored.
    source_row : int64 (m,), number of the record in the input, from 0, counted over all files and dropped
        records.
    y : labels or numbers.
    weights : float (m,), or None, sample weights.
    obs : mapping of str to column, what is known about the rows; the writer adds ``source_row``.
    """

    x: np.ndarray | SparseRows
    source_row: npt.NDArray[np.int64]
    y: Column | None = None
    weights: np.ndarray | None = None
    obs: Mapping[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.source_row)


@dataclass(frozen=True)
class Budget:
    """Bytes that a conversion may use.

    total : for everything that a source holds at once, beyond the interpreter and the writer.
    block : for one block: the X of its rows, or the slice of the file that it comes from.
    scratch : folder for temporary files, which is the one of the output; None for the system's.
    """

    total: int
    block: int
    scratch: str | None = None

    def block_rows(self, row_bytes: int, least: int = 1) -> int:
        """How many rows of this size make a block.

        least : rows that a block should have, if a part of the budget holds them; for blocks that take
            time for each column, however few rows they have.
        """
        row_bytes = max(1, row_bytes)
        return max(1, self.block // row_bytes, min(least, self.total // _WIDE_PART // row_bytes))

    def check(self, what: str, size: int, part: int = 2, advice: str = "") -> None:
        """Raise BudgetError if something that a source must hold takes more than 1/part of the budget.

        what : in words, for the message; texts take ``TEXT_BYTES`` each, beside their letters.
        size : in bytes.
        advice : what else the user can do.
        """
        most = self.total // part
        if size > most:
            more = -(
                -2 * part * (size - most) // (1 << 20)
            )  # the writer gets its share of any budget
            raise BudgetError(
                f"{what} need {format_bytes(size)} of memory, more than the {format_bytes(most)} that "
                f"--memory leaves for them; raise --memory by at least {more} MiB{advice}"
            )


class ConvertSource(ABC):
    """The rows of foreign files; constructed by ``open_source`` of a reader.

    The constructor reads what it needs to know the layout, and rejects wrong options. Errors are
    ``InputError`` with the file and the line, the record, or the row and column.

    inputs : all files that are read, for the progress, and for the hashes that the output stores.
    rows_in : records that were read so far, dropped ones included.
    dropped : number of dropped records by reason, such as "beyond the end of the contig".
    notes : lines for the summary, such as "strand: column 6".
    """

    def __init__(self, inputs: Sequence[InputFile]) -> None:
        self.inputs = list(inputs)
        self.rows_in = 0
        self.dropped: Counter[str] = Counter()
        self.notes: list[str] = []

    @property
    @abstractmethod
    def layout(self) -> OutputLayout:
        """The layout of X; of sparse rows, all but ``kind`` may be final only at the end."""

    @abstractmethod
    def blocks(self, budget: Budget) -> Iterator[ConvertedRows]:
        """Iterate once over the kept rows, in the order of the input; blocks may be empty."""

    def drop(self, why: str, which: np.ndarray) -> None:
        """Count dropped records, of which a mask says which."""
        if which.any():
            self.dropped[why] += int(which.sum())

    def nothing_left(self, what: str, done: str) -> InputError:
        """The error if no record is left; what : record or site; done : "is left", or what else fails."""
        names = ", ".join(file.name for file in self.inputs)
        if not self.rows_in:
            return InputError(f"{names}: expected at least one {what}, found none")
        reasons = "; ".join(f"{count:,} {why}" for why, count in self.dropped.most_common())
        return InputError(f"{names}: none of {self.rows_in:,} records {done}: {reasons}")

    def attributes(self) -> dict[str, Any]:
        """Facts for the attributes of the output, which JSON can hold; asked for at the end."""
        return {}
