"""Whole inline jobs as tasks: an executor as in :mod:`fcl.drivers.executor` on a Dask cluster.

A task is pure: it opens the rows, runs a function of fcl, and returns the last result. If its worker
dies, Dask runs it again elsewhere. Events of the jobs come to the client through the scheduler.
"""

from __future__ import annotations

import pickle
import queue
import threading
import time
import uuid
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from fcl.clock import Clock
from fcl.data import DataSet
from fcl.data.column_map import refuse_mapped
from fcl.drivers.cluster import tasks
from fcl.drivers.cluster.client import MEMORY_SHARE, Cluster
from fcl.drivers.cluster.connect import check_cluster, connected
from fcl.drivers.cluster.run import compile_kernels
from fcl.drivers.executor import (
    INLINE,
    NOT_RELAYED,
    Executor,
    InlineExecutor,
    Needs,
    ParallelExecutor,
    RunContext,
    ThreadExecutor,
    last,
)
from fcl.drivers.kinds import KIND_SECONDS
from fcl.drivers.session import Progress
from fcl.errors import BudgetError, InputError
from fcl.run.events import Compiling, Event, Jobs
from fcl.units import format_bytes

#: Bytes of rows in memory that are sent; larger ones belong in files that the workers open.
MOST_SENT = 256 << 20
#: Seconds after which a job that can continue in another task returns what it has.
PAUSE_AFTER = 600.0
#: Seconds between two looks at a job that is waited for.
GLANCE = 0.05


# -- data ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SentData:
    """A data set on its way to a worker: where its rows are, or the rows; and the other arrays."""

    rows: Any  #: a Source, or a reader of rows in memory
    others: dict[str, Any]  #: the other attributes

    @classmethod
    def of(cls, data: DataSet) -> SentData:
        """Describe a data set; InputError if its rows are in memory and too large to be sent."""
        refuse_mapped(data.rows, data.name)
        others = dict(vars(data))
        rows = others.pop("rows")
        del others["_stamps"]
        if data.source is not None:
            data.check_unchanged()
            return cls(tasks.RowSource.of(data), others)
        parts: list[pickle.PickleBuffer] = []
        pickle.dumps(rows, 5, buffer_callback=parts.append)
        size = sum(part.raw().nbytes for part in parts)
        if size > MOST_SENT:
            raise InputError(
                f"{data.name}: expected rows in files that all workers see, or at most "
                f"{format_bytes(MOST_SENT)} of rows in memory, got {format_bytes(size)}; save them as "
                "Zarr or with np.save, and open the path"
            )
        return cls(rows, others)

    def open(self) -> DataSet:
        """The data set, in another process; InputError if its rows are not there."""
        known = isinstance(self.rows, tasks.RowSource)
        data = self.rows.open() if known else DataSet("", self.rows)
        vars(data).update(self.others)
        return data


def _convert(shared: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """An object, or the fields of a dataclass, with those of a type replaced."""
    if isinstance(shared, kind):
        return function(shared)
    found = {key: function(value) for key, value in vars(shared).items() if isinstance(value, kind)}
    return replace(shared, **found)


def pack(shared: Any) -> bytes:
    """What jobs have in common, as bytes; targets, weights and folds compress well."""
    from distributed.protocol.pickle import dumps

    return zlib.compress(dumps(_convert(shared, DataSet, SentData.of)), 1)


def unpack(packed: bytes) -> Any:
    """What :func:`pack` packed, with the rows opened."""
    return _convert(pickle.loads(zlib.decompress(packed)), SentData, SentData.open)


# -- on a worker -----------------------------------------------------------------------------------


class _Room:
    """The memory of a worker, which the jobs on its threads share."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = 0

    @contextmanager
    def take(self, size: int, room: float, should_stop: Callable[[], bool]) -> Iterator[None]:
        """Wait until the jobs that run leave room for one more."""
        with self._changed:
            while self._taken and self._taken + size > room and not should_stop():
                self._changed.wait(1.0)
            self._taken += size
        try:
            yield
        finally:
            with self._changed:
                self._taken -= size
                self._changed.notify_all()


_ROOM = _Room()


@dataclass(frozen=True)
class _Sent:
    """How a task reports to the client.

    topic : of the scheduler.  size : bytes of the job.
    """

    topic: str
    size: int


class _OnWorker:
    """The worker on which a task runs, as the task sees it."""

    def __init__(self, sent: _Sent) -> None:
        from distributed import get_worker

        self._worker = get_worker()
        self._topic = sent.topic
        self._key = self._worker.get_current_task()
        limit = self._worker.memory_manager.memory_limit
        self.room = MEMORY_SHARE * limit if limit else float("inf")
        if sent.size > self.room:
            raise BudgetError(
                f"dask: worker {self._worker.address} has a memory limit of {format_bytes(limit)}, a job "
                f"needs {format_bytes(int(sent.size / MEMORY_SHARE))}; give workers more memory "
                "(--memory-limit), or jobs less (--memory)",
                int(sent.size / MEMORY_SHARE),
            )
        self._log("begun", self._worker.address)

    def _log(self, what: str, value: Any) -> None:
        self._worker.log_event(self._topic, [str(self._key), what, value])

    def report(self, event: Event) -> None:
        """Send an event to the client."""
        if not isinstance(event, NOT_RELAYED):
            self._log("event", pickle.dumps(event))

    def should_stop(self) -> bool:
        """Whether the client has withdrawn the task."""
        state = self._worker.state.tasks.get(self._key)
        return state is None or state.state in ("cancelled", "resumed")


def run_job(
    packed: bytes,
    function: Callable[..., Iterable[Any]],
    context: RunContext,
    elapsed: float,
    spent: float | None,
    sent: _Sent,
    args: Sequence[Any],
) -> Any:
    """Run a job on a worker; returns its last result.

    elapsed : seconds from the beginning of the client's run until the job was sent.  spent : seconds
        that count for a time limit, or None before its first job.
    """
    here, now = _OnWorker(sent), time.monotonic()
    clock = Clock()
    if spent is not None:
        clock.start(spent)
    context = replace(
        context,
        report=here.report,
        should_stop=here.should_stop,
        begun=now - elapsed,
        clock=clock,
        pause_at=now + context.pause_at,
    )
    with _ROOM.take(sent.size, here.room, here.should_stop):
        try:
            shared = unpack(packed)
        except ModuleNotFoundError as error:
            raise InputError(
                f"dask: a worker lacks a module ({error}); install it there"
            ) from error
        return last(function(shared, context, *args))


def _nothing(event: Event) -> None:
    """Reports nothing."""


def _never() -> bool:
    """Never stops."""
    return False


# -- in the client ---------------------------------------------------------------------------------


class ClusterExecutor(ParallelExecutor):
    """Sends whole jobs to the workers of a cluster.

    size : bytes that a job needs.
    report, should_stop : called in the thread that made this object.
    """

    def __init__(
        self, cluster: Cluster, size: int, report: Progress, should_stop: Callable[[], bool]
    ) -> None:
        super().__init__(report, should_stop)
        self._cluster, self._size = cluster, size
        self._lock = threading.Lock()
        self._shared: dict[int, tuple[Any, Any]] = {}  # id -> what is shared, its future
        self._events: queue.SimpleQueue[tuple[str, str, Any]] = queue.SimpleQueue()
        self._seen: dict[str, Counter[str]] = {}  # of each job, events that were reported
        self._again: dict[str, Counter[str]] = {}  # and those of its present attempt
        self._at: dict[str, str] = {}  # worker of each job that has begun
        self._sent: set[str] = set()
        self._done: set[str] = set()
        self._shown = Jobs(0, 0, 0, 0)
        self._topic = f"fcl-jobs-{uuid.uuid4().hex}"

    @property
    def lanes(self) -> int:
        """How many jobs run side by side."""
        return max(1, sum(self._cluster.threads().values()))

    @contextmanager
    def open(self) -> Iterator[ClusterExecutor]:
        """Receive the events of the jobs; at the end, no job is left."""
        client = self._cluster.client
        client.subscribe_topic(self._topic, lambda event: self._events.put(event[1]))
        self._cluster.between = self._tend
        try:
            yield self
            self._show_events()
        finally:
            self._cluster.between = lambda: None
            self._shared.clear()
            with suppress(Exception):  # perhaps the scheduler is gone
                client.unsubscribe_topic(self._topic)

    def stream(
        self, function: Callable[..., Iterable[Any]], shared: Any, context: Any, *args: Any
    ) -> Iterator[Any]:
        """See :class:`fcl.drivers.executor.Executor`."""
        elapsed = time.monotonic() - context.begun
        spent = context.clock.seconds if context.clock.started else None
        context.clock.start()
        context = replace(
            context,
            report=_nothing,
            should_stop=_never,
            executor=INLINE,
            lanes=self.lanes,
            clock=Clock(),
            pause_at=PAUSE_AFTER,  # from its beginning on the worker
        )
        sent = _Sent(self._topic, self._size)
        future = self._cluster.submit(
            run_job, self._future_of(shared), function, context, elapsed, spent, sent, list(args)
        )
        self._sent.add(future.key)
        try:
            while not future.done():  # a gather that ends early would leave tasks to asyncio
                self._tend()
                self._cluster.check_alone()
                time.sleep(GLANCE)
            (found,) = self._cluster.gather([future])
        finally:
            future.release()  # a job that runs notices that it is not wanted any more
        self._done.add(future.key)
        yield found

    def _future_of(self, shared: Any) -> Any:
        with self._lock:
            if id(shared) not in self._shared:
                with warnings.catch_warnings():
                    # it goes through the scheduler, which can thus send it again after any death
                    warnings.filterwarnings("ignore", "Sending large graph")
                    future = self._cluster.submit(tasks.identity, pack(shared))
                self._shared[id(shared)] = shared, future
            return self._shared[id(shared)][1]

    # -- events --------------------------------------------------------------------------------

    def _show_events(self) -> None:
        while not self._events.empty():
            key, what, value = self._events.get()
            if what == "event":
                self._relay(key, pickle.loads(value))
                continue
            self._again[key] = Counter()
            if key not in self._done:  # its result may come first
                self._at[key] = value
        at = [where for key, where in list(self._at.items()) if key not in self._done]
        now = Jobs(len(self._done), len(at), len(self._sent), len(set(at)))
        if now != self._shown:
            self._shown = now
            self._report(now)

    def _relay(self, key: str, event: Event) -> None:
        """Report an event, unless an earlier attempt of the job has reported it."""
        kind = type(event).__name__
        seen, again = self._seen.setdefault(key, Counter()), self._again.setdefault(key, Counter())
        again[kind] += 1
        if again[kind] > seen[kind]:
            seen[kind] += 1
            self._report(event)


def refuse_processes(driver: str, client: Any, dask: str | None) -> None:
    """Raise InputError if jobs on a cluster would start processes."""
    if driver == "processes" and (client is not None or dask is not None):
        raise InputError(
            "driver: expected inline jobs on a cluster (dask), got 'processes'; leave driver out"
        )


@contextmanager
def executor_for(
    client: Any,
    dask: str | None,
    dask_tls: str | None,
    needs: Needs | None,
    report: Progress,
    should_stop: Callable[[], bool] = _never,
) -> Iterator[Executor]:
    """The cluster that the user named, or this process, side by side where there is room.

    client : an executor is returned unchanged.
    dask, dask_tls : as for :func:`fcl.train`.
    needs : of each job; None if they run one after the other in this process.

    Raises InputError, BudgetError: the workers cannot run such jobs.
    """
    if isinstance(client, InlineExecutor | ParallelExecutor):
        yield client
        return
    if client is None and dask is None:
        if needs is None or needs.lanes < 2:
            yield INLINE
        else:
            yield ThreadExecutor(needs, report, should_stop)
        return
    check_cluster(client, dask, dask_tls)
    assert needs is not None
    with connected(dask if client is None else client, dask_tls) as cluster:
        size, kinds = needs.size, needs.kinds
        cluster.wait_for_workers(size, size)
        if cluster.lack_kernels(kinds):
            report(Compiling(max(KIND_SECONDS[kind] for kind in kinds)))
            cluster.once_a_machine(compile_kernels, kinds)
        with ClusterExecutor(cluster, size, report, should_stop).open() as executor:
            yield executor
