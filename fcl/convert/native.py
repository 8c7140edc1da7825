"""Formats that need no conversion."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from fcl.data.open import FORMATS
from fcl.errors import InputError


def refuse_native(path: str | os.PathLike[str]) -> None:
    """Raise InputError if fcl reads a file or folder as it is: Zarr, HDF5 (also h5ad), npy."""
    found = Path(path)
    try:
        if not (found.is_file() or found.is_dir()):  # a pipe can be read only once
            return
        head = _head(found) if found.is_file() else b""
    except OSError:  # reported when the file is opened
        return
    if any(recognise(found, head) for recognise, _ in FORMATS):
        more = " --x X --y obs/LABEL" if found.suffix == ".h5ad" else ""
        raise InputError(
            f"{path}: fcl train reads this format as it is, without conversion: fcl train "
            f"{shlex.quote(os.fspath(path))}{more} --features columns --C 0.1 --out model.fcl"
        )


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(16)
