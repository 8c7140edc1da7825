"""Children for tests, forked from one interpreter that has its imports and kernels already.

The processes driver starts fresh interpreters, each of which takes one or two seconds of the processor
for its imports and kernels: far more than a small run computes. What such a run computes does not depend
on that, so tests let a nursery fork the children. Forked children differ from fresh ones in little: they
share the seed of ``hash``, hold more modules, and their parent is the nursery. Tests of what depends on
that are marked ``fresh_interpreters``.

Run as a file it is the nursery: it has one thread, forks on request, and tells how each child ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

if __name__ == "__main__":
    sys.path[:] = json.loads(os.environ["FCL_CHILD_PATH"])

from fcl.drivers.processes import child
from fcl.drivers.processes.children import THREAD_LIMITS, start

MOST_FDS = 64
MOST_BYTES = 1 << 17
STATUS = struct.Struct("i")
#: Variables that a child reads when it has begun; others that begin so are read by imports and kernels.
READ_LATER = ("FCL_FAULT", "FCL_CHILD_PATH", "FCL_CHILD_TEMPORARY")
READ_AT_IMPORT = ("FCL_", "NUMBA_", "NPY_", "PYTHON", "LD_", *THREAD_LIMITS)


class Nursery:
    """Starts writers and trainers in place of :func:`fcl.drivers.processes.children.start`.

    Other children, and those whose modules would see another environment, are started as ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}

    @property
    def pid(self) -> int | None:
        """Its process, once it is there."""
        return self._process.pid if self._process else None

    def start(
        self, command: Sequence[str], fds: Collection[int], environment: Mapping[str, str]
    ) -> Forked | subprocess.Popen[bytes]:
        """Start a child that finds the descriptors under the same numbers."""
        role = command[-6]
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._begin(environment)
            assert self._socket is not None
            known = read_at_import(environment) == self._environment
            if role not in child.ROLES or not known:
                return start(command, fds, environment)
            ours, theirs = socket.socketpair()
            here = os.getcwd(), sorted(os.sched_getaffinity(0))
            request = json.dumps([command[-7:], list(fds), dict(environment), *here]).encode()
            if len(request) > MOST_BYTES or len(fds) + 2 > MOST_FDS:
                return start(command, fds, environment)
            with theirs:
                socket.send_fds(self._socket, [request], [theirs.fileno(), 2, *fds])
        return Forked(ours)

    def _begin(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._environment = read_at_import(environment)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=dict(environment),
            )

    def close(self) -> None:
        """End it; its children are to be gone."""
        if self._socket and self._process:
            self._socket.close()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """Of an environment, what decides what modules and kernels are."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_IMPORT) and name not in READ_LATER
    }


class Forked:
    """What the driver needs of a :class:`subprocess.Popen`: its pid, its end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.returncode: int | None = None
        self.pid = self._read()

    def _read(self) -> int:
        data = self._end.recv(STATUS.size)
        if not data:
            raise RuntimeError("the nursery of the tests has ended, and its children with it")
        return int(STATUS.unpack(data)[0])

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._end.settimeout(timeout)
            try:
                self.returncode = self._read()
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("child", timeout or 0.0) from None
            self._end.close()
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


# -- the nursery -----------------------------------------------------------------------------------


def main(fd: int) -> None:
    """Serve until the tests have ended."""
    for number in child.IGNORED:
        signal.signal(number, signal.SIG_IGN)
    preload()
    requests = socket.socket(fileno=fd)
    selector = selectors.DefaultSelector()
    selector.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is not requests:
                pid, status = key.data
                _, code = os.waitpid(pid, 0)
                with contextlib.suppress(OSError):
                    status.send(STATUS.pack(os.waitstatus_to_exitcode(code)))
                status.close()
                selector.unregister(key.fd)
                os.close(key.fd)
                continue
            data, received, _, _ = socket.recv_fds(requests, MOST_BYTES, MOST_FDS)
            if not data:
                return
            status = socket.socket(fileno=received[0])
            pid = os.fork()
            if pid == 0:
                become(json.loads(data), received)
            for received_fd in received[1:]:
                os.close(received_fd)
            status.send(STATUS.pack(pid))
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))


def preload() -> None:
    """Import what children import, and load their kernels."""
    import fcl.drivers.processes.trainer
    import fcl.drivers.processes.writer  # noqa: F401
    from fcl.drivers.warmup import warmup

    warmup(["sequences", "numbers"])


def become(request: list[Any], received: list[int]) -> NoReturn:
    """Run a child in this process, which was forked for it."""
    arguments, fds, environment, folder, cores = request
    os.chdir(folder)
    os.sched_setaffinity(0, cores)
    random.seed()
    np.random.seed()  # noqa: NPY002 -- a fresh interpreter has a seed of its own too
    above = max([*fds, *received]) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in received[1:]]
    for fd, wanted in zip(moved, [2, *fds], strict=True):
        os.dup2(fd, wanted)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (0, 1, 2, *fds):
            with contextlib.suppress(OSError):  # the folder was one of them
                os.close(int(name))
    os.environ.clear()
    os.environ.update(environment)
    arguments[5] = str(os.getppid())  # the process with which the child is to end
    sys.argv[:] = arguments
    runpy.run_path(arguments[0], run_name="__main__")
    raise AssertionError("a child does not return")


if __name__ == "__main__":
    main(int(sys.argv[1]))
