"""FASTA records as codes, slice by slice; a record may be longer than a slice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fcl.convert.files import InputFile
from fcl.convert.letters import BLANK, Codes, encode, first_invalid
from fcl.data.sequences import CODE_OF_BYTE
from fcl.errors import InputError
from fcl.types import Ints

#: Bytes that a header has at most.
_MOST_HEADER = 16 << 20


@dataclass(frozen=True)
class RecordPiece:
    """Records of a slice of a file; the last one may continue in the next piece.

    continued : letters of the last record of the piece before.
    headers : header lines without the ``>``; there may be a carriage return at the end.
    lengths : int64 (records,), letters of each record in this piece.
    codes : uint8 (letters,), letters of the records, one after the other.
    """

    continued: Codes
    headers: list[bytes]
    lengths: Ints
    codes: Codes
    _parts: list[bytes]
    _first_line: int

    def lines(self) -> Ints:
        """Line numbers of the headers, from 1."""
        counts = np.array([part.count(b"\n") + 1 for part in self._parts], np.int64)
        return self._first_line + np.cumsum(counts)[:-1]


def pieces(file: InputFile, slice_bytes: int) -> Iterator[RecordPiece]:
    """Read a FASTA file in slices.

    Letters may be in either case; blanks and empty lines between them are skipped.
    """
    # the number of the line that text[0] belongs to, which may be the end of a line carried over
    line, carry, found = 0, b"\n", False
    for data in file.text_slices(slice_bytes):
        text = carry + data
        parts = text.split(b"\n>")
        # a header that ends beyond the slice, or a line that may turn out to be one
        carry = b"\n" if text.endswith(b"\n") else b""
        if len(parts) > 1 and b"\n" not in parts[-1]:
            carry = b"\n>" + parts.pop()
        if not found:
            _check_start(file, parts[0], line)
        yield _piece(file, parts, line)
        found = found or len(parts) > 1
        line += text.count(b"\n", 0, len(text) - len(carry))
        if len(carry) > _MOST_HEADER:
            raise InputError(
                f"{file.name}: line {line + 1}: expected a header of at most {_MOST_HEADER:,} bytes, got "
                "a longer one; does the file lack line ends?"
            )
    if carry.startswith(b"\n>"):
        yield _piece(file, [b"", carry[2:] + b"\n"], line)
    elif not found:
        raise InputError(f"{file.name}: expected FASTA records, which begin with >, found none")


def _check_start(file: InputFile, text: bytes, line: int) -> None:
    """Raise InputError for text before the first record."""
    if rest := text.lstrip(BLANK):
        line += text[: len(text) - len(rest)].count(b"\n")
        shown = rest.partition(b"\n")[0][:40].decode("utf-8", "replace")
        raise InputError(
            f"{file.name}: line {line}: expected a record, which begins with >, got {shown!r}"
        )


def _piece(file: InputFile, parts: list[bytes], first_line: int) -> RecordPiece:
    cut = [part.partition(b"\n") for part in parts[1:]]
    letters = [sequence.translate(CODE_OF_BYTE, BLANK) for _, _, sequence in cut]
    piece = RecordPiece(
        continued=np.frombuffer(encode(parts[0]), np.uint8),
        headers=[header for header, _, _ in cut],
        lengths=np.fromiter(map(len, letters), np.int64, len(letters)),
        codes=np.frombuffer(b"".join(letters), np.uint8),
        _parts=parts,
        _first_line=first_line,
    )
    for codes in (piece.continued, piece.codes):
        if first_invalid(codes) >= 0:
            _refuse_letter(file, parts, first_line)
    return piece


def _refuse_letter(file: InputFile, parts: list[bytes], first_line: int) -> None:
    """Raise InputError that names the line of the first character that is not a nucleotide."""
    text = b"\n>".join(parts)
    for number, line in enumerate(text.split(b"\n")):
        is_header = line.startswith(b">")
        at = -1 if is_header else first_invalid(np.frombuffer(encode(line), np.uint8))
        if at >= 0:
            letter = line.translate(None, BLANK)[at : at + 1].decode("latin-1")
            raise InputError(
                f"{file.name}: line {first_line + number}: {letter!r} is not a nucleotide; expected A, "
                "C, G, T, U, an ambiguity code (N R Y S W K M B D H V) or a gap (-), in either case"
            )
