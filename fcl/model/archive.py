"""What the model file and the checkpoint share: an uncompressed zip of JSON and ``.npy`` members."""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = [
    "add_array",
    "add_member",
    "open_archive",
    "read_array",
    "read_json",
    "read_member",
    "write_json",
]

# a fixed date: the same content gives the same bytes
_DATE = (1980, 1, 1, 0, 0, 0)

#: Limits of a header: bytes, commas and brackets (a value takes about 100 bytes of memory), and depth. A
#: pass takes 500 bytes of history, so 100,000 passes fit.
JSON_BYTES = 64 << 20
JSON_VALUES = 4 << 20
JSON_DEPTH = 32
#: Most bytes of a list of members: an entry takes ten times its size of memory.
MOST_LISTED = 1 << 20


class _Bounded(io.FileIO):
    """A file that refuses to read more than `most` bytes at once."""

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
    """A zip open for reading; BadZipFile if its list of members is longer than one of ours can be."""
    with _Bounded(path) as file, zipfile.ZipFile(file) as archive:
        file.most = sys.maxsize
        yield archive


def add_member(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Store `content` under `name`; the bytes depend on nothing else."""
    info = zipfile.ZipInfo(name, _DATE)
    info.create_system = 3  # the default differs by platform
    info.external_attr = 0o644 << 16
    info.compress_type = zipfile.ZIP_STORED
    archive.writestr(info, content)


def add_array(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    """Store an array as the member `name`, ``.npy`` format 1.0, with its dtype as it is."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=False)
    add_member(archive, name, buffer.getvalue())


def write_json(value: Any, default: Any = None, allow_nan: bool = False) -> bytes:
    """A header as bytes of ASCII: labels and names may hold characters that UTF-8 cannot encode."""
    text = json.dumps(value, indent=1, default=default, allow_nan=allow_nan)
    if len(text) > JSON_BYTES:
        raise ValueError(f"the header has {len(text):,} bytes, expected at most {JSON_BYTES:,}")
    return text.encode("ascii") + b"\n"


def read_json(content: bytes) -> dict[str, Any]:
    """The object of a header; ValueError if it is not a JSON object, or too large or too deep."""
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
    """The bytes of a member, whose CRC-32 is checked; `kind` is "a model file", for messages.

    Raises ValueError unless it is there exactly once, stored without compression, within the file.
    """
    found = [info for info in archive.infolist() if info.filename == name]
    if len(found) != 1:
        what = "holds no" if not found else "holds more than one"
        raise ValueError(f"{what} {name}: not {kind}, or damaged")
    (info,) = found
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        # also a bound: a stored member cannot be larger than its file
        raise ValueError(f"{name} is compressed, {kind} is not; store it")
    file = archive.fp
    assert file is not None
    size = file.seek(0, io.SEEK_END)
    if info.header_offset + info.file_size > size:
        raise ValueError(f"{name} is damaged: it ends beyond the {size:,} bytes of the file")
    return archive.read(info)


def read_array(archive: zipfile.ZipFile, member: str, dtype: str, kind: str) -> np.ndarray:
    """The vector of a member: a copy, writable, in the byte order of this machine.

    dtype : as numpy spells it, with the byte order, such as ``<f8``.

    Raises ValueError for anything but a ``.npy`` of version 1.0 with a vector of this dtype whose length
    agrees with the size of the member.
    """
    content = read_member(archive, member, kind)
    buffer = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(buffer)
        if version != (1, 0):
            raise ValueError(f".npy version {version}, expected (1, 0)")
        shape, fortran, found = np.lib.format.read_array_header_1_0(buffer)
    except Exception as error:  # numpy parses the header as Python: many kinds
        raise ValueError(f"{member} is damaged ({error})") from error
    if found.str != dtype or len(shape) != 1 or fortran:
        raise ValueError(
            f"{member} must be a vector of {dtype}, got {found.str:.20} of shape {shape}"
        )
    # the announced shape is compared with the bytes that are there before anything is allocated
    there = len(content) - buffer.tell()
    if shape[0] * found.itemsize != there:
        raise ValueError(
            f"{member} is damaged: {shape[0]} values of {found.itemsize} bytes announced, "
            f"{there} bytes found"
        )
    values: np.ndarray = np.frombuffer(content, dtype, offset=buffer.tell())
    return values.astype(values.dtype.newbyteorder("="))
