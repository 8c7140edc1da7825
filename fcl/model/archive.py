"""The container of models and checkpoints: an uncompressed zip of JSON and ``.npy`` members."""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np

from fcl.store import open_file, open_raw
from fcl.version import __version__

# a fixed date: the same content gives the same bytes
_DATE = (1980, 1, 1, 0, 0, 0)

#: Limits of a header: bytes, number of values (about 100 bytes of memory each), and depth. A pass adds
#: 500 bytes of history, so 100,000 passes fit.
JSON_BYTES = 64 << 20
JSON_VALUES = 4 << 20
JSON_DEPTH = 32
#: Largest list of members, in bytes: an entry takes ten times its size in memory.
MOST_LISTED = 1 << 20


#: Read at once, since each read from an object store is a request.
_BUFFER_BYTES = 1 << 18


class _Bounded(io.BufferedReader):
    """A file that raises BadZipFile instead of reading more than `most` bytes at once."""

    most = MOST_LISTED

    def read(self, size: int | None = -1, /) -> bytes:
        size = -1 if size is None else size
        if size > self.most:
            raise zipfile.BadZipFile(
                f"its list of members has {size:,} bytes, expected at most {self.most:,}"
            )
        return super().read(size)


@contextmanager
def open_archive(path: str | os.PathLike[str]) -> Iterator[zipfile.ZipFile]:
    """Open a zip for reading; raises BadZipFile if its list of members is too long to be ours."""
    with _Bounded(open_raw(path), _BUFFER_BYTES) as file, zipfile.ZipFile(file) as archive:
        file.most = sys.maxsize
        yield archive


def is_zip(path: str | os.PathLike[str]) -> bool:
    """Whether a file has the list of members of a zip."""
    try:
        with open_file(path) as file:
            return zipfile.is_zipfile(file)
    except OSError:
        return False


def add_member(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Store `content` under `name`; the bytes of the member depend on nothing else."""
    archive.writestr(_member(name), content)


def add_array(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    """Store an array as the member `name` in ``.npy`` format 1.0, with its own dtype.

    It is written in pieces, so that a large array needs no second copy.
    """
    info = _member(name)
    # the size says whether the member needs the format of large files; a header has at most 64 KiB
    info.file_size = array.nbytes + (1 << 16)
    with archive.open(info, "w") as file:
        np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)


def _member(name: str) -> zipfile.ZipInfo:
    """What the zip says about a member, which depends on its name alone."""
    info = zipfile.ZipInfo(name, _DATE)
    info.create_system = 3  # the default differs by platform
    info.external_attr = 0o644 << 16
    info.compress_type = zipfile.ZIP_STORED
    return info


def now() -> str:
    """The time of creation for a header: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def installed_version() -> str:
    """The installed version of fcl, for a header."""
    return __version__


def write_json(value: Any, default: Any = None, allow_nan: bool = False) -> bytes:
    """Encode a header in ASCII: labels and names may hold characters that UTF-8 cannot encode."""
    text = json.dumps(value, indent=1, default=default, allow_nan=allow_nan)
    if len(text) > JSON_BYTES:
        raise ValueError(f"the header has {len(text):,} bytes, expected at most {JSON_BYTES:,}")
    return text.encode("ascii") + b"\n"


def read_json(content: bytes) -> dict[str, Any]:
    """Parse a header; raises ValueError if it is not a JSON object, or is too large or too deep."""
    if len(content) > JSON_BYTES:
        raise ValueError(f"it has {len(content):,} bytes, expected at most {JSON_BYTES:,}")
    n_values = sum(content.count(c) for c in (b",", b"[", b"{"))
    if n_values > JSON_VALUES:
        raise ValueError(f"it has about {n_values:,} values, expected at most {JSON_VALUES:,}")
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got a {type(value).__name__}")
    level: list[Any] = [value]
    for _ in range(JSON_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    if level:
        raise ValueError(f"it is nested more than {JSON_DEPTH} deep")
    return value


def read_member(archive: zipfile.ZipFile, name: str, kind: str) -> bytes:
    """Read the bytes of a member and check its CRC-32.

    kind : what the archive should be, for messages, such as "a model file".

    Raises ValueError unless there is exactly one such member, uncompressed and within the file.
    """
    found = [info for info in archive.infolist() if info.filename == name]
    if len(found) != 1:
        what = "holds no" if not found else "holds more than one"
        raise ValueError(f"{what} {name}: not {kind}, or damaged")
    (info,) = found
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        # this also bounds its size: a stored member cannot be larger than its file
        raise ValueError(f"{name} is compressed; expected {kind} without compression")
    file = archive.fp
    assert file is not None
    size = file.seek(0, io.SEEK_END)
    if info.header_offset + info.file_size > size:
        raise ValueError(f"{name} is damaged: it ends beyond the {size:,} bytes of the file")
    return archive.read(info)


def read_array(archive: zipfile.ZipFile, member: str, dtype: str, kind: str) -> np.ndarray:
    """Read the vector of a member: a writable copy in the byte order of this machine.

    dtype : numpy's name with the byte order, such as ``<f8``.

    Raises ValueError unless the member is a ``.npy`` of version 1.0 that holds a vector of this dtype,
    whose length agrees with the size of the member.
    """
    content = read_member(archive, member, kind)
    buffer = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(buffer)
        if version != (1, 0):
            raise ValueError(f".npy version {version}, expected (1, 0)")
        shape, fortran, found = np.lib.format.read_array_header_1_0(buffer)
    except Exception as error:  # numpy parses the header as Python: any error is possible
        raise ValueError(f"{member} is damaged ({error})") from error
    if found.str != dtype or len(shape) != 1 or fortran:
        raise ValueError(
            f"{member} must be a vector of {dtype}, got {found.str:.20} of shape {shape}"
        )
    # compare the declared shape with the bytes found before anything is allocated
    there = len(content) - buffer.tell()
    if shape[0] * found.itemsize != there:
        raise ValueError(
            f"{member} is damaged: {shape[0]} values of {found.itemsize} bytes declared, "
            f"{there} bytes found"
        )
    values: np.ndarray = np.frombuffer(content, dtype, offset=buffer.tell())
    return values.astype(values.dtype.newbyteorder("="))
