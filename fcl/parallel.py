"""Threads for kernels: map a function over parts, on as many threads as the process may use now.

Results are returned in the order of the parts, and each part writes to its own memory, so the arithmetic
depends on how the work is split, never on the number of threads. Kernels release the GIL. Numba's own
``parallel=True`` is unsuitable: its portable threading layer aborts the process when two Python threads
enter it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["SERIAL", "Team", "one_blas_thread"]

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


class Team:
    """The threads of a process.

    ``threads`` is read before each part is taken, so a lower number takes effect within one kernel call.

    Parameters
    ----------
    most : int
        Maximum number of threads, including the caller's.
    """

    def __init__(self, most: int = 1) -> None:
        self.most = most
        self.threads = most
        self._pool: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[T], R], parts: Sequence[T]) -> list[R]:
        """Return ``[function(part) for part in parts]``; raises what that would raise.

        No part is still running when this returns or raises.
        """
        helpers = min(self.most, len(parts)) - 1
        if helpers < 1 or self.threads <= 1:
            return [function(part) for part in parts]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.most - 1, thread_name_prefix="fcl-team")
        results: list[R | None] = [None] * len(parts)
        errors: dict[int, BaseException] = {}
        lock = threading.Lock()
        taken = iter(range(len(parts)))

        def work(rank: int) -> None:
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


#: One thread: the caller's.
SERIAL = Team(1)
