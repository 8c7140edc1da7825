"""Zarr groups of format 2 and 3, in a folder or a zip file; zarr is imported when one is opened."""

from __future__ import annotations

import logging
import math
import os
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fcl.checks import file_kind, shown
from fcl.data.base import (
    VARIABLE_TEXT,
    ChunkedReader,
    FileStamp,
    GroupContainer,
    RowReader,
    array_names,
    check_array,
    fixed_text,
    one_line,
)
from fcl.errors import InputError

# Shards up to this size are read whole; larger ones are read one row of inner chunks at a time.
MAX_SHARD_BYTES = 256 << 20

ROOT_METADATA = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
ATTRIBUTES = ".zattrs"  # in format 2; in format 3 attributes are part of the metadata
ONE_THREAD = {"async.concurrency": 1, "threading.max_workers": 1}
ZIP_MAGIC = b"PK\x03\x04"
#: Names of chunks: c/0/1 or c.0.1 in format 3, 0.1 or 0/1 in format 2.
_CHUNK_KEY = re.compile(r"(?:c[./])?([0-9]+(?:[./][0-9]+)*)")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let zarr decode in one thread, since fcl assigns the cores and reads chunks in order.

    Warnings of zarr are suppressed (dtypes without a specification, files that are not arrays), and
    truncated Blosc chunks rejected. The caller's settings are restored afterwards; but zarr creates its
    thread pool at its first use in a process, so the pool keeps one thread if that first use was here.
    """
    import zarr

    with warnings.catch_warnings(), zarr.config.set(ONE_THREAD), _reject_truncated_chunks():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _reject_truncated_chunks() -> Iterator[None]:
    """Raise ValueError for truncated Blosc chunks, after which numcodecs would read foreign memory."""
    from numcodecs.blosc import Blosc

    decode = Blosc.decode

    def checked(codec: Any, chunk: Any, out: Any = None) -> Any:
        frame = memoryview(chunk).cast("B")
        size = int.from_bytes(frame[12:16], "little")
        if len(frame) < max(16, size):
            raise ValueError(f"a Blosc chunk of {size} bytes ends after {len(frame)} bytes")
        return decode(codec, chunk, out)

    Blosc.decode = checked
    try:
        yield
    finally:
        Blosc.decode = decode


def _is_relevant(record: logging.LogRecord) -> bool:
    """False for messages about tasks that zarr abandoned when another task failed."""
    text = record.getMessage()
    abandoned = "never retrieved" in text or "was destroyed" in text
    return not abandoned or "zarr" not in text


logging.getLogger("asyncio").addFilter(_is_relevant)


def _local_store(path: Path) -> Any:
    """A store for a folder that reads only regular files, since opening a FIFO would block."""
    from zarr.storage import LocalStore

    class RegularFiles(LocalStore):
        async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
            file_kind(self.root / key)
            return await super().get(key, *args, **kwargs)

        async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
            key_ranges = list(key_ranges)
            for key, _ in key_ranges:
                file_kind(self.root / key)
            return await super().get_partial_values(prototype, key_ranges)

        def get_sync(self, key: str, **kwargs: Any) -> Any:
            file_kind(self.root / key)
            return super().get_sync(key, **kwargs)

    return RegularFiles(path, read_only=True)


class ZarrReader(ChunkedReader):
    """Rows of one Zarr array, read along its shards if these are small, else along its chunks."""

    def __init__(self, array: Any, name: str, store_path: Path, may_be_empty: bool = False) -> None:
        self.name = name
        self._array = array
        self._store_path = store_path
        self.shape = array.shape
        # Text of variable length is StringDType in both formats, or bytes as Python objects.
        self._variable_text = array.dtype.kind in "OT"
        self.dtype = VARIABLE_TEXT if self._variable_text else array.dtype
        check_array(name, self.shape, self.dtype, may_be_empty)
        self._chunks = array.chunks
        self._stored = array.shards or array.chunks
        if self.shape and min(self._stored) < 1:
            raise InputError(
                f'"{name}" has chunks of shape {self._stored} in its metadata, expected at least 1 along '
                "each axis; write the array again"
            )
        row_bytes = array.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        whole = self._stored[0] * row_bytes <= MAX_SHARD_BYTES
        chunk_rows = self._stored[0] if whole else self._chunks[0]
        self.chunk_rows = max(1, min(chunk_rows, self.shape[0]))

    def missing_chunks(self) -> int:
        # zarr's nchunks_initialized compares each possible key with the list of all files
        grid = [-(-n // c) for n, c in zip(self.shape, self._stored, strict=True)]
        found = 0
        for key in self._stored_keys():
            if match := _CHUNK_KEY.fullmatch(key):
                at = [int(number) for number in re.split("[./]", match[1])]
                found += len(at) == len(grid) and all(i < n for i, n in zip(at, grid, strict=True))
        return math.prod(grid) - found

    def _stored_keys(self) -> Iterator[str]:
        """The files of the array, as paths relative to its folder."""
        if self._store_path.is_dir():
            root = os.path.join(self._store_path, self._array.path)
            for folder, _, names in os.walk(root):
                yield from (os.path.join(folder, name)[len(root) + 1 :] for name in names)
            return
        prefix = self._array.path.strip("/")
        with zipfile.ZipFile(self._store_path) as archive:
            for name in archive.namelist():
                if not prefix or name.startswith(prefix + "/"):
                    yield name[len(prefix) :].lstrip("/")

    def _read_cell(self, cell: tuple[slice, ...]) -> np.ndarray:
        with _one_thread():
            values = np.asarray(self._array[cell])
        return fixed_text(values, self.name) if self._variable_text else values

    def _where(self, index: tuple[int, ...]) -> str:
        corner = (i * c for i, c in zip(index, self._chunks, strict=True))
        stored = tuple(row // c for row, c in zip(corner, self._stored, strict=True))
        key = f"{self._array.path}/{self._array.metadata.encode_chunk_key(stored)}".lstrip("/")
        part = "" if stored == index else f" (shard {stored})"
        if self._store_path.is_dir():
            return f"file {self._store_path / key}{part}"
        return f"member {key} of {self._store_path}{part}"


class ZarrContainer(GroupContainer):
    """One group of a Zarr store."""

    def __init__(self, path: Path, group: str) -> None:
        import zarr

        super().__init__(path, group)
        self._stamps = []
        if path.is_dir():
            self._add_stamps("")
            store: Any = _local_store(path)
        else:
            self._stamps.append(FileStamp.of(path))
            store = zarr.storage.ZipStore(path, mode="r")
        try:
            with _one_thread():
                node = zarr.open(store=store, path=self._group_path, mode="r")
        except InputError:
            raise
        except zipfile.BadZipFile as error:
            raise InputError(f"{path} is not a readable zip file: {one_line(error)}") from error
        except FileNotFoundError as error:
            hint = "" if path.is_dir() else "; zip the content of the Zarr folder, not the folder"
            raise InputError(f"{path} holds no Zarr group at /{self._group_path}{hint}") from error
        except Exception as error:  # damaged metadata fail in many ways
            raise InputError(f"{path} cannot be opened as Zarr: {one_line(error)}") from error
        if not isinstance(node, zarr.Group):
            raise InputError(
                f"{self.name} is a Zarr array itself; expected a group that holds X and y"
            )
        self._group = node

    def _open_node(self, node: Any, name: str, may_be_empty: bool) -> RowReader[np.ndarray]:
        self._add_stamps(node.path)
        codecs = (*node.filters, *node.compressors)
        if any(getattr(codec, "codec_id", "") == "pickle" for codec in codecs):
            raise InputError(
                f"{name} is stored as pickles, which can run code when they are read; expected "
                "numbers or text in another codec: write the array again"
            )
        return ZarrReader(node, name, self._path, may_be_empty)

    def _is_array(self, node: Any) -> bool:
        import zarr

        return isinstance(node, zarr.Array)

    def attribute(self, path: str, name: str) -> Any:
        node = self._node(path)
        value = None if node is None else self._attributes(node).get(name)
        if value is not None:
            self._add_stamps(node.path, (*ROOT_METADATA, ATTRIBUTES))
        return value

    def _node(self, path: str) -> Any:
        try:
            with _one_thread():
                return self._group[path.strip("/")]
        except KeyError:
            return None
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f'"{path}" in {self.name} cannot be opened: {one_line(error)}'
            ) from error

    def _attributes(self, node: Any) -> Mapping[str, Any]:
        """The attributes of an array or group, which zarr itself does not validate."""
        found = node.metadata.attributes
        if not isinstance(found, Mapping):
            raise InputError(
                f'"{node.path}" in {self.name}: expected an object of attributes, got {shown(found)}'
            )
        return found

    def _add_stamps(self, node_path: str, names: tuple[str, ...] = ROOT_METADATA) -> None:
        # Chunk files are too many to check; a program that rewrites an array rewrites its metadata.
        if self._path.is_dir():
            known = {stamp.path for stamp in self._stamps}
            files = (self._path / node_path / name for name in names)
            new = [f for f in files if f not in known and f.is_file()]
            self._stamps += [FileStamp.of(f, stands_for_others=True) for f in new]

    def _array_paths(self) -> list[str]:
        try:
            with _one_thread():
                members = list(self._group.members(max_depth=None))
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"{self.name} holds something that cannot be opened: {one_line(error)}"
            ) from error
        return array_names(
            (path, self._is_array(node), self._attributes(node).get("encoding-type"))
            for path, node in members
        )


def is_zarr(path: Path, head: bytes) -> bool:
    """Whether a path is a Zarr folder or a zip file that may hold one."""
    if path.is_dir():
        return any((path / name).is_file() for name in ROOT_METADATA)
    return path.suffix == ".zip" or (head.startswith(ZIP_MAGIC) and path.suffix != ".npz")
