"""HDF5 to Zarr, array by array: for object stores, from which HDF5 is not read."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from fcl.convert.arrays import TEXT, ArrayStore, StoreLayout
from fcl.data.base import VARIABLE_TEXT, RowReader, chunk_ranges
from fcl.data.hdf5 import Hdf5Container
from fcl.data.open import split_group
from fcl.errors import InputError
from fcl.files.atomic import atomic_folder, check_output
from fcl.store import kind_of
from fcl.units import counted, format_bytes


def copy_hdf5(
    source: str | os.PathLike[str], out: str | os.PathLike[str], overwrite: bool = False
) -> list[tuple[str, str]]:
    """Copy the groups, arrays and attributes of an HDF5 file, or of one group in it, to a Zarr group.

    :func:`fcl.open_data` reads the same values from both. Arrays of bytes of one letter become codes of
    letters, and other bytes become text.

    source : ``file.h5`` or ``file.h5::/group``.
    out : the Zarr folder, or its URL; its name ends in ``.zarr``.

    Returns lines of a summary: what was written, and what was left out.
    """
    if not os.fspath(out).endswith(".zarr"):
        raise InputError(
            f"the last argument is the output: expected a name that ends in .zarr, got {os.fspath(out)}"
        )
    check_output(out, overwrite, folder=True)
    path, group = split_group(source)
    if kind_of(path) != "file":
        raise InputError(f"{path}: expected an HDF5 file, found none; check the name")
    container = Hdf5Container(path, group)
    left: list[str] = []
    arrays = size = 0
    with atomic_folder(out, overwrite) as folder, ArrayStore(folder, StoreLayout()) as store:
        store.root.update_attributes(_attributes(container, ""))
        for name, is_array in container.nodes():
            if not is_array:
                store.root.create_group(name, attributes=_attributes(container, name))
                continue
            try:
                rows = container.open_array(name, may_be_empty=True)
            except InputError:  # of another shape or dtype than fcl reads
                left.append(name)
                continue
            _copy(rows, store, name)
            store.root[name].update_attributes(_attributes(container, name))
            arrays, size = arrays + 1, size + rows.dtype.itemsize * int(np.prod(rows.shape))
    lines = [("arrays", f"{counted(arrays, 'array')}, {format_bytes(size)}")]
    if left:
        lines.append(
            ("left out", f"{', '.join(left)}: expected numbers or text of 1 or 2 dimensions")
        )
    return lines


def _copy(rows: RowReader[np.ndarray], store: ArrayStore, path: str) -> None:
    text = rows.dtype == VARIABLE_TEXT or (rows.dtype.kind == "S" and len(rows.shape) == 1)
    dtype = TEXT if text else np.dtype(np.uint8) if rows.dtype.kind == "S" else rows.dtype
    if rows.dtype.kind == "S" and not text and rows.dtype.itemsize != 1:
        raise InputError(
            f"{rows.name} has shape {rows.shape} and dtype {rows.dtype}; expected one letter per element"
        )
    if np.issubdtype(dtype, np.longdouble):
        dtype = np.dtype(np.float64)  # Zarr has no longer numbers
    target = store.array(path, dtype, rows.shape[1] if len(rows.shape) == 2 else None)
    for start, stop in chunk_ranges(rows):
        values = rows.read(start, stop)
        if rows.dtype.kind == "S":
            values = np.char.decode(values, "utf-8", "replace") if text else values.view(np.uint8)
        target.append(values.astype(dtype, copy=False))
    target.finish()


def _attributes(container: Hdf5Container, path: str) -> dict[str, Any]:
    """The attributes of a node that JSON can hold."""
    found = {}
    for name in container.attribute_names(path):
        value = container.attribute(path, name)
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            continue
        found[name] = value
    return found
