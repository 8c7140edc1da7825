"""What the model file and the checkpoint share: an uncompressed zip of JSON and ``.npy`` members."""

from __future__ import annotations

import io
import zipfile

import numpy as np

__all__ = ["add_array", "add_member", "read_member", "read_npy_header"]

# a fixed date: the same content gives the same bytes
_DATE = (1980, 1, 1, 0, 0, 0)


def add_member(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Store `content` under `name`; the bytes depend on nothing else."""
    info = zipfile.ZipInfo(name, _DATE)
    info.create_system = 3  # else it tells the platform, and the bytes differ
    info.external_attr = 0o644 << 16
    info.compress_type = zipfile.ZIP_STORED
    archive.writestr(info, content)


def add_array(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    """Store an array as the member `name`, ``.npy`` format 1.0, with its dtype as it is."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=False)
    add_member(archive, name, buffer.getvalue())


def read_member(archive: zipfile.ZipFile, name: str, kind: str) -> bytes:
    """The bytes of a member, whose CRC-32 is checked; `kind` is "a model file", for messages.

    Raises ValueError if it is not there exactly once, or is compressed.
    """
    found = [info for info in archive.infolist() if info.filename == name]
    if len(found) != 1:
        what = "holds no" if not found else "holds more than one"
        raise ValueError(f"{what} {name}: not {kind}, or damaged")
    if found[0].compress_type != zipfile.ZIP_STORED:
        # also a guard: a stored member cannot be larger than the file it came in
        raise ValueError(f"{name} is compressed, {kind} is not; store it")
    return archive.read(found[0])


def read_npy_header(content: bytes) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """(shape, whether in Fortran order, dtype, where the values begin) of ``.npy`` bytes.

    Raises ValueError if that is no header of version 1.0.
    """
    buffer = io.BytesIO(content)
    version = np.lib.format.read_magic(buffer)
    if version != (1, 0):
        raise ValueError(f".npy version {version}, expected (1, 0)")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(buffer)
    return shape, fortran, dtype, buffer.tell()
