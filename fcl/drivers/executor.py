"""Where whole jobs run: in this process, one after the other or side by side, or elsewhere.

The folds of a path and the problems of a classifier are whole jobs, which need nothing from one another.
Their callers name a function and its arguments; the executor decides who calls it. Another executor, a
Dask cluster, is in :mod:`fcl.drivers.cluster.jobs`.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from fcl.clock import Clock
from fcl.data import DataSet
from fcl.drivers.job import Job
from fcl.drivers.kinds import kinds_of
from fcl.drivers.result import TrainResult
from fcl.drivers.session import Progress
from fcl.drivers.train import run_training
from fcl.memory.ledger import INTERPRETER, TABLES
from fcl.parallel import POLL, limited
from fcl.run.events import Event, PassDone, Prepared, StepProgress, Validated

#: Rows times features from which jobs run side by side: in smaller ones most of the time is Python's, of
#: which one thread runs at a time. 5 folds of 10,000 rows of 20 numbers took 1.2 times as long.
LEAST_ENTRIES = 1 << 22
#: Events that say little about one of several jobs at once.
NOT_RELAYED = (PassDone, Prepared, StepProgress, Validated)

Item = TypeVar("Item")
Result = TypeVar("Result")


class Executor(Protocol):
    """Where whole jobs run."""

    @property
    def lanes(self) -> int:
        """How many jobs run side by side; 0: one after the other, in this process."""

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """``[function(item) for item in items]``, side by side if the executor has room.

        The function is called in this process; what it sends to the executor by :meth:`stream` is not.
        """

    def stream(
        self, function: Callable[..., Iterable[Any]], shared: Any, context: Any, *args: Any
    ) -> Iterator[Any]:
        """The results of ``function(shared, context, *args)``, of which only the last one counts.

        In this process each result is yielded as soon as it is made; elsewhere only the last one is.

        function : a function of a module of fcl that yields results, each of which contains the ones
            before.
        shared : what many jobs have in common, with the rows; it is sent once.
        context : the function gets it with the callbacks of the process where it runs.
        *args : other arguments.
        """


class InlineExecutor:
    """Runs jobs in this process, one after the other."""

    lanes = 0

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """See :class:`Executor`."""
        return [function(item) for item in items]

    def stream(
        self, function: Callable[..., Iterable[Any]], shared: Any, context: Any, *args: Any
    ) -> Iterator[Any]:
        """See :class:`Executor`."""
        return iter(function(shared, context, *args))


INLINE = InlineExecutor()


class ParallelExecutor(Executor):
    """Calls functions in threads, each of which waits for its jobs.

    report, should_stop : called in the thread that made this object.
    """

    def __init__(self, report: Progress, should_stop: Callable[[], bool]) -> None:
        self._report, self._should_stop = report, should_stop
        self._owner = threading.get_ident()
        self._ended = False

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """See :class:`Executor`."""
        if len(items) < 2:
            return [function(item) for item in items]
        with ThreadPoolExecutor(len(items), thread_name_prefix="fcl-jobs") as pool:
            try:
                waiting = [pool.submit(function, item) for item in items]
                while not all(future.done() for future in waiting):
                    self._tend()
                    wait(waiting, POLL)
                    for future in waiting:
                        if future.done():
                            future.result()  # the first error ends the others
                return [future.result() for future in waiting]
            except BaseException:
                self._ended = True
                raise

    def _tend(self) -> None:
        """Show what has happened; raises KeyboardInterrupt if the jobs must end."""
        if threading.get_ident() == self._owner:
            self._show_events()
            self._ended = self._ended or self._should_stop()
        if self._ended:
            raise KeyboardInterrupt

    @abstractmethod
    def _show_events(self) -> None:
        """Report the events of the jobs."""


class ThreadExecutor(ParallelExecutor):
    """Runs jobs in threads of this process: the same models, bit for bit, as one after the other.

    needs : of each job.
    """

    def __init__(self, needs: Needs, report: Progress, should_stop: Callable[[], bool]) -> None:
        super().__init__(report, should_stop)
        self._needs = needs
        self._room = threading.BoundedSemaphore(needs.lanes)
        self._share = needs.threads
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    @property
    def lanes(self) -> int:
        """How many jobs run side by side."""
        return self._needs.lanes

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """See :class:`Executor`."""
        # nested calls may only lower the share, since their jobs run beside those of the outer call
        side_by_side = max(1, min(self.lanes, len(items)))
        self._share = min(self._share, -(-self._needs.threads // side_by_side))
        found = super().each(function, items)
        if threading.get_ident() == self._owner:
            self._share = self._needs.threads
            self._show_events()
        return found

    def stream(
        self, function: Callable[..., Iterable[Any]], shared: Any, context: Any, *args: Any
    ) -> Iterator[Any]:
        """See :class:`Executor`."""
        if threading.get_ident() == self._owner:  # the only job, outside of each()
            yield from function(shared, context, *args)
            return
        while not self._room.acquire(timeout=POLL):
            self._tend()
        try:
            self._tend()
            context = replace(
                context,
                report=self._later,
                should_stop=lambda: self._ended,
                executor=INLINE,
                lanes=self.lanes,
                waits=False,
            )
            with limited(self._share):
                yield from function(shared, context, *args)
        finally:
            self._room.release()

    def _later(self, event: Event) -> None:
        if not isinstance(event, NOT_RELAYED):
            self._events.put(event)

    def _show_events(self) -> None:
        while not self._events.empty():
            self._report(self._events.get())


@dataclass(frozen=True)
class Needs:
    """What a job needs where it runs.

    size : bytes of memory.
    kinds : kinds of kernels; see :mod:`fcl.drivers.kinds`.
    lanes : how many of them this process has room for.
    threads : threads that they may have together.
    """

    size: int
    kinds: tuple[str, ...]
    lanes: int = 1
    threads: int = 1

    @classmethod
    def of(cls, job: Job) -> Needs:
        """The needs of a job, and of others over parts of its rows."""
        kinds = kinds_of(job.family, job.n_outputs)
        plan, threads, lanes = job.plan, job.options.threads or 1, 1
        entries = job.train.n * job.family.n_features
        if job.options.driver == "inline" and entries >= LEAST_ENTRIES:
            tables = plan.of(TABLES)  # of as many threads as the budget allows
            rest = plan.total - INTERPRETER - tables
            while lanes < threads:
                own = min(plan.most_threads, -(-threads // (lanes + 1)))
                each = rest + tables * own // plan.most_threads
                if INTERPRETER + (lanes + 1) * each > plan.budget:
                    break
                lanes += 1
        return cls(plan.total, kinds, lanes, threads)


def last(results: Iterable[Any]) -> Any:
    """The last of the results of a job."""
    *_, found = results
    return found


@dataclass(frozen=True)
class RunContext:
    """What jobs report to, and what ends them.

    report : receives each event.
    should_stop : polled; returns True to end the job.
    begun : ``time.monotonic()`` at the beginning.
    clock : what time limits count: the time since the first pass began, without that of compiling.
    executor : where jobs run.
    lanes : how many jobs run side by side; 0: one after the other, in this process.
    waits : whether a job's time counts from when it was sent, not from when it begins.
    pause_at : ``time.monotonic()`` at which a job that can continue later should return what it has, so
        that not all is lost if its worker dies.
    """

    report: Progress
    should_stop: Callable[[], bool]
    begun: float = field(default_factory=time.monotonic)
    clock: Clock = field(default_factory=Clock)
    executor: Executor = INLINE
    lanes: int = 0
    waits: bool = True
    pause_at: float = math.inf

    def shares(self, left: int, jobs: int) -> int:
        """Among how many jobs, one after the other, the time is divided that is left for a job.

        left : jobs from this one on.  jobs : all jobs.
        """
        if not self.lanes:
            return left
        return -(-jobs // self.lanes) - (0 if self.waits else (jobs - left) // self.lanes)

    def run(self, function: Callable[..., Iterable[Any]], shared: Any, *args: Any) -> Any:
        """The last result of a job; see :meth:`Executor.stream`."""
        return last(self.executor.stream(function, shared, self, *args))


def train_job(data: DataSet, run: RunContext, options: dict[str, Any]) -> Iterator[TrainResult]:
    """Yield the result of :func:`fcl.train`, as a job.  options : its other arguments."""
    yield run_training(
        data=data, progress=run.report, should_stop=run.should_stop, warn=False, **options
    )
