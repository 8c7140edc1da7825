"""Inputs that are read more than once, and inputs as file objects for other libraries."""

from __future__ import annotations

import io
import tempfile
import weakref
from collections.abc import Iterator
from typing import Any

from fcl.convert.files import InputFile
from fcl.errors import InputError


class RereadableFile:
    """A file that is read several times; standard input or a pipe is copied to a scratch file first.

    file : its bytes are hashed and counted once: by the copy, or by the last reading.
    scratch : folder of the copy; None for the system's.
    """

    def __init__(self, file: InputFile, scratch: str | None) -> None:
        self.file = file
        self.name = file.name
        self._copy: Any = None
        if file.size is None:  # it can be read only once
            self._copy = tempfile.NamedTemporaryFile(dir=scratch)  # noqa: SIM115
            weakref.finalize(self, self._copy.close)
            for piece in file.slices(1 << 20):
                self._copy.write(piece)
            self._copy.flush()

    def reopen(self) -> InputFile:
        """The file from its beginning, for a reading that is not the last."""
        found = InputFile(self._copy.name if self._copy else self.file.path)
        found.name = self.name
        return found

    def open_last(self) -> InputFile:
        """The file from its beginning, for the reading that counts as progress."""
        return self.reopen() if self._copy else self.file


class ByteStream(io.RawIOBase):
    """The decompressed bytes of an input as a file object.

    quotes : quotation marks read so far.
    """

    def __init__(self, file: InputFile, size: int) -> None:
        self._slices: Iterator[bytes] = file.slices(size)
        self._rest = memoryview(b"")
        self.quotes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as the present slice goes; 0 bytes at the end of the file."""
        if not self._rest:
            piece = next(self._slices, b"")
            self.quotes += piece.count(b'"')
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        memoryview(buffer)[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


#: A line may be so many times longer than a slice.
_LONGEST = 8


def complete_lines(
    file: InputFile,
    size: int,
    most: int | None = None,
    advice: str = "raise --memory, or check whether the lines end with a newline",
) -> Iterator[tuple[int, bytes]]:
    """Iterate over slices of complete lines, each with the number of its first line, from 1.

    most : bytes that a line may have about; by default several times ``size``.
    """
    file.check_encoding()
    most = _LONGEST * size if most is None else most
    first, waiting, n_waiting = 1, [b""], 0
    for piece in file.slices(size):
        end = piece.rfind(b"\n") + 1
        if end:
            text = b"".join([*waiting, piece[:end]])
            waiting, n_waiting = [], 0
            yield first, text
            first += text.count(b"\n")
        waiting.append(piece[end:])
        n_waiting += len(piece) - end
        if n_waiting > most:
            raise InputError(
                f"{file.name}: line {first}: expected lines of at most {most:,} bytes, got a longer one; "
                f"{advice}"
            )
    if rest := b"".join(waiting):
        yield first, rest
