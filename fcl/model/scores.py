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

from fcl.errors import InputError
from fcl.files.atomic import atomic_file, atomic_folder, check_output
from fcl.model.outputs import Scores, scores_of
from fcl.model.prediction import BLOCK_MARGINS
from fcl.model.predictor import BLOCK_ROWS, Predictor
from fcl.model.text_output import STDOUT, is_compressed, text_output, text_suffix
from fcl.store import Location, local_folder
from fcl.types import Floats
from fcl.units import counted, format_bytes

if TYPE_CHECKING:
    from fcl.data import DataSet

Write = Callable[[int, int, Floats], None]
OnMargins = Callable[[int, int, Floats], None]

#: Numbers in a chunk of a Zarr output: 4 MiB.
ZARR_CHUNK_NUMBERS = 1 << 19


def check_scores(path: str | os.PathLike[str], overwrite: bool) -> Location:
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
    model: Predictor,
    data: DataSet | Any,
    out: str | os.PathLike[str],
    kind: str = "margin",
    overwrite: bool = False,
    block_rows: int = BLOCK_ROWS,
    on_margins: OnMargins | None = None,
) -> int:
    """Score all rows of `data` into the file or store `out`, one block of rows at a time.

    data : a data set, or a source for :func:`fcl.open_data`.
    out : ``.npy`` (float64), ``.tsv`` (columns headed by `kind`, 17 significant digits), ``.tsv.gz``, or
        ``.zarr`` (float64, format 3, attribute ``kind``); ``-`` is standard output. Scores of K > 1
        outputs have the shape (n, K); their names, ``kind_LABEL``, are in the head of a ``.tsv``, and in
        the attribute ``columns`` of a ``.zarr``.
    on_margins : called for each block with first row, last row + 1 and margins, float64.

    Returns the number of rows. Raises InputError: as from :meth:`Model.iter_margins`; the suffix is
    unknown, `out` exists, or the loss does not give the scores of this kind.
    """
    scores = scores_of(model, kind)  # raises before a file is opened, as the next lines do
    data = model.opened(data)
    model.added_margins(data)
    block_rows = score_block_rows(model, block_rows)
    with _open_scores(out, data.n_rows, scores, overwrite) as write:
        for start, stop, block in model.iter_margins(data, block_rows):
            if on_margins is not None:
                on_margins(start, stop, block)
            write(start, stop, scores.of(block).reshape(scores.shape(stop - start)))
    return data.n_rows


def score_block_rows(model: Predictor, most: int = BLOCK_ROWS) -> int:
    """Rows of a block of scores."""
    return min(most, max(1, BLOCK_MARGINS // model.n_outputs))


def _open_scores(
    path: str | os.PathLike[str], n_rows: int, scores: Scores, overwrite: bool = False
) -> AbstractContextManager[Write]:
    """A context that gives ``write(start, stop, scores)``, to be called with blocks in row order.

    Raises InputError as `check_scores` does, or if the disk has no room for the scores: a file of a few
    bytes may declare any number of rows.
    """
    if scores.kind == "predicted" and text_suffix(path) != ".tsv":
        raise InputError(
            f"{os.fspath(path)}: labels are text; write a .tsv, or numbers (probability, margin)"
        )
    write = SUFFIXES[text_suffix(path)]
    check_room(path, n_rows, scores, overwrite)
    return write(path, n_rows, scores, overwrite)


def check_room(
    path: str | os.PathLike[str], n_rows: int, scores: Scores, overwrite: bool = False
) -> None:
    """Raise InputError if an output cannot be written, or the disk has no room for the scores."""
    target = check_scores(path, overwrite)
    if os.fspath(path) == STDOUT:
        return
    n_scores = n_rows * len(scores.names)
    needed, free = 8 * n_scores, shutil.disk_usage(local_folder(target)).free
    if needed > free:
        raise InputError(
            f"{os.fspath(path)}: {counted(n_scores, 'score')} take about {format_bytes(needed)}, but "
            f"only {format_bytes(free)} are free there; make room, write elsewhere, or score fewer rows"
        )


@contextmanager
def _npy(
    path: str | os.PathLike[str], n_rows: int, scores: Scores, overwrite: bool
) -> Iterator[Write]:
    with atomic_file(path, overwrite) as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": scores.shape(n_rows)}
        np.lib.format.write_array_header_1_0(file, header)

        def write(start: int, stop: int, block: Floats) -> None:
            file.write(np.ascontiguousarray(block, dtype="<f8").data)

        yield write


@contextmanager
def _tsv(
    path: str | os.PathLike[str], n_rows: int, scores: Scores, overwrite: bool
) -> Iterator[Write]:
    # 17 significant digits restore every float64
    cell = "{}" if scores.kind == "predicted" else "{:.17g}"
    line = "\t".join([cell] * len(scores.names)) + "\n"
    with text_output(path, overwrite) as file:
        head = "\t".join(scores.names) + "\n"  # rows that cannot be scored leave nothing on stdout

        def write(start: int, stop: int, block: Floats) -> None:
            nonlocal head
            rows = block.reshape(len(block), len(scores.names)).tolist()
            file.write("".join([head, *(line.format(*row) for row in rows)]).encode())
            head = ""

        yield write
        file.write(head.encode())


def chunk_rows(n_rows: int, scores: Scores) -> int:
    """Rows of a chunk of an array of scores: all, or a power of two, as the blocks of a model have."""
    most = max(1, ZARR_CHUNK_NUMBERS // len(scores.names))
    return min(max(n_rows, 1), 1 << (most.bit_length() - 1))


def create_score_array(folder: Path, n_rows: int, scores: Scores) -> Any:
    """Make an array of Zarr for scores in an empty folder."""
    import zarr  # late: slow to import

    attributes: dict[str, Any] = {"kind": scores.kind}
    if len(scores.names) > 1:
        attributes["columns"] = list(scores.names)
    chunk = chunk_rows(n_rows, scores)
    return zarr.create_array(
        store=folder,
        shape=scores.shape(n_rows),
        dtype="<f8",
        chunks=scores.shape(chunk),
        attributes=attributes,
    )


@contextmanager
def _zarr(
    path: str | os.PathLike[str], n_rows: int, scores: Scores, overwrite: bool
) -> Iterator[Write]:
    with atomic_folder(path, overwrite) as folder:
        array = create_score_array(folder, n_rows, scores)
        chunk = array.chunks[0]
        # blocks are gathered into whole chunks: a chunk written twice is compressed twice
        pending = np.empty(scores.shape(chunk))
        filled = 0

        def write(start: int, stop: int, block: Floats) -> None:
            nonlocal filled
            taken = 0
            while taken < len(block):
                count = min(chunk - filled, len(block) - taken)
                pending[filled : filled + count] = block[taken : taken + count]
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
