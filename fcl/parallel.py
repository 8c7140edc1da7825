"""Threads for kernels: map a function over parts, on as many threads as the process may use now.

Results are returned in the order of the parts, and each part writes to its own memory, so the arithmetic
depends on how the work is split, never on the number of threads. Kernels release the GIL. Numba's own
``parallel=True`` is unsuitable: its portable threading layer aborts the process when two Python threads
enter it.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

#: Entries that a thread reads in about the time in which another is woken, 0.3 ms, twice.
LEAST_ENTRIES = 1 << 19
#: Seconds between two looks at the user's signals while jobs or tasks run elsewhere.
POLL = 0.2

T = TypeVar("T")
R = TypeVar("R")


class _BlasLimit:
    """Limits BLAS to one thread from the first entry to the last exit, in any threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limits: Any = None

    def enter(self) -> None:
        """Limit the threads, unless they are limited already."""
        with self._lock:
            if self._inside == 0:
                self._limits = _blas().limit(limits=1)
            self._inside += 1

    def leave(self) -> None:
        """Restore the original limits at the last exit."""
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limits.restore_original_limits()


_LIMIT = _BlasLimit()


@functools.cache
def _blas() -> Any:
    import scipy.linalg  # noqa: F401  SciPy has a BLAS of its own, which is found only when loaded
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread: fcl assigns the cores itself.

    The threads of BLAS wait for one another at the end of each product, which is slow while other work
    occupies the cores.
    """
    _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave()


_OF_THREAD = threading.local()


def caller() -> int:
    """The thread for which this one works: itself, or the one that called :meth:`Team.map`."""
    found: int = getattr(_OF_THREAD, "caller", 0) or threading.get_ident()
    return found


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Let the jobs of this thread have at most so many threads each."""
    before = getattr(_OF_THREAD, "most", math.inf)
    _OF_THREAD.most = threads
    try:
        yield
    finally:
        _OF_THREAD.most = before


def threads_of_job(asked: int | None) -> int:
    """Threads of a job that asks for so many, or, with None, for all cores."""
    most: float = getattr(_OF_THREAD, "most", math.inf)
    return int(min(asked or available_cores(), most))


def available_cores() -> int:
    """Cores that this process may keep busy: by affinity, cgroup quota and ``OMP_NUM_THREADS``."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # one number for each level
    if asked.isdecimal() and int(asked) > 0:
        cores = min(cores, int(asked))
    quota = _quota(Path("/sys/fs/cgroup"))
    return cores if math.isinf(quota) else max(1, min(cores, math.ceil(quota)))


def _quota(root: Path) -> float:
    """Cores that the control group of the process, as a container sees it, may use on average."""
    try:
        if (root / "cpu.max").exists():  # version 2
            quota, period = (root / "cpu.max").read_text().split()
        else:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text()
        cores = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # no group, or no limit ("max")
        return math.inf
    return cores if cores > 0.0 else math.inf  # -1: no limit


def cut(items: range, n: int, unit: int = 1) -> list[range]:
    """At most n ranges that together are ``items``, about equally long, of multiples of ``unit``."""
    units = -(-len(items) // unit)
    n = max(1, min(n, units))
    ends = [min(len(items), units * k // n * unit) for k in range(n + 1)]
    return [items[a:b] for a, b in pairwise(ends)]


class Team:
    """The threads of a process.

    ``threads`` is read before each part is taken, so a lower number takes effect within one kernel call.

    most : maximum number of threads, including the caller's.
    """

    def __init__(self, most: int = 1) -> None:
        self.most = most
        self.threads = most
        self._pool: ThreadPoolExecutor | None = None

    def at_most(self, n: int) -> Team:
        """A team of at most ``n`` of these threads, for work that takes memory on each."""
        return self if n >= self.most else _Few(self, max(1, n))

    def for_entries(self, n: int) -> Team:
        """These threads if reading so many entries takes longer than waking them; else the caller's."""
        return self if n >= LEAST_ENTRIES else SERIAL

    def map(self, function: Callable[[T], R], parts: Sequence[T]) -> list[R]:
        """Return ``[function(part) for part in parts]``; raises what that would raise.

        No part is still running when this returns or raises.
        """
        return self._map(function, parts, self.most)

    def _map(self, function: Callable[[T], R], parts: Sequence[T], most: int) -> list[R]:
        helpers = min(most, len(parts)) - 1
        if helpers < 1 or self.threads <= 1:
            return [function(part) for part in parts]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.most - 1, thread_name_prefix="fcl-team")
        results: list[R | None] = [None] * len(parts)
        errors: dict[int, BaseException] = {}
        lock = threading.Lock()
        taken = iter(range(len(parts)))
        owner = caller()

        def work(rank: int) -> None:
            if rank:
                _OF_THREAD.caller = owner
            # rank 0 is the caller, which continues until no part is left
            while not errors and (rank == 0 or rank < self.threads):
                with lock:
                    at = next(taken, None)
                if at is None:
                    return
                try:
                    results[at] = function(parts[at])
                except BaseException as error:
                    errors[at] = error

        futures = [self._pool.submit(work, rank + 1) for rank in range(helpers)]
        try:
            work(0)
        finally:
            for _ in taken:  # after an interrupt of the caller no thread starts another part
                pass
            # a future that has not started has nothing to do, and may be queued behind this thread
            wait([future for future in futures if not future.cancel()])
        if errors:  # parts start in order, so the first part to fail is always among these
            raise errors[min(errors)]
        return results  # type: ignore[return-value]

    def close(self) -> None:
        """Stop the threads; the next call of :meth:`map` would start new ones."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class _Few(Team):
    """Some of the threads of another team."""

    def __init__(self, whole: Team, most: int) -> None:
        super().__init__(most)
        self._whole = whole

    def _map(self, function: Callable[[T], R], parts: Sequence[T], most: int) -> list[R]:
        return self._whole._map(function, parts, most)


#: One thread: the caller's.
SERIAL = Team(1)
