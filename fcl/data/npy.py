"""``.npy`` files: a folder of them as a container, or one file and the files beside it.

Files are read in ranges, not mapped, because pages of a mapped file count as memory of the process.
"""

from __future__ import annotations

import io
from collections.abc import Collection
from pathlib import Path
from typing import IO

import numpy as np

from fcl.data.base import (
    Container,
    RowReader,
    check_array,
    no_such_array,
    one_line,
    rows_per_step,
)
from fcl.data.stamps import FileStamp, Stamp
from fcl.errors import InputError
from fcl.store import Location, RemotePath

SUFFIX = ".npy"
MAGIC = b"\x93NUMPY"
MOST_HEADER = 1 << 16
#: Versions that are read; 3.0 differs only in the names of fields, and records are not supported.
VERSIONS = ((1, 0), (2, 0))


class NpyReader(RowReader[np.ndarray]):
    """Rows of one ``.npy`` file, in C or Fortran order."""

    def __init__(self, path: Location, name: str) -> None:
        self.name = name
        self._path = path
        with path.open("rb") as file:
            try:
                self.shape, fortran, self.dtype = read_header(file)
            except ValueError as error:
                raise InputError(f"{path} is not a readable .npy file: {error}") from error
            self._fortran, self._offset = fortran and len(self.shape) == 2, file.tell()
        check_array(name, self.shape, self.dtype)
        n_columns = self.shape[1] if len(self.shape) == 2 else 1
        self._row_bytes = n_columns * self.dtype.itemsize
        self.chunk_rows = rows_per_step(self.shape[0], self._row_bytes)
        needed = self._offset + self.shape[0] * self._row_bytes
        size = path.stat().st_size
        if size < needed:
            raise InputError(
                f"{name} is truncated: shape {self.shape} and dtype {self.dtype} need {needed} "
                f"bytes, {path} has {size}. Write it again"
            )

    def read(self, start: int, stop: int) -> np.ndarray:
        count = stop - start
        self.allow_rows(count)
        with self._path.open("rb") as file:
            if not self._fortran:
                file.seek(self._offset + start * self._row_bytes)
                values = self._from_file(file, count * (self._row_bytes // self.dtype.itemsize))
                return values.reshape(count, *self.shape[1:])
            columns = np.empty((self.shape[1], count), dtype=self.dtype)
            for j in range(self.shape[1]):
                file.seek(self._offset + (j * self.shape[0] + start) * self.dtype.itemsize)
                columns[j] = self._from_file(file, count)
            return columns.T

    def _from_file(self, file: IO[bytes], count: int) -> np.ndarray:
        values = np.empty(count, self.dtype)
        if file.readinto(values.view(np.uint8).data) < values.nbytes:  # type: ignore[attr-defined]
            raise InputError(f"{self.name}: {self._path} became shorter while it was being read")
        return values


def read_header(
    file: IO[bytes], versions: Collection[tuple[int, int]] = VERSIONS
) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, Fortran order and dtype of an array in ``.npy`` format; the file is then at its data.

    Raises ValueError for another version, and for anything that numpy does not read.
    """
    try:
        version = np.lib.format.read_magic(file)
        if version not in versions:
            expected = " or ".join(f"{major}.{minor}" for major, minor in versions)
            raise ValueError(f"version {version[0]}.{version[1]}, expected {expected}")
        # numpy would read a longer header as a whole
        width = 2 if version == (1, 0) else 4
        length = int.from_bytes(file.read(width), "little")
        file.seek(-width, io.SEEK_CUR)
        if length > MOST_HEADER:
            raise ValueError(f"a header of {length:,} bytes, expected at most {MOST_HEADER:,}")
        form = np.lib.format
        read = form.read_array_header_1_0 if width == 2 else form.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if any(isinstance(length, bool) for length in shape):  # which Python counts as 0 and 1
            raise ValueError(f"expected whole numbers as its shape, got {shape}")
    except MemoryError:
        raise
    except Exception as error:  # numpy parses the header as Python: any error is possible
        raise ValueError(one_line(error)) from error
    return shape, fortran, dtype


class NpyContainer(Container):
    """A folder of ``NAME.npy`` files, or one file ``X.npy`` and files named relative to it."""

    def __init__(self, path: Location) -> None:
        self.name = path.resolve().name
        self._single = path if path.is_file() else None
        self._folder = path.parent if self._single else path
        self._stamps: list[Stamp] = []

    def open_array(self, path: str, may_be_empty: bool = False) -> RowReader[np.ndarray]:
        return self._open_file(self._find(path))

    def open_rows(self, path: str) -> RowReader[np.ndarray]:
        if self._single is None:
            return self.open_array(path)
        if path not in ("X", self._single.stem):
            raise InputError(
                f'{self.name} is one array, so it holds no "{path}"; leave the name of X out, or '
                "give the folder"
            )
        return self._open_file(self._single)

    def stamps(self) -> list[Stamp]:
        return self._stamps

    def _open_file(self, file: Location) -> RowReader[np.ndarray]:
        self._stamps.append(file.stamp() if isinstance(file, RemotePath) else FileStamp.of(file))
        return NpyReader(file, file.name if self._single else f"{self.name}:{file.stem}")

    def _find(self, path: str) -> Location:
        candidates = [self._folder / path, self._folder / (path + SUFFIX)]
        if self._single:
            # A path on the command line is relative to the working folder.
            candidates.insert(0, Path(path))
        for candidate in candidates:
            if candidate.is_file():
                return candidate
        where = f"the folder of {self.name}" if self._single else self.name
        raise no_such_array(where, path, (file.stem for file in self._folder.glob("*" + SUFFIX)))


def open_npy(path: Location, group: str) -> Container:
    """Open the container at a path; raises InputError for a group, since ``.npy`` has no groups."""
    if group:
        raise InputError(f"{path} has no groups, so ::/{group} cannot be found in it")
    return NpyContainer(path)


def is_npy(path: Location, head: bytes) -> bool:
    """Whether a path is a ``.npy`` file or a folder of ``.npy`` files."""
    if path.is_dir():
        return any(path.glob("*" + SUFFIX))
    return path.suffix == SUFFIX or head.startswith(MAGIC)
