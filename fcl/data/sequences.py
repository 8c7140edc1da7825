"""Rows as nucleotide sequences: blocks of codes, however they are stored.

Codes are A = 0, C = 1, G = 2, T = U = 3; N, the other ambiguity codes and gaps (-) are 4, unknown. Stored
forms:

    (n, L) integers 0-4             the codes
    (n, L) integers, S1 or U1       ASCII letters, one per element
    (n,)   S, U or variable text    one sequence per row, all of the same length

Row 0 determines whether integers are codes or letters, and the length of the sequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from fcl.data.base import VARIABLE_TEXT, BlockReader, Numbers, Piece, RowReader
from fcl.data.sparse import SparseRowReader
from fcl.errors import InputError
from fcl.units import counted

UNKNOWN = 4
LETTERS = {"A": 0, "C": 1, "G": 2, "T": 3, "U": 3} | dict.fromkeys("NRYSWKMBDHV-", UNKNOWN)

_BAD = 255  # in the look-up table: not a letter
CODE_OF_BYTE = bytes(LETTERS.get(chr(byte).upper(), _BAD) for byte in range(256))

# Letters are decoded in pieces that stay in the L2 cache, which more than doubles the speed.
_PIECE_LETTERS = 1 << 18


class SequenceReader(BlockReader):
    """Blocks of nucleotide codes from the rows of a data set; the constructor reads row 0.

    The rows are stored in any of the forms above.

    length : number of letters of every sequence.

    Raises InputError: the rows are not sequences.
    """

    def __init__(self, rows: RowReader[Any], keep: np.ndarray | None = None) -> None:
        super().__init__(rows, keep)
        self._text = rows.dtype.kind in "SU"
        self._check_form()
        first = rows.read(0, 1)
        if len(rows.shape) == 1:
            self.length = len(first[0])
            if self.length == 0:
                raise InputError(f"{rows.name}: row 0 is an empty sequence")
        else:
            self.length = rows.shape[1]
        self._letters = self._text or int(first[0, 0]) > UNKNOWN

    def iter_codes(
        self, block_rows: int, first: int = 0, last: int | None = None, width: int | None = None
    ) -> Iterator[tuple[int, int, np.ndarray]]:
        """Iterate over blocks of the kept rows ``first`` to ``last``, in order.

        Every storage chunk is decoded once; one chunk and one block are held at a time. Sequences shorter
        than ``width`` get unknown letters at their end.

        Yields start, stop (int), range of kept rows: ``block_rows`` of them, fewer in the last block;
            codes, uint8 (stop - start, width), 0-3, or 4 for unknown; C-contiguous. Each array is new, so
            the caller may keep or modify it.
        Raises InputError: an element is not a nucleotide; the message names row and column of the first
            one.
        """
        width = self.length if width is None else width
        block = np.empty((0, width), dtype=np.uint8)
        for piece in self._pieces(block_rows, first, last):
            start, stop, filled, numbers = piece[:4]
            if not filled:
                block = np.empty((stop - start, width), dtype=np.uint8)
                block[:, self.length :] = UNKNOWN
            self._decode(piece, block[filled : filled + len(numbers), : self.length])
            if piece.ends_block:
                yield start, stop, block
            del piece  # before the next chunk is read

    def _check_form(self) -> None:
        """Raise InputError for dtypes and shapes that cannot be sequences."""
        rows = self.rows
        expected = (
            "expected (n, L) integers 0-4 (A C G T, unknown) or ASCII letters, or (n,) text with "
            "one sequence per row"
        )
        if isinstance(rows, SparseRowReader):
            raise InputError(f"{rows.name} is a sparse matrix; {expected}")
        if rows.dtype.kind not in "iuSU":
            advice = (
                "; convert whole numbers with .astype('uint8')" if rows.dtype.kind == "f" else ""
            )
            raise InputError(f"{rows.name} has dtype {rows.dtype}; {expected}{advice}")
        if not self._text and len(rows.shape) == 1:
            raise InputError(f"{rows.name} has shape {rows.shape}, dtype {rows.dtype}; {expected}")
        one_letter = rows.dtype in (np.dtype("S1"), np.dtype("U1"))
        if self._text and len(rows.shape) == 2 and not one_letter:
            what = "variable text" if rows.dtype == VARIABLE_TEXT else f"dtype {rows.dtype}"
            raise InputError(
                f"{rows.name} has shape {rows.shape} and {what}, so more than one letter per "
                f"element; {expected}"
            )

    def _decode(self, piece: Piece, out: np.ndarray) -> None:
        """Write the codes of the rows of a piece into ``out``, uint8 (rows, length)."""
        step = max(1, _PIECE_LETTERS // self.length)
        for begin in range(0, len(out), step):
            some = slice(begin, begin + step)
            stored, part = piece.numbers[some], piece.take(some)
            values = self._text_values(part, stored) if self._text else part
            codes = out[some]
            if values.dtype != np.uint8 and (values.min() < 0 or values.max() > 255):
                row, column = _first((values < 0) | (values > 255))
                self._refuse(int(stored[row]), column, int(values[row, column]))
            if self._letters:
                # bytes.translate is about twice as fast as indexing the table with an array
                letters = values.astype(np.uint8, copy=False).tobytes()
                flat = np.frombuffer(letters.translate(CODE_OF_BYTE), dtype=np.uint8)
                codes[...] = flat.reshape(codes.shape)
            else:
                codes[...] = values
            if codes.max() > UNKNOWN:
                row, column = _first(codes > UNKNOWN)
                if self._text and part.ndim == 1:
                    self._check_length(int(stored[row]), part[row])
                self._refuse(int(stored[row]), column, int(values[row, column]))

    def _text_values(self, part: np.ndarray, stored: Numbers) -> np.ndarray:
        """Text as code points of its letters, (m, length); 0 after the end of a row."""
        part = np.ascontiguousarray(part.astype(part.dtype.newbyteorder("="), copy=False))
        unit = np.uint8 if part.dtype.kind == "S" else np.uint32
        values = part.view(unit).reshape(len(part), -1)
        width = values.shape[1]
        if width < self.length:  # then every row of this part is too short
            self._check_length(int(stored[0]), part[0])
        if width > self.length and values[:, self.length :].any():
            row, _ = _first(values[:, self.length :] != 0)
            self._check_length(int(stored[row]), part[row])
        return values[:, : self.length]

    def _check_length(self, row: int, sequence: str | bytes) -> None:
        if len(sequence) != self.length:
            raise InputError(
                f"{self.rows.name}: row {row} has {counted(len(sequence), 'letter')}, row 0 has "
                f"{self.length}; all sequences must have the same length (for bags pad them with N)"
            )

    def _refuse(self, row: int, column: int, value: int) -> NoReturn:
        """Raise InputError for an element that is invalid, or a letter among codes or vice versa."""
        where = f"{self.rows.name}: row {row}, column {column}"
        is_letter = 0 <= value < 256 and CODE_OF_BYTE[value] != _BAD
        if self._letters:
            if not self._text and 0 <= value <= UNKNOWN:
                raise InputError(
                    f"{where} is the code {value}, but row 0 holds letters; use one form throughout"
                )
            shown = repr(chr(value)) if self._text or 32 < value < 127 else str(value)
            raise InputError(
                f"{where} is {shown}, not a nucleotide; expected A, C, G, T, U, an ambiguity "
                "code (N R Y S W K M B D H V) or a gap (-), in either case"
            )
        if is_letter:
            raise InputError(
                f"{where} is the letter {chr(value)!r} ({value}), but row 0 holds codes; use one "
                "form throughout"
            )
        raise InputError(f"{where} is {value}; expected the codes 0-3 (A C G T) or 4 (unknown)")


def _first(bad: np.ndarray) -> tuple[int, int]:
    """Row and column of the first true element."""
    row, column = np.unravel_index(int(bad.argmax()), bad.shape)
    return int(row), int(column)
