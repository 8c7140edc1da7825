"""Where whole jobs run: one after the other in this process, or side by side elsewhere.

The folds of a path and the problems of a classifier are whole jobs, which need nothing from one another.
Their callers name a function and its arguments; the place decides who calls it. There is another place,
a Dask cluster, in :mod:`fcl.drivers.cluster.jobs`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from fcl.clock import Clock
from fcl.data import DataSet
from fcl.drivers.job import Job
from fcl.drivers.kinds import OUTPUTS, kinds_of
from fcl.drivers.result import TrainResult
from fcl.drivers.session import Progress
from fcl.drivers.train import train

__all__ = ["HERE", "Here", "Needs", "Place", "Watch", "last", "train_job"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class Place(Protocol):
    """Where whole jobs run."""

    @property
    def lanes(self) -> int:
        """How many jobs run side by side; 0: one after the other, in this process."""

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """``[function(item) for item in items]``, side by side if the place has room.

        The function is called in this process; what it sends to the place by :meth:`stream` is not.
        """

    def stream(
        self, function: Callable[..., Iterable[Any]], shared: Any, watch: Any, *args: Any
    ) -> Iterator[Any]:
        """The results of ``function(shared, watch, *args)``, of which only the last one counts.

        A place in this process yields each as soon as it is there, another one only the last.

        Parameters
        ----------
        function : callable
            A function of a module of fcl that yields results, each of which contains the ones before.
        shared : DataSet or dataclass
            What many jobs have in common, with the rows; it is sent once.
        watch : Watch
            The function gets it with the callbacks of the place where it runs.
        *args
            Other arguments.
        """


class Here:
    """Runs jobs in this process, one after the other."""

    lanes = 0

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """See :class:`Place`."""
        return [function(item) for item in items]

    def stream(
        self, function: Callable[..., Iterable[Any]], shared: Any, watch: Any, *args: Any
    ) -> Iterator[Any]:
        """See :class:`Place`."""
        return iter(function(shared, watch, *args))


HERE = Here()


@dataclass(frozen=True)
class Needs:
    """What a job needs where it runs.

    Attributes
    ----------
    size : int
        Bytes of memory.
    kinds : tuple of str
        Kinds of kernels; see :mod:`fcl.drivers.kinds`.
    """

    size: int
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, job: Job) -> Needs:
        """The needs of a job, and of others over parts of its rows."""
        kinds = kinds_of(job.family)
        return cls(job.plan.total, kinds if job.n_outputs == 1 else (*kinds, OUTPUTS))


def last(results: Iterable[Any]) -> Any:
    """The last of the results of a job."""
    *_, found = results
    return found


@dataclass(frozen=True)
class Watch:
    """What jobs report to, and what ends them.

    Attributes
    ----------
    report : callable
        Receives each event.
    should_stop : callable
        Polled; returns True to end the job.
    begun : float
        ``time.monotonic()`` at the beginning.
    clock : Clock
        What time limits count: the time since the first pass began, without that of compiling.
    place : Place
        Where jobs run.
    lanes : int
        How many jobs run side by side; 0: one after the other, in this process.
    pause_at : float
        ``time.monotonic()`` at which a job that can continue later should return what it has, so that
        not all is lost if its worker dies.
    """

    report: Progress
    should_stop: Callable[[], bool]
    begun: float = field(default_factory=time.monotonic)
    clock: Clock = field(default_factory=Clock)
    place: Place = HERE
    lanes: int = 0
    pause_at: float = math.inf

    def shares(self, left: int, jobs: int) -> int:
        """Among how many jobs, one after the other, the time is divided that is left for a job.

        left : jobs from this one on.  jobs : all jobs.
        """
        return -(-jobs // self.lanes) if self.lanes else left

    def run(self, function: Callable[..., Iterable[Any]], shared: Any, *args: Any) -> Any:
        """The last result of a job; see :meth:`Place.stream`."""
        return last(self.place.stream(function, shared, self, *args))


def train_job(data: DataSet, watch: Watch, options: dict[str, Any]) -> Iterator[TrainResult]:
    """Yield the result of :func:`fcl.train`, as a job.  options : its other arguments."""
    yield train(data, progress=watch.report, should_stop=watch.should_stop, warn=False, **options)
