"""Threads for kernels: a function over parts, on as many threads as the process may use just now.

Results come back in the order of the parts and every part writes places of its own, so the arithmetic
depends on how the work is cut, never on the number of threads. Kernels release the GIL. Numba's own
``parallel=True`` will not do: its portable threading layer aborts the process when two Python threads
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
    """BLAS with one thread from the first entry to the last exit, in whatever threads these are."""

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
        """Restore the threads at the last exit."""
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limits.restore_original_limits()


_LIMIT = _BlasLimit()


@functools.cache
def _blas() -> Any:
    import scipy.linalg  # noqa: F401  its BLAS is not NumPy's, and has to be loaded to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread: fcl assigns the cores itself.

    Threads of BLAS wait for each other at the end of each product, which takes long where other work
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
        Threads that there may ever be, the caller's included.
    """

    def __init__(self, most: int = 1) -> None:
        self.most = most
        self.threads = most
        self._pool: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[T], R], parts: Sequence[T]) -> list[R]:
        """``[function(part) for part in parts]``; raises what that would raise.

        When it returns or raises, no part is being worked on any more.
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
            # rank 0 is the caller, who sees to the end of the parts
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
            for _ in taken:  # the caller may have been interrupted: nobody begins another part
                pass
            # one that never began has nothing to do, and may wait for the thread that waits here
            wait([future for future in futures if not future.cancel()])
        if errors:  # parts were begun in order, so the first of them is always among these
            raise errors[min(errors)]
        return results  # type: ignore[return-value]

    def close(self) -> None:
        """End the threads; the next call of :meth:`map` would begin new ones."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


#: One thread: the caller's.
SERIAL = Team(1)
