"""Where a Zarr store is: in a folder, in a zip file, or in an object store."""

from __future__ import annotations

import asyncio
import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcl.checks import file_kind
from fcl.data.stamps import FileStamp, Stamp
from fcl.errors import InputError
from fcl.store import Location, ObjectInfo, RemotePath, Window, changed, gone

ROOT_METADATA = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
#: One request, and one thread that decodes.
_ONE_THREAD = {"async.concurrency": 1, "threading.max_workers": 1}


class ZarrPlace(ABC):
    """The storage of a Zarr store.

    hint : what to do if there is no Zarr group, for a message.
    config : settings of zarr while it reads.
    lists : whether the members of groups can be listed.
    """

    hint = ""
    config = _ONE_THREAD
    lists = True

    @abstractmethod
    def open(self) -> Any:
        """The store, for zarr."""

    @abstractmethod
    def stored_keys(self, array: str) -> Iterator[str] | None:
        """The files of an array, as paths relative to it; None if they cannot be listed."""

    @abstractmethod
    def where(self, key: str) -> str:
        """The words for a chunk in a message."""

    @abstractmethod
    def stamps(self, node: str, names: Iterable[str]) -> Iterator[Stamp]:
        """Stamps of files of a node by their names, or of the whole store or array."""


def _not_empty(key: str, content: Any) -> Any:
    """What a store read; raises ValueError for an empty object.

    zarr takes an empty shard for a missing one, which holds the fill value.
    """
    if content is not None and not len(content):
        raise ValueError(f"{key} is empty, as a write leaves it that did not end")
    return content


class _Checked:
    """The methods of a store for zarr that read, with checks."""

    def check(self, key: str) -> None:
        """Called before an object is read."""

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        self.check(key)
        store: Any = super()
        return _not_empty(key, await store.get(key, *args, **kwargs))

    def get_sync(self, key: str, **kwargs: Any) -> Any:
        self.check(key)
        store: Any = super()
        return _not_empty(key, store.get_sync(key, **kwargs))

    async def get_partial_values(self, prototype: Any, key_ranges: Any) -> list[Any]:
        parts = (self.get(key, prototype, byte_range) for key, byte_range in key_ranges)
        return list(await asyncio.gather(*parts))


class _Folder(ZarrPlace):
    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> Any:
        from zarr.storage import LocalStore

        class RegularFiles(_Checked, LocalStore):
            def check(self, key: str) -> None:
                file_kind(self.root / key)  # opening a FIFO would block

        return RegularFiles(self._path, read_only=True)

    def stored_keys(self, array: str) -> Iterator[str]:
        root = os.path.join(self._path, array)
        for folder, _, names in os.walk(root):
            yield from (os.path.join(folder, name)[len(root) + 1 :] for name in names)

    def where(self, key: str) -> str:
        return f"file {self._path / key}"

    def stamps(self, node: str, names: Iterable[str]) -> Iterator[Stamp]:
        # Chunk files are too many to check; a program that rewrites an array rewrites its metadata.
        for name in names:
            file = self._path / node / name
            if file.is_file():
                yield FileStamp.of(file, stands_for_others=True)


class _Zip(ZarrPlace):
    hint = "; zip the content of the Zarr folder, not the folder"

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> Any:
        import zarr

        class Members(_Checked, zarr.storage.ZipStore):
            pass

        return Members(self._path, mode="r")

    def stored_keys(self, array: str) -> Iterator[str]:
        prefix = array.strip("/")
        with zipfile.ZipFile(self._path) as archive:
            for name in archive.namelist():
                if not prefix or name.startswith(prefix + "/"):
                    yield name[len(prefix) :].lstrip("/")

    def where(self, key: str) -> str:
        return f"member {key} of {self._path}"

    def stamps(self, node: str, names: Iterable[str]) -> Iterator[Stamp]:
        yield FileStamp.of(self._path)


class RemotePlace(ZarrPlace):
    """A Zarr store in an object store."""

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self.lists = path.bucket.client.lists
        self.config = {"async.concurrency": path.bucket.requests, "threading.max_workers": 1}
        self._listed: dict[str, dict[str, ObjectInfo]] = {}
        self._windows: dict[str, Window] = {}

    def open(self) -> Any:
        return _remote_store(self)

    @property
    def requests(self) -> int:
        return self._path.bucket.requests

    def objects(self, array: str) -> dict[str, ObjectInfo]:
        """The objects of an array as they were listed first, by paths relative to the array."""
        if array not in self._listed:
            at = self._path / array if array else self._path
            self._listed[array] = {info.key: info for info in at.list()}
        return self._listed[array]

    def stored_keys(self, array: str) -> Iterator[str] | None:
        return iter(self.objects(array)) if self.lists else None

    def where(self, key: str) -> str:
        return f"object {self._path / key}"

    def stamps(self, node: str, names: Iterable[str]) -> Iterator[Stamp]:
        if self.lists and node:  # also when attributes are read: the list is there
            yield ObjectsStamp(self._path / node, self.objects(node))
            return
        for name in names:
            file = self._path / node / name
            if not self.lists and file.is_file():
                yield file.stamp()

    def window(self, array: str, groups: Iterable[list[str]], most_bytes: int) -> Window:
        """Request objects of an array before they are read, until the window is closed."""
        objects, root = self.objects(array), (self._path / array if array else self._path).key
        infos = (
            [
                ObjectInfo(f"{root}/{key}", objects[key].size, objects[key].version)
                for key in group
                if key in objects
            ]
            for group in groups
        )
        window = Window(self._path.bucket, filter(None, infos), most_bytes)
        self._windows[array] = window
        return window

    async def read(self, key: str, start: int | None, stop: int | None) -> Any:
        """The bytes of an object, or of a part: negative ``start`` counts from the end.

        Raises FileNotFoundError if there is no such object.
        """
        path = self._path / key if key else self._path
        pending = self._pending(path.key)
        if pending is None:
            return await path.bucket.fetch_async(path.key, start or 0, stop)
        content = await pending.wait()
        return content if start is None else memoryview(content)[start:stop]

    def _pending(self, key: str) -> Any:
        found = (window.find(key) for window in list(self._windows.values()))
        return next((pending for pending in found if pending is not None), None)

    def close(self, array: str) -> None:
        if window := self._windows.pop(array, None):
            window.close()

    def names(self, prefix: str) -> list[str]:
        """All keys that begin with a prefix that is empty or ends in a slash."""
        at = self._path / prefix.strip("/") if prefix.strip("/") else self._path
        return [prefix + info.key for info in at.list()]


def place_of(path: Location) -> ZarrPlace:
    """Where the Zarr store of a path is."""
    if isinstance(path, RemotePath):
        return RemotePlace(path)
    return _Folder(path) if path.is_dir() else _Zip(path)


@dataclass(frozen=True)
class ObjectsStamp:
    """All objects of an array as they were listed first."""

    path: RemotePath
    objects: dict[str, ObjectInfo]

    def check(self) -> None:
        """Raise InputError if one of the objects has changed, or there are more or fewer of them."""
        now = {info.key: info for info in self.path.list()}
        for key in self.objects.keys() - now.keys():
            raise gone(str(self.path / key))
        for key in now.keys() - self.objects.keys():
            raise InputError(
                f"{self.path / key} was written while the array was being read; a source must not "
                "change until its rows are read: run again when nothing writes to it"
            )
        for key, info in self.objects.items():
            if now[key] != info:
                raise changed(str(self.path / key), info, now[key])


def _remote_store(place: RemotePlace) -> Any:
    """A read-only store for zarr.

    It is not zarr's own ``ObjectStore``, since it takes objects from the window of the array, and checks
    that they are those that were listed.
    """
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

    class Objects(_Checked, Store):
        supports_writes = supports_deletes = supports_partial_writes = False
        supports_listing = place.lists

        def __eq__(self, other: object) -> bool:
            return self is other

        __hash__ = Store.__hash__

        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            from zarr.core.buffer.core import default_buffer_prototype

            start = stop = None
            match byte_range:
                case RangeByteRequest():
                    start, stop = byte_range.start, byte_range.end
                case OffsetByteRequest():
                    start = byte_range.offset
                case SuffixByteRequest():
                    start = -byte_range.suffix
            try:
                content = await place.read(key, start, stop)
            except FileNotFoundError:
                return None
            buffer = (prototype or default_buffer_prototype()).buffer
            return _not_empty(key, buffer.from_bytes(content))

        async def exists(self, key: str) -> bool:
            return await self.get(key, byte_range=RangeByteRequest(0, 1)) is not None

        async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
            for name in await asyncio.to_thread(place.names, prefix):
                yield name

        async def list(self) -> AsyncIterator[str]:
            async for name in self.list_prefix(""):
                yield name

        async def list_dir(self, prefix: str) -> AsyncIterator[str]:
            prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
            names = await asyncio.to_thread(place.names, prefix)
            for name in sorted({name[len(prefix) :].partition("/")[0] for name in names}):
                yield name

        async def set(self, *args: Any, **kwargs: Any) -> None:
            raise NotImplementedError("read only")

        delete = set

    return Objects(read_only=True)
