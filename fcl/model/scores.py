"""Scores of rows in a file, written in blocks so that neither data nor scores need to fit in memory.

The format is chosen by the suffix; a file or store appears when it is complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.model.atomic import atomic_file, atomic_folder, check_output
from fcl.model.model import BLOCK_ROWS, Model
from fcl.model.text_output import STDOUT, is_compressed, text_output, text_suffix
from fcl.units import counted, format_bytes

if TYPE_CHECKING:
    from fcl.data import DataSet

__all__ = ["SUFFIXES", "check_scores", "write_scores"]

Floats = npt.NDArray[np.float64]
Write = Callable[[int, int, Floats], None]
OnMargins = Callable[[int, int, Floats], None]

#: rows per chunk of a Zarr output: 4 MiB
ZARR_CHUNK_ROWS = 1 << 19


def check_scores(path: str | os.PathLike[str], overwrite: bool) -> Path:
    """The real path of an output of scores; raises InputError if it cannot be written."""
    suffix = text_suffix(path)
    if suffix not in SUFFIXES or (suffix != ".tsv" and is_compressed(path)):
        raise InputError(
            f"{os.fspath(path)}: scores are written to {', '.join(SUFFIXES)}, by suffix, "
            f"got {Path(path).suffix.lower() or 'no suffix'!r}"
        )
    if os.fspath(path) == STDOUT:
        return Path(path)
    return check_output(path, overwrite, folder=suffix == ".zarr")


def write_scores(
    model: Model,
    data: DataSet | Any,
    out: str | os.PathLike[str],
    kind: str = "margin",
    overwrite: bool = False,
    block_rows: int = BLOCK_ROWS,
    progress: Callable[[int], None] | None = None,
    on_margins: OnMargins | None = None,
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
        ``.tsv.gz`` is compressed, and ``-`` is standard output, as ``.tsv``.
    kind : {"margin", "probability", "mean"}
        ``probability`` of the positive label (logistic loss only); ``mean`` is the expected target (the
        same probability, or exp(margin) for poisson loss).
    overwrite : bool
        Whether to replace an existing output.
    block_rows : int
        Largest number of rows per block.
    progress : callable
        Called after each block with the number of rows done.
    on_margins : callable
        Called for each block with first row, last row + 1 and margins, float64.

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
    data = model.opened(data)
    model.added_margins(data)  # raises before a file is opened
    transform: Callable[[Floats], Floats] = model.loss_object.mean
    if kind == "margin":
        transform = np.asarray
    transform(np.zeros(0))  # before anything is written, a loss without a mean raises InputError
    with _open_scores(out, data.n_rows, kind, overwrite) as write:
        for start, stop, block in model.iter_margins(data, block_rows):
            if on_margins is not None:
                on_margins(start, stop, block)
            write(start, stop, transform(block))
            if progress is not None:
                progress(stop)
    return data.n_rows


def _open_scores(
    path: str | os.PathLike[str], n_rows: int, kind: str, overwrite: bool = False
) -> AbstractContextManager[Write]:
    """A context that gives ``write(start, stop, scores)``, to be called with blocks in row order.

    Raises InputError as `check_scores` does, or if the disk has no room for the scores: a file of a few
    bytes may declare any number of rows.
    """
    target = check_scores(path, overwrite)
    write = SUFFIXES[text_suffix(path)]
    if os.fspath(path) == STDOUT:
        return write(path, n_rows, kind, overwrite)
    needed, free = 8 * n_rows, shutil.disk_usage(target.parent).free
    if needed > free:
        raise InputError(
            f"{os.fspath(path)}: {counted(n_rows, 'score')} take about {format_bytes(needed)}, but only "
            f"{format_bytes(free)} are free there; make room, write elsewhere, or score fewer rows"
        )
    return write(path, n_rows, kind, overwrite)


@contextmanager
def _npy(path: str | os.PathLike[str], n_rows: int, kind: str, overwrite: bool) -> Iterator[Write]:
    with atomic_file(path, overwrite) as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (n_rows,)}
        np.lib.format.write_array_header_1_0(file, header)

        def write(start: int, stop: int, scores: Floats) -> None:
            file.write(np.ascontiguousarray(scores, dtype="<f8").data)

        yield write


@contextmanager
def _tsv(path: str | os.PathLike[str], n_rows: int, kind: str, overwrite: bool) -> Iterator[Write]:
    with text_output(path, overwrite) as file:
        head = f"{kind}\n"  # rows that cannot be scored leave nothing on standard output

        def write(start: int, stop: int, scores: Floats) -> None:
            nonlocal head
            # 17 significant digits restore every float64
            lines = map("{:.17g}\n".format, scores.tolist())
            file.write("".join([head, *lines]).encode())
            head = ""

        yield write
        file.write(head.encode())


@contextmanager
def _zarr(path: str | os.PathLike[str], n_rows: int, kind: str, overwrite: bool) -> Iterator[Write]:
    import zarr  # late: slow to import

    with atomic_folder(path, overwrite) as folder:
        chunk = min(max(n_rows, 1), ZARR_CHUNK_ROWS)
        array = zarr.create_array(
            store=folder, shape=(n_rows,), dtype="<f8", chunks=(chunk,), attributes={"kind": kind}
        )
        # blocks are gathered into whole chunks: a chunk written twice is compressed twice
        pending = np.empty(chunk)
        filled = 0

        def write(start: int, stop: int, scores: Floats) -> None:
            nonlocal filled
            taken = 0
            while taken < scores.size:
                count = min(chunk - filled, scores.size - taken)
                pending[filled : filled + count] = scores[taken : taken + count]
                filled += count
                taken += count
                if filled == chunk:
                    flush(start + taken)

        def flush(stop: int) -> None:
            nonlocal filled
            array[stop - filled : stop] = pending[:filled]
            filled = 0

        yield write
        if filled:
            flush(n_rows)


#: suffix -> writer
SUFFIXES: dict[str, Callable[..., AbstractContextManager[Write]]] = {
    ".npy": _npy,
    ".tsv": _tsv,
    ".zarr": _zarr,
}
