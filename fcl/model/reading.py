"""Reads model files of any format; what is wrong with a file becomes one ModelFileError that names it."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fcl.checks import shortened, shown
from fcl.errors import InputError, ModelFileError
from fcl.model import schema
from fcl.model.archive import is_zip, open_archive, read_json, read_member
from fcl.store import kind_of, locate

HEADER = "header.json"
KIND = "a model file"


@dataclass(frozen=True)
class HeaderFormat:
    """What a header must be.

    Attributes
    ----------
    name : str
        Value of the key ``format``.
    version : int
        The largest version that is read.
    table : callable
        The schema of the header.
    """

    name: str
    version: int
    table: schema.Check


@contextmanager
def open_model(path: str | os.PathLike[str]) -> Iterator[zipfile.ZipFile]:
    """Open a model file, to be read and checked within the context.

    Raises
    ------
    InputError
        The path leads to a FIFO, a socket or a device.
    ModelFileError
        The file is missing or damaged, or the context raised an error about it.
    """
    where = os.fspath(path)
    place = locate(path)
    kind_of(place)
    try:
        with open_archive(path) as archive:
            yield archive
    except InputError as error:
        raise ModelFileError(f"{where}: {error}") from error
    except FileNotFoundError:
        raise ModelFileError(f"{where}: no such model file") from None
    except IsADirectoryError:
        raise ModelFileError(f"{where}: is a folder, not a model file") from None
    except PermissionError:
        raise ModelFileError(f"{where}: no permission to read it") from None
    # a damaged zip raises many kinds of errors; RuntimeError if it looks encrypted
    except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, OSError) as error:
        what = "damaged" if is_zip(place) else "not a model file"
        raise ModelFileError(f"{where}: {what} ({shortened(str(error))})") from error
    except (ValueError, LookupError, struct.error) as error:
        raise ModelFileError(f"{where}: {shortened(str(error), 400)}") from error


def read_header(archive: zipfile.ZipFile, expected: HeaderFormat) -> dict[str, Any]:
    """The checked header of an open model file; raises ModelFileError, or ValueError without any."""
    content = read_member(archive, HEADER, KIND)
    try:
        header = read_json(content)
    except ValueError as error:
        raise ModelFileError(f"{HEADER} is not usable JSON: {error}") from error
    if header.get("format") != expected.name:
        raise ModelFileError(
            f"not a model file: format is {shown(header.get('format'))}, expected {expected.name!r}"
        )
    version = header.get("version")
    if type(version) is not int or version < 1:
        raise ModelFileError(f"version must be an integer from 1, got {shown(version)}")
    if version > expected.version:
        raise ModelFileError(
            f"format version {shown(version)}, this fcl reads up to {expected.version}: made by a newer "
            f"fcl? (it says {shown(header.get('fcl_version'))}); upgrade fcl to read it"
        )
    try:
        checked: dict[str, Any] = expected.table("", header)
    except schema.Mismatch as error:
        raise ModelFileError(f"{HEADER}: {error}") from error
    return checked
