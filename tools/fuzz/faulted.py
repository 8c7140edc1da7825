"""A command that meets a fault, and is then resumed or started again until it ends."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator

from tools.fuzz.case import Case
from tools.fuzz.faults import ACTS, Fault
from tools.fuzz.run import FOREIGN, PATIENCE, Done, Hang, Session

#: Most seconds between the request to stop and the end.
STOP_LIMIT = 10.0 * PATIENCE
#: Seconds between two checkpoints of a job.
INTERVAL = 0.3
#: Seconds in which a command reads its data and saves its first checkpoint.
START = 5.0 * PATIENCE
#: Seconds without a heartbeat after which a child is replaced, in cases that stop a child.
DEADLINE = 3.0 * PATIENCE
#: Exit codes of a job that has ended; 6 means that a file could not be written.
ENDED = 0, 6
#: Exit codes of a job that a signal stopped.
STOPPED = 129, 130, 143


class Run:
    """A command that meets a fault, in the folder of a case; `disk` is small if the act needs it."""

    def __init__(self, case: Case, fault: Fault) -> None:
        self.case, self.fault, self.rng, self.folder = case, fault, case.rng, case.folder
        self.disk = self.folder / "disk"
        self.wrong: list[str] = []
        self.codes: list[int] = []
        self.fired = self.hung = False
        self.stop_requested = 0.0  #: when the command was told to stop, or was killed
        self.moved: list[str] = []  #: where a message says that the output is instead
        for name in ("tmp", "scratch", "disk"):
            (self.folder / name).mkdir()

    def go(self) -> list[str]:
        """Make the run; return what is wrong."""
        self.case.group = f"{self.case.kind} {self.fault.group}"
        with self._small_disk() as reason:
            if reason:
                self.case.outcome = "skipped"
                self.case.note(reason)
                return []
            self.set_up()
            done = self.first()
            self.free_disk()
            while not self.has_ended and len(self.codes) < 4:
                done = self.again()
            if not self.has_ended:
                self.wrong.append(f"not finished: exit codes {self.codes}")
            elif not self.hung:
                self.compare()
            left = self.left_files()
        self.case.outcome = "met" if self.fired else "not met"
        self.case.figures["codes"] = self.codes
        if self.wrong or left:
            self.case.said = done.errors
        # a model that could not be written to its path was saved elsewhere, as a message says
        left = [name for name in left if not any(f"{name}/" in f"{path}/" for path in self.moved)]
        return [*self.wrong, *(f"left: {name}" for name in left)]

    @property
    def has_ended(self) -> bool:
        return self.hung or self.codes[-1] in ENDED

    def first(self) -> Done:
        """Run the command with the fault, and judge its end."""
        session = self.start(self.words(), faulty=True)
        fired = False
        try:
            fired = ACTS[self.fault.act].function(self, session)
        except Hang:
            pass
        except BaseException:
            session.kill()
            raise
        done = self.finish(session)
        self.fired |= fired
        self.moved += [p.rstrip(";") for p in re.findall(r"written to (\S+) instead", done.errors)]
        if done.code not in self.fault.codes or (done.code != 0 and not fired):
            self.wrong.append(f"exit code {done.code}, expected one of {self.fault.codes}")
        if self.fault.action != "raise" and (foreign := FOREIGN.search(done.errors)):
            self.wrong.append(foreign[0])
        # some of the other commands end with exit code 0 when a signal stops them
        is_stopped = done.code in STOPPED or self.fault.command != "train"
        if self.stop_requested and is_stopped:
            seconds = round(session.began + done.seconds - self.stop_requested, 2)
            self.case.figures["stop_seconds"] = seconds
            if seconds > STOP_LIMIT:
                self.wrong.append(f"{seconds} s to stop")
        self.judge(session, done)
        return done

    def again(self) -> Done:
        """Resume the job or start it again, without a fault."""
        done = self.finish(self.start(self.words()))
        if done.code not in ENDED:
            self.wrong.append(f"without a fault: exit code {done.code}: {done.errors[-800:]}")
        return done

    def finish(self, session: Session) -> Done:
        """Wait for the end of a command."""
        done = session.finish()
        self.hung |= "hang" in " ".join(done.left)
        self.wrong += done.left
        self.codes.append(done.code)
        return done

    # -- what depends on the command

    def set_up(self) -> None:
        """Make the inputs."""

    def words(self) -> list[str]:
        """The command to run now: the new job, or the resumption of what is there."""
        raise NotImplementedError

    def start(self, words: list[str], faulty: bool = False) -> Session:
        """Start the command."""
        return Session(words, self.folder, {"TMPDIR": os.fspath(self.folder / "tmp")})

    def wait_for_moment(self, session: Session) -> bool:
        """Wait until a random moment; return whether the command still runs."""
        raise NotImplementedError

    def judge(self, session: Session, done: Done) -> None:
        """Check what the command with the fault has left."""

    def compare(self) -> None:
        """Check the final output."""

    def left_files(self) -> list[str]:
        """Files that should not be left."""
        found = [p for name in ("tmp", "scratch") for p in (self.folder / name).rglob("*")]
        return [os.fspath(path.relative_to(self.folder)) for path in found]

    # -- disk

    @contextlib.contextmanager
    def _small_disk(self) -> Iterator[str]:
        """A small disk, if the act needs it; yields the reason if there is none."""
        if not ACTS[self.fault.act].disk:
            yield ""
            return
        size = self.rng.choice(ACTS[self.fault.act].disk)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", os.fspath(self.disk)]
        try:
            made = subprocess.run(mount, capture_output=True, text=True, check=False)
            failed = made.stderr.strip() if made.returncode else ""
        except OSError as error:
            failed = str(error)
        if failed:
            yield f"cannot mount a small disk: {failed}"
            return
        try:
            yield ""
        finally:
            subprocess.run(["umount", "-l", os.fspath(self.disk)], check=True)

    def fill_disk(self) -> None:
        """Fill the disk with a file."""
        with contextlib.suppress(OSError), (self.disk / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))

    def free_disk(self) -> None:
        """Make room on the disk."""
        (self.disk / "filler").unlink(missing_ok=True)
        if self.fault.act.startswith("output-disk"):
            enlarge = ["mount", "-o", "remount,size=256m", os.fspath(self.disk)]
            subprocess.run(enlarge, check=True)
