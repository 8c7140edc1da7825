"""The crew: children that are kept from job to job, so that not every job waits for their imports."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, NoReturn

from fcl.drivers.processes.children import PATIENCE, Child, Surroundings, dismiss
from fcl.drivers.processes.memory import rss_anon
from fcl.drivers.processes.shared import Segment

__all__ = ["Crew"]

#: Seconds for which idle children are kept.
IDLE = 300.0
#: They leave by themselves so many seconds later, should this process not send them away.
GRACE = 30.0


class _Idle(NamedTuple):
    """A child without a job, and when (time.monotonic()) it had the last one."""

    child: Child
    since: float


class Crew:
    """Lends children to jobs, and keeps those that come back from one that ended well.

    One crew may serve any number of jobs, one after the other or in several threads. A child is lent
    only where a fresh one would be no other: in the thread that started it, with which it dies, and
    with the same environment variables, ``sys.path``, folder and cores as at its start; for the role
    that it had, whose kernels it has loaded. Idle children hold nothing of a job. They are sent away, and
    reaped, when the crew is closed, and after ``idle`` seconds by a thread that sleeps until then; they
    end at the latest with this process. A forked copy of the process begins with an empty crew; a crew
    cannot be pickled.

    Parameters
    ----------
    keep : bool
        False: for a single job, whose children leave with it.
    idle : float
        Seconds for which idle children are kept.
    """

    def __init__(self, keep: bool = True, idle: float = IDLE) -> None:
        self.keep = keep
        self.idle = idle
        self._idle: list[_Idle] = []
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None  # where somebody is idle
        _crews.add(self)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Crew has processes of its own, and cannot be copied or pickled")

    @property
    def pids(self) -> list[int]:
        """Process ids of the idle children; those that have ended are reaped."""
        with self._lock:
            gone = self._remove([one for one in self._idle if not one.child.alive()])
            pids = [one.child.pid for one in self._idle]
        dismiss(gone)
        return pids

    def prepare(self, wanted: Mapping[str, int]) -> None:
        """A job of this thread is about to begin that wants so many children by role.

        What is dead, or not to be lent any more, or more than wanted, is sent away: the memory of a job
        has no room for others.
        """
        now, here = time.monotonic(), Surroundings.now()
        kept: list[_Idle] = []
        gone: list[Child] = []
        counts: Counter[str] = Counter()
        with self._lock:
            for one in self._idle:
                child = one.child
                if here.thread is not child.surroundings.thread:
                    # another thread's, if that is still there
                    good = child.surroundings.thread.is_alive() and child.alive()
                else:
                    counts[child.role] += 1
                    good = (
                        counts[child.role] <= wanted.get(child.role, 0)
                        and now - one.since < self.idle
                        and child.surroundings == here
                        and child.alive()
                    )
                    counts[child.role] -= not good
                if good:
                    kept.append(one)
                else:
                    gone.append(child)
            self._idle = kept
        dismiss(gone)

    def hire(
        self,
        role: str,
        number: int,
        incarnation: int,
        index: int,
        segments: Mapping[str, Segment],
    ) -> Child:
        """A child at its job, an idle one or a new one; arguments and errors of :meth:`Child.spawn`."""
        here = Surroundings.now() if self._idle else None
        while (child := self._take(role, here)) is not None:
            try:
                told = child.assign(role, number, incarnation, index, segments)
            except BaseException:
                child.close()
                raise
            if told:
                return child
            child.close()
        wait = self.idle + GRACE if self.keep else None
        return Child.spawn(role, number, incarnation, index, segments, idle=wait)

    def _take(self, role: str, here: Surroundings | None) -> Child | None:
        """An idle child of this role that can be lent here; the caller's from now on."""
        now = time.monotonic()
        with self._lock:
            for at, (child, since) in enumerate(self._idle):
                fits = child.role == role and child.surroundings == here
                if fits and now - since < self.idle and child.alive():
                    del self._idle[at]
                    return child
        return None

    def give_back(self, children: Collection[Child], most: int) -> None:
        """Children of a job that ended well: they are kept, or sent away where that cannot be.

        most : bytes of private memory that one may hold without a job, as plans of memory foresee.
        """
        if not self.keep:
            dismiss(children)
            return
        free: list[Child] = []
        try:
            deadline = time.monotonic() + PATIENCE
            for child in children:
                child.release()
            free = [
                child
                for child in children
                if child.is_free(deadline) and rss_anon(child.pid) <= most
            ]
        finally:
            dismiss([child for child in children if child not in free], 0.0)
        now = time.monotonic()
        with self._lock:
            if self.keep:  # it may have been closed meanwhile
                self._idle += [_Idle(child, now) for child in free]
                free = []
                self._set_timer()
        dismiss(free)

    def dismiss(self) -> None:
        """Send the idle children away."""
        with self._lock:
            gone = self._remove(self._idle)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        dismiss(gone)

    def close(self) -> None:
        """Send the idle children away, and keep none from now on."""
        self.keep = False
        self.dismiss()

    def _remove(self, some: Collection[_Idle]) -> list[Child]:
        """Take some of the idle children out; the lock is held."""
        self._idle = [one for one in self._idle if one not in some]
        return [one.child for one in some]

    def _set_timer(self) -> None:
        """See to it that who is idle for too long is sent away; the lock is held."""
        if self._timer is not None or not self._idle:
            return
        due = min(one.since for one in self._idle) + self.idle
        wait = min(max(0.0, due - time.monotonic()), threading.TIMEOUT_MAX)
        timer = threading.Timer(wait, _expire, (weakref.ref(self),))
        timer.daemon = True
        with contextlib.suppress(RuntimeError):  # no more threads: they leave by themselves
            timer.start()
            self._timer = timer

    def _expire(self) -> None:
        """Send away who is idle for too long: nobody lends them any more."""
        with self._lock:
            if self._timer is not threading.current_thread():  # cancelled at that moment
                return
            self._timer = None
            now = time.monotonic()
            gone = self._remove([one for one in self._idle if now - one.since >= self.idle])
            self._set_timer()
        dismiss(gone)

    def _forget(self) -> None:
        """This is a forked copy: the children are those of the original."""
        gone, self._idle = self._idle, []
        self._lock = threading.Lock()  # somebody may have had it at that moment
        self._timer = None  # threads are not copied
        for one in gone:
            one.child.disown()


def _expire(reference: weakref.ref[Crew]) -> None:
    # a timer does not keep alive a crew that nobody has any more
    crew = reference()
    if crew is not None:
        crew._expire()


_crews: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_fork() -> None:
    for crew in list(_crews):
        crew._forget()


os.register_at_fork(after_in_child=_after_fork)
