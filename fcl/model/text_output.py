"""Outputs of text: a file that appears when it is complete, compressed by suffix, or standard output."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fcl.errors import InputError
from fcl.files.atomic import atomic_file, check_output

STDOUT = "-"  #: as the name of an output

_COMPRESSED = ".gz"
#: Suffixes of formats that are no text.
_BINARY = (
    ".npy",
    ".npz",
    ".zarr",
    ".h5",
    ".hdf5",
    ".h5ad",
    ".parquet",
    ".bz2",
    ".xz",
    ".zst",
    ".zip",
)
#: zlib's levels above this one take several times as long as scoring does.
_LEVEL = 4


def check_text_output(path: str, overwrite: bool) -> None:
    """Raise InputError if an output of text cannot be written."""
    if path == STDOUT:
        return
    suffix = Path(path).suffix.lower()
    if suffix in _BINARY:
        raise InputError(
            f"{path}: scores of these inputs are text; expected a name such as scores.tsv or "
            f"scores.tsv.gz, or - for standard output, got the suffix {suffix}"
        )
    check_output(path, overwrite)


def text_suffix(path: str | os.PathLike[str]) -> str:
    """The suffix of an output in lower case without ``.gz``; ``.tsv`` for standard output."""
    name = os.fspath(path).lower()
    return ".tsv" if name == STDOUT else Path(name.removesuffix(_COMPRESSED)).suffix


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """Whether the suffix of an output asks for compression."""
    return os.fspath(path).lower().endswith(_COMPRESSED)


@contextmanager
def text_output(path: str | os.PathLike[str], overwrite: bool) -> Iterator[IO[bytes]]:
    """Open an output of bytes of text; ``.gz`` compresses, and ``-`` is standard output.

    Raises InputError: as :func:`fcl.files.atomic.atomic_file`.
    """
    if os.fspath(path) == STDOUT:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with atomic_file(path, overwrite) as file:
        if not is_compressed(path):
            yield file
            return
        # without name and time, so that the same scores are the same bytes
        with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
            yield packed  # type: ignore[misc]
