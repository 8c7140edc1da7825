"""Prediction: margins block by block, so that neither data nor scores need fit in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.model.scores import open_scores

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.model.model import Model

__all__ = ["iter_margins", "margins", "require_probability", "write_scores"]

Floats = npt.NDArray[np.float64]

#: the same cut as in training; a block of windows is a few MB
BLOCK_ROWS = 65_536


def iter_margins(
    model: Model, data: DataSet | Any, block_rows: int = BLOCK_ROWS
) -> Iterator[tuple[int, int, Floats]]:
    """Yield (start, stop, margins float64 (stop - start,)), intercept included, in row order.

    data : a DataSet, or what ``open_data`` takes (a path, an array); a target is not needed.
    Raises InputError for rows of another length than the training rows, naming both.
    """
    rows = _open(data).rows
    scorer = model.family.scorer(model.ids, model.weights)
    block_rows = min(block_rows, model.family.most_block_rows())  # wide rows: fewer at a time
    for start, stop, block in model.family.read_rows(rows, block_rows):
        yield start, stop, scorer.margins(block) + model.intercept


def margins(model: Model, data: DataSet | Any, block_rows: int = BLOCK_ROWS) -> Floats:
    """float64 (n,): all margins at once."""
    data = _open(data)
    out = np.empty(data.n_rows)
    for start, stop, block in iter_margins(model, data, block_rows):
        out[start:stop] = block
    return out


def require_probability(model: Model) -> None:
    """Raise InputError unless the model's margins give probabilities."""
    loss = model.loss_object
    if not (loss.classifies and loss.has_mean):
        raise InputError(
            f"probabilities need a model of logistic loss, this one has {model.loss} loss; "
            "ask for margins instead"
        )


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
    kind     "margin", or "probability" (of the positive label; logistic loss only).
    progress called with the number of rows done, after each block.

    Holds one block at a time. Raises InputError as `iter_margins`, for another suffix, and if
    `out` exists and `overwrite` is false.
    """
    if kind == "probability":
        require_probability(model)
    elif kind != "margin":
        raise InputError(f'kind must be "margin" or "probability", got {kind!r}')
    data = _open(data)
    with open_scores(out, data.n_rows, kind, overwrite) as write:
        for start, stop, block in iter_margins(model, data, block_rows):
            write(start, stop, model.loss_object.mean(block) if kind == "probability" else block)
            if progress is not None:
                progress(stop)
    return data.n_rows


def _open(data: DataSet | Any) -> DataSet:
    from fcl.data import DataSet, open_data

    return data if isinstance(data, DataSet) else open_data(data, y=None)
