"""A hash of a data set, to verify that a job is resumed on the same data.

It covers the shapes, the dtypes, all of target, weights, offset and covariates, the names of the columns,
and 64 spaced blocks of X, as decoded values. It does not depend on container, path, chunks, compression,
byte order or times, nor, for sparse rows, on stored zeros, the order of the entries or the width of their
indices. Text is hashed by its letters, whether stored with fixed or variable length, as bytes or as
Unicode. Values are hashed as stored, because the hash must not depend on how the features will read them:
the same sequences as codes and as letters are different data, and so are the same numbers as a dense and
as a sparse matrix.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fcl.data.base import RowReader, chunk_ranges
from fcl.data.sparse import SparseRowReader, SparseRows

RowRange = tuple[int, int]

N_BLOCKS = 64
BLOCK_ROWS = 64


def fingerprint(
    rows: RowReader[Any],
    target: np.ndarray | None,
    weights: np.ndarray | None,
    offset: np.ndarray | None = None,
    covariates: Mapping[str, np.ndarray] | None = None,
    column_names: Sequence[str] | None = None,
) -> str:
    """SHA-256 (hex) of shapes, dtypes, names of columns, and values; of the rows some blocks."""
    digest = hashlib.sha256(b"fcl data set, version 1")
    for name, values in (("target", target), ("weights", weights)):
        _add(digest, f"{name} none" if values is None else f"{name} {values.shape}", values)
    if offset is not None:  # without an offset, the hash is the same as in earlier versions
        _add(digest, "offset", offset)
    for name, values in (covariates or {}).items():
        _add(digest, f"covariate {name} {values.shape}", values)
    if column_names is not None:
        digest.update(f"columns {json.dumps(list(column_names))}".encode())
    digest.update(f"rows {rows.shape}".encode())
    for (start, stop), block in _read_blocks(rows, _spaced_blocks(rows.shape[0])):
        if isinstance(block, SparseRows):
            _add(digest, f"{start} {stop} sparse", block.indptr)
            _add(digest, "indices", block.indices.astype(np.int64))
            _add(digest, "data", block.data)
        else:
            _add(digest, f"{start} {stop}", block)
    return digest.hexdigest()


def _add(digest: hashlib._Hash, title: str, values: np.ndarray | None) -> None:
    """Hash a title and values in a canonical form."""
    digest.update(title.encode())
    if values is None:
        return
    if values.dtype.kind in "SU":
        values = _text_bytes(values)
        digest.update(f"text {values.shape[1]}".encode())
    else:
        digest.update(f"{values.dtype.kind}{values.dtype.itemsize}".encode())
        values = values.astype(values.dtype.newbyteorder("<"), copy=False)
    digest.update(np.ascontiguousarray(values).data)


def _text_bytes(values: np.ndarray) -> np.ndarray:
    """Text in UTF-8, uint8 (size, width), where width is the length of the longest item."""
    if values.dtype.kind == "U":
        values = np.char.encode(values, "utf-8")
    width = values.dtype.itemsize
    matrix = np.frombuffer(values.tobytes(), dtype=np.uint8).reshape(values.size, width)
    used = np.flatnonzero(matrix.any(axis=0))
    return matrix[:, : used[-1] + 1 if used.size else 0]


def _spaced_blocks(n_rows: int) -> list[RowRange]:
    """Row ranges of the blocks, which depend only on the number of rows."""
    if n_rows <= N_BLOCKS * BLOCK_ROWS:
        starts = list(range(0, n_rows, BLOCK_ROWS))
    else:
        starts = [i * (n_rows - BLOCK_ROWS) // (N_BLOCKS - 1) for i in range(N_BLOCKS)]
    return [(start, min(n_rows, start + BLOCK_ROWS)) for start in starts]


def _read_blocks(
    rows: RowReader[Any], blocks: list[RowRange]
) -> Iterator[tuple[RowRange, np.ndarray | SparseRows]]:
    """Yield each block with its values, decoding each storage chunk once.

    Blocks in one chunk are read as one range, because reading any part of a chunk decodes all of it.
    """
    held_start = held_stop = 0
    held: Any = None
    with rows.ahead(_reads(rows, blocks)):
        reads = _reads(rows, blocks)
        for block in blocks:
            parts: list[Any] = []
            for start, stop in chunk_ranges(rows, *block):
                if stop > held_stop:
                    held_start, held_stop = next(reads)
                    held = rows.read(held_start, held_stop)
                parts.append(held[start - held_start : stop - held_start])
            sparse = isinstance(held, SparseRows)
            yield block, SparseRows.concatenate(parts) if sparse else np.concatenate(parts)
    if isinstance(rows, SparseRowReader):
        rows.release()


def _reads(rows: RowReader[Any], blocks: list[RowRange]) -> Iterator[RowRange]:
    """The ranges that are read for the blocks, each within a storage chunk."""
    held_stop = 0
    for block in blocks:
        for start, stop in chunk_ranges(rows, *block):
            if stop > held_stop:
                chunk_stop = (start // rows.chunk_rows + 1) * rows.chunk_rows
                held_stop = max(min(b, chunk_stop) for a, b in blocks if a < chunk_stop)
                yield start, held_stop
