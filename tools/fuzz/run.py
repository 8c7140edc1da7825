"""Run a command in this process or in a session of its own, and find what it leaves behind."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

ROOT = Path(__file__).resolve().parents[2]
#: Multiplies all time limits, for a busy machine.
PATIENCE = float(os.environ.get("FCL_FAULTS_PATIENCE", "1"))
#: Most seconds of a command with a fault; with a full disk, fcl retries for 60 of them.
LIMIT = 95.0 * PATIENCE
#: Seconds after the end of a command in which its processes must exit.
GRACE = 3.0 * PATIENCE
#: How much memory a command on a few rows may add.
MOST_BYTES = 400 << 20
#: States of the standard streams of a process, as shell commands. A broken pipe has no reader.
STREAMS = {
    "": "",
    "stdin closed": 'exec "$@" <&-',
    "stdout closed": 'exec "$@" >&-',
    "stderr closed": 'exec "$@" 2>&-',
    "all closed": 'exec "$@" <&- >&- 2>&-',
    "stdout full": 'exec "$@" >/dev/full',
    "stderr full": 'exec "$@" 2>/dev/full',
    "stdout broken": "",
    "stderr broken": "",
}
#: Texts that other software writes to stderr if it fails or warns.
FOREIGN = re.compile(
    r"Traceback \(most recent|^\S+:\d+: \w*Warning|Exception ignored|resource_tracker|HDF5-DIAG"
    r"|numba|^Fatal Python|Segmentation fault",
    re.MULTILINE,
)


@dataclass
class Done:
    """The result of a command: its exit code, its output, and what it left behind."""

    code: int = 0
    output: str = ""
    errors: str = ""
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)


def shared_memory() -> set[str]:
    """The names of fcl's shared memory segments."""
    place = Path("/dev/shm")
    return {p.name for p in place.glob("fcl*")} if place.is_dir() else set()


def until_empty(find: Callable[[], list[str]]) -> list[str]:
    """What a search still finds after GRACE seconds."""
    until = time.monotonic() + GRACE
    while (found := find()) and time.monotonic() < until:
        gc.collect()  # closes files of reference cycles, or of a task that zarr's thread is ending
        time.sleep(0.02)
    return found


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
        found += [f"descriptor: {target}" for target in until_empty(self._targets)]
        found += [f"process: {words}" for words in until_empty(self._processes)]
        found += [f"shared memory: {name}" for name in sorted(shared_memory() - self.shared)]
        if dict(os.environ) != self.environment:
            found.append("environment: changed")
        return found

    def _targets(self) -> list[str]:
        """Open files of the case."""
        found = []
        with contextlib.suppress(OSError):
            for entry in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/self/fd/{entry}")
                    if target.startswith((self.folder, "/dev/shm", "/memfd:")):
                        found.append(target.replace(self.folder, "."))
        return found

    def _processes(self) -> list[str]:
        """New children of this process."""
        children = psutil.Process().children(recursive=True)
        return [describe(child.pid) for child in children if child.pid not in self.children]


def _memory(key: str) -> int:
    """A memory figure of this process in bytes; 0 on systems without /proc."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(key):
                return 1024 * int(line.split()[1])
    return 0


def describe(pid: int) -> str:
    """The state and the command line of a process."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return f"{process.status()} {' '.join(process.cmdline())[:150]}"
    return "gone"


# -- in a session of its own -----------------------------------------------------------------------


class Hang(Exception):
    """A command has taken longer than its limit."""


class Session:
    """A command in a session of its own, whose processes share a pipe as stderr.

    Parameters
    ----------
    arguments : sequence of str
        The name of the command, then its arguments.
    folder : Path
        The working folder.
    environment : mapping
        Variables beside those of this process.
    streams : str
        A key of STREAMS.
    stdin : str
        A file in the folder that is standard input.
    limit : float
        Seconds after which the command counts as hanging; LIMIT by default.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        streams: str = "",
        stdin: str = "",
        limit: float | None = None,
    ) -> None:
        self.began, self.limit = time.monotonic(), LIMIT if limit is None else limit
        self._said = bytearray()
        self.log = folder / f"log-{time.monotonic_ns()}.jsonl"  #: of events, if the command has one
        self._shared = shared_memory()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (finish closes it)
        self._pipe: int | None
        self._pipe, write = os.pipe()
        os.set_blocking(self._pipe, False)
        if streams == "stderr broken":
            self.stop_reading()
        broken_end, broken = os.pipe()
        os.close(broken_end)
        program = Path(__file__).parent / "started" / "command.py"
        command = [sys.executable, os.fspath(program), *arguments]
        if STREAMS[streams]:
            command = ["/bin/sh", "-c", STREAMS[streams], "sh", *command]
        try:
            with open(folder / stdin if stdin else os.devnull, "rb") as given:
                self.process = subprocess.Popen(
                    command,
                    stdin=given,
                    stdout=broken if streams == "stdout broken" else self._output,
                    stderr=write,
                    cwd=folder,
                    env={**os.environ, "PYTHONPATH": os.fspath(ROOT), **(environment or {})},
                    start_new_session=True,
                )
        except BaseException:
            self.stop_reading()
            raise
        finally:
            os.close(write)
            os.close(broken)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def errors(self) -> str:
        """What came on stderr so far."""
        return self._said.decode(errors="replace")

    def pause(self, seconds: float = 0.02) -> None:
        """Sleep, and read stderr; raises Hang after the limit."""
        time.sleep(seconds)
        self._read()
        if time.monotonic() - self.began > self.limit:
            raise Hang

    def pause_until(self, until: float) -> bool:
        """Wait until a time of the monotonic clock; return whether the command still runs."""
        while self.running and time.monotonic() < until:
            self.pause(0.01)
        return self.running

    def _read(self) -> None:
        while self._pipe is not None:
            try:
                data = os.read(self._pipe, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self.stop_reading()
                return
            self._said += data

    def stop_reading(self) -> None:
        """Close the reading end of stderr."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def events(self, name: str) -> int:
        """The number of logged events of a name."""
        try:
            return self.log.read_text().count(f'"event": "{name}"')
        except OSError:
            return 0

    def wait_for(self, name: str, delay: float = 0.0) -> bool:
        """Wait for an event and then for ``delay`` seconds; return whether the command still runs."""
        while self.running and not self.events(name):
            self.pause()
        return self.pause_until(time.monotonic() + delay)

    def children(self, role: str) -> list[int]:
        """Process ids of the children of a role."""
        found = []
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.pid).children():
                with contextlib.suppress(psutil.Error):
                    if role in child.cmdline()[:5]:
                        found.append(child.pid)
        return found

    def signal(self, signum: int, pid: int = 0, group: bool = False) -> bool:
        """Send a signal, by default to the command; return whether the process still existed."""
        try:
            (os.killpg if group else os.kill)(pid or self.pid, signum)
        except ProcessLookupError:
            return False
        return True

    def wait(self) -> int:
        """Wait for the exit code. A command that its fault has stopped is continued after a second."""
        looked = time.monotonic()
        while self.running:
            self.pause()
            if time.monotonic() - looked > 1.0:
                looked = time.monotonic()
                with contextlib.suppress(psutil.Error):
                    if psutil.Process(self.pid).status() == psutil.STATUS_STOPPED:
                        self.signal(signal.SIGCONT)
        return int(self.process.returncode)

    def finish(self) -> Done:
        """Wait for the end; a command that hangs is killed, and its code is -9."""
        done = Done()
        try:
            done.code = self.wait()
        except Hang:
            done.left.append("hang: the command was killed")
            self.signal(signal.SIGKILL, group=True)
            done.code = self.process.wait()
        except BaseException:
            self.kill()
            raise
        done.seconds = time.monotonic() - self.began
        done.left += self.left()
        done.errors, done.output = self.errors, _text(self._output)
        self._output.close()
        return done

    def left(self) -> list[str]:
        """What remains GRACE seconds after the end; processes are killed."""
        found = [f"process: {words}" for words in until_empty(self._remaining)]
        if found:
            self.kill()
        return [*found, *(f"shared memory: {n}" for n in sorted(shared_memory() - self._shared))]

    def _remaining(self) -> list[str]:
        self._read()
        words = [describe(pid) for pid in self._others()]
        return words or ([] if self._pipe is None else ["an unknown one holds the pipe"])

    def _others(self) -> list[int]:
        """The other processes of the session."""
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.Error):
                ours = pid != self.pid and os.getsid(pid) == self.pid
                # init reaps zombies
                if ours and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    found.append(pid)
        return found

    def kill(self) -> None:
        """Kill all processes of the session, and close the pipe."""
        for pid in [*self._others(), *([self.pid] if self.running else [])]:
            self.signal(signal.SIGKILL, pid)
        self.process.wait()
        self.stop_reading()
