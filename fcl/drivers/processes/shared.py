"""Anonymous shared memory: the segments that hold the arrays of a run.

The supervisor creates a segment, and its children inherit the descriptor. Since a segment has no name,
nothing is left after a SIGKILL, no resource tracker is needed, and the small ``/dev/shm`` of containers
does not limit it. A segment may grow, and its memory may be allocated, after the children have started.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import ALIGNMENT, map_file, write_all
from fcl.errors import BudgetError, reason
from fcl.memory.meter import available_memory
from fcl.units import format_bytes

#: Bytes allocated in one call: a signal makes the kernel undo the whole call, but not earlier calls.
STEP = 64 << 20
#: Bytes by which ``append`` makes a segment grow; the unused rest is a hole and takes no memory.
GROWTH = 4 << 20
_NO_ROOM = (errno.ENOSPC, errno.ENOMEM, errno.EFBIG, errno.EDQUOT)


class Segment:
    """Anonymous shared memory: a descriptor, and this process's mapping of it.

    The supervisor makes it by :meth:`create`, a child by :meth:`of_fd`. Only one process may
    :meth:`append`, and no process may have mapped what :meth:`shrink` cuts off. The class does not
    control who writes where.
    """

    def __init__(self, name: str, fd: int, in_memory: bool) -> None:
        self.name = name
        self.fd = fd
        self.in_memory = in_memory  #: False: a file in a folder, which takes no memory if on a disk
        self._map: mmap.mmap | None = None
        self._end: int | None = None
        self.filled = 0  #: bytes from the start on that :meth:`allocate` and :meth:`fill` allocated

    @classmethod
    def create(cls, name: str, folder: str | os.PathLike[str] | None = None) -> Segment:
        """An empty segment.

        folder : for an unlinked file instead of anonymous memory. None: anonymous memory, or without
            memfd (macOS) a file in the system's temporary folder.

        Raises BudgetError if the folder is not writable.
        """
        memfd_create = getattr(os, "memfd_create", None)
        if folder is None and memfd_create is not None:
            return cls(name, above_stdio(memfd_create(f"fcl-{name}")), True)
        where = Path(tempfile.gettempdir() if folder is None else folder)
        try:
            fd, path = tempfile.mkstemp(prefix="fcl-shared-", dir=where)
            os.unlink(path)
        except OSError as error:
            raise BudgetError(
                f"shared memory {name!r}: cannot make a file in {where} ({error.strerror}); "
                "name another folder with --scratch"
            ) from error
        return cls(name, above_stdio(fd), False)

    @classmethod
    def of_fd(cls, name: str, fd: int) -> Segment:
        """A segment from an inherited descriptor, which it owns from now on."""
        os.set_inheritable(fd, False)  # the child's own children must not keep the memory alive
        return cls(name, fd, True)

    # -- size ----------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Size in bytes, 0 before :meth:`allocate`; another process may change it."""
        return os.fstat(self.fd).st_size if self.fd >= 0 else 0

    @property
    def allocated(self) -> int:
        """Allocated bytes, without holes."""
        return os.fstat(self.fd).st_blocks * 512 if self.fd >= 0 else 0

    def allocate(self, size: int, filled: int | None = None) -> None:
        """Make the segment at least `size` bytes long; new bytes are 0.

        filled : how many bytes are allocated now; the rest remains a hole until :meth:`fill`. None: all.

        Raises BudgetError if there is not enough room for all of it; the segment is then unchanged.
        """
        old = self.size
        if size <= old:
            return
        self._check_available(size)
        try:
            with self._room_for(size):
                os.ftruncate(self.fd, size)
            self.fill(size if filled is None else filled)
        except BaseException:
            with contextlib.suppress(OSError):
                self.shrink(old)
            raise

    def fill(self, end: int) -> None:
        """Allocate the bytes up to `end` that are a hole still.

        Raises BudgetError if there is not enough room.
        """
        if end <= self.filled:
            return
        self._check_available(end)
        with self._room_for(end):
            while self.filled < end:
                step = min(STEP, end - self.filled)
                _fill(self.fd, self.filled, step)
                self.filled += step

    def _check_available(self, end: int) -> None:
        """Check before the kernel does: a cgroup kills the process instead of refusing memory."""
        available = available_memory() if self.in_memory else None
        if available is not None and end - self.filled > available:
            raise self._no_room(end, f"{format_bytes(available)} are available")

    @contextlib.contextmanager
    def _room_for(self, size: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise self._no_room(size, reason(error), error.errno) from error
            raise

    def shrink(self, size: int) -> None:
        """Free everything after the first `size` bytes, which no process may have mapped."""
        if size < self.size:
            os.ftruncate(self.fd, size)
            self.filled = min(self.filled, size)
            self._map = None

    def rewind(self, offset: int | None) -> int:
        """Make the next :meth:`append` write at `offset` (None: at the end); return the position."""
        if offset is not None:
            self._end = offset
        return self.size if self._end is None else self._end

    def append(self, *parts: bytes | memoryview) -> tuple[int, int]:
        """Write buffers at the end; return their offset, a multiple of ALIGNMENT, and their bytes.

        For a segment with one writer, which does not map it for writing. The successor of a killed writer
        starts after everything that the segment contains. Raises BudgetError if there is not enough room.
        """
        size = self.size
        at = _aligned(size if self._end is None else self._end)
        end = at + sum(map(len, parts))
        with self._room_for(end):
            if end > size:
                # in large steps: a reader has to map again whenever it reads beyond its mapping
                os.ftruncate(self.fd, -(-end // GROWTH) * GROWTH)
            write_all(self.fd, at, parts)
        self._end = end
        return at, end - at

    def _no_room(self, size: int, got: str, code: int | None = None) -> BudgetError:
        cure = "; lower --memory or the number of writers"
        if not self.in_memory:
            cure += ", free some disk space, or name another folder with --scratch"
        if code == errno.EFBIG:  # a limit of the process, independent of the free space
            cure = ""
        return BudgetError(
            f"shared memory {self.name!r}: expected room for {format_bytes(size)}, got: {got}{cure}"
        )

    # -- contents ------------------------------------------------------------------------------

    def array(
        self, dtype: npt.DTypeLike, shape: int | tuple[int, ...], offset: int = 0
    ) -> np.ndarray:
        """A writable array that views the segment from the byte `offset` on.

        It keeps the mapping alive, even after :meth:`close`.
        """
        kind = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = int(np.prod(shape, dtype=np.int64))
        end = offset + count * kind.itemsize
        if offset % kind.alignment:
            raise ValueError(
                f"segment {self.name!r}: expected an offset that is a multiple of "
                f"{kind.alignment} for {kind}, got {offset}"
            )
        if not count:
            return np.empty(shape, kind)
        return np.frombuffer(self._mapped(end), kind, count, offset).reshape(shape)

    def piece(self, at: int, size: int) -> npt.NDArray[np.uint8]:
        """Bytes of the segment in a mapping of their own, which ends with the array."""
        return map_file(self.fd, at, size)

    def _mapped(self, end: int) -> mmap.mmap:
        if self._map is None or len(self._map) < end:
            size = self.size
            if end > size:
                raise ValueError(
                    f"segment {self.name!r}: expected at least {end} bytes, got {size}"
                    f"{' (closed)' if self.fd < 0 else ''}"
                )
            # arrays keep the former mapping alive; both mappings show the same bytes
            self._map = mmap.mmap(self.fd, size, mmap.MAP_SHARED)
        return self._map

    def close(self) -> None:
        """Close the descriptor and release the mapping; existing arrays remain usable."""
        # no mmap.close(): it fails while arrays exist; the last of them unmaps the memory
        self._map = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __repr__(self) -> str:
        return f"Segment({self.name!r}, fd={self.fd}, size={self.size})"


def above_stdio(fd: int) -> int:
    """The descriptor, or a copy of it above 2, since a child replaces 0, 1 and 2.

    A new descriptor is 2 or below only if the user closed a standard stream.
    """
    if fd > 2:
        return fd
    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return copy


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _fill(fd: int, start: int, size: int) -> None:
    """Allocate ``size`` bytes of a file from ``start`` on, where it has a hole."""
    posix_fallocate = getattr(os, "posix_fallocate", None)
    if posix_fallocate is not None:
        try:
            posix_fallocate(fd, start, size)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
    # macOS, and file systems without fallocate; F_PREALLOCATE does not always allocate
    zeros = memoryview(bytes(min(size, 1 << 20)))
    end = start + size
    while start < end:
        start += os.pwrite(fd, zeros[: end - start], start)
