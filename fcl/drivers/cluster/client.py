"""A Dask cluster, seen from the client: how to send tasks, wait for them, and look at the workers.

Everything that fcl sends is a pure task: a function of fcl and its arguments, which may be futures. Dask
may therefore run a task again on any worker, after a death or elsewhere, and the result is the same.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import itertools
import logging
import math
import platform
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy

from fcl.drivers.kinds import missing
from fcl.errors import BudgetError, ClusterLost, FclError, InputError
from fcl.parallel import POLL, one_blas_thread
from fcl.units import counted, format_bytes
from fcl.version import __version__

_log = logging.getLogger("fcl")

#: Seconds to wait for workers, or for workers with enough memory, before the job ends.
PATIENCE = 300.0
#: Seconds within which a worker must answer a question beside its tasks, such as for its versions.
ANSWER = 60.0
#: Share of a worker's memory limit that a job may plan with: Dask pauses a worker at 0.8 of it.
MEMORY_SHARE = 0.6


@functools.cache  # each task compares them
def _versions() -> dict[str, str]:
    """The versions that must agree between client and workers: they decide on the last bits."""
    import numba

    return {
        "fcl": __version__,
        "numpy": numpy.__version__,
        "numba": numba.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def _check_versions(expected: Mapping[str, str], own: Mapping[str, str], worker: str) -> None:
    for name, version in expected.items():
        if own[name] != version:
            raise InputError(
                f"dask: worker {worker} has {name} {own[name]}, the client has {version}; install the "
                "same version on all machines, then restart the worker"
            )


def worker_address() -> str:
    """The address of the worker that runs this task."""
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:  # not on a worker, in tests
        return "of this process"


def call(expected: Mapping[str, str], function: Callable[..., Any], *args: Any) -> Any:
    """Run a task, on a worker that has the versions of the client.

    A worker that joins later is thus checked, too, before its first result counts.
    """
    _check_versions(expected, _versions(), worker_address())
    with one_blas_thread():
        return function(*args)


@dataclass(frozen=True)
class WorkerInfo:
    """A worker as it describes itself."""

    address: str
    threads: int
    memory: int  #: limit in bytes; 0 if it has none

    @property
    def room(self) -> float:
        """Bytes that a job may plan with."""
        return MEMORY_SHARE * self.memory if self.memory else math.inf


def _describe(check: Callable[..., None] | None, args: Sequence[Any], dask_worker: Any) -> Any:
    """Run on each worker: its versions, threads and memory limit, or the error of a check."""
    error = None
    if check is not None:
        try:
            check(*args)
        except InputError as found:
            error = str(found)
    limit = dask_worker.memory_manager.memory_limit or 0
    return _versions(), dask_worker.state.nthreads, int(limit), error


class Cluster:
    """A Dask cluster, seen from the client."""

    def __init__(self, client: Any) -> None:
        self.client = client
        #: called while tasks run, several times a second; if it raises, the wait ends
        self.between: Callable[[], None] = lambda: None
        self._versions = _versions()
        self._job = uuid.uuid4().hex[:12]
        self._serial = itertools.count()
        self._alone_since: float | None = None
        self._looked = time.monotonic()
        self._futures: weakref.WeakSet[Any] = weakref.WeakSet()

    # -- tasks ---------------------------------------------------------------------------------

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:
        """Send a task; returns its future.

        function : a pure function of a module of fcl.  args : may contain futures, also in lists. Large
        arguments belong in a task of their own, so that they are sent once.
        """
        return self.submit_all(function, [args])[0]

    def submit_all(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """Send a task for each tuple of arguments, in one message; returns their futures."""
        n = len(calls)
        if not n:
            return []
        name = f"fcl_{function.__name__.strip('_')}-{self._job}"
        keys = [f"{name}-{next(self._serial)}" for _ in calls]
        columns = [self._versions] * n, [function] * n, *map(list, zip(*calls, strict=True))
        with self._lost():
            futures: list[Any] = self.client.map(call, *columns, key=keys, pure=False)
        self._futures.update(futures)
        return futures

    def where(self, futures: Sequence[Any]) -> list[str | None]:
        """The address of a worker that has each result now, or None; affects speed only."""
        with self._lost():
            found = self.client.who_has(list(futures))
        return [next(iter(found.get(future.key, ())), None) for future in futures]

    def gather(
        self, futures: Sequence[Any], progress: Callable[[float], None] | None = None
    ) -> list[Any]:
        """The results of futures.

        progress : called from time to time with the share of them that are done.

        Raises ClusterLost: the scheduler is gone, workers kept dying in one task, or there are no workers
            any more.
        """
        with self._lost():
            loop = self.client.loop.asyncio_loop
            waiting = asyncio.run_coroutine_threadsafe(
                self.client.gather(list(futures), asynchronous=True), loop
            )
            try:
                while True:
                    try:
                        found: list[Any] = waiting.result(POLL)
                        return found
                    except concurrent.futures.TimeoutError:
                        if waiting.done():
                            raise
                    self.between()
                    if progress is not None:
                        progress(sum(future.done() for future in futures) / max(len(futures), 1))
                    self.check_alone()
            finally:
                waiting.cancel()

    def check_alone(self) -> None:
        """Raise ClusterLost if there have been no workers for a long time; may be called often."""
        now = time.monotonic()
        if now - self._looked < 10.0 * POLL:
            return
        self._looked = now
        if self.threads():
            self._alone_since = None
            return
        self._alone_since = self._alone_since or now
        if now - self._alone_since > PATIENCE:
            raise ClusterLost(f"dask: no worker has been left for {PATIENCE:.0f} s; start workers")

    @contextmanager
    def _lost(self) -> Iterator[None]:
        """Turn errors of the cluster into ClusterLost."""
        from distributed import KilledWorker
        from distributed.comm import CommClosedError

        try:
            yield
        except KilledWorker as error:
            raise ClusterLost(
                f"dask: {error.allowed_failures + 1} workers died in the task {error.task}, perhaps for "
                "lack of memory; give workers more memory, or use smaller blocks"
            ) from error
        except (
            concurrent.futures.CancelledError,
            asyncio.CancelledError,
            CommClosedError,
        ) as error:  # their texts name tasks of Dask
            raise ClusterLost(
                "dask: the connection to the scheduler is lost; start the scheduler again"
            ) from error
        except Exception as error:
            if isinstance(error, FclError) or self.client.status == "running":
                raise
            raise ClusterLost(f"dask: the client is closed ({error})") from error

    def release(self) -> None:
        """Let the workers forget all results."""
        for future in list(self._futures):
            with suppress(Exception):  # perhaps the scheduler is gone
                future.release()

    # -- workers -------------------------------------------------------------------------------

    def threads(self) -> dict[str, int]:
        """The number of threads of each worker, by address."""
        with self._lost():
            found: dict[str, int] = self.client.nthreads()
            return found

    def lack_kernels(self, kinds: Sequence[str]) -> bool:
        """Whether a machine lacks compiled kernels of some kinds."""
        return any(self.once_a_machine(missing, tuple(kinds)))

    def once_a_machine(
        self, function: Callable[..., Any], *args: Any, patience: float | None = None
    ) -> list[Any]:
        """Call a function on one worker of each machine; the results.

        patience : seconds within which they must answer; by default ANSWER.
        """
        hosts = {address.rpartition(":")[0]: address for address in self.threads()}
        answers = self._ask(list(hosts.values()), patience or ANSWER, function, *args).values()
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return list(answers)

    def _ask(
        self, workers: Sequence[str], patience: float, function: Callable[..., Any], *args: Any
    ) -> dict[str, Any]:
        """Call a function on workers, beside their tasks; the results or errors by address.

        Raises ClusterLost: a worker has not answered after ``patience`` seconds; it may be stopped, or
            out of memory.
        """
        since = time.monotonic()
        with self._lost():
            loop = self.client.loop.asyncio_loop
            asked = {}
            for address in workers:
                answer = self.client.run(
                    function, *args, workers=[address], on_error="return", asynchronous=True
                )
                asked[address] = asyncio.run_coroutine_threadsafe(answer, loop)
            try:
                while concurrent.futures.wait(asked.values(), POLL).not_done:
                    self.between()
                    if time.monotonic() - since > patience:
                        silent = [address for address, answer in asked.items() if not answer.done()]
                        raise ClusterLost(
                            f"dask: {counted(len(silent), 'worker')} of {len(asked)} did not answer "
                            f"within {patience:.0f} s ({', '.join(silent[:3])}); restart or retire them"
                        )
                return {address: answer.result()[address] for address, answer in asked.items()}
            finally:
                for answer in asked.values():
                    answer.cancel()

    def workers(
        self, check: Callable[..., None] | None = None, *args: Any
    ) -> dict[str, WorkerInfo]:
        """The workers by address; InputError for one with other versions, or that fails a check.

        check : a function of a module of fcl that raises InputError, called with ``args`` on each worker.
        """
        found = self._ask(list(self.threads()), ANSWER, _describe, check, args)
        workers = {}
        for address, answer in found.items():
            if isinstance(answer, ModuleNotFoundError):
                raise InputError(
                    f"dask: worker {address} lacks a module ({answer}); install it there"
                )
            if isinstance(answer, OSError):  # it has just died
                continue
            if isinstance(answer, BaseException):
                raise answer
            versions, threads, memory, error = answer
            _check_versions(self._versions, versions, address)
            if error is not None:
                raise InputError(f"dask: worker {address}: {error}")
            workers[address] = WorkerInfo(address, threads, memory)
        return workers

    def wait_for_workers(
        self,
        total: float,
        each: float,
        check: Callable[..., None] | None = None,
        *args: Any,
    ) -> dict[str, WorkerInfo]:
        """The workers, once they have room for a job.

        total, each : bytes that all workers need together, and that each needs.
        check, *args : see :meth:`workers`.

        Raises BudgetError: the workers have not enough memory.
        Raises ClusterLost: there are no workers.
        """
        since, said = time.monotonic(), False
        while True:
            workers = self.workers(check, *args)
            able = [w for w in workers.values() if w.room >= each]
            if able and sum(w.room for w in able) >= total:
                return workers
            smallest = f"{format_bytes(each / MEMORY_SHARE)} each"
            lacking = (
                f"dask: expected workers with {format_bytes(total / MEMORY_SHARE)} of memory together, "
                f"{smallest}, got {counted(len(workers), 'worker')} with "
                f"{format_bytes(sum(w.memory for w in workers.values()))}; start more workers, or give "
                "them more memory (--memory-limit)"
            )
            if time.monotonic() - since > PATIENCE:
                if not workers:
                    raise ClusterLost("dask: the scheduler has no workers; start some")
                raise BudgetError(lacking, math.ceil(total / MEMORY_SHARE))
            if not said:
                said = True
                _log.warning("%s; waiting for %.0f s", lacking, PATIENCE)
            self.between()
            time.sleep(min(1.0, PATIENCE / 4.0))

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        scheduler = self.client.scheduler
        return str(scheduler.address) if scheduler is not None else "closed"
