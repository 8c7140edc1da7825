"""Stamps of files, which show whether a source has changed since it was opened."""

from __future__ import annotations

import logging
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fcl.errors import InputError
from fcl.store import Location

_log = logging.getLogger("fcl")

# Number and size of the parts of a file, spaced from beginning to end, that are compared to find changes.
SAMPLES = 64
SAMPLE_BYTES = 4096


class Stamp(Protocol):
    """What shows whether a file or an object has changed since it was opened."""

    @property
    def path(self) -> Location:
        """Of the file or object."""

    def check(self) -> None:
        """Raise ``InputError`` if it has changed."""


@dataclass(frozen=True)
class FileStamp:
    """Size, modification time and sampled content of a file when it was opened."""

    path: Path
    size: int
    mtime_ns: int
    #: CRC-32 of spaced parts of the file, or of all of a small file; None: the file stands for others
    checksum: int | None

    @classmethod
    def of(cls, path: Path, stands_for_others: bool = False) -> FileStamp:
        """The stamp of an existing local file.

        stands_for_others : whether it is a metadata file, rewritten whenever the array's chunks are.
        """
        status = path.stat()
        checksum = None if stands_for_others else _sampled_checksum(path)
        return cls(path, status.st_size, status.st_mtime_ns, checksum)

    def check(self) -> None:
        """Raise ``InputError`` if the file has changed since the stamp was made.

        A new modification time with the same content, as after ``touch``, is accepted, with a warning
        if the content was only sampled.
        """
        try:
            status = self.path.stat()
            touched = self.mtime_ns != status.st_mtime_ns
            same = not touched or self.checksum == _sampled_checksum(self.path)
        except OSError as error:
            raise InputError(
                f"{self.path} can no longer be read ({error.strerror}); a source must stay in "
                "place until the run ends"
            ) from error
        if status.st_size != self.size or not same:
            what = f"was {self.size} bytes, is {status.st_size}"
            if status.st_size == self.size:
                what = "it has the same size, but a new modification time and other content"
                if self.checksum is None:
                    what = (
                        "it has a new modification time, so the array may have been written again"
                    )
            raise InputError(
                f"{self.path} changed while it was being read ({what}); a source must not "
                "change until its rows are read: run again when nothing writes to it"
            )
        if touched and self.size > SAMPLES * SAMPLE_BYTES:
            _log.warning(
                "%s has a new modification time since it was opened (touch, a copy or a backup?); its "
                "size and %d spaced samples of its content are the same, so the run continues",
                self.path,
                SAMPLES,
            )


def _sampled_checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        last = max(0, os.fstat(file.fileno()).st_size - SAMPLE_BYTES)
        for number in range(SAMPLES):
            file.seek(number * last // (SAMPLES - 1))
            checksum = zlib.crc32(file.read(SAMPLE_BYTES), checksum)
    return checksum
