"""Several requests at once to a store, within bounds of number and bytes."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from fcl.errors import InputError
from fcl.store.clients import (
    OBSTORE,
    OWN_OPTIONS,
    WEB,
    Answer,
    Client,
    Fsspec,
    ObjectInfo,
    Obstore,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Requests of a process in flight at once, unless the storage option ``requests`` says otherwise.
REQUESTS = 16
#: Larger objects are fetched in parts of this size, several at once.
PART_BYTES = 4 << 20
#: Smallest part of a read from an object that is not fetched as a whole.
_LEAST_PART = 1 << 19


class Bucket:
    """A bucket or host, with a limited number of requests in flight.

    requests : how many at once.
    """

    def __init__(self, client: Client, requests: int) -> None:
        self.client = client
        self.requests = requests
        self._pool = ThreadPoolExecutor(requests, thread_name_prefix="fcl-store")

    def fetch(self, key: str, start: int = 0, stop: int | None = None) -> Future[Answer]:
        """Request an object, or its bytes ``start`` to ``stop``."""
        return self._pool.submit(self.client.get, key, start, stop)

    async def fetch_async(self, key: str, start: int = 0, stop: int | None = None) -> Any:
        """As :meth:`fetch`, in a coroutine; returns the bytes."""
        answer = await asyncio.wrap_future(self.fetch(key, start, stop))
        return answer.content

    def read_into(self, info: ObjectInfo, start: int, buffer: memoryview) -> None:
        """Fill a buffer with bytes of an object from ``start`` on, by several requests if it is large."""
        size = len(buffer)
        step = max(_LEAST_PART, min(PART_BYTES, -(-size // self.requests)))
        wait_all(
            [
                self._pool.submit(self._fill, info, start + at, buffer[at : at + step])
                for at in range(0, size, step)
            ]
        )

    def _fill(self, info: ObjectInfo, start: int, buffer: memoryview) -> None:
        answer = self.client.get(info.key, start, start + len(buffer))
        check_version(self.client, info, answer.info)
        buffer[:] = memoryview(answer.content).cast("B")

    def whole(self, info: ObjectInfo) -> Pending:
        """Request all of an object, whose size is known."""
        if info.size <= PART_BYTES:
            return Pending(self, info, [self.fetch(info.key)], None)
        content = bytearray(info.size)
        view = memoryview(content)
        parts: list[Future[Any]] = [
            self._pool.submit(self._fill, info, at, view[at : at + PART_BYTES])
            for at in range(0, info.size, PART_BYTES)
        ]
        return Pending(self, info, parts, content)

    def file(self, info: ObjectInfo) -> _ObjectFile:
        """An object as a file that can be read and sought."""
        return _ObjectFile(self, info)


class Pending:
    """An object on its way."""

    def __init__(
        self, bucket: Bucket, info: ObjectInfo, parts: list[Future[Any]], content: bytearray | None
    ) -> None:
        self._bucket, self.info, self._parts, self._content = bucket, info, parts, content

    async def wait(self) -> Any:
        """As :meth:`result`, in a coroutine."""
        shielded = (asyncio.shield(asyncio.wrap_future(part)) for part in self._parts)
        await asyncio.gather(*shielded, return_exceptions=True)
        return self.result()

    def result(self) -> Any:
        """Wait for the bytes of the object; raises InputError if it has changed since it was listed."""
        wait_all(self._parts)
        if self._content is not None:
            return self._content
        answer: Answer = self._parts[0].result()
        check_version(self._bucket.client, self.info, answer.info)
        return answer.content

    def cancel(self) -> None:
        """Drop requests that have not begun."""
        for part in self._parts:
            part.cancel()


class Window:
    """Objects that are requested before they are read, in the order in which they will be read.

    groups : objects that are read together, in order.
    most_bytes : of objects in flight, or here and not yet read; one group is requested, however large.
    """

    def __init__(self, bucket: Bucket, groups: Iterable[list[ObjectInfo]], most_bytes: int) -> None:
        self._bucket, self._groups, self._most = bucket, iter(groups), most_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[int, dict[str, Pending]] = OrderedDict()
        self._count = self._bytes = 0
        self._next: list[ObjectInfo] | None = next(self._groups, None)
        self._fill()

    def find(self, key: str) -> Pending | None:
        """An object if it is in the window; objects of earlier groups leave it."""
        with self._lock:
            number = next((n for n, group in self._held.items() if key in group), None)
            if number is None:
                return None
            while next(iter(self._held)) < number:
                self._held.popitem(last=False)
            found = self._held[number][key]
            self._fill()
            return found

    def _fill(self) -> None:
        """Request the next groups while there is room; the group that is being read takes none."""
        ahead = sum(
            pending.info.size
            for group in list(self._held.values())[1:]
            for pending in group.values()
        )
        while self._next is not None:
            size = sum(info.size for info in self._next)
            if len(self._held) > 1 and ahead + size > self._most:
                return
            self._held[self._count] = {info.key: self._bucket.whole(info) for info in self._next}
            ahead += size if len(self._held) > 1 else 0
            self._count += 1
            self._next = next(self._groups, None)

    def close(self) -> None:
        """Drop everything."""
        with self._lock:
            self._next = None
            for group in self._held.values():
                for pending in group.values():
                    pending.cancel()
            self._held.clear()


class _ObjectFile(io.RawIOBase):
    """An object as a raw file: each read is a request, or several for a large one."""

    def __init__(self, bucket: Bucket, info: ObjectInfo) -> None:
        self._bucket, self._info, self._at = bucket, info, 0
        self.name = bucket.client.url(info.key)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._info.size}[whence]
        if base + offset < 0:
            raise OSError(22, "Invalid argument", self.name)
        self._at = base + offset
        return self._at

    def readall(self) -> bytes:
        content = bytearray(max(0, self._info.size - self._at))
        self.readinto(content)
        return bytes(content)

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._info.size - self._at))
        if count:
            self._bucket.read_into(self._info, self._at, view[:count])
        self._at += count
        return count


def wait_all(futures: list[Future[Any]]) -> None:
    """Wait for all, since some may write to a buffer of the caller; then raise the first error."""
    wait(futures)
    for future in futures:
        future.result()


def check_version(client: Client, before: ObjectInfo, now: ObjectInfo) -> None:
    """Raise InputError if an object has changed since it was looked up."""
    if before.size != now.size or (
        None not in (before.version, now.version) and before.version != now.version
    ):
        raise changed(client.url(before.key), before, now)


def changed(url: str, before: ObjectInfo, now: ObjectInfo) -> InputError:
    """The error for an object that has changed."""
    what = f"was {before.size} bytes, is {now.size}"
    if before.size == now.size:
        what = f"its version was {before.version}, is {now.version}"
    return InputError(
        f"{url} changed while it was being read ({what}); a source must not change until its rows are "
        "read: run again when nothing writes to it"
    )


def gone(url: str) -> InputError:
    """The error for an object that was removed."""
    return InputError(f"{url} was removed; a source must stay in place until the run ends")


_buckets: dict[tuple[Any, ...], Bucket] = {}
_lock = threading.Lock()


def find_bucket(scheme: str, host: str, options: Mapping[str, str]) -> Bucket:
    """The bucket of a URL; made once for each process and set of options."""
    at = scheme, host, tuple(sorted(options.items()))
    with _lock:
        if at not in _buckets:
            requests = int(options.get("requests", REQUESTS))
            _buckets[at] = Bucket(_make_client(scheme, host, options), requests)
        return _buckets[at]


def _make_client(scheme: str, host: str, options: Mapping[str, str]) -> Client:
    """A client of the bucket or host of a URL; raises InputError if it needs a missing package."""
    root = f"{scheme}://{host}"
    given = {name: value for name, value in options.items() if name not in OWN_OPTIONS}
    if scheme in WEB:
        from fcl.store.web import Web  # late: others need neither TLS nor HTTP

        return Web(root, given)
    return (Obstore if scheme in OBSTORE else Fsspec)(root, scheme, given)


def _forget() -> None:
    """A forked child has no threads of its parent, so it opens stores anew."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _buckets.clear()


os.register_at_fork(after_in_child=_forget)
