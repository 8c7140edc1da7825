"""Scores of rows in a file: block by block, so that neither data nor scores need fit in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.model.model import BLOCK_ROWS, Model, opened
from fcl.model.scores import open_scores

if TYPE_CHECKING:
    from fcl.data import DataSet

__all__ = ["write_scores"]

Floats = npt.NDArray[np.float64]


def write_scores(
    model: Model,
    data: DataSet | Any,
    out: str | os.PathLike[str],
    kind: str = "margin",
    overwrite: bool = False,
    block_rows: int = BLOCK_ROWS,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Score all rows of `data` into the file or store `out`; returns the number of rows.

    out      .npy (float64 (n,)), .tsv (one column headed by `kind`, 17 significant digits) or
             .zarr (float64 (n,), format 3, attribute ``kind``); it becomes visible when complete.
    kind     "margin"; "probability" of the positive label (logistic loss only); or "mean", the expected
             target (that probability too, or exp(margin) of poisson loss).
    progress called with the number of rows done, after each block.

    Holds one block at a time. Raises InputError as :meth:`Model.iter_margins`, for another suffix, and if
    `out` exists and `overwrite` is false.
    """
    if kind == "probability":
        model.require_probability()
    elif kind not in ("margin", "mean"):
        raise InputError(f'kind must be "margin", "probability" or "mean", got {kind!r}')
    data = opened(data)
    model.require_offset(data)
    transform: Callable[[Floats], Floats] = model.loss_object.mean
    if kind == "margin":
        transform = np.asarray
    transform(np.zeros(0))  # raises InputError for a loss without a mean before anything is written
    with open_scores(out, data.n_rows, kind, overwrite) as write:
        for start, stop, block in model.iter_margins(data, block_rows):
            write(start, stop, transform(block))
            if progress is not None:
                progress(stop)
    return data.n_rows
