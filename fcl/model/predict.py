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

__all__ = ["iter_margins", "margins", "require_offset", "require_probability", "write_scores"]

Floats = npt.NDArray[np.float64]

#: the same cut as in training; a block of windows is a few MB
BLOCK_ROWS = 65_536


def iter_margins(
    model: Model, data: DataSet | Any, block_rows: int = BLOCK_ROWS, offset: Any = None
) -> Iterator[tuple[int, int, Floats]]:
    """Yield (start, stop, margins float64 (stop - start,)), intercept and offset included, in row order.

    data : a DataSet, or what ``open_data`` takes (a path, an array); a target is not needed.
    offset : as ``open_data`` takes it, or an array for a DataSet.
    Raises InputError for rows of another length than the training rows, naming both, and where the model
    needs an offset and there is none.
    """
    data = _open(data, offset)
    require_offset(model, data)
    rows = data.rows
    scorer = model.family.scorer(model.ids, model.weights)
    block_rows = min(block_rows, model.family.most_block_rows())  # wide rows: fewer at a time
    for start, stop, block in model.family.read_rows(rows, block_rows):
        margins = scorer.margins(block) + model.intercept
        yield start, stop, margins if data.offset is None else margins + data.offset[start:stop]


def margins(
    model: Model, data: DataSet | Any, block_rows: int = BLOCK_ROWS, offset: Any = None
) -> Floats:
    """float64 (n,): all margins at once."""
    data = _open(data, offset)
    out = np.empty(data.n_rows)
    for start, stop, block in iter_margins(model, data, block_rows):
        out[start:stop] = block
    return out


def require_offset(model: Model, data: DataSet) -> None:
    """Raise InputError if the model was trained with an offset and the data have none."""
    if model.has_offset and data.offset is None:
        raise InputError(
            f"{data.name}: expected an offset, since the model was trained with one, got none; name its "
            "array (offset=, --offset), or give zeros"
        )


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
    kind     "margin"; "probability" of the positive label (logistic loss only); or "mean", the expected
             target (that probability too, or exp(margin) of poisson loss).
    progress called with the number of rows done, after each block.

    Holds one block at a time. Raises InputError as `iter_margins`, for another suffix, and if
    `out` exists and `overwrite` is false.
    """
    if kind == "probability":
        require_probability(model)
    elif kind not in ("margin", "mean"):
        raise InputError(f'kind must be "margin", "probability" or "mean", got {kind!r}')
    data = _open(data)
    require_offset(model, data)
    transform: Callable[[Floats], Floats] = model.loss_object.mean
    if kind == "margin":
        transform = np.asarray
    transform(np.zeros(0))  # raises InputError for a loss without a mean before anything is written
    with open_scores(out, data.n_rows, kind, overwrite) as write:
        for start, stop, block in iter_margins(model, data, block_rows):
            write(start, stop, transform(block))
            if progress is not None:
                progress(stop)
    return data.n_rows


def _open(data: DataSet | Any, offset: Any = None) -> DataSet:
    from fcl.data import DataSet, open_data

    if not isinstance(data, DataSet):
        return open_data(data, y=None, offset=offset)
    return data if offset is None else data.with_offset(offset)
