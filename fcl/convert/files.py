"""Input files: plain or compressed, on disk or from standard input, hashed while they are read."""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import io
import os
import select
import shlex
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from fcl.checks import file_kind, shown
from fcl.errors import InputError
from fcl.memory.allowance import allow
from fcl.parallel import POLL

STDIN = "-"

#: decompressed bytes that recognise a format
HEAD_BYTES = 1 << 16
_OPENERS: tuple[tuple[bytes, Any], ...] = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open))
#: first bytes of compressions that fcl does not read -> the command that decompresses them
_OTHER_COMPRESSIONS = {b"\xfd7zXZ\0": "xz -d", b"\x28\xb5\x2f\xfd": "zstd -d"}


class InputFile:
    """A file, or standard input, that is read from beginning to end.

    path : ``-`` is standard input.
    size : stored bytes; None for standard input and pipes.
    elsewhere : stored bytes that another library has read; a reader that uses one sets it, for the
        progress.

    name : for messages.
    state : size and time in words; empty for standard input and pipes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.is_stdin = os.fspath(path) == STDIN
        self.name = "standard input" if self.is_stdin else os.fspath(path)
        self.size: int | None = None
        self.state = ""
        self.elsewhere = 0
        self._is_read = False
        if not self.is_stdin and not is_pipe(path):  # such as <(zcat a.gz b.gz)
            kind = file_kind(path)
            if kind != "file":
                what = "is a folder, expected a file" if kind else "does not exist"
                raise InputError(f"{self.name} {what}")
            found = os.stat(path)
            self.size, self.state = found.st_size, file_state(found)
        with self._named_errors():
            self._raw = _Counted(None if self.is_stdin else self.path)
            self._stored = io.BufferedReader(self._raw, HEAD_BYTES)
            magic_bytes = self._stored.peek(8)
            self._check_compression(magic_bytes)
            opener = next(
                (open_ for magic, open_ in _OPENERS if magic_bytes.startswith(magic)), None
            )
            self._plain: Any = self._stored if opener is None else opener(self._stored)
        self.compressed = opener is not None
        self._pending = b""

    @property
    def done(self) -> int:
        """Stored bytes that were read so far."""
        return max(self._raw.done, self.elsewhere)

    @property
    def head(self) -> bytes:
        """The first decompressed bytes, which are read again by :meth:`slices`."""
        if not self._is_read and len(self._pending) < HEAD_BYTES:
            self._pending += self._read(HEAD_BYTES - len(self._pending))
            self._pending = self._pending.removeprefix(codecs.BOM_UTF8)
            if self._pending.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise InputError(
                    f"{self.name} is UTF-16 text; expected UTF-8: {recoding(self.name, 'UTF-16')}"
                )
        return self._pending

    def text_slices(self, size: int) -> Iterator[bytes]:
        """As :meth:`slices`, for a file that :meth:`check_lines` accepts."""
        self.check_lines()
        return self.slices(size)

    def slices(self, size: int) -> Iterator[bytes]:
        """Iterate once over the decompressed bytes, in slices of at most about ``size`` bytes."""
        piece, self._pending = self.head, b""
        self._is_read = True
        while piece:
            yield piece
            piece = self._read(size)

    def check_encoding(self) -> None:
        """Raise InputError if the first bytes look like UTF-16 or UTF-32 without a byte order mark."""
        start = self.head[:256]
        if 3 * start.count(0) > len(start) > 0:
            raise InputError(
                f"{self.name}: every other byte is NUL, as in UTF-16; expected text in UTF-8: "
                f"{recoding(self.name, 'UTF-16LE')} (or UTF-16BE)"
            )

    def check_lines(self) -> None:
        """Raise InputError if only carriage returns separate the lines, by the first bytes."""
        self.check_encoding()
        if b"\r" in self.head and b"\n" not in self.head:
            raise InputError(
                f"{self.name}: carriage returns alone separate the lines; expected line feeds: convert "
                "it with tr '\\r' '\\n'"
            )

    def read_text(self) -> str:
        """All of a small file as text."""
        self.check_encoding()
        pieces: list[bytes] = []
        size = 0
        for piece in self.slices(1 << 20):
            size += len(piece)
            allow(f"{self.name}: {size:,} bytes of text, or more, need", 2 * size)
            pieces.append(piece)
        content = b"".join(pieces)
        if b"\0" in content:
            line = content.count(b"\n", 0, content.index(b"\0")) + 1
            raise InputError(f"{self.name}: line {line}: expected text in UTF-8, got a NUL byte")
        return decoded(self.name, content)

    def describe(self) -> dict[str, Any]:
        """Name, size and SHA-256 (hex) of the stored bytes, which are read to their end."""
        with self._named_errors():
            while self._stored.read(1 << 20):
                pass
        return {
            "name": STDIN if self.is_stdin else self.path.name,
            "bytes": self._raw.done,
            "sha256": self._raw.hash.hexdigest(),
        }

    def _read(self, size: int) -> bytes:
        with self._named_errors():
            pieces: list[bytes] = []
            while size > 0 and (piece := self._plain.read(size)):
                pieces.append(piece)
                size -= len(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _check_compression(self, first_bytes: bytes) -> None:
        for magic, command in _OTHER_COMPRESSIONS.items():
            if first_bytes.startswith(magic):
                raise InputError(
                    f"{self.name} is compressed in a way that fcl does not read; expected plain text, "
                    f"gzip or bzip2: decompress it first with {command}"
                )

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except EOFError as error:
            raise InputError(
                f"{self.name} ends in the middle of its compressed data; it is incomplete: copy or "
                "download it again"
            ) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{self.name} cannot be decompressed: {error}") from error
        except OSError as error:
            if error.errno is None:  # bz2 raises it for damaged data
                raise InputError(f"{self.name} cannot be decompressed: {error}") from error
            raise InputError(f"{self.name} cannot be read: {error.strerror}") from error


def recoding(name: str, encoding: str) -> str:
    """The command that makes UTF-8 of a text file, for messages."""
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(name)} > UTF8.txt"


def decoded(name: str, content: bytes, first: int = 1) -> str:
    """Lines of the file `name` as text, of which the first has this number."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = first + content.count(b"\n", 0, error.start)
        raise InputError(
            f"{name}: line {line} is not UTF-8 text, but perhaps Latin-1: {recoding(name, 'LATIN1')}"
        ) from None


def named_twice(file: str, what: str, name: str, first: int, second: int) -> InputError:
    """The error of a name in two lines of a file."""
    return InputError(
        f"{file}: the {what} {shown(name)} is in the lines {first} and {second}; expected each {what} "
        "once"
    )


def file_state(found: os.stat_result) -> str:
    """Size and time of a file in words, by which a change of the file is noticed."""
    return f"{found.st_size:,} bytes of {datetime.fromtimestamp(found.st_mtime)}"


def is_pipe(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to a named pipe, which can be read only once."""
    with suppress(OSError, ValueError):
        return stat.S_ISFIFO(os.stat(path).st_mode)
    return False


def _opened(path: Path | None) -> tuple[Any, bool]:
    """A file, or standard input (None), without a buffer, and whether to close it after reading."""
    if path is not None:
        return open(path, "rb", 0), True
    try:
        return open(sys.stdin.fileno(), "rb", 0, closefd=False), True
    except (AttributeError, OSError, ValueError):  # not a file of the system
        return sys.stdin.buffer, False


def _pipe_number(file: Any) -> int | None:
    """The descriptor of a file whose reads may wait for bytes; None for others."""
    try:
        number: int = file.fileno()
    except (AttributeError, OSError, ValueError):
        return None
    return None if stat.S_ISREG(os.fstat(number).st_mode) else number


class _Counted(io.RawIOBase):
    """The stored bytes of a file, or of standard input, which are counted and hashed."""

    def __init__(self, path: Path | None) -> None:
        self.done = 0
        self.hash = hashlib.sha256()
        if path is None and sys.stdin is None:
            raise InputError("standard input (-) is closed; expected a file or a pipe")
        self._file, self._closes = _opened(path)
        self._pipe = _pipe_number(self._file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # Python handles a signal that comes just before a read only after the read
        while self._pipe is not None and not select.select([self._pipe], [], [], POLL)[0]:
            pass
        count = self._file.readinto(buffer) or 0
        self.hash.update(memoryview(buffer)[:count])
        self.done += count
        return count

    def close(self) -> None:
        if self._closes:
            self._file.close()
        super().close()
