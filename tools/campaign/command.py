"""Run a command and observe it from outside: events, children, exit code, leftovers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]

#: Multiplies all time limits, for a busy machine.
PATIENCE = float(os.environ.get("FCL_FAULTS_PATIENCE", "1"))
#: Most seconds of a command, including its fault; with a full disk, fcl retries for 60 of them.
LIMIT = 95.0 * PATIENCE
#: Seconds after the end of the command in which its processes must exit.
GRACE = 3.0 * PATIENCE

#: The commands. If the variable is set, the trainer samples rows even though there are few.
COMMANDS = {
    "train": """
import os
if os.environ.get("FCL_FAULTS_SAMPLED"):
    from fcl.drivers import plan
    plan.ALL_ROWS, plan.LEAST_SAMPLE = 1000, 512
from fcl.cli.train import main
main()
""",
    "fcl": """
import sys
from fcl.cli import umbrella
if sys.argv[1] == "online":
    from fcl.cli.online import command
    online = command.callback
    def often(*arguments, **options):
        from fcl.drivers.online import run
        run.SAVE_EVERY = 0.05
        return online(*arguments, **options)
    command.callback = often
umbrella.script()
""",
}


class Hang(Exception):
    """A command has taken longer than LIMIT."""


@dataclass
class Command:
    """A command in its own session, whose processes share a pipe as stderr."""

    folder: Path
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    command: str = "train"  #: a key of `COMMANDS`; only train has a log of events

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.log = self.folder / f"log-{time.monotonic_ns()}.json"
        self.errors = ""
        read, write = os.pipe()
        os.set_blocking(read, False)
        self._pipe: int | None = read
        log = ["--log-json", os.fspath(self.log)] if self.command == "train" else []
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMANDS[self.command], *self.arguments, *log],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=write,
                start_new_session=True,
                env={
                    **os.environ,
                    **self.environment,
                    "TMPDIR": os.fspath(self.folder / "tmp"),
                    "PYTHONPATH": os.fspath(ROOT),
                },
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def pause(self, seconds: float = 0.02) -> None:
        """Sleep, and read stderr; raises Hang after LIMIT."""
        time.sleep(seconds)
        self._read()
        if self.seconds > LIMIT:
            raise Hang

    def _read(self) -> None:
        while self._pipe is not None:
            try:
                data = os.read(self._pipe, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self.stop_reading()
                return
            self.errors += data.decode(errors="replace")

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
        until = time.monotonic() + delay
        while self.running and time.monotonic() < until:
            self.pause(0.01)
        return self.running

    def stop_reading(self) -> None:
        """Close the reading end of stderr."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def children(self, role: str) -> list[int]:
        """Process ids of the children of a role."""
        found = []
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.pid).children():
                with contextlib.suppress(psutil.Error):
                    if role in child.cmdline()[:5]:
                        found.append(child.pid)
        return found

    def signal(self, signum: int, pid: int = 0) -> bool:
        """Send a signal, by default to the command; return whether the process still existed."""
        try:
            os.kill(pid or self.pid, signum)
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

    def left(self) -> list[str]:
        """Processes of the session that remain GRACE seconds after the end; they are killed."""
        until = time.monotonic() + GRACE
        while True:
            self._read()
            alive = self._session()
            if self._pipe is None and not alive:
                return []
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        words = [self._describe(pid) for pid in alive] or ["an unknown process holds the pipe"]
        self.kill()
        return words

    def _session(self) -> list[int]:
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.Error):
                if pid != self.pid and os.getsid(pid) == self.pid:
                    status = psutil.Process(pid).status()
                    if status != psutil.STATUS_ZOMBIE:  # init reaps zombies
                        found.append(pid)
        return found

    @staticmethod
    def _describe(pid: int) -> str:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            return f"{pid} ({process.status()}) {' '.join(process.cmdline())[:200]}"
        return str(pid)

    def kill(self) -> None:
        """Kill all processes of the session, and close the pipe."""
        for pid in [*self._session(), *([self.pid] if self.running else [])]:
            self.signal(signal.SIGKILL, pid)
        self.process.wait()
        self.stop_reading()
