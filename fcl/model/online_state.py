"""The state of an online learner in a model file, from which learning resumes.

Three members beside those of every model: ``online.json`` (options, place and sums of the run),
``online_ids.npy`` and ``online_state.npy`` (the features that were touched, and what the learner keeps of
each), and ``online_sums.npy`` (the learner's numbers that belong to no feature).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.errors import InputError, ModelFileError
from fcl.model.archive import read_array, read_json, read_member, write_json
from fcl.model.reading import KIND, open_model

__all__ = ["OnlineState", "read_state"]

#: Members, and the dtypes of arrays; the state may be of float32.
RUN, IDS, TABLE, SUMS = "online.json", "online_ids.npy", "online_state.npy", "online_sums.npy"


@dataclass(frozen=True)
class OnlineState:
    """Where a run stands.

    Attributes
    ----------
    run : dict
        JSON values: method, options, place in the data, sums.
    ids : int64 (k,)
    table : float64 or float32 (k, columns)
    sums : float64
    """

    run: dict[str, Any]
    ids: np.ndarray
    table: np.ndarray
    sums: np.ndarray

    def members(self) -> Mapping[str, bytes | np.ndarray]:
        """The members of the file."""
        own = {"columns": self.table.shape[1], "table": self.table.dtype.name, **self.run}
        return {
            RUN: write_json(own),
            IDS: self.ids.astype("<i8", copy=False),
            TABLE: self.table.ravel().astype(f"<f{self.table.itemsize}", copy=False),
            SUMS: self.sums.astype("<f8"),
        }


def read_state(path: str | os.PathLike[str]) -> OnlineState:
    """Read the state in a model file.

    Raises ModelFileError if the file has none, or it is damaged.
    """
    with open_model(path) as archive:
        if RUN not in archive.namelist():
            raise InputError(
                "expected a model of fcl online with the state of its learner, got a model without one "
                "(trained otherwise, compact, or with --bare)"
            )
        run = read_json(read_member(archive, RUN, KIND))
        columns, dtype = run.pop("columns", None), run.pop("table", None)
        if dtype not in ("float64", "float32") or type(columns) is not int or columns < 1:
            raise ModelFileError(f"{RUN}: expected columns and a dtype of the state")
        ids = read_array(archive, IDS, "<i8", KIND)
        table = read_array(archive, TABLE, f"<f{np.dtype(dtype).itemsize}", KIND)
        if len(table) != columns * len(ids):
            raise ModelFileError(
                f"{TABLE}: expected {columns} numbers for each of {len(ids)} ids, got {len(table)}"
            )
        return OnlineState(
            run, ids, table.reshape(-1, columns), read_array(archive, SUMS, "<f8", KIND)
        )
