"""Children of the supervisor: starting, watching, killing and reaping them.

Each child has one owner. The owner closes the channel to ask a child to exit, and kills and reaps a child
that does not exit. It reuses nothing that a child held before the child is reaped.
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
from fcl.drivers.processes.shared import Segment, above_stdio
from fcl.errors import FclError, reason
from fcl.memory.meter import oom_kills
from fcl.working_folder import handed_on

#: Seconds that children have to exit on their own.
PATIENCE = 2.0
#: Seconds after SIGKILL by which a process must be gone; only one that hangs in the kernel takes longer.
REAP = 30.0
#: Environment of children, which compute only in threads of fcl; the caller's settings are not changed.
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
    """A child process and the supervisor's end of its channel.

    index : position of its heartbeat in the segment ``control``.
    segments : by the names under which the child finds them; "socket" is reserved.
    environment : additional variables for the child, which may override THREAD_LIMITS.
    sentinel : on macOS, the end of the channel, or polling :meth:`alive`, then shows that the child has
        ended.
    """

    def __init__(
        self,
        role: str,
        number: int,
        incarnation: int,
        index: int,
        segments: Mapping[str, Segment],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.role, self.number, self._index = role, number, index
        self._killed = False
        self._oom_kills = oom_kills()
        self.heard = False  #: whether a heartbeat was seen; before, the child may be importing
        self._beat: tuple[int, float] | None = None  # its counter, and when that last changed
        process: subprocess.Popen[bytes] | None = None
        ours, theirs = socket.socketpair()
        fds = {name: segment.fd for name, segment in segments.items()}
        fds["socket"] = passed = above_stdio(theirs.detach())
        arguments = (role, number, incarnation, index, os.getpid(), json.dumps(fds))
        # The child inherits the mask, and ignores the signals before it unblocks them, so they can never
        # kill it. Unlike preexec_fn this is safe beside other threads.
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
                    "FCL_CHILD_MODULES": json.dumps(handed_on()),
                },
            )
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # may raise KeyboardInterrupt
            self._process, self.pid, self.channel = process, process.pid, Channel(ours)
            self.sentinel = _pidfd(process.pid)
        except BaseException as error:
            ours.close()
            if process is not None:
                process.kill()
                process.wait()
            if isinstance(error, OSError):
                raise FclError(
                    f"{role} {number}: expected to start a process, got: {reason(error)}; "
                    "start fewer writers, or raise the limit of processes (ulimit -u, cgroup)"
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
        """Exit code, or minus the fatal signal's number; None while it runs. Reaps an ended child."""
        return self._process.poll()

    def alive(self) -> bool:
        """Whether the child runs or is stopped; reaps it if it has ended."""
        return self.status is None

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the child's end; returns whether it ended and is reaped."""
        try:
            self._process.wait(max(timeout, 0.0))
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill and reap the child; messages that it sent before can still be received.

        Raises FclError if the child is not gone in REAP seconds, since what it held cannot be reused.
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
        """How the child ended, as a phrase to follow its name: ``was killed by signal 15 (SIGTERM)``.

        For SIGKILL, the phrase names the sender as far as it is known.
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
        """Advice that may prevent this kind of end, or an empty text."""
        if self.status != -signal.SIGKILL or self._killed or self._out_of_memory() is False:
            return ""
        return "lower --memory or the number of writers" + (
            "" if self._out_of_memory() else " if memory ran out"
        )

    def _out_of_memory(self) -> bool | None:
        """Whether the kernel counted an out-of-memory kill since the start; None if unknown."""
        now = oom_kills()
        return None if now is None or self._oom_kills is None else now > self._oom_kills

    def silent(self, control: Segment, now: float) -> float:
        """Seconds since the child's counter in ``control`` last changed; 0 at the first call.

        now : current value of time.monotonic().
        """
        count = int(control.array("i8", 1, 8 * self._index)[0])
        if self._beat is None or self._beat[0] != count:
            self.heard |= self._beat is not None
            self._beat = count, now
        return now - self._beat[1]

    def forgive(self) -> None:
        """Restart the count of seconds: while we were stopped, no heartbeat could have been seen."""
        self._beat = None

    def close(self) -> None:
        """Kill the child if it still runs, and close channel and sentinel."""
        try:
            self.kill()
        finally:
            self.channel.close()
            if self.sentinel is not None:
                os.close(self.sentinel)
                self.sentinel = None


def start(
    command: Sequence[str], fds: Collection[int], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process that inherits these descriptors and standard error, but no other streams."""
    return subprocess.Popen(
        command,
        pass_fds=tuple(fds),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # a program may be reading our stdout
        env=environment,
    )


def dismiss(children: Collection[Child], patience: float = PATIENCE) -> None:
    """Ask children to exit; after `patience` seconds for all, kill and reap the rest."""
    for child in children:
        child.channel.close()
    deadline = time.monotonic() + patience
    with contextlib.ExitStack() as closing:
        for child in children:
            closing.callback(child.close)
        for child in children:
            if not child.wait(deadline - time.monotonic()):
                _logger.info("%s did not exit within %.0f s and is killed", child.name, patience)


def _interpreter() -> list[str]:
    if not sys.executable:
        raise FclError(
            "expected the path of the Python interpreter in sys.executable, got nothing; set it, or "
            "train in this process with the inline driver"
        )
    # -P: do not import from the folder of child.py
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
