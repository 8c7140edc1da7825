"""Run a command, inside this process or in one of its own, and see what it leaves."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

#: States of the standard streams of a process: how a shell sets them up. A broken pipe has no reader.
STREAMS = {
    "": 'exec "$@"',
    "stdin closed": 'exec "$@" <&-',
    "stdout closed": 'exec "$@" >&-',
    "stderr closed": 'exec "$@" 2>&-',
    "all closed": 'exec "$@" <&- >&- 2>&-',
    "stdout full": 'exec "$@" >/dev/full',
    "stderr full": 'exec "$@" 2>/dev/full',
    "stdout broken": 'exec "$@"',
    "stderr broken": 'exec "$@"',
}
#: Memory that a command on a few rows may take beside what it begins with.
MOST_BYTES = 400 << 20
#: Seconds that processes get to be gone after the command that started them.
GRACE = 2.0


@dataclass
class Done:
    """What a command did: its exit code, what it said, and what it left."""

    code: int = 0
    output: str = ""
    errors: str = ""
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)


# -- inside this process ---------------------------------------------------------------------------


def run_inside(arguments: list[str], folder: Path) -> Done:
    """Call a command as its script would, with streams of its own."""
    from tools.fuzz.commands import commands

    name, *rest = arguments
    done = Done()
    began = time.monotonic()
    with capture(done), contextlib.chdir(folder):
        try:
            commands()[name].main(rest)
        except SystemExit as error:
            done.code = error.code if isinstance(error.code, int) else 1
        except BaseException:  # as the interpreter shows it
            traceback.print_exc()
            done.code = 1
    done.seconds = time.monotonic() - began
    return done


@contextlib.contextmanager
def capture(done: Done) -> Iterator[None]:
    """Take what the block writes, libraries in C included; warnings as a new process shows them."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        before = sys.stdout, sys.stderr
        kept = [os.dup(number) for number in range(3)]
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, source in enumerate((nothing, out.fileno(), errors.fileno())):
            os.dup2(source, number)
        # what Python makes of the first three descriptors
        raw = [io.FileIO(number, "wb", closefd=False) for number in (1, 2)]
        sys.stdout = io.TextIOWrapper(raw[0], "utf-8", write_through=True)
        sys.stderr = io.TextIOWrapper(raw[1], "utf-8", "backslashreplace", write_through=True)
        try:
            with warnings.catch_warnings():
                warnings.resetwarnings()
                for hidden in (DeprecationWarning, PendingDeprecationWarning, ImportWarning):
                    warnings.simplefilter("ignore", hidden)
                warnings.simplefilter("ignore", ResourceWarning)
                warnings.filterwarnings("always", category=UserWarning)
                warnings.filterwarnings("always", category=RuntimeWarning)
                yield
        finally:
            sys.stdout, sys.stderr = before
            for number, descriptor in enumerate(kept):
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.close(nothing)
            done.output, done.errors = _text(out), _text(errors)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


class Watch:
    """What a run inside this process may not change: descriptors, children, memory, shared memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = os.path.realpath(folder)
        self.environment = dict(os.environ)
        self.children = {p.pid for p in psutil.Process().children(recursive=True)}
        self.shared = shared_memory()
        self.begin = _memory("VmRSS:")
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # begin the peak anew

    def left(self) -> list[str]:
        """What was left behind, in words."""
        grown = _memory("VmHWM:") - self.begin
        found = [f"memory: {grown >> 20} MiB more"] if grown > MOST_BYTES else []
        for target in self._open_files():
            found.append(f"descriptor: {target}")
        found += [f"process: {words}" for words in self._processes()]
        found += [f"shared memory: {name}" for name in sorted(shared_memory() - self.shared)]
        if dict(os.environ) != self.environment:
            found.append("environment: changed")
        return found

    def _open_files(self) -> list[str]:
        until = time.monotonic() + GRACE
        while targets := self._targets():
            gc.collect()  # files of objects in a cycle, or of a task that zarr's thread is ending
            if time.monotonic() > until:
                break
            time.sleep(0.05)
        return targets

    def _targets(self) -> list[str]:
        found = []
        with contextlib.suppress(OSError):
            for entry in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/self/fd/{entry}")
                    if target.startswith((self.folder, "/dev/shm", "/memfd:")):
                        found.append(target.replace(self.folder, "."))
        return found

    def _processes(self) -> list[str]:
        until = time.monotonic() + GRACE
        while True:
            found = []
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if child.pid not in self.children:
                        found.append(f"{child.status()} {' '.join(child.cmdline())[:100]}")
            if not found or time.monotonic() > until:
                return found
            time.sleep(0.02)


def _memory(key: str) -> int:
    """A figure of this process in bytes; 0 where there is no /proc."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(key):
                return 1024 * int(line.split()[1])
    return 0


def shared_memory() -> set[str]:
    """Names of fcl's segments of shared memory."""
    place = Path("/dev/shm")
    return {p.name for p in place.glob("fcl*")} if place.is_dir() else set()


# -- in a process of its own -----------------------------------------------------------------------


def run_process(arguments: list[str], folder: Path, streams: str, limit: float) -> Done:
    """Run the installed script in a session of its own; its code is -9 where it took too long."""
    script = Path(sys.executable).with_name(arguments[0])
    command = ["/bin/sh", "-c", STREAMS[streams], "sh", os.fspath(script), *arguments[1:]]
    done = Done()
    shared = shared_memory()
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        broken = _broken_pipe() if streams.endswith("broken") else None
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=broken if streams == "stdout broken" else out,
                stderr=broken if streams == "stderr broken" else errors,
                cwd=folder,
                start_new_session=True,
            )
        finally:
            if broken is not None:
                os.close(broken)
        try:
            done.code = process.wait(limit)
        except subprocess.TimeoutExpired:
            done.left.append("hang: it was killed")
            os.killpg(process.pid, signal.SIGKILL)
            done.code = process.wait()
        done.left += [f"process: {words}" for words in _rest_of_session(process.pid)]
        done.output, done.errors = _text(out), _text(errors)
    done.left += [f"shared memory: {name}" for name in sorted(shared_memory() - shared)]
    done.seconds = time.monotonic() - began
    return done


def _broken_pipe() -> int:
    read, write = os.pipe()
    os.close(read)
    return write


def _rest_of_session(session: int) -> list[str]:
    """Processes of a session that stay, in words; they are killed."""
    until = time.monotonic() + GRACE
    while True:
        alive = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
        if not alive or time.monotonic() > until:
            break
        time.sleep(0.02)
    words = []
    for process in alive:
        with contextlib.suppress(psutil.Error):
            words.append(" ".join(process.cmdline())[:100])
            process.kill()
    return words
