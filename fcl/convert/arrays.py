"""Arrays of a Zarr group that grow block by block; zarr is imported when one is written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

#: Zstandard's own default; lower levels are hardly faster on nucleotide codes.
ZSTD_LEVEL = 3
TEXT = np.dtypes.StringDType()


@dataclass(frozen=True)
class StoreLayout:
    """How arrays are cut: chunks of at most these rows and bytes, in shards of at most these bytes."""

    chunk_rows: int = 65_536
    chunk_bytes: int = 16 << 20
    shard_bytes: int = 64 << 20
    column_bytes: int = 8 << 20  #: of the shards of columns beside X, of which there may be many

    def shard(self, row_bytes: int, is_column: bool) -> tuple[int, int]:
        """Rows of a chunk and of a shard, for rows of this size."""
        shard_bytes = self.column_bytes if is_column else self.shard_bytes
        chunk = max(1, min(self.chunk_rows, self.chunk_bytes // row_bytes))
        return chunk, chunk * max(1, shard_bytes // (chunk * row_bytes))


class ArrayStore:
    """A Zarr group to be filled; one thread compresses while the caller makes the next rows."""

    def __init__(self, folder: Any, layout: StoreLayout) -> None:
        import zarr

        self.root = zarr.create_group(folder)
        self.folder = Path(folder)
        self.layout = layout
        self.thread = ThreadPoolExecutor(1)

    def __enter__(self) -> ArrayStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.thread.shutdown(wait=True, cancel_futures=kind is not None)

    def group(self, path: str, encoding: str, version: str, **attributes: Any) -> None:
        """Make a group with the attributes of an encoding of anndata."""
        found = {"encoding-type": encoding, "encoding-version": version, **attributes}
        self.root.create_group(path, attributes=found)

    def array(self, path: str, dtype: np.dtype, width: int | None = None) -> Appended:
        """An array (n,) or (n, width) to which parts of X are appended."""
        return Appended(self, path, dtype, () if width is None else (width,), is_column=False)

    def column(self, path: str, dtype: np.dtype) -> Appended:
        """An array (n,) to which values are appended."""
        return Appended(self, path, dtype, (), is_column=True)

    def create(
        self,
        path: str,
        dtype: np.dtype,
        chunks: tuple[int, ...],
        shards: tuple[int, ...] | None = None,
    ) -> Any:
        """Create an array without rows, of numbers or text."""
        from zarr.codecs import ZstdCodec

        text = dtype.kind == "T"
        return self.root.create_array(
            path,
            shape=(0, *chunks[1:]),
            dtype=str if text else dtype,
            chunks=chunks,
            shards=shards,
            compressors=ZstdCodec(level=ZSTD_LEVEL),
            # a chunk that is left out reads as zeros, but looks as if the writer had failed
            config={"write_empty_chunks": True},
            attributes={
                "encoding-type": "string-array" if text else "array",
                "encoding-version": "0.2.0",
            },
        )

    @contextmanager
    def moved_away(self, path: str) -> Iterator[Any]:
        """Move an array to another name, to be read in the block, and remove it at the end."""
        import zarr

        old = self.folder / f"{path}.old"
        os.rename(self.folder / path, old)
        yield zarr.open_array(old, mode="r")
        shutil.rmtree(old)


class Growing:
    """An array of a store to which a thread writes rows while the next ones are made."""

    _array: Any = None
    _written: Future[None] | None = None

    def __init__(self, store: ArrayStore, path: str) -> None:
        self._store, self._path = store, path

    def _submit(self, stop: int, values: np.ndarray) -> None:
        """Let the thread write the rows up to ``stop``, which is then the number of rows."""
        self._written = self._store.thread.submit(write_rows, self._array, stop, values)

    def _wait(self) -> None:
        if self._written is not None:
            self._written.result()
            self._written = None


def write_rows(array: Any, stop: int, values: np.ndarray) -> None:
    """Write the rows up to ``stop``, which is then the number of rows."""
    array.resize((stop, *array.shape[1:]))
    if len(values):
        array[stop - len(values) : stop] = values


class Appended(Growing):
    """An array that is written shard by shard, so that every chunk is compressed once."""

    def __init__(
        self,
        store: ArrayStore,
        path: str,
        dtype: np.dtype,
        row_shape: tuple[int, ...],
        is_column: bool,
    ) -> None:
        super().__init__(store, path)
        self._row_shape = row_shape
        self.dtype = np.dtype(dtype)
        row_bytes = max(1, self.dtype.itemsize * int(np.prod(row_shape)))
        self._chunk, self._shard = store.layout.shard(row_bytes, is_column)
        # one shard is filled while the other one is compressed
        self._shards = [np.empty((0, *row_shape), self.dtype)] * 2
        self._filled = 0
        self.n_rows = 0

    def append(self, values: np.ndarray) -> None:
        """Append rows, which are converted to the dtype of the array."""
        while len(values):
            if not len(self._shards[0]):
                self._shards[0] = np.empty((self._shard, *self._row_shape), self.dtype)
            here = values[: self._shard - self._filled]
            self._shards[0][self._filled : self._filled + len(here)] = here
            self._filled += len(here)
            self.n_rows += len(here)
            values = values[len(here) :]
            if self._filled == self._shard:
                self._flush()

    def finish(self) -> None:
        """Write what is left, and wait until all is written."""
        if self._filled or self._array is None:
            self._flush()
        self._wait()

    def _flush(self) -> None:
        self._wait()
        if self._array is None:
            self._array = self._create()
        values = self._shards[0][: self._filled]
        self._submit(self.n_rows, values)
        self._shards.reverse()
        self._filled = 0

    def _create(self) -> Any:
        """Create the array at the first flush, when it is known whether there are several shards."""
        whole = self._filled == self._shard
        chunk = self._chunk if whole else max(1, min(self._chunk, self._filled))
        shard = self._shard if whole else -(-self._filled // chunk) * chunk
        shards = (shard, *self._row_shape) if shard > chunk else None
        return self._store.create(self._path, self.dtype, (chunk, *self._row_shape), shards)
