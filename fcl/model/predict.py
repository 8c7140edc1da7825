"""Scores of rows in a file, written in blocks so that neither data nor scores must fit in memory."""

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
    """Score all rows of `data` into the file or store `out`, one block of rows at a time.

    Parameters
    ----------
    model : Model
    data : DataSet, path or array
        A data set, or a source for :func:`fcl.open_data`.
    out : path
        ``.npy`` (float64 (n,)), ``.tsv`` (one column headed by `kind`, 17 significant digits) or
        ``.zarr`` (float64 (n,), format 3, attribute ``kind``); it becomes visible when complete.
    kind : {"margin", "probability", "mean"}
        ``probability`` of the positive label (logistic loss only); ``mean`` is the expected target (the
        same probability, or exp(margin) for poisson loss).
    overwrite : bool
        Whether to replace an existing output.
    block_rows : int
        Largest number of rows per block.
    progress : callable
        Called after each block with the number of rows done.

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    InputError
        As from :meth:`Model.iter_margins`; or the suffix is unknown, `out` exists and `overwrite` is
        false, or the loss does not give the scores of this kind.
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
    transform(np.zeros(0))  # before anything is written, a loss without a mean raises InputError
    with open_scores(out, data.n_rows, kind, overwrite) as write:
        for start, stop, block in model.iter_margins(data, block_rows):
            write(start, stop, transform(block))
            if progress is not None:
                progress(stop)
    return data.n_rows
