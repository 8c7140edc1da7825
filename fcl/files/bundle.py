"""Bundles: an uncompressed zip of a JSON header, arrays in ``.npy`` format, and other members.

All models, checkpoints and states are bundles. A file may come from a stranger: nothing in a bundle is
executed, no size that a bundle announces is believed, and no value reaches the program that the table of
its kind does not declare. ``docs/reference/model_file.md`` is the specification.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from fcl.checks import shortened, shown
from fcl.data.npy import read_header
from fcl.errors import InputError, ModelFileError
from fcl.files import schema
from fcl.files.atomic import atomic_file
from fcl.store import kind_of, locate, open_file, open_raw
from fcl.version import __version__

HEADER = "header.json"
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

#: Errors that a damaged zip raises; RuntimeError if it looks encrypted.
_DAMAGED_ZIP = (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, OSError)
#: Errors that wrong values raise.
_WRONG_VALUES = (ValueError, LookupError, struct.error, TypeError, AttributeError, OverflowError)

Members = Mapping[str, np.ndarray | bytes]


class DamagedFile(ModelFileError):
    """A file is not an intact bundle of its kind."""


def now() -> str:
    """The time of creation for a header: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def installed_version() -> str:
    """The installed version of fcl, for a header."""
    return __version__


# -- kinds of files --------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileKind:
    """A kind of bundle."""

    format: str  #: value of the key ``format``; empty for a header without format and version
    version: int  #: the largest that is read
    noun: str  #: what a file is, for messages, such as "model file"
    table: schema.Check  #: of the header without its format and version
    header: str = HEADER  #: name of the member with the header
    #: completes a checked header of an earlier version of fcl
    upgrade: Callable[[dict[str, Any]], dict[str, Any]] = lambda header: header
    #: advice about files of other formats, in which FOLDER stands for their folder
    other_formats: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""  #: what to say of a bundle without the header

    def encode(
        self, header: Mapping[str, Any], version: int | None = None, allow_nan: bool = False
    ) -> bytes:
        """The member with the header; raises ValueError if a reader would reject it, or lose a part."""
        # format and version come first, for people who open the file in a pager
        first = {"format": self.format, "version": version or self.version} if self.format else {}
        content = write_json({**first, **header}, allow_nan)
        stored = read_json(content)
        kept = first | self.table("", stored)
        if extra := schema.undeclared(stored, kept):
            raise ValueError(
                f"undeclared in the {self.header} of a {self.noun}: {', '.join(extra)}"
            )
        return content

    def decode(self, content: bytes, folder: str = "") -> dict[str, Any]:
        """The checked header in a member; raises ModelFileError, which does not name the file."""
        try:
            header = read_json(content)
        except ValueError as error:
            raise DamagedFile(f"{self.header} is not usable JSON: {error}") from error
        if self.format:
            self._check_version(header, folder)
        try:
            checked: dict[str, Any] = self.table("", header)
        except schema.Mismatch as error:
            raise DamagedFile(f"{self.header}: {error}") from error
        return self.upgrade(checked)

    def _check_version(self, header: Mapping[str, Any], folder: str) -> None:
        """Check the version before everything else, since a newer version may hold anything."""
        found, version = header.get("format"), header.get("version")
        if isinstance(found, str) and (advice := self.other_formats.get(found)):
            raise ModelFileError(advice.replace("FOLDER", folder))
        if found != self.format:
            raise DamagedFile(
                f"not a {self.noun}: format is {shown(found)}, expected {self.format!r}"
            )
        if type(version) is not int or version < 1:
            raise DamagedFile(f"version must be an integer from 1, got {shown(version)}")
        if version > self.version:
            raise ModelFileError(
                f"format version {shown(version)}, this fcl reads up to {self.version}: made by a newer "
                f"fcl? (it says {shown(header.get('fcl_version'))}); upgrade fcl to read it"
            )


# -- reading ---------------------------------------------------------------------------------------


class Bundle:
    """An open bundle: its checked header, and its members."""

    def __init__(self, archive: zipfile.ZipFile, kind: FileKind, folder: str) -> None:
        self._archive, self._noun = archive, f"a {kind.noun}"
        self.member_names = frozenset(archive.namelist())  #: of all members
        if kind.missing and kind.header not in self.member_names:
            raise InputError(kind.missing)
        self.header = kind.decode(self.member(kind.header), folder)

    def member(self, name: str) -> bytes:
        """The bytes of a member, of which the CRC-32 is right; raises ValueError."""
        return read_member(self._archive, name, self._noun)

    def vector(self, name: str, dtype: str) -> np.ndarray:
        """The vector in the member ``name.npy``: a writable copy in the byte order of this machine.

        dtype : NumPy's name with the byte order, such as ``<f8``.

        Raises ValueError unless the member is a ``.npy`` of version 1.0 that holds a vector of this
        dtype, whose length agrees with the size of the member.
        """
        member = f"{name}.npy"
        content = self.member(member)
        buffer = io.BytesIO(content)
        try:
            shape, fortran, found = read_header(buffer, [(1, 0)])
        except ValueError as error:
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


@contextmanager
def open_bundle(path: str | os.PathLike[str], kind: FileKind) -> Iterator[Bundle]:
    """Open a bundle, to be read and checked within the context.

    Raises ModelFileError for a file of a newer version, one that must not be read, and for an InputError
    of the context; DamagedFile for a missing or damaged file, one of another kind, and other errors.
    """
    where, place = os.fspath(path), locate(path)
    kind_of(place)
    try:
        with open_archive(path) as archive:
            yield Bundle(archive, kind, os.path.dirname(where))
    except FileNotFoundError:
        raise DamagedFile(f"{where}: no such {kind.noun}") from None
    except IsADirectoryError:
        raise DamagedFile(f"{where}: is a folder, not a {kind.noun}") from None
    except PermissionError:
        raise ModelFileError(f"{where}: no permission to read it") from None
    except DamagedFile as error:
        raise DamagedFile(f"{where}: {error}") from error
    except InputError as error:
        raise ModelFileError(f"{where}: {error}") from error
    except _DAMAGED_ZIP as error:
        what = "damaged" if _is_zip(place) else f"not a {kind.noun}"
        raise DamagedFile(f"{where}: {what} ({shortened(str(error))})") from error
    except _WRONG_VALUES as error:
        text = str(error) or type(error).__name__
        raise DamagedFile(f"{where}: {shortened(text, 400)}") from error


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


def _is_zip(path: Any) -> bool:
    """Whether a file has the list of members of a zip."""
    try:
        with open_file(path) as file:
            return zipfile.is_zipfile(file)
    except OSError:
        return False


def read_member(archive: zipfile.ZipFile, name: str, what: str) -> bytes:
    """Read the bytes of a member and check its CRC-32.

    what : what the archive should be, for messages, such as "a model file".

    Raises ValueError unless there is exactly one such member, uncompressed and within the file.
    """
    found = [info for info in archive.infolist() if info.filename == name]
    if len(found) != 1:
        number = "no" if not found else "more than one"
        raise ValueError(f"holds {number} {name}: not {what}, or damaged")
    (info,) = found
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        # this also bounds its size: a stored member cannot be larger than its file
        raise ValueError(f"{name} is compressed; expected {what} without compression")
    file = archive.fp
    assert file is not None
    size = file.seek(0, io.SEEK_END)
    if info.header_offset + info.file_size > size:
        raise ValueError(f"{name} is damaged: it ends beyond the {size:,} bytes of the file")
    return archive.read(info)


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


# -- writing ---------------------------------------------------------------------------------------


def write_bundle(
    path: str | os.PathLike[str],
    members: Iterable[tuple[str, np.ndarray | bytes]],
    overwrite: bool = False,
) -> None:
    """Write members, each with its name, to a file, completely or not at all."""
    with atomic_file(path, overwrite) as file, zipfile.ZipFile(file, "w") as archive:
        for name, content in members:
            if isinstance(content, bytes):
                archive.writestr(_member(name), content)
            else:
                _write_array(archive, _member(name), content)


def to_vector(array: Any, dtype: str) -> np.ndarray:
    """An array as a vector of a dtype with a byte order, row by row; a copy only where needed."""
    return np.ascontiguousarray(array).ravel().astype(dtype, casting="safe", copy=False)


def _write_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, array: np.ndarray) -> None:
    """Write an array in ``.npy`` format 1.0 in pieces, so that a large array needs no second copy."""
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


def write_json(value: Any, allow_nan: bool = False) -> bytes:
    """Encode a header in ASCII: labels and names may hold characters that UTF-8 cannot encode."""
    text = json.dumps(value, indent=1, default=_scalar, allow_nan=allow_nan)
    if len(text) > JSON_BYTES:
        raise ValueError(f"the header has {len(text):,} bytes, expected at most {JSON_BYTES:,}")
    return text.encode("ascii") + b"\n"


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a header cannot hold {type(value).__name__}: {value!r}")
