"""Run conversions of small files, and read what they wrote."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import zarr

import fcl
from fcl.convert import run
from fcl.convert.arrays import StoreLayout
from fcl.convert.run import Summary
from fcl.errors import InputError


@dataclass(frozen=True)
class Converted:
    """An output: X as an array, names of its columns, target, Zarr group, summary."""

    x: np.ndarray
    names: list[str] | None
    y: Any
    group: Any
    summary: Summary

    @property
    def notes(self) -> str:
        return "\n".join(self.summary.notes)


def converted(*paths: Path | str, **options: Any) -> Converted:
    """Convert files that lie in one folder."""
    out = Path(os.fspath(paths[-1])).parent / "out.zarr"
    with patch.object(run, "StoreLayout", lambda **_: StoreLayout(shard_bytes=1 << 20)):
        summary = run.convert(paths, out, **{"memory": "4GiB", "overwrite": True} | options)
    group = zarr.open_group(out, mode="r")
    data = fcl.open_data(out, y="y" if "y" in group else None)
    read = data.rows.read(0, data.n_rows)
    x = read if isinstance(read, np.ndarray) else read.to_dense()
    return Converted(x, data.column_names, data.target, group, summary)


def refusal(*paths: Path | str, **options: Any) -> str:
    """The message of a conversion that fails; it must be one line, and leave no output."""
    folder = Path(os.fspath(paths[-1])).parent
    before = sorted(folder.iterdir())
    with pytest.raises(InputError) as caught:
        run.convert(paths, folder / "no.zarr", **{"memory": "4GiB"} | options)
    assert sorted(folder.iterdir()) == before
    message = str(caught.value)
    assert "\n" not in message
    return message


def saved(folder: Path, name: str, content: bytes) -> Path:
    """Write a file."""
    path = folder / name
    path.write_bytes(content)
    return path
