"""Zarr groups of format 2 and 3; zarr is imported when one is opened."""

from __future__ import annotations

import itertools
import logging
import math
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.data.base import (
    VARIABLE_TEXT,
    ChunkedReader,
    GroupContainer,
    RowReader,
    array_names,
    check_array,
    fixed_text,
    one_line,
)
from fcl.data.zarr_codecs import ChunkSize, decoding
from fcl.data.zarr_place import ROOT_METADATA, RemotePlace, ZarrPlace, place_of
from fcl.errors import FclError, InputError
from fcl.memory.allowance import budget
from fcl.store import Location, ObjectInfo, RemotePath

# Shards up to this size are read whole; larger ones are read one row of inner chunks at a time.
MAX_SHARD_BYTES = 256 << 20

ATTRIBUTES = ".zattrs"  # in format 2; in format 3 attributes are part of the metadata
_FIRST_ROW = (slice(0, 1),)
ZIP_MAGIC = b"PK\x03\x04"
#: Names of chunks: c/0/1 or c.0.1 in format 3, 0.1 or 0/1 in format 2.
_CHUNK_KEY = re.compile(r"(?:c[./])?([0-9]+(?:[./][0-9]+)*)")


@contextmanager
def _settings(place: ZarrPlace, chunk: ChunkSize | None = None) -> Iterator[None]:
    """Let zarr decode in one thread, since fcl assigns the cores and reads chunks in order.

    Warnings of zarr are suppressed (dtypes without a specification, files that are not arrays), and
    chunks are decoded to at most the size of ``chunk``. The caller's settings are restored afterwards;
    but zarr creates its thread pool at its first use in a process, so the pool keeps one thread if that
    first use was here.
    """
    import zarr

    with warnings.catch_warnings(), zarr.config.set(place.config), decoding(chunk):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _opening(place: ZarrPlace, what: str, *kept: type[Exception]) -> Iterator[None]:
    """Raise InputError in place of what zarr raises, except for the kinds of errors that are kept."""
    try:
        with _settings(place):
            yield
    except Exception as error:  # damaged metadata fail in many ways
        if isinstance(error, (FclError, *kept)):
            raise
        raise InputError(f"{what}: {one_line(error)}") from error


def _is_relevant(record: logging.LogRecord) -> bool:
    """False for messages about tasks that zarr abandoned when another task failed."""
    text = record.getMessage()
    abandoned = "never retrieved" in text or "was destroyed" in text
    return not abandoned or "zarr" not in text


logging.getLogger("asyncio").addFilter(_is_relevant)


class ZarrReader(ChunkedReader):
    """Rows of one Zarr array, read along its shards if these are small, else along its chunks."""

    def __init__(self, array: Any, name: str, place: ZarrPlace, may_be_empty: bool = False) -> None:
        self.name = name
        self._array = array
        self._place = place
        self._first_row: np.ndarray | None = None
        self.shape = array.shape
        # Text of variable length is StringDType in both formats, or bytes as Python objects.
        self._variable_text = array.dtype.kind in "OT"
        self.dtype = VARIABLE_TEXT if self._variable_text else array.dtype
        check_array(name, self.shape, self.dtype, may_be_empty)
        self._chunks = array.chunks
        self._stored = array.shards or array.chunks
        if not all(0 < length < 1 << 62 for length in (*self._stored, *self._chunks)):
            raise InputError(
                f'"{name}" has chunks of shape {shown(self._stored)} in its metadata, expected at least '
                "1 along each axis; write the array again"
            )
        row_bytes = array.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        #: whether each object is read at once
        self._whole = self._stored[0] * row_bytes <= MAX_SHARD_BYTES or array.shards is None
        chunk_rows = self._stored[0] if self._whole else self._chunks[0]
        self.chunk_rows = max(1, min(chunk_rows, self.shape[0]))

    def missing_chunks(self) -> int:
        # zarr's nchunks_initialized compares each possible key with the list of all files
        grid = [-(-n // c) for n, c in zip(self.shape, self._stored, strict=True)]
        found, keys = 0, self._place.stored_keys(self._array.path)
        if keys is None:
            return 0
        for key in keys:
            if match := _CHUNK_KEY.fullmatch(key):
                at = [int(number) for number in re.split("[./]", match[1])]
                found += len(at) == len(grid) and all(i < n for i, n in zip(at, grid, strict=True))
        return math.prod(grid) - found

    @property
    def ahead_bytes(self) -> int:
        if not isinstance(self._place, RemotePlace) or not self._whole:
            return 0
        largest = max((info.size for info in self._objects().values()), default=0)
        group = largest * math.prod(
            -(-n // c) for n, c in zip(self.shape[1:], self._stored[1:], strict=True)
        )
        return max(group, min(self.most_ahead, self._place.requests * group))

    def _objects(self) -> dict[str, ObjectInfo]:
        assert isinstance(self._place, RemotePlace)
        return self._place.objects(self._array.path) if self._place.lists else {}

    @contextmanager
    def ahead(self, ranges: Iterable[tuple[int, int]]) -> Iterator[None]:
        place = self._place
        if not isinstance(place, RemotePlace) or not self._whole or not place.lists:
            yield
            return
        try:
            place.window(self._array.path, self._key_groups(ranges), self.ahead_bytes)
            yield
        finally:
            place.close(self._array.path)

    def _key_groups(self, ranges: Iterable[tuple[int, int]]) -> Iterator[list[str]]:
        """The objects of each range, without those of earlier ranges."""
        beyond = 0
        columns = [range(-(-n // c)) for n, c in zip(self.shape[1:], self._stored[1:], strict=True)]
        for start, stop in ranges:
            first = max(start // self._stored[0], beyond)
            beyond = max(beyond, -(-stop // self._stored[0]))
            yield [
                self._array.metadata.encode_chunk_key(index)
                for index in itertools.product(range(first, beyond), *columns)
            ]

    def _read_cell(self, cell: tuple[slice, ...]) -> np.ndarray:
        if cell != _FIRST_ROW or not isinstance(self._place, RemotePlace):
            return self._read_stored(cell)
        if self._first_row is None:  # several parts of fcl look at it
            self._first_row = self._read_stored(cell)
        return self._first_row

    def _read_stored(self, cell: tuple[slice, ...]) -> np.ndarray:
        with _settings(self._place, self._chunk_size()):
            values = np.asarray(self._array[cell])
        return fixed_text(values, self.name) if self._variable_text else values

    def _chunk_size(self) -> ChunkSize:
        """The decoded bytes of a chunk, which its stored bytes must have."""
        if self._variable_text:
            return ChunkSize(budget(), exact=False)
        size = self.dtype.itemsize * math.prod(self._chunks)
        if not self._array.filters:
            return ChunkSize(size, exact=True)
        # between two filters numbers may have up to 16 bytes
        return ChunkSize(max(16, self.dtype.itemsize) * math.prod(self._chunks), exact=False)

    def _where(self, index: tuple[int, ...]) -> str:
        corner = (i * c for i, c in zip(index, self._chunks, strict=True))
        stored = tuple(row // c for row, c in zip(corner, self._stored, strict=True))
        key = f"{self._array.path}/{self._array.metadata.encode_chunk_key(stored)}".lstrip("/")
        part = "" if stored == index else f" (shard {stored})"
        return self._place.where(key) + part


class ZarrContainer(GroupContainer):
    """One group of a Zarr store."""

    def __init__(self, path: Location, group: str) -> None:
        import zarr

        super().__init__(path, group)
        self._stamps = []
        self._place = place_of(path)
        self._add_stamps("")
        store = self._place.open()
        try:
            what, missing = f"{path} cannot be opened as Zarr", FileNotFoundError
            with _opening(self._place, what, missing, zipfile.BadZipFile):
                node = zarr.open(store=store, path=self._group_path, mode="r")
        except zipfile.BadZipFile as error:
            raise InputError(f"{path} is not a readable zip file: {one_line(error)}") from error
        except FileNotFoundError as error:
            raise InputError(
                f"{path} holds no Zarr group at /{self._group_path}{self._place.hint}"
            ) from error
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
        return ZarrReader(node, name, self._place, may_be_empty)

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
        if not path.strip("/"):  # known already: no request to a store
            return self._group
        try:
            with _opening(self._place, f'"{path}" in {self.name} cannot be opened', KeyError):
                return self._group[path.strip("/")]
        except KeyError:
            return None

    def _attributes(self, node: Any) -> Mapping[str, Any]:
        """The attributes of an array or group, which zarr itself does not validate."""
        found = node.metadata.attributes
        if not isinstance(found, Mapping):
            raise InputError(
                f'"{node.path}" in {self.name}: expected an object of attributes, got {shown(found)}'
            )
        return found

    def _add_stamps(self, node_path: str, names: tuple[str, ...] = ROOT_METADATA) -> None:
        for stamp in self._place.stamps(node_path, names):
            if stamp.path not in (known.path for known in self._stamps):
                self._stamps.append(stamp)

    def _array_paths(self) -> list[str]:
        if not self._place.lists:
            return []
        with _opening(self._place, f"{self.name} holds something that cannot be opened"):
            members = list(self._group.members(max_depth=None))
        return array_names(
            (path, self._is_array(node), self._attributes(node).get("encoding-type"))
            for path, node in members
        )


def is_zarr(path: Location, head: bytes) -> bool:
    """Whether a path is a Zarr folder or a zip file that may hold one."""
    if isinstance(path, RemotePath):
        if path.suffix == ".zip":
            raise InputError(
                f"{path}: expected the folder of a Zarr store, got a zip file, which is read by parts "
                "on a local disk only; copy it to this machine, or unzip it in the store"
            )
        return any((path / name).is_file() for name in ROOT_METADATA)
    if path.is_dir():
        return any((path / name).is_file() for name in ROOT_METADATA)
    return path.suffix == ".zip" or (head.startswith(ZIP_MAGIC) and path.suffix != ".npz")
