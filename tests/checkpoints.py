"""A checkpoint that conforms to the tables in fcl/files/checkpoint.py, and crafted files."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Members = dict[str, bytes]


def state(**changes: Any) -> dict[str, Any]:
    """The state of a job before its first pass."""
    return {
        "objective": 0.1 + 0.2,
        "intercept": -0.5,
        "bound": -math.inf,
        "max_violation": math.inf,
        "gap": math.inf,
        "sharpness": 1.0,
        "drawn": 3,
        "grown": 1.0,
        "idle": 0,
        "beta": 1.0,
        "evicted": 0,
        "last": {},
    } | changes


def arrays(**changes: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of a job with three weights and two cached columns."""
    return {
        "ids": np.array([3, 7, 1 << 40]),
        "weights": np.array([0.1, -0.0, 5e-324]),
        "cached": np.array([7, 3]),
        "seen": np.array([True, False]),
    } | changes


def npy(array: np.ndarray, pickle: bool = False) -> bytes:
    """An array as the bytes of a ``.npy`` file."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=pickle)
    return buffer.getvalue()


def rewrite(path: Path, change: Callable[[Members], object], compress: int = 0) -> None:
    """Rewrite members of a model file or a checkpoint, with valid checksums."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", compress) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def set_header(path: Path, *place: str, **values: Any) -> None:
    """Set keys of the header, or of an object within it; the value ``...`` removes a key."""

    def change(members: Members) -> None:
        header = json.loads(members["header.json"])
        target = header
        for key in place:
            target = target[key]
        for name, value in values.items():
            target[name] = value
            if value is ...:
                del target[name]
        members["header.json"] = json.dumps(header).encode()

    rewrite(path, change)


def set_array(path: Path, name: str, array: np.ndarray) -> None:
    """Replace an array of a checkpoint."""
    rewrite(path, lambda members: members.update({f"arrays/{name}.npy": npy(array)}))
