#!/usr/bin/env python3
"""A campaign of faults: small real jobs, each with one thing that goes wrong.

    python tools/faults.py --runs 200 --out results.jsonl
    python tools/faults.py --runs 200 --out results.jsonl --resume      # go on where it ended
    python tools/faults.py --runs 10 --only trainer                     # cases of that name

Processes are killed, stopped and made to fail at random moments and at every marked point of the
code; signals come, disks fill up, data are damaged. Each run is ``fcl-train`` on C. elegans acceptor
sites in a session of its own; what it did not bring to an end is resumed. A line of JSON for each run, a
table at the end; exit code 1 if a model is wrong, an exit code unexpected, more work lost than the
interval between checkpoints, or a process or file left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import psutil

import fcl
from fcl.drivers.processes.messages import TASKS
from fcl.errors import BudgetError, InputError
from fcl.model.checkpoint import CheckpointFolder

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "celegans" / "train.zarr"

#: Seconds that a run may take, with what is done to it.
LIMIT = 30.0
#: Seconds that are allowed between the wish to stop and the end.
STOP_LIMIT = 10.0
#: Seconds that processes get to be gone after the command.
GRACE = 3.0
#: Seconds between two checkpoints of a job.
INTERVAL = 0.3
#: Seconds without a sign of life after which a child is replaced, in cases where one is stopped.
DEADLINE = 2.0

#: Where code is marked with ``fault(...)``, by role.
WRITER_POINTS = (
    *(f"{task}-{end}" for task in TASKS for end in ("begin", "done")),
    *("prepare-block", "columns-piece", "columns-commit"),
)
TRAINER_POINTS = (
    *(f"order-{name}" for name in ("anchor", "restore", "commit", "lend", "make_room")),
    *("order-drop_all", "order-rejected", "anchor-taken", "compaction", "step", "publish"),
)
SUPERVISOR_POINTS = ("checkpoint",)

#: What a job must have for a point to be met.
NEEDS = {
    **dict.fromkeys(("draw", "sample"), "sampled"),
    **dict.fromkeys(("order-drop_all", "order-rejected"), "sampled"),
    **dict.fromkeys(("validate", "score"), "valid"),
    **dict.fromkeys(("order-make_room", "compaction"), "small"),
    "accept": "resumed",
}

# The command; the trainer takes a sample of rows where the variable says so, though they are few.
LAUNCH = """
import os
if os.environ.get("FCL_FAULTS_SAMPLED"):
    from fcl.drivers import plan
    plan.ALL_ROWS, plan.LEAST_SAMPLE = 1000, 512
from fcl.cli.train import main
main()
"""


# -- cases ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What goes wrong, and the exit codes that may come of it."""

    name: str
    kind: str  #: of the functions below
    codes: tuple[int, ...] = (0,)
    role: str = ""
    point: str = ""
    action: str = ""
    needs: str = ""

    @property
    def group(self) -> str:
        """For the table."""
        return f"{self.role} {self.action} at a point" if self.point else self.kind


def point_case(role: str, point: str, action: str) -> Case:
    """A fault at a marked point."""
    need = NEEDS.get(point, NEEDS.get(point.partition("-")[0], ""))
    codes: tuple[int, ...] = (0,)
    if role == "supervisor":
        codes = {"kill": (-9,), "stop": (0,), "raise": (1,)}[action]
    elif action == "raise":
        codes = (1,)
    elif point == "order-restore":  # met by each successor
        codes = (0, 5)
    return Case(f"{role}-{point}-{action}", "point", (0, *codes), role, point, action, need)


def all_cases() -> list[Case]:
    """Each point with each action once, the others several times."""
    points = [("writer", p) for p in WRITER_POINTS]
    points += [("trainer", p) for p in TRAINER_POINTS]
    points += [("supervisor", p) for p in SUPERVISOR_POINTS]
    cases = [point_case(*p, action) for p in points for action in ("kill", "stop", "raise")]
    for role in ("writer", "trainer"):
        for kind in ("kill", "kill", "kill", "pause", "freeze", "freeze"):
            cases.append(Case(f"{kind}-{role}", kind, role=role))
    stops = (
        *(("terminate", 143), ("terminate-group", 143), ("interrupt", 130)),
        *(("twice", 143), ("terminate-frozen", 143)),
    )
    for kind, code in stops:
        cases += [Case(kind, kind, (0, code))] * 3
    cases += [Case("kill-supervisor", "kill-supervisor", (0, -9))] * 4
    cases += [Case("kill-group", "kill-group", (0, -9))] * 3
    cases += [Case("kill-saving", "kill-saving", (0, -9))] * 4
    cases += [Case("freeze-all", "freeze-all")] * 2
    cases += [Case("save-now", "save-now")] * 2
    cases += [Case("disk-full", "disk-full", (0, 6))] * 3
    cases += [Case("disk-freed", "disk-freed", (0, 6))] * 2
    cases += [Case("bad-chunk", "bad-chunk", (2,))] * 3
    cases += [Case("changed", "changed", (2,))] * 3
    cases += [Case("changed-later", "changed-later")]
    deaths = {"writer": ("prepare-begin", "price-begin"), "trainer": ("order-anchor", "step")}
    for role, at in deaths.items():
        cases += [Case(f"deaths-{role}-{p}", "deaths", (0, 5), role, p, "kill!") for p in at]
    return cases


# -- jobs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """Of the small job."""

    every: int = 97  #: one of so many rows that are no site; of the sites, one of ``every_site``
    every_site: int = 2
    d: int = 4
    tol: float = 1e-5
    C: float = 1.0


class Job:
    """Data for a campaign, and what the right answer is."""

    block_rows = 512
    chunk_rows = 1024
    window = slice(55, 86)

    def __init__(self, folder: Path, size: Size | None = None) -> None:
        import zarr

        self.size = size or Size()
        self.data = folder / "data.zarr"
        if not self.data.exists():
            source: Any = zarr.open_group(os.fspath(EXAMPLE), mode="r")
            y = np.asarray(source["y"][:])
            sites = np.flatnonzero(y == 1)[:: self.size.every_site]
            rows = np.sort(np.concatenate([sites, np.flatnonzero(y != 1)[:: self.size.every]]))
            x = np.asarray(source["X"][:])[rows][:, self.window]
            target = zarr.create_group(os.fspath(self.data), overwrite=True)
            for name, values in (("X", x), ("y", y[rows])):
                chunks = (self.chunk_rows, *values.shape[1:])
                target.create_array(name, data=values, chunks=chunks)
        self.features = f"kmers:d={self.size.d},origin=15"

    def _train(self, **options: Any) -> Any:
        return fcl.train(
            fcl.open_data(self.data),
            self.features,
            C=self.size.C,
            block_rows=self.block_rows,
            memory="1GiB",
            **options,
        )

    @cache  # noqa: B019  (there is one job)
    def reference(self, valid: bool) -> tuple[float, float]:
        """Objective and bound of the optimum, by the inline driver."""
        some = {"valid_fraction": 0.2} if valid else {}
        certificate = self._train(tol=min(1e-8, 1e-3 * self.size.tol), **some).certificate
        return certificate.objective, certificate.bound

    @cache  # noqa: B019
    def least_memory(self, writers: int, scratch: bool) -> int:
        """The smallest budget in MiB that is enough for so many writers."""
        low, high = 1, 4096
        while low < high:
            middle = (low + high) // 2
            if self._enough(middle, writers):
                high = middle
            else:
                low = middle + 1
        return high

    def _enough(self, mib: int, writers: int) -> bool:
        try:
            plan = fcl.plan_training(
                fcl.open_data(self.data),
                self.features,
                C=self.size.C,
                block_rows=self.block_rows,
                memory=f"{mib}MiB",
                driver="processes",
                writers=writers,
            )
        except BudgetError:
            return False
        return plan.writers == writers

    def wrong(self, path: Path, valid: bool) -> list[str]:
        """What is not right about a model."""
        try:
            model = fcl.load_model(path)
        except InputError as error:
            return [f"no model: {error}"]
        claimed = model.certificate
        objective, bound = self.reference(valid)
        out = []
        if not claimed.gap <= self.size.tol:
            out.append(f"gap {claimed.gap:.2e}")
        slack = 1e-11 * objective
        if claimed.objective < bound - slack:
            out.append(f"objective {claimed.objective!r} is below the bound {bound!r}")
        if claimed.bound > objective + slack:
            out.append(f"bound {claimed.bound!r} is above the optimum {objective!r}")
        if not valid:  # of these rows all are trained on
            data = fcl.open_data(self.data)
            y = np.where(np.asarray(data.target) > 0, 1.0, -1.0)
            losses = np.logaddexp(0.0, -y * model.margins(data))
            real = float(np.abs(model.weights).sum() + self.size.C * losses.sum())
            if abs(real - claimed.objective) > 1e-9 * real:
                out.append(f"objective {claimed.objective!r} is claimed, and it is {real!r}")
        return out


@dataclass(frozen=True)
class Options:
    """Of one run."""

    writers: int
    small: bool = False  #: memory so small that columns are evicted and rows go to a scratch file
    sampled: bool = False
    valid: bool = False
    shared_files: bool = False

    @classmethod
    def choose(cls, case: Case, rng: random.Random) -> Options:
        """At random, with what the case needs."""
        writers = rng.choice((1, 2, 2, 3))
        small, sampled, valid, files = (rng.random() < share for share in (0.35, 0.25, 0.15, 0.1))
        return cls(
            writers,
            small or case.needs == "small",
            sampled or case.needs == "sampled",
            valid or case.needs == "valid",
            files,
        )


# -- a running command ---------------------------------------------------------------------------


class Hang(Exception):
    """A run has taken longer than LIMIT."""


@dataclass
class Command:
    """``fcl-train`` in a session of its own; its stderr is a pipe that all its processes have."""

    folder: Path
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.log = self.folder / f"log-{time.monotonic_ns()}.json"
        self.errors = ""
        read, write = os.pipe()
        os.set_blocking(read, False)
        self._pipe: int | None = read
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, *self.arguments, "--log-json", os.fspath(self.log)],
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
        """Since the start."""
        return time.monotonic() - self.began

    def pause(self, seconds: float = 0.005) -> None:
        """Sleep, and read what was said; raises Hang after LIMIT."""
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
                os.close(self._pipe)
                self._pipe = None
                return
            self.errors += data.decode(errors="replace")

    def events(self, name: str) -> int:
        """How many events of that name were logged."""
        try:
            return self.log.read_text().count(f'"event": "{name}"')
        except OSError:
            return 0

    def wait_for(self, name: str, delay: float = 0.0) -> bool:
        """Wait for an event and some time more; whether the command still runs then."""
        while self.running and not self.events(name):
            self.pause()
        until = time.monotonic() + delay
        while self.running and time.monotonic() < until:
            self.pause(0.002)
        return self.running

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
        """Send a signal, by default to the command itself; whether it was still there."""
        try:
            os.kill(pid or self.pid, signum)
        except ProcessLookupError:
            return False
        return True

    def wait(self) -> int:
        """Its exit code. One that is stopped by a fault of its own is set going after a second."""
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
        """Processes of the session that are there GRACE seconds after the end; they are killed."""
        until = time.monotonic() + GRACE
        while True:
            self._read()
            alive = self._session()
            if self._pipe is None and not alive:
                return []
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        words = [self._describe(pid) for pid in alive] or ["somebody holds the pipe"]
        self.kill()
        return words

    def _session(self) -> list[int]:
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(OSError):
                if os.getsid(pid) == self.pid and pid != self.pid:
                    found.append(pid)
        return found

    @staticmethod
    def _describe(pid: int) -> str:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            return f"{pid} ({process.status()}) {' '.join(process.cmdline())[:200]}"
        return str(pid)

    def kill(self) -> None:
        """End all of the session, and close the pipe."""
        for pid in [*self._session(), *([self.pid] if self.running else [])]:
            self.signal(signal.SIGKILL, pid)
        self.process.wait()
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


# -- one run -------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a run came to; a line of the results."""

    run: int
    case: str
    group: str
    options: dict[str, Any]
    skipped: str = ""
    fired: bool = False
    codes: list[int] = field(default_factory=list)
    seconds: float = 0.0
    stop_seconds: float | None = None  #: from the wish to stop to the end
    lost_seconds: float | None = (
        None  #: age of the newest checkpoint at the end of the first command
    )
    lost_passes: int | None = None
    left: list[str] = field(default_factory=list)  #: processes and files
    hang: bool = False
    wrong: list[str] = field(default_factory=list)
    said: str = ""  #: the end of what the first command said, if anything is wrong

    @property
    def good(self) -> bool:
        return not (self.wrong or self.left or self.hang)


class Run:
    """One run of the campaign, in a folder of its own."""

    def __init__(self, number: int, case: Case, seed: int, job: Job, folder: Path) -> None:
        self.case, self.job, self.folder = case, job, folder
        self.rng = random.Random(f"{seed}-{number}-{case.name}")
        self.options = Options.choose(case, self.rng)
        self.outcome = Outcome(number, case.name, case.group, asdict(self.options))
        self.model = folder / "model.fcl"
        self.checkpoints = folder / "checkpoints"
        self.data = job.data
        for name in ("tmp", "scratch"):
            (folder / name).mkdir(parents=True)
        self.environment: dict[str, str] = {}
        self.wished = 0.0  # when the command was told to stop, or was killed
        self.earlier = 0  # passes before the command that meets the fault

    def go(self) -> Outcome:
        """Do it, and look at what came of it."""
        outcome = self.outcome
        shared = _shared_memory()
        begun = time.monotonic()
        first: Command | None = None
        try:
            with self._surroundings() as reason:
                if reason:
                    outcome.skipped = reason
                    return outcome
                first = self._first()
                if not outcome.hang:
                    self._finish(outcome.codes[-1])
        finally:
            outcome.seconds = round(time.monotonic() - begun, 2)
        if not outcome.hang:
            outcome.wrong += self.job.wrong(self.model, self.options.valid)
        outcome.left += self._files()
        outcome.left += [f"/dev/shm/{name}" for name in sorted(_shared_memory() - shared)]
        if not outcome.good:
            outcome.said = first.errors[-3000:]
        return outcome

    # -- commands

    def arguments(self) -> list[str]:
        """Of a job that begins."""
        job, options = self.job, self.options
        memory = 1024
        if options.small:
            memory = job.least_memory(options.writers, True) + 1
        more = ["--valid-fraction", "0.2"] if options.valid else []
        if options.shared_files:
            more += ["--shared-files", os.fspath(self.folder / "scratch")]
        return [
            *(os.fspath(self.data), "--features", job.features, "--C", str(job.size.C)),
            *("--tol", str(job.size.tol), "--block-rows", str(job.block_rows)),
            *("--writers", str(options.writers), "--memory", f"{memory}MiB"),
            *("--scratch", os.fspath(self.folder / "scratch"), "--out", os.fspath(self.model)),
            *("--checkpoint", os.fspath(self.checkpoints), "--checkpoint-every", f"{INTERVAL}s"),
            *more,
        ]

    def command(self, arguments: list[str], faulty: bool = False) -> Command:
        """Start the command."""
        environment = {"FCL_FAULTS_SAMPLED": "1" if self.options.sampled else "", "FCL_FAULT": ""}
        return Command(self.folder, arguments, environment | (self.environment if faulty else {}))

    def _first(self) -> Command:
        """The command that meets the fault."""
        outcome = self.outcome
        arguments = self.arguments()
        if self.case.needs == "resumed":
            before = self.command([*arguments, "--max-passes", "2"])
            self._end(before)
            self.earlier = len(CheckpointFolder(self.checkpoints).load().history)
            arguments = ["--resume", os.fspath(self.checkpoints), "--max-passes", "1000"]
        self.environment = self._fault()
        first = self.command(arguments, faulty=True)
        try:
            if self.case.point:
                code = first.wait()
                outcome.fired = _fired(self.case, first.errors, code)
            else:
                act = getattr(self, "_" + self.case.kind.replace("-", "_"))
                outcome.fired = act(first)
                code = first.wait()
        except Hang:
            outcome.hang = True
            first.kill()
            return first
        except BaseException:
            first.kill()
            raise
        ended = time.monotonic()
        outcome.codes.append(code)
        outcome.left += first.left()
        self._judge(first, code, ended)
        return first

    def _end(self, command: Command) -> int:
        """Wait for the end of a command without a fault."""
        try:
            code = command.wait()
        except Hang:
            self.outcome.hang = True
            command.kill()
            return -1
        except BaseException:
            command.kill()
            raise
        self.outcome.left += command.left()
        if code not in (0, 6):
            self.outcome.wrong.append(
                f"without a fault: exit code {code}: {command.errors[-1000:]}"
            )
        return code

    def _judge(self, command: Command, code: int, ended: float) -> None:
        """Exit code, words, time and work lost of the command that met the fault."""
        outcome, case = self.outcome, self.case
        if code not in case.codes or (code != 0 and not outcome.fired):
            outcome.wrong.append(f"exit code {code}, expected one of {case.codes}")
        if "Traceback" in command.errors and case.action != "raise":
            outcome.wrong.append("a traceback")
        if self.wished and code in (130, 143):
            outcome.stop_seconds = round(ended - self.wished, 2)
            if outcome.stop_seconds > STOP_LIMIT:
                outcome.wrong.append(f"{outcome.stop_seconds} s to stop")
        if code != 0 and command.events("Prepared"):
            self._count_loss(command, code)

    def _count_loss(self, command: Command, code: int) -> None:
        """How old the newest checkpoint is, and how many passes are not in it."""
        outcome = self.outcome
        folder = CheckpointFolder(self.checkpoints)
        passes = command.events("PassDone")
        since = command.log.stat().st_mtime  # of the last event
        if not folder.numbers():
            outcome.lost_passes = passes
        else:
            outcome.lost_passes = passes - (len(folder.load().history) - self.earlier)
            since -= max(p.stat().st_mtime for p in self.checkpoints.glob("*.fcl-ckpt"))
            outcome.lost_seconds = round(max(0.0, since), 2)
        left_at_once = self.case.kind == "twice" and "leaving at once" in command.errors
        if code in (1, 5, 130, 143) and self.case.role != "supervisor" and not left_at_once:
            if outcome.lost_passes > 0:
                outcome.wrong.append(f"{outcome.lost_passes} passes are in no checkpoint")
        elif outcome.lost_passes > 1 and (outcome.lost_seconds or 99.0) > INTERVAL + 1.0:
            outcome.wrong.append(f"{outcome.lost_passes} passes lost")

    def _finish(self, code: int) -> None:
        """Bring to its end what the fault has left unfinished."""
        outcome = self.outcome
        while code not in (0, 6) and not outcome.hang and len(outcome.codes) < 4:
            if CheckpointFolder(self.checkpoints).numbers():
                arguments = ["--resume", os.fspath(self.checkpoints), "--max-passes", "1000"]
                arguments += ["--overwrite"]
            else:
                arguments = self.arguments()
            code = self._end(self.command(arguments))
            outcome.codes.append(code)

    def _files(self) -> list[str]:
        """Files that nobody should have left."""
        folder = self.folder
        found = [p for name in ("tmp", "scratch") for p in (folder / name).rglob("*")]
        known = {"tmp", "scratch", "model.fcl", "checkpoints", "data.zarr", "disk"}
        found += [
            p for p in folder.iterdir() if p.name not in known and not p.name.startswith("log-")
        ]
        if self.checkpoints.is_dir():
            found += [
                p
                for p in self.checkpoints.iterdir()
                if p.name != "lock" and p.suffix != ".fcl-ckpt"
            ]
        return [os.fspath(p.relative_to(folder)) for p in found]

    # -- surroundings

    @contextlib.contextmanager
    def _surroundings(self) -> Iterator[str]:
        """What a case needs around it; gives the reason why it cannot be had."""
        kind = self.case.kind
        if kind in ("bad-chunk", "changed", "changed-later"):
            self.data = self.folder / "data.zarr"
            shutil.copytree(self.job.data, self.data)
        if kind not in ("disk-full", "disk-freed"):
            yield ""
            return
        disk = self.folder / "disk"
        disk.mkdir()
        size = self.rng.choice((8, 24, 40, 56)) if kind == "disk-full" else 4096
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", os.fspath(disk)]
        try:
            done = subprocess.run(mount, capture_output=True, text=True, check=False)
            failed = done.returncode and done.stderr.strip()
        except OSError as error:
            failed = str(error)
        if failed:
            yield f"no disk of a small size: {failed}"
            return
        self.checkpoints = disk / "checkpoints"
        try:
            yield ""
        finally:
            subprocess.run(["umount", "-l", os.fspath(disk)], check=True)

    def _fault(self) -> dict[str, str]:
        """Variables that make the command fail at the point of the case."""
        case = self.case
        if case.kind == "freeze":
            return {"FCL_DEADLINE": str(DEADLINE)}
        if case.kind == "changed":
            return {"FCL_FAULT": "writer:0:prepare-block:1:stop"}
        if not case.point:
            return {}
        count = self.rng.choice((1, 1, 2, 3, 6))
        if case.point.partition("-")[0] in ("prepare", "search", "certify", "draw", "accept"):
            count = 1 if case.role == "writer" else count
        if case.kind == "deaths":
            count = 1
        text = f"{case.role}:0:{case.point}:{count}:{case.action}"
        if case.point == "order-restore":
            text = f"trainer:0:step:2:kill,trainer:0:order-restore:1:{case.action}!"
        return {"FCL_FAULT": text, "FCL_DEADLINE": str(DEADLINE)}

    # -- faults at random moments; each returns whether the command was still there

    def _moment(self, command: Command) -> bool:
        """Wait for a random moment, more often in the passes than before them."""
        if self.rng.random() < 0.3:
            return command.wait_for("Started", self.rng.uniform(0.0, 3.0))
        return command.wait_for("Prepared", self.rng.uniform(0.0, 1.5))

    def _one_of(self, command: Command, role: str) -> int:
        found: list[int] = []
        while command.running and not found:
            found = command.children(role)
            command.pause()
        return self.rng.choice(found) if found else 0

    def _kill(self, command: Command) -> bool:
        if not self._moment(command):
            return False
        pid = self._one_of(command, self.case.role)
        return bool(pid) and command.signal(signal.SIGKILL, pid)

    def _pause(self, command: Command) -> bool:
        if not self._moment(command):
            return False
        pid = self._one_of(command, self.case.role)
        if not pid or not command.signal(signal.SIGSTOP, pid):
            return False
        until = time.monotonic() + self.rng.uniform(0.3, 1.5)
        while command.running and time.monotonic() < until:
            command.pause()
        return command.signal(signal.SIGCONT, pid)

    def _freeze(self, command: Command) -> bool:
        if not self._moment(command):
            return False
        pid = self._one_of(command, self.case.role)
        return bool(pid) and command.signal(signal.SIGSTOP, pid)

    def _freeze_all(self, command: Command) -> bool:
        if not self._moment(command):
            return False
        os.killpg(command.pid, signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.5, 2.0))
        os.killpg(command.pid, signal.SIGCONT)
        return True

    def _stop(self, command: Command, signum: int, group: bool = False) -> bool:
        if not self._moment(command):
            return False
        self.wished = time.monotonic()
        if not group:
            return command.signal(signum)
        try:
            os.killpg(command.pid, signum)
        except ProcessLookupError:
            return False
        return True

    def _terminate(self, command: Command) -> bool:
        return self._stop(command, signal.SIGTERM)

    def _terminate_group(self, command: Command) -> bool:
        return self._stop(command, signal.SIGTERM, group=True)

    def _interrupt(self, command: Command) -> bool:
        return self._stop(command, signal.SIGINT)

    def _kill_supervisor(self, command: Command) -> bool:
        return self._stop(command, signal.SIGKILL)

    def _kill_group(self, command: Command) -> bool:
        return self._stop(command, signal.SIGKILL, group=True)

    def _twice(self, command: Command) -> bool:
        if not self._stop(command, signal.SIGTERM):
            return False
        until = time.monotonic() + self.rng.uniform(0.26, 0.6)
        while command.running and time.monotonic() < until:
            command.pause()
        command.signal(signal.SIGTERM)
        return True

    def _terminate_frozen(self, command: Command) -> bool:
        if not self._moment(command):
            return False
        pid = self._one_of(command, self.rng.choice(("writer", "trainer")))
        if not pid or not command.signal(signal.SIGSTOP, pid):
            return False
        until = time.monotonic() + 0.2
        while command.running and time.monotonic() < until:
            command.pause()
        self.wished = time.monotonic()
        return command.signal(signal.SIGTERM)

    def _kill_saving(self, command: Command) -> bool:
        """Killed while it writes a checkpoint, as far as one can tell from outside."""
        if not command.wait_for("Prepared", self.rng.uniform(0.0, 1.0)):
            return False
        before = set(self.checkpoints.glob("*.fcl-ckpt"))
        while command.running:
            writing = any(p.name.endswith(".tmp") for p in self.checkpoints.iterdir())
            if writing or set(self.checkpoints.glob("*.fcl-ckpt")) != before:
                return command.signal(signal.SIGKILL)
            if command.seconds > LIMIT:
                raise Hang
        return False

    def _save_now(self, command: Command) -> bool:
        for _ in range(3):
            if not command.wait_for("Started", self.rng.uniform(0.0, 1.0)):
                return False
            command.signal(signal.SIGUSR1)
        return True

    def _disk_full(self, command: Command) -> bool:
        code = command.wait()
        return code == 6 or "could not be written" in command.errors

    def _disk_freed(self, command: Command) -> bool:
        """Full for a while, then no more."""
        if not command.wait_for("Prepared", self.rng.uniform(0.0, 0.5)):
            return False
        filler = self.checkpoints.parent / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))
        until = time.monotonic() + self.rng.uniform(0.3, 1.0)
        while command.running and time.monotonic() < until:
            command.pause()
        filler.unlink()
        return "could not be written" in command.errors

    # -- damaged data

    def _chunk(self) -> Path:
        chunks = sorted(p for p in (self.data / "X" / "c").rglob("*") if p.is_file())
        return self.rng.choice(chunks[1:])

    def _bad_chunk(self, command: Command) -> bool:
        """Damaged before it is read; put right after the end."""
        chunk = self._chunk()
        good = chunk.read_bytes()
        at = self.rng.randrange(4, len(good) // 2)
        chunk.write_bytes(good[:at] + bytes(64) + good[at + 64 :])
        command.wait()
        chunk.write_bytes(good)
        return "error" in command.errors

    def _changed(self, command: Command) -> bool:
        """While a writer that reads the data is stopped, they become others."""
        while command.running:
            for pid in command.children("writer"):
                with contextlib.suppress(psutil.Error):
                    if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                        described = self.data / "X" / "zarr.json"
                        described.write_bytes(described.read_bytes())
                        return command.signal(signal.SIGCONT, pid)
            command.pause()
        return False

    def _changed_later(self, command: Command) -> bool:
        """When all is read, the data may go where they want."""
        if not command.wait_for("PassDone"):
            return False
        shutil.rmtree(self.data)
        shutil.copytree(self.job.data, self.data)
        return True


def _fired(case: Case, errors: str, code: int) -> bool:
    """Whether a fault at a point was met, from what the command said of it."""
    if case.role == "supervisor":
        return code != 0 or case.action == "stop"
    words = {
        "kill": "was killed by signal 9",
        "kill!": "was killed by signal 9",
        "stop": "has been silent",
        "raise": "InjectedFault",
    }
    return words[case.action] in errors


def _shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    return {p.name for p in folder.glob("fcl*")} if folder.is_dir() else set()


# -- the campaign --------------------------------------------------------------------------------


def plan_cases(runs: int, seed: int, only: str = "") -> list[Case]:
    """The case of each run: all in a random order, again and again."""
    cases = [case for case in all_cases() if only in case.name]
    if not cases:
        raise SystemExit(f"faults: no case is called {only!r}")
    random.Random(seed).shuffle(cases)
    return [cases[i % len(cases)] for i in range(runs)]


def one_run(number: int, case: Case, seed: int, job: Job, folder: Path) -> Outcome:
    """Do one run in a new folder inside `folder`, which is removed if all went well."""
    place = folder / f"run-{number}"
    shutil.rmtree(place, ignore_errors=True)
    outcome = Run(number, case, seed, job, place).go()
    if outcome.good:
        shutil.rmtree(place, ignore_errors=True)
    return outcome


def done_before(path: Path) -> list[dict[str, Any]]:
    """Lines of an earlier campaign; a torn last one is left out."""
    lines = []
    if path.exists():
        for line in path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                lines.append(json.loads(line))
    return lines


def table(lines: list[dict[str, Any]]) -> list[str]:
    """The summary."""
    rows = []
    for group in sorted({line["group"] for line in lines}):
        some = [line for line in lines if line["group"] == group]
        ran = [line for line in some if not line["skipped"]]
        lost = [line["lost_seconds"] for line in ran if line["lost_seconds"] is not None]
        stops = [line["stop_seconds"] for line in ran if line["stop_seconds"] is not None]
        seconds = sorted(line["seconds"] for line in ran)
        rows.append(
            (
                group,
                len(ran),
                len(some) - len(ran),
                sum(line["fired"] for line in ran),
                sum(bool(line["wrong"]) for line in ran),
                sum(line["hang"] for line in ran),
                sum(bool(line["left"]) for line in ran),
                f"{seconds[len(seconds) // 2]:.1f}" if seconds else "",
                f"{max(lost):.2f}" if lost else "",
                f"{max(stops):.2f}" if stops else "",
            )
        )
    head = (
        *("case", "runs", "skipped", "met", "wrong", "hangs", "left", "s (median)"),
        *("lost s (most)", "stop s (most)"),
    )
    cells = [head, *rows]
    widths = [max(len(str(row[i])) for row in cells) for i in range(len(head))]
    return [
        "  ".join(
            str(cell).ljust(width) if i == 0 else str(cell).rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("faults.jsonl"), help="lines of JSON")
    parser.add_argument("--resume", action="store_true", help="go on with the runs in --out")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--folder", type=Path, help="for data and runs that went wrong")
    args = parser.parse_args()
    if args.out.exists() and not args.resume:
        parser.error(f"{args.out} exists: give --resume, or another --out")
    folder = args.folder or Path(tempfile.mkdtemp(prefix="fcl-faults-"))
    folder.mkdir(parents=True, exist_ok=True)
    lines = done_before(args.out)
    done = {line["run"] for line in lines}
    job = Job(folder)
    with args.out.open("a") as out:
        for number, case in enumerate(plan_cases(args.runs, args.seed, args.only)):
            if number in done:
                continue
            outcome = one_run(number, case, args.seed, job, folder)
            lines.append(asdict(outcome))
            out.write(json.dumps(lines[-1]) + "\n")
            out.flush()
            state = "skipped" if outcome.skipped else "ok" if outcome.good else "WRONG"
            print(f"{number:4} {case.name:32} {state:8} {outcome.seconds:5.1f} s", flush=True)
    print("\n".join(["", *table(lines)]))
    bad = [line for line in lines if line["wrong"] or line["left"] or line["hang"]]
    for line in bad:
        print(f"run {line['run']} {line['case']}: {line['wrong']} {line['left']}")
    if not bad and args.folder is None:
        shutil.rmtree(folder)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
