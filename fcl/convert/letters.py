"""Nucleotide codes from letters: A = 0, C = 1, G = 2, T = U = 3, and 4 for any ambiguity code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.convert.contract import (
    Budget,
    Categorical,
    Column,
    ConvertedRows,
    ConvertSource,
    OutputLayout,
)
from fcl.convert.files import InputFile
from fcl.convert.rereading import RereadableFile
from fcl.data.sequences import CODE_OF_BYTE, UNKNOWN
from fcl.errors import InputError
from fcl.types import Ints, Mask
from fcl.units import counted

Codes = npt.NDArray[np.uint8]
Drop = Callable[[str, Mask], None]  #: :meth:`ConvertSource.drop`

#: The budget of a source must hold so many copies of a row.
_ROW_COPIES = 8
BLANK = b" \t\r\n\v\f"  #: bytes between letters that are skipped


def encode(text: bytes) -> bytes:
    """The codes of letters, one byte each, without blanks; 255 stands for any other character."""
    return text.translate(CODE_OF_BYTE, BLANK)


def first_invalid(codes: Codes) -> int:
    """Position of the first code that is not a nucleotide; -1 if all are."""
    if not len(codes) or codes.max() <= UNKNOWN:
        return -1
    return int((codes > UNKNOWN).argmax())


def reverse_complement(codes: Codes) -> Codes:
    """The reverse complements of rows (m, length), in new memory."""
    turned = np.subtract(3, codes[:, ::-1], dtype=np.uint8)  # 255 for an unknown letter
    return np.minimum(turned, UNKNOWN, out=turned)


@dataclass(frozen=True)
class Cut:
    """Which letters of a sequence become a row.

    length : letters of a row.
    anchor : "center", "start" or "end": the part of a longer sequence that is kept, and the place of a
        shorter one in its row.
    pad : fill up shorter sequences with unknown letters; otherwise they make no rows.
    """

    length: int
    anchor: str = "center"
    pad: bool = False

    def offsets(self, lengths: Ints) -> Ints:
        """Where rows begin in sequences of these lengths; below 0 for shorter ones."""
        spare = lengths - self.length
        return {"center": spare // 2, "start": 0 * spare, "end": spare}[self.anchor]

    def rows(self, codes: Codes, starts: Ints, lengths: Ints) -> Codes:
        """Rows (m, length) from sequences that begin at ``starts`` in ``codes``."""
        if not len(starts):
            return np.empty((0, self.length), np.uint8)
        if (lengths == self.length).all() and (np.diff(starts) == self.length).all():
            end = int(starts[-1]) + self.length
            return codes[int(starts[0]) : end].reshape(-1, self.length)
        offsets = self.offsets(lengths)
        fits = lengths >= self.length
        rows = np.full((len(starts), self.length), UNKNOWN, np.uint8)
        if fits.any():
            views = np.lib.stride_tricks.sliding_window_view(codes, self.length)
            rows[fits] = views[(starts + offsets)[fits]]
        for i in np.flatnonzero(~fits).tolist():
            start, end = int(starts[i]), int(starts[i] + lengths[i])
            rows[i, -offsets[i] : -offsets[i] + lengths[i]] = codes[start:end]
        return rows


@dataclass
class Trimmer:
    """Rows of one length from sequences that may have several; the first one decides without ``length``.

    length : ``--length``.
    anchor, pad : see :class:`Cut`.
    """

    length: int | None
    anchor: str = "center"
    pad: bool = False
    width: int = field(default=0, init=False)  #: letters of a row; 0 until there is one

    def __post_init__(self) -> None:
        if self.anchor == "summit":
            raise InputError("--anchor summit is for narrowPeak; expected center, start or end")
        self.width = self.length or 0

    def keep(self, lengths: Ints, drop: Drop, where: Callable[[int], str]) -> Mask:
        """Which sequences make rows; those that do not are counted, or refused without ``length``."""
        filled = lengths > 0
        drop("without letters", ~filled)
        if self.length is None and filled.any():
            self.width = self.width or int(lengths[filled.argmax()])
            other = filled & (lengths != self.width)
            if other.any():
                at = int(other.argmax())
                raise InputError(
                    f"{where(at)}: the sequence has {counted(lengths[at], 'letter')}, but the first has "
                    f"{self.width:,}; give --pad to fill up shorter ones with unknown letters, which "
                    "suits bag, or --length L and --anchor center, start or end to cut all to one length"
                )
        if self.length is None or self.pad:
            return filled
        short = filled & (lengths < self.length)
        drop(f"shorter than {counted(self.length, 'letter')}", short)
        return filled & ~short


@dataclass(frozen=True)
class Filter:
    """What is done to rows of codes before they are written.

    max_unknown : largest share of unknown letters among those that padding did not add; None keeps all
        rows.
    both_strands : add the reverse complement of each row behind it.
    """

    max_unknown: float | None = None
    both_strands: bool = False

    def blocks(
        self,
        rows: ConvertedRows,
        width: int,
        cut: Callable[[slice], tuple[Codes, Ints]],
        drop: Drop,
        budget: Budget,
    ) -> Iterator[ConvertedRows]:
        """Cut rows of `width` letters in parts that fit the budget, and apply the filter to them.

        rows : the columns of the rows, without X.
        cut : returns the letters of some of the rows, and how many letters of each were filled up.
        """
        if _ROW_COPIES * width > budget.total:
            raise InputError(
                f"rows of {counted(width, 'letter')} need more memory than the budget; give a "
                "smaller --length or "
                "--window, or raise --memory"
            )
        step = budget.block_rows(width)
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            x, filled = cut(part)
            yield self.apply(take(rows, part, x), drop, filled)

    def apply(self, rows: ConvertedRows, drop: Drop, filled: Ints) -> ConvertedRows:
        """Drop rows, count them, and add reverse complements.

        filled : letters of each row that padding added, int64 (m,). They say nothing about the quality of
            the sequence, and so are not counted; a row that has no other letters is dropped.
        """
        if self.max_unknown is not None and len(rows):
            x = np.asarray(rows.x)
            letters = x.shape[1] - filled
            unknown = np.count_nonzero(x == UNKNOWN, axis=1) - filled
            keep = (unknown <= self.max_unknown * letters) & (letters > 0)
            drop(f"with a share of unknown letters above {self.max_unknown:.4g}", ~keep)
            rows = take(rows, np.flatnonzero(keep)) if not keep.all() else rows
        return self._both(rows) if self.both_strands else rows

    def _both(self, rows: ConvertedRows) -> ConvertedRows:
        x = np.asarray(rows.x)
        both = np.stack([x, reverse_complement(x)], axis=1).reshape(-1, x.shape[1])
        twice = take(rows, np.repeat(np.arange(len(rows)), 2), x=both)
        groups = {"group": twice.source_row} | dict(twice.obs)
        is_reverse = np.tile(np.array([0, 1], np.int8), len(rows))
        return replace(twice, obs=groups | {"reverse_complement": is_reverse})


class SequenceSource(ConvertSource):
    """Sequences of any lengths, which are cut to rows of one length."""

    def __init__(self, inputs: Sequence[InputFile], options: Any) -> None:
        super().__init__(inputs)
        self.trimmer = Trimmer(options.length, options.anchor, options.pad)
        self._filter = Filter(options.max_unknown, options.both_strands)

    @property
    def layout(self) -> OutputLayout:
        return OutputLayout("codes", np.dtype(np.uint8), self.trimmer.width)

    def fit_longest(
        self, files: list[InputFile], budget: Budget, lengths: Callable[[InputFile], Iterator[Ints]]
    ) -> list[InputFile]:
        """Read files for the longest sequence, if ``--pad`` has no length; returns the files to read.

        lengths : the letters of the sequences of a file.
        """
        if not self.trimmer.pad or self.trimmer.length is not None:
            return files
        again = [RereadableFile(file, budget.scratch) for file in files]
        found = (int(some.max(initial=0)) for file in again for some in lengths(file.reopen()))
        longest = max(found, default=0)
        self.trimmer = replace(self.trimmer, length=longest)
        self.notes.append(
            f"length: {counted(longest, 'letter')}, as the longest sequence has; unknown letters fill up "
            "the others (--length)"
        )
        return [file.open_last() for file in again]

    def cut_rows(
        self, rows: ConvertedRows, starts: Ints, lengths: Ints, budget: Budget
    ) -> Iterator[ConvertedRows]:
        """The rows in blocks; their X is the letters, in which the sequences begin at ``starts``."""
        codes = np.asarray(rows.x)
        cut = Cut(self.trimmer.width, self.trimmer.anchor, self.trimmer.pad)

        def cut_part(part: slice) -> tuple[Codes, Ints]:
            filled = np.maximum(0, cut.length - lengths[part])
            return cut.rows(codes, starts[part], lengths[part]), filled

        return self._filter.blocks(rows, self.trimmer.width, cut_part, self.drop, budget)


def select(column: Column, index: np.ndarray | slice) -> Column:
    """Select values of a column by number or range."""
    if isinstance(column, Categorical):
        return replace(column, codes=column.codes[index])
    return column[index]


def take(
    rows: ConvertedRows, index: np.ndarray | slice, x: np.ndarray | None = None
) -> ConvertedRows:
    """Select rows by number or range; ``x`` replaces their X."""
    return ConvertedRows(
        x=np.asarray(rows.x)[index] if x is None else x,
        source_row=rows.source_row[index],
        y=None if rows.y is None else select(rows.y, index),
        weights=None if rows.weights is None else rows.weights[index],
        obs={name: select(column, index) for name, column in rows.obs.items()},
    )
