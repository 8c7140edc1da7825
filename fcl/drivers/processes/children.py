"""Children of the supervisor: started, watched, killed, reaped.

Each child has one owner. It is asked to leave by closing its channel, and what does not leave is killed
and reaped; nothing that a child held is used again before that.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from fcl.drivers.processes.channel import Channel
from fcl.drivers.processes.child import IGNORED
from fcl.drivers.processes.memory import oom_kills
from fcl.drivers.processes.shared import Segment, above_stdio
from fcl.errors import FclError

#: Seconds that children get to leave on their own.
PATIENCE = 2.0
#: Seconds after SIGKILL by which a process has to be gone; longer if it hangs in the kernel.
REAP = 30.0
#: The caller's settings stay as they are; a child computes in threads of fcl alone.
THREAD_LIMITS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "BLOSC_NTHREADS": "1",
}
_ENTRY = Path(__file__).with_name("child.py")
_logger = logging.getLogger("fcl")


class Child:
    """A child process and the supervisor's end of its channel; made by :meth:`spawn`.

    index : its place in the segment ``control`` (int64 each).
    sentinel : a pidfd that is readable when the child has ended, for selectors; None where there is
        none (macOS): there the end of the channel tells, or :meth:`alive` is asked now and then.
    """

    def __init__(
        self,
        role: str,
        number: int,
        incarnation: int,
        index: int,
        process: subprocess.Popen[bytes],
        channel: Channel,
    ) -> None:
        self.role = role
        self.number = number
        self.incarnation = incarnation
        self.index = index
        self.channel = channel
        self.pid = process.pid
        self.sentinel = _pidfd(process.pid)
        self._process = process
        self._killed = False
        self._oom_kills = oom_kills()

    @classmethod
    def spawn(
        cls,
        role: str,
        number: int,
        incarnation: int,
        index: int,
        segments: Mapping[str, Segment],
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start a child; from the thread that supervises, with which it dies.

        segments : by the names under which the child finds them; "socket" is taken.
        environment : more variables for the child, or others than THREAD_LIMITS.

        Raises FclError if no process can be started.
        """
        process: subprocess.Popen[bytes] | None = None
        ours, theirs = socket.socketpair()
        fds = {name: segment.fd for name, segment in segments.items()}
        fds["socket"] = passed = above_stdio(theirs.detach())
        arguments = (role, number, incarnation, index, os.getpid(), json.dumps(fds))
        # The child inherits the mask and drops what came meanwhile: no moment at which such a signal
        # would kill it. Unlike preexec_fn this is safe beside other threads.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
        try:
            process = start(
                [*_interpreter(), str(_ENTRY), *map(str, arguments)],
                tuple(fds.values()),
                {
                    **os.environ,
                    **THREAD_LIMITS,
                    **(environment or {}),
                    "FCL_CHILD_TEMPORARY": tempfile.gettempdir(),
                    "FCL_CHILD_PATH": json.dumps([p for p in sys.path if isinstance(p, str)]),
                },
            )
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # KeyboardInterrupt, perhaps
            return cls(role, number, incarnation, index, process, Channel(ours))
        except BaseException as error:
            ours.close()
            if process is not None:
                process.kill()
                process.wait()
            if isinstance(error, OSError):
                raise FclError(
                    f"{role} {number}: expected to start a process, got: {error}; "
                    "lower --writers, or see what limits processes here (ulimit -u, cgroup)"
                ) from error
            raise
        finally:
            os.close(passed)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @property
    def name(self) -> str:
        """For messages: ``writer 3 (pid 812)``."""
        return f"{self.role} {self.number} (pid {self.pid})"

    @property
    def status(self) -> int | None:
        """Exit code, minus a signal, or None while it runs; reaps it."""
        return self._process.poll()

    def alive(self) -> bool:
        """Whether it runs, or is stopped; if not, it is reaped."""
        return self.status is None

    def wait(self, timeout: float) -> bool:
        """Wait for its end, at most `timeout` seconds; True if it has come, and is reaped."""
        try:
            self._process.wait(max(timeout, 0.0))
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill and reap it; what it sent before can still be received.

        Raises FclError if it is not gone in REAP seconds: what it held cannot be used again.
        """
        if self.alive():
            self._killed = True
            self._process.kill()
            if not self.wait(REAP):
                raise FclError(
                    f"{self.name}: expected to be gone {REAP:.0f} s after SIGKILL, got a process "
                    "that hangs in the kernel; look at its disk or network file system"
                )

    def cause(self) -> str:
        """How it ended, in words that follow its name: ``was killed by signal 15 (SIGTERM)``.

        Of SIGKILL they say who sent it, as far as that is known.
        """
        status = self.status
        if status is None:
            return "is running"
        if status >= 0:
            return f"ended with exit code {status}"
        try:
            words = f"was killed by signal {-status} ({signal.Signals(-status).name})"
        except ValueError:
            words = f"was killed by signal {-status}"
        if -status != signal.SIGKILL:
            return words
        if self._killed:
            return f"{words} by fcl"
        sender = {
            None: "possibly by the kernel because memory ran out",
            True: "as the kernel counted an out-of-memory kill",
            False: "from outside: the kernel counted no out-of-memory kill",
        }
        return f"{words}, {sender[self._out_of_memory()]}"

    def cure(self) -> str:
        """What may prevent such an end; empty where nothing is known of it."""
        if self.status != -signal.SIGKILL or self._killed or self._out_of_memory() is False:
            return ""
        return "lower --memory or --writers" + (
            "" if self._out_of_memory() else " if memory ran out"
        )

    def _out_of_memory(self) -> bool | None:
        """Whether the kernel counted an out-of-memory kill since the start; None if unknown."""
        now = oom_kills()
        return None if now is None or self._oom_kills is None else now > self._oom_kills

    def close(self) -> None:
        """Kill it if it still runs, and give up channel and sentinel."""
        try:
            self.kill()
        finally:
            self.channel.close()
            if self.sentinel is not None:
                os.close(self.sentinel)
                self.sentinel = None

    def __repr__(self) -> str:
        return f"<Child {self.name}, incarnation {self.incarnation}, {self.cause()}>"


def start(
    command: Sequence[str], fds: Collection[int], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process that inherits these descriptors, and no standard streams but the third."""
    return subprocess.Popen(
        command,
        pass_fds=tuple(fds),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # ours may be read by a program
        env=environment,
    )


def dismiss(children: Collection[Child], patience: float = PATIENCE) -> None:
    """Ask children to leave, wait `patience` seconds for all together, kill and reap the rest."""
    for child in children:
        child.channel.close()
    deadline = time.monotonic() + patience
    with contextlib.ExitStack() as closing:
        for child in children:
            closing.callback(child.close)
        for child in children:
            if not child.wait(deadline - time.monotonic()):
                _logger.info("%s did not leave in %.0f s and is killed", child.name, patience)


class Heartbeats:
    """How long children have been silent, by the counters in the segment ``control``."""

    def __init__(self, control: Segment) -> None:
        self._control = control
        self._last: dict[int, tuple[int, int, float]] = {}  # index -> incarnation, count, when
        self._heard: dict[int, int] = {}  # index -> incarnation

    def silent(self, child: Child, now: float) -> float:
        """Seconds since the child's counter was last seen to change; `now` from time.monotonic().

        A child that is new to us has been silent for 0 seconds.
        """
        count = int(self._control.array("i8", 1, 8 * child.index)[0])
        incarnation, last, when = self._last.get(child.index, (-1, 0, now))
        if incarnation == child.incarnation and last != count:
            self._heard[child.index] = incarnation
        if incarnation != child.incarnation or last != count:
            when = now
            self._last[child.index] = (child.incarnation, count, now)
        return now - when

    def heard(self, child: Child) -> bool:
        """Whether its heart was seen to beat; until then it may be waiting for its imports."""
        return self._heard.get(child.index) == child.incarnation

    def forgive(self) -> None:
        """Count from anew: after SIGCONT or a jump of the clock nobody could have been heard."""
        self._last.clear()


def _interpreter() -> list[str]:
    if not sys.executable:
        raise FclError(
            "expected the path of the Python interpreter in sys.executable, got none; set it, or "
            "train in this process with the inline driver"
        )
    # -P: the folder of child.py is no place to import from
    return [sys.executable, "-P", *["-O"] * sys.flags.optimize]


def _pidfd(pid: int) -> int | None:
    pidfd_open = getattr(os, "pidfd_open", None)
    if pidfd_open is None:
        return None
    try:
        fd: int = pidfd_open(pid)
    except OSError:  # kernels before 5.3, or no descriptor left
        return None
    return fd
