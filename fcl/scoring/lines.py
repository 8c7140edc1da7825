"""Rows with their scores as lines of text: tables with a header, and BED."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fcl.convert.contract import Categorical, Column, ConvertedRows
from fcl.errors import InputError
from fcl.model.outputs import Scores
from fcl.scoring.sites import SITE_STRANDS
from fcl.types import Bytes, Floats

ScoreKind = Literal["margin", "probability", "mean", "predicted"]

#: Characters that would end a cell or a line.
_SEPARATORS = str.maketrans({"\t": " ", "\n": " ", "\r": " "})
#: Columns of a table, in this order; other columns of the rows follow.
_PLACES = ("chromosome", "start", "end", "name", "strand")
#: Columns of the rows that say nothing about a score.
_LEFT_OUT = ("source_row",)
_DECIMALS = 6


class LineFormat(ABC):
    """How scores become text."""

    @abstractmethod
    def head(self, rows: ConvertedRows) -> bytes:
        """The header for a source whose blocks have the columns of ``rows``."""

    @abstractmethod
    def lines(self, rows: ConvertedRows, margins: Floats) -> list[bytes] | bytes:
        """The lines of a block: one for each row, or all in one."""

    @abstractmethod
    def blank(self) -> bytes:
        """The line of a record that was dropped."""


class TableLines(LineFormat):
    """Tab-separated columns with a header: what is known about the row, then scores.

    Numbers have as many digits as restore them.

    scores : as :func:`fcl.model.outputs.table_scores` returns them.
    """

    def __init__(self, scores: Sequence[Scores]) -> None:
        self._scores = scores
        self._columns: list[str] = []

    def head(self, rows: ConvertedRows) -> bytes:
        self._columns = known_names(rows) or ["row"]
        names = [name for scores in self._scores for name in scores.names]
        return ("\t".join([*self._columns, *names]) + "\n").encode()

    def lines(self, rows: ConvertedRows, margins: Floats) -> list[bytes]:
        columns = [cells_of(known_column(rows, name)) for name in self._columns]
        for scores in self._scores:
            columns += map(cells_of, scores.columns(margins))
        return [f"{line}\n".encode() for line in map("\t".join, zip(*columns, strict=True))]

    def blank(self) -> bytes:
        n_scores = sum(len(scores.names) for scores in self._scores)
        return b"\t" * (len(self._columns) + n_scores - 1) + b"\n"


def known_names(rows: ConvertedRows) -> list[str]:
    """The columns that a table shows of rows, in its order; ``end`` follows from ``start``."""
    known = [*rows.obs, *(["end"] if "start" in rows.obs else [])]
    places = [name for name in _PLACES if name in known]
    return places + [name for name in known if name not in (*_PLACES, *_LEFT_OUT)]


def known_column(rows: ConvertedRows, name: str) -> Column:
    """The values of a column of :func:`known_names`, or the number of the record for ``row``."""
    if name == "row":
        return rows.source_row
    if name == "end":
        start = rows.obs["start"]
        assert isinstance(start, np.ndarray)
        return start + np.asarray(rows.x).shape[1]
    return rows.obs[name]


def cells_of(column: Column) -> Iterable[str]:
    """The values of a column as text without tabs and line ends."""
    if isinstance(column, Categorical):
        words = [word.translate(_SEPARATORS) for word in column.categories]
        return [words[code] if code >= 0 else "" for code in column.codes.tolist()]
    if column.dtype.kind in "iufb":
        return map(repr, column.tolist())
    return [str(value).translate(_SEPARATORS) for value in column.tolist()]


@dataclass(frozen=True)
class BedLines(LineFormat):
    """BED: contig, start, end, name, score, strand of sites; without a header.

    Scores have 6 decimals. The lines of a block are made together, without a loop over rows.

    scores : of one column.
    name : of each site; its number of letters is the length of the site.
    """

    scores: Scores
    name: str

    def head(self, rows: ConvertedRows) -> bytes:
        return b""

    def blank(self) -> bytes:
        raise InputError("--keep-dropped is for files of rows, not for the sites of a genome")

    def lines(self, rows: ConvertedRows, margins: Floats) -> bytes:
        chrom, start, strand = (rows.obs[name] for name in ("chromosome", "start", "strand"))
        assert isinstance(chrom, Categorical) and isinstance(strand, Categorical)
        assert isinstance(start, np.ndarray)
        if not len(start):
            return b""
        scores = self.scores.of(margins)
        contig = chrom.categories[int(chrom.codes[0])].translate(_SEPARATORS)
        ends = np.array([f"\t{sign}\n".encode() for sign in SITE_STRANDS]).view(np.uint8)
        parts = [
            _text(f"{contig}\t", len(start)),
            integer_cells(start),
            _text("\t", len(start)),
            integer_cells(start + len(self.name)),
            _text(f"\t{self.name}\t", len(start)),
            _fixed_cells(scores),
            ends.reshape(len(SITE_STRANDS), -1).take(strand.codes, axis=0),
        ]
        return np.concatenate(parts, axis=1).tobytes().translate(None, b"\0")


def _text(text: str, n: int) -> Bytes:
    """The same text in each of n rows, uint8 (n, letters)."""
    letters = np.frombuffer(text.encode(), np.uint8)
    return np.broadcast_to(letters, (n, len(letters)))


def integer_cells(values: np.ndarray, least: int = 1) -> Bytes:
    """Integers >= 0 as text of at least some digits, after zero bytes: uint8 (n, digits)."""
    is_short = values.max(initial=0) < 1 << 32
    rest: npt.NDArray[Any] = values.astype(np.uint32 if is_short else np.uint64)
    width = max(least, len(str(int(rest.max(initial=0)))))
    cells = np.zeros((len(rest), width), np.uint8)
    for place in range(width - 1, -1, -1):
        shorter = rest // 10
        digit = (rest - 10 * shorter + ord("0")).astype(np.uint8)
        cells[:, place] = digit if width - place <= least else np.where(rest > 0, digit, 0)
        rest = shorter
    return cells


def _fixed_cells(values: Floats) -> Bytes:
    """Numbers with 6 decimals as text, uint8 (n, letters), with zero bytes before them."""
    scaled = np.rint(np.abs(values) * 10**_DECIMALS)
    if not (scaled < 2**63).all():  # numbers that no fixed number of digits can hold
        words = [f"{value:.6g}".encode() for value in values.tolist()]
        return np.array(words).view(np.uint8).reshape(len(words), -1)
    digits = integer_cells(scaled.astype(np.uint64), _DECIMALS + 1)
    sign = np.where((values < 0) & (scaled > 0), ord("-"), 0).astype(np.uint8)[:, None]
    whole, decimals = digits[:, :-_DECIMALS], digits[:, -_DECIMALS:]
    return np.concatenate([sign, whole, _text(".", len(values)), decimals], axis=1)
