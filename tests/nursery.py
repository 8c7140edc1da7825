"""Children and commands for tests, forked from one interpreter that has its imports and kernels already.

The processes driver starts fresh interpreters, each of which takes one or two seconds of the processor
for its imports and kernels: far more than a small run computes. What such a run computes does not depend
on that, so tests let a nursery fork the children. Forked children differ from fresh ones in little: they
share the seed of ``hash``, hold more modules, and their parent is the nursery. Tests of what depends on
that are marked ``fresh_interpreters``.

Tests marked ``forked_commands`` fork the commands that they run, too. Such a command forks a nursery
of its own, from which come its writers and trainers. It ends without clearing the memory of the
interpreter, which takes more than a second after so many imports.

Run as a file it is the nursery: it has one thread, forks on request, and tells how each child ended.
"""

from __future__ import annotations

import atexit
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
import tempfile
import threading
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

if __name__ == "__main__":
    sys.path[:] = json.loads(os.environ["FCL_CHILD_PATH"])

from fcl.drivers.processes import child, children
from fcl.drivers.processes.children import THREAD_LIMITS

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: The standard library and what is installed.
INSTALLED = [p for p in sys.path if p.startswith((sys.prefix, sys.base_prefix))]
MOST_FDS = 64
MOST_BYTES = 1 << 17
STATUS = struct.Struct("i")
#: Variables that are read after the fork; others that begin so are read by imports and kernels.
READ_LATER = (
    "FCL_FAULT",
    "FCL_FAULTS_SAMPLED",
    "FCL_DEADLINE",
    "FCL_CHILD_PATH",
    "FCL_CHILD_MODULES",
    "FCL_CHILD_TEMPORARY",
    "PYTHONPATH",
    "PYTHONHASHSEED",  # which a Dask cluster of this process sets
)
READ_AT_IMPORT = ("FCL_", "NUMBA_", "NPY_", "PYTHON", "LD_", *THREAD_LIMITS)


class Nursery:
    """The connection to the process that forks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}

    @property
    def pid(self) -> int | None:
        """Its process, once it is there."""
        return self._process.pid if self._process else None

    def request(
        self, arguments: Sequence[str], environment: Mapping[str, str], fds: list[int], **how: Any
    ) -> socket.socket | None:
        """Fork a child; its status comes by the socket. None if it needs a fresh interpreter."""
        with self._lock:
            if self._socket is None or (self._process and self._process.poll() is not None):
                self._begin(environment)
            assert self._socket is not None
            known = {**how, "arguments": arguments, "environment": dict(environment)}
            request = json.dumps(known | {"cores": sorted(os.sched_getaffinity(0))}).encode()
            if (
                read_at_import(environment) != self._environment
                or len(request) > MOST_BYTES
                or len(fds) >= MOST_FDS
            ):
                return None
            ours, theirs = socket.socketpair()
            with theirs:
                socket.send_fds(self._socket, [request], [theirs.fileno(), *fds])
        return ours

    def _begin(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._environment = read_at_import(environment)
        path = json.dumps([p for p in sys.path if isinstance(p, str)])
        with theirs:
            self._process = _Fresh(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**environment, "FCL_CHILD_PATH": path},
            )

    def fork(self) -> None:
        """Make it of this process, which has one thread. It ends when this process does."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._environment = read_at_import({**os.environ, **THREAD_LIMITS})
        if os.fork() == 0:
            self._socket.close()
            serve(theirs)
            os._exit(0)
        theirs.close()

    def close(self) -> None:
        """End it; its children are to be gone."""
        if self._socket and self._process:
            self._socket.close()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


NURSERY = Nursery()
_Fresh = subprocess.Popen  # tests replace it by the class below


def read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """Of an environment, what decides what modules and kernels are."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_IMPORT) and name not in READ_LATER
    }


class Forked(subprocess.Popen):  # type: ignore[type-arg]
    """A :class:`subprocess.Popen` that forks this interpreter's programs from the nursery.

    Other commands, and those whose modules would see another environment, are started as ever.
    """

    _end: socket.socket | None = None

    def _execute_child(self, args: Any, *rest: Any) -> None:
        _, _, _, pass_fds, cwd, env, *_ = rest
        streams, session = rest[9:15], rest[20]
        environment = dict(os.environ if env is None else env)
        if _is_program(args):
            own = (streams[0], streams[3], streams[5])
            standard = [number if fd < 0 else fd for number, fd in enumerate(own)]
            fds = [*standard, *pass_fds]
            self._end = NURSERY.request(
                [os.fsdecode(a) for a in args[1:]],
                {os.fsdecode(k): os.fsdecode(v) for k, v in environment.items()},
                fds,
                wanted=[0, 1, 2, *pass_fds],
                folder=os.path.abspath(cwd or "."),
                session=session,
            )
        if self._end is None:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        self.pid = self._read()
        self._child_created = True
        self._close_pipe_fds(*streams)  # type: ignore[attr-defined]

    def _read(self) -> int:
        assert self._end is not None
        data = self._end.recv(STATUS.size)
        if not data:
            raise RuntimeError("the nursery of the tests has ended, and its children with it")
        return int(STATUS.unpack(data)[0])

    def _internal_poll(self, *arguments: Any, **options: Any) -> int | None:
        if self._end is None:
            return super()._internal_poll(*arguments, **options)  # type: ignore[misc,no-any-return]
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._wait(0.0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self._end is None:
            return super()._wait(timeout)  # type: ignore[misc,no-any-return]
        if self.returncode is None:
            self._end.settimeout(timeout)
            try:
                self.returncode = self._read()
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            self._end.close()
        return self.returncode


def _is_program(args: Any) -> bool:
    """Whether this interpreter runs a script, a module, code, or a writer or trainer."""
    if not isinstance(args, list | tuple) or args[0] != sys.executable:
        return False
    first = os.fsdecode(args[1])
    return first in ("-c", "-m") or not first.startswith("-") or args[-6] in child.ROLES


def start(
    command: Sequence[str], fds: Collection[int], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Fork a writer or trainer; others are started by ``children.start``."""
    if command[-6] not in child.ROLES:
        return FRESH_START(command, fds, environment)
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    return Forked(command, pass_fds=tuple(fds), env=environment, **streams)


FRESH_START = children.start


# -- the nursery -----------------------------------------------------------------------------------


def serve(requests: socket.socket) -> None:
    """Fork on request until the other end is closed."""
    for number in child.IGNORED:
        signal.signal(number, signal.SIG_IGN)
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
                # their descriptors are closed below; the objects must not close what reuses the numbers
                for other in selector.get_map().values():
                    (other.fileobj if other.data is None else other.data[1]).detach()
                status.detach()
                selector.close()
                become(received[1:], **json.loads(data))
            for received_fd in received[1:]:
                os.close(received_fd)
            status.send(STATUS.pack(pid))
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))


def preload() -> None:
    """Import what children and commands import, and load their kernels."""
    import h5py  # noqa: F401
    import zarr  # noqa: F401

    import fcl.cli.inspect
    import fcl.cli.predict
    import fcl.cli.train
    import fcl.drivers.processes.supervisor
    import fcl.drivers.processes.trainer
    import fcl.drivers.processes.writer  # noqa: F401
    from fcl.drivers.warmup import warmup

    warmup(["sequences", "numbers"])


def become(
    received: list[int],
    arguments: list[str],
    environment: dict[str, str],
    wanted: list[int],
    folder: str,
    session: bool,
    cores: list[int],
) -> NoReturn:
    """Run a child or a command in this process, which was forked for it."""
    os.chdir(folder)
    os.sched_setaffinity(0, cores)
    if session:
        os.setsid()
    random.seed()
    np.random.seed()  # noqa: NPY002 -- a fresh interpreter has a seed of its own too
    tempfile.tempdir = None
    above = max([*wanted, *received]) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in received]
    for fd, number in zip(moved, wanted, strict=True):
        os.dup2(fd, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in wanted:
            with contextlib.suppress(OSError):  # the folder was one of them
                os.close(int(name))
    os.environ.clear()
    os.environ.update(environment)
    if arguments[0] == "-P":  # a writer or trainer
        sys.argv[:] = arguments[1:]
        sys.argv[5] = str(os.getppid())  # the process with which the child is to end
        with open("/proc/self/comm", "w") as name_of_process:
            name_of_process.write(sys.argv[1])
        runpy.run_path(sys.argv[0], run_name="__main__")
        raise AssertionError("a child does not return")
    NURSERY.fork()
    children.start = start
    for signum in child.IGNORED:
        signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, child.IGNORED)
    from fcl.drivers.processes import process_pool

    process_pool.DEADLINE = float(environment.get("FCL_DEADLINE", process_pool.DEADLINE))
    code = 0
    try:
        run_program(arguments)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it, or it is closed
            stream.flush()
    os._exit(code)


def run_program(arguments: list[str]) -> None:
    """Do what ``python ARGUMENTS`` does, for a script, ``-c`` and ``-m``."""
    path = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    option, *rest = arguments
    if option == "-m":
        own = rest[0].partition(".")[0] == "fcl"  # which leaves out the working folder
        sys.path[:] = [ROOT if own else os.getcwd(), *path, *INSTALLED]
        sys.argv[:] = rest
        sys.modules.pop(rest[0], None)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.path[:] = ["", *path, *INSTALLED]
        sys.argv[:] = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        sys.path[:] = [os.path.dirname(os.path.abspath(option)), *path, *INSTALLED]
        sys.argv[:] = arguments
        runpy.run_path(option, run_name="__main__")


if __name__ == "__main__":
    preload()
    serve(socket.socket(fileno=int(sys.argv[1])))
