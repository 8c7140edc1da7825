"""What the first lines of a table say about the options with which ``fcl convert`` reads it."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

_DELIMITERS = "\t,;|"
#: Those that ``fcl convert`` knows in tables of sequences.
_OF_SEQUENCES = "\t,"
_MOST_LINES = 6
#: A sequence: words of a language seldom have four letters that are all bases.
_SEQUENCE = re.compile(r"\s*[ACGTUN]{4,}\s*", re.IGNORECASE)
_NUMBER = re.compile(r"\s*[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?\s*")


@dataclass(frozen=True)
class TableHead:
    """The first lines of a table.

    rows : cells of each line, of which there are as many in every line.
    delimiter : the character between them.
    """

    rows: Sequence[Sequence[str]]
    delimiter: str

    @classmethod
    def of(cls, head: bytes) -> TableHead | None:
        """Parse the first bytes of a file, which may end within a line; None if they are no table."""
        whole = head[: head.rfind(b"\n") + 1] or head
        if b"\0" in whole:
            return None
        try:
            lines = [line for line in whole.decode("utf-8-sig").splitlines() if line.strip()][
                :_MOST_LINES
            ]
        except UnicodeDecodeError:
            return None
        delimiter = next((mark for mark in _DELIMITERS if lines and mark in lines[0]), None)
        if delimiter is None:
            return None
        rows = list(csv.reader(lines, delimiter=delimiter))
        return cls(rows, delimiter) if len({len(row) for row in rows}) == 1 else None

    @property
    def sequences(self) -> int | None:
        """Index of the first column of nucleotide sequences; None without one."""
        if self.delimiter not in _OF_SEQUENCES:
            return None
        columns = enumerate(zip(*(self.rows[1:] or self.rows), strict=True))
        return next((at for at, cells in columns if all(map(_SEQUENCE.fullmatch, cells))), None)

    @property
    def has_header(self) -> bool:
        """Whether the first line holds names: no sequence, and at most half of the cells are numbers."""
        first = self.rows[0]
        if self.sequences is not None:
            return _SEQUENCE.fullmatch(first[self.sequences]) is None
        return 2 * sum(_NUMBER.fullmatch(cell) is not None for cell in first) <= len(first)

    def options(self) -> str:
        """Options for the columns; COLUMN stands for what the user must choose."""
        at = self.sequences
        if at is None:
            return f"{'' if self.has_header else '--no-header '}--y COLUMN"
        others = [i for i in range(len(self.rows[0])) if i != at]
        y = self._named(others[0]) if len(others) == 1 else "COLUMN"
        return f"--x {self._named(at)} --y {y}"

    def _named(self, at: int) -> str:
        return shlex.quote(self.rows[0][at].strip()) if self.has_header else str(at + 1)
