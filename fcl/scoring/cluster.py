"""Scores on a Dask cluster: ranges of rows are tasks, whose margins come back in the order of the rows.

For an output in Zarr each task writes chunks of its own, so that scores need not pass through the client.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fcl.data import DataSet
from fcl.drivers.cluster import tasks
from fcl.drivers.cluster.client import Cluster
from fcl.drivers.cluster.jobs import pack, unpack
from fcl.errors import InputError
from fcl.files.atomic import atomic_folder
from fcl.model.outputs import scores_of
from fcl.model.predictor import BLOCK_ROWS, Predictor
from fcl.model.scores import (
    OnMargins,
    check_room,
    chunk_rows,
    create_score_array,
    score_block_rows,
    write_scores,
)
from fcl.store import is_remote
from fcl.types import Floats

#: Numbers that a task computes: those of a chunk of an output in Zarr.
TASK_NUMBERS = 1 << 19
#: Tasks in flight for each thread of the workers.
TASKS_A_THREAD = 2


@dataclass(frozen=True)
class _Scoring:
    """What all tasks have in common."""

    model: Predictor
    data: DataSet
    block_rows: int


class ClusterPredictor:
    """A model that computes the margins of one data set on a cluster; otherwise the model itself.

    data : as it was opened, before columns were matched.
    """

    def __init__(self, model: Predictor, data: DataSet, cluster: Cluster) -> None:
        self._model, self._data, self._cluster = model, data, cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def iter_margins(
        self, data: DataSet, block_rows: int = BLOCK_ROWS
    ) -> Iterator[tuple[int, int, Floats]]:
        """See :meth:`fcl.Model.iter_margins`; the blocks are larger, and the numbers the same."""
        yield from self.ranges(block_rows, _margins)

    def ranges(
        self, block_rows: int, function: Callable[..., Any], *args: Any
    ) -> Iterator[tuple[int, int, Any]]:
        """Yield ranges of rows, in their order, and what a task returns for each.

        function : called with what all tasks have in common, the range and ``args``.
        """
        cluster, n_rows = self._cluster, self._data.n_rows
        alone = self._data.with_target(None, None)
        shared = cluster.submit(tasks.identity, pack(_Scoring(self._model, alone, block_rows)))
        height = range_rows(self._model, block_rows)
        waiting: deque[tuple[int, int, Any]] = deque()
        for start in range(0, n_rows, height):
            stop = min(start + height, n_rows)
            future = cluster.submit(on_worker, shared, function, start, stop, *args)
            waiting.append((start, stop, future))
            while len(waiting) >= TASKS_A_THREAD * max(1, sum(cluster.threads().values())):
                yield self._gathered(*waiting.popleft())
        while waiting:
            yield self._gathered(*waiting.popleft())

    def _gathered(self, start: int, stop: int, future: Any) -> tuple[int, int, Any]:
        (found,) = self._cluster.gather([future])
        future.release()
        return start, stop, found


def range_rows(model: Predictor, block_rows: int) -> int:
    """Rows of a task: whole blocks, about as many as a chunk of Zarr has."""
    size = model.rows_of_block(block_rows)
    return size * max(1, TASK_NUMBERS // model.n_outputs // size)


def score_bytes(model: Predictor, data: DataSet) -> int:
    """Bytes that a task needs beside its interpreter: twice the rows of a block, and the margins."""
    block_rows = score_block_rows(model)
    read = 2 * data.rows.chunk_bytes
    if len(data.rows.shape) == 2:
        read += 2 * model.rows_of_block(block_rows) * data.rows.shape[1] * data.rows.dtype.itemsize
    return read + 8 * 3 * model.n_outputs * range_rows(model, block_rows)


def write_score_chunks(
    model: ClusterPredictor,
    data: DataSet,
    out: str | os.PathLike[str],
    kind: str,
    overwrite: bool,
    on_margins: OnMargins | None,
) -> int:
    """Write the scores of all rows to an array in Zarr, of which each task writes chunks of its own.

    out : a folder that all workers see.
    kind, overwrite : as for :func:`fcl.model.scores.write_scores`.
    on_margins : as there; None: the margins stay on the workers.

    Returns the number of rows.
    """
    predictor: Any = model
    scores, block_rows = scores_of(predictor, kind), score_block_rows(predictor)
    data = model.opened(data)
    model.added_margins(data)
    check_room(out, data.n_rows, scores, overwrite)
    # the folder of an output at a URL is the client's; else neighbours might write the same chunk
    if is_remote(out) or range_rows(predictor, block_rows) % chunk_rows(data.n_rows, scores):
        return write_scores(predictor, data, out, kind, overwrite, on_margins=on_margins)
    with atomic_folder(out, overwrite) as folder:
        create_score_array(folder, data.n_rows, scores)
        place = str(Path(folder).resolve())
        args = (_write_chunks, place, kind, on_margins is not None)
        for start, stop, margins in model.ranges(block_rows, *args):
            if on_margins is not None:
                on_margins(start, stop, margins)
    return data.n_rows


# -- on a worker -----------------------------------------------------------------------------------


def on_worker(packed: bytes, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function with what all tasks have in common."""
    return function(unpack(packed), *args)


def _margins(shared: _Scoring, first: int, last: int) -> Floats:
    """The margins of a range of rows."""
    model, block_rows = shared.model, shared.block_rows
    data = model.opened(shared.data)
    blocks = model.iter_margins(data, block_rows, first=first, last=last)
    return np.concatenate([margins for _, _, margins in blocks])


def _write_chunks(
    shared: _Scoring, first: int, last: int, place: str, kind: str, back: bool
) -> Floats | None:
    """Write the scores of a range of rows to a folder; returns the margins if the client wants them."""
    import zarr

    if not os.path.isdir(place):
        raise InputError(
            f"a worker does not see {place}; write --out to a folder that all workers see under this "
            "name, or to .npy or .tsv, which the client writes"
        )
    margins = _margins(shared, first, last)
    scores = scores_of(shared.model, kind)
    array: Any = zarr.open_array(place, mode="r+")
    array[first:last] = scores.of(margins).reshape(scores.shape(last - first))
    return margins if back else None
