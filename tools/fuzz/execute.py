"""Run a command in this process or in a separate one, and find what it leaves behind."""

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

#: States of the standard streams of a process, as shell commands. A broken pipe has no reader.
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
#: How much memory a command on a few rows may add.
MOST_BYTES = 400 << 20
#: Seconds after the end of a command in which its processes must exit.
GRACE = 2.0


@dataclass
class Done:
    """The result of a command: its exit code, its output, and what it left behind."""

    code: int = 0
    output: str = ""
    errors: str = ""
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)


# -- inside this process ---------------------------------------------------------------------------


def run_inside(arguments: list[str], folder: Path, stdin: str = "") -> Done:
    """Call a command as its script would, with its output captured.

    stdin : a file in the folder that is standard input.
    """
    from tools.fuzz.commands import commands

    name, *rest = arguments
    done = Done()
    began = time.monotonic()
    with capture(done, folder / stdin if stdin else os.devnull), contextlib.chdir(folder):
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
def capture(done: Done, stdin: str | Path = os.devnull) -> Iterator[None]:
    """Capture the output of a block, even of C libraries, with the warnings of a new process."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        before = sys.stdin, sys.stdout, sys.stderr
        kept = [os.dup(number) for number in range(3)]
        nothing = os.open(stdin, os.O_RDONLY)
        for number, source in enumerate((nothing, out.fileno(), errors.fileno())):
            os.dup2(source, number)
        # new text streams, as Python opens them at its start
        raw = [io.FileIO(number, "wb", closefd=False) for number in (1, 2)]
        sys.stdin = io.TextIOWrapper(io.FileIO(0, "rb", closefd=False), "utf-8")
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
            sys.stdin, sys.stdout, sys.stderr = before
            for number, descriptor in enumerate(kept):
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.close(nothing)
            done.output, done.errors = _text(out), _text(errors)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


class Watch:
    """Finds what a run in this process leaves: descriptors, children, memory, shared memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = os.path.realpath(folder)
        self.environment = dict(os.environ)
        self.children = {p.pid for p in psutil.Process().children(recursive=True)}
        self.shared = shared_memory()
        self.begin = _memory("VmRSS:")
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # reset the peak

    def left(self) -> list[str]:
        """Describe what was left behind."""
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
            gc.collect()  # closes files of reference cycles, or of a task that zarr's thread is ending
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
    """A memory figure of this process in bytes; 0 on systems without /proc."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(key):
                return 1024 * int(line.split()[1])
    return 0


def shared_memory() -> set[str]:
    """The names of fcl's shared memory segments."""
    place = Path("/dev/shm")
    return {p.name for p in place.glob("fcl*")} if place.is_dir() else set()


# -- in a process of its own -----------------------------------------------------------------------


def run_process(
    arguments: list[str], folder: Path, streams: str, limit: float, stdin: str = ""
) -> Done:
    """Run the installed script in a session of its own; the code is -9 if it took too long."""
    script = Path(sys.executable).with_name("fcl")
    command = ["/bin/sh", "-c", STREAMS[streams], "sh", os.fspath(script), *arguments]
    done = Done()
    shared = shared_memory()
    began = time.monotonic()
    with (
        open(folder / stdin if stdin else os.devnull, "rb") as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as errors,
    ):
        broken = _broken_pipe() if streams.endswith("broken") else None
        try:
            process = subprocess.Popen(
                command,
                stdin=given,
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
            done.left.append("hang: the command was killed")
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
    """Describe the remaining processes of a session, and kill them."""
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
