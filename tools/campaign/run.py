"""One run of the campaign: a command with a fault, its resumption, and the outcome."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fcl.model.checkpoint import CheckpointFolder
from tools.campaign.acts import ACTS
from tools.campaign.cases import Case
from tools.campaign.command import PATIENCE, Command, Hang
from tools.campaign.jobs import Job, Setting

#: Most seconds between the request to stop and the end.
STOP_LIMIT = 10.0 * PATIENCE
#: Seconds between two checkpoints of a job.
INTERVAL = 0.3
#: Seconds in which a command reads its data and saves its first checkpoint.
START = 5.0 * PATIENCE
#: Seconds without a heartbeat after which a child is replaced, in cases that stop a child.
DEADLINE = 3.0 * PATIENCE


@dataclass
class Outcome:
    """The outcome of a run: one line of the results."""

    run: int
    case: str
    group: str
    setting: dict[str, Any]
    skipped: str = ""
    fired: bool = False
    codes: list[int] = field(default_factory=list)
    seconds: float = 0.0
    stop_seconds: float | None = None  #: from the request to stop to the end
    #: age of the newest checkpoint at the end of the first command
    lost_seconds: float | None = None
    lost_passes: int | None = None
    left: list[str] = field(default_factory=list)  #: processes and files
    hang: bool = False
    wrong: list[str] = field(default_factory=list)
    said: str = ""  #: the end of the first command's stderr, if anything is wrong

    @property
    def good(self) -> bool:
        return not (self.wrong or self.left or self.hang)


class Run:
    """One run of the campaign, in a folder of its own."""

    def __init__(
        self,
        number: int,
        case: Case,
        seed: int,
        job: Job,
        folder: Path,
        setting: Setting | None = None,
    ) -> None:
        self.case, self.job, self.folder = case, job, folder
        self.rng = random.Random(f"{seed}-{number}-{case.name}")
        self.setting = setting or Setting.choose(case, self.rng)
        self.outcome = Outcome(number, case.name, case.group, asdict(self.setting))
        self.model = folder / "model.fcl"
        self.checkpoints = folder / "checkpoints"
        self.data = job.data
        for name in ("tmp", "scratch"):
            (folder / name).mkdir(parents=True)
        self.environment: dict[str, str] = {}
        self.stop_requested = 0.0  # when the command was told to stop, or was killed
        self.earlier = 0  # passes before the command with the fault

    def go(self) -> Outcome:
        """Make the run, and judge its outcome."""
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
                if not outcome.hang:
                    outcome.wrong += self.job.wrong(self.model, self.setting)
        finally:
            outcome.seconds = round(time.monotonic() - begun, 2)
        # A model that could not be written to its path was saved elsewhere, as a message says.
        saved = [] if first is None else re.findall(r"written to (\S+) instead", first.errors)
        outcome.left += [f for f in self._files() if not any(f"{f}/" in f"{s}/" for s in saved)]
        outcome.left += [f"/dev/shm/{name}" for name in sorted(_shared_memory() - shared)]
        if not outcome.good:
            outcome.said = first.errors[-3000:]
        return outcome

    # -- commands

    def arguments(self) -> list[str]:
        """The arguments of a new job."""
        job, setting = self.job, self.setting
        size, rows, features = job.size, job.rows(setting.family), job.features(setting.family)
        memory = 1024
        if setting.small:
            memory = job.least_memory(setting.writers) + size.spare
        more = ["--driver", setting.driver, "--l1-ratio", str(setting.l1_ratio)]
        if setting.driver == "processes":
            more += ["--writers", str(setting.writers)]
        if setting.valid:
            more += ["--valid-fraction", "0.2"]
        if setting.shared_files:
            more += ["--shared-files", os.fspath(self.folder / "scratch")]
        return [
            os.fspath(self.data), "--x", rows, "--features", features, "--C", str(size.C),
            "--tol", str(size.tol), "--block-rows", str(size.block_rows),
            "--memory", f"{memory}MiB",
            "--scratch", os.fspath(self.folder / "scratch"), "--out", os.fspath(self.model),
            "--checkpoint", os.fspath(self.checkpoints), "--checkpoint-every", f"{INTERVAL}s",
            *more,
        ]  # fmt: skip

    def resume_arguments(self) -> list[str]:
        """The arguments of a resumed job."""
        # a user-defined family is only imported if the command names it
        features = ["--features", self.job.features(self.setting.family)]
        folder = os.fspath(self.checkpoints)
        return ["--resume", folder, *features, "--max-passes", "1000", "--overwrite"]

    def command(self, arguments: list[str], faulty: bool = False) -> Command:
        """Start the command."""
        environment = {"FCL_FAULTS_SAMPLED": "1" if self.setting.sampled else "", "FCL_FAULT": ""}
        environment |= self.environment if faulty else {}
        return Command(self.folder, arguments, environment)

    def _first(self) -> Command:
        """Run the command with the fault."""
        outcome = self.outcome
        arguments = self.arguments()
        if self.setting.resumed:
            before = self.command([*arguments, "--max-passes", "2"])
            self._end(before)
            arguments = [*arguments, "--overwrite"]  # a small disk may hold no checkpoint
            if self.checkpoints.is_dir() and CheckpointFolder(self.checkpoints).numbers():
                self.earlier = len(CheckpointFolder(self.checkpoints).load().history)
                arguments = self.resume_arguments()
        self.environment = self._fault()
        first = self.command(arguments, faulty=True)
        try:
            if self.case.point:
                code = first.wait()
                outcome.fired = _fired(self.case, first.errors, code)
            else:
                outcome.fired = ACTS[self.case.kind](self, first)
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
        """Judge exit code, messages, time and lost work of the command with the fault."""
        outcome, case = self.outcome, self.case
        if code not in case.codes or (code != 0 and not outcome.fired):
            outcome.wrong.append(f"exit code {code}, expected one of {case.codes}")
        if "Traceback" in command.errors and case.action != "raise":
            outcome.wrong.append("a traceback")
        if self.stop_requested and code in (129, 130, 143):
            outcome.stop_seconds = round(ended - self.stop_requested, 2)
            if outcome.stop_seconds > STOP_LIMIT:
                outcome.wrong.append(f"{outcome.stop_seconds} s to stop")
        if code != 0 and command.events("Prepared"):
            self._count_loss(command, code)

    def _count_loss(self, command: Command, code: int) -> None:
        """Find the age of the newest checkpoint, and the number of passes that it lacks."""
        outcome, case = self.outcome, self.case
        folder = CheckpointFolder(self.checkpoints)
        passes = command.events("PassDone")
        since = command.log.stat().st_mtime  # of the last event
        if not folder.numbers():
            # passes of a job that has just begun are in no checkpoint yet
            young = time.monotonic() - command.began <= START + INTERVAL + PATIENCE
            outcome.lost_passes = 0 if young and code == -signal.SIGKILL else passes
        else:
            outcome.lost_passes = passes - (len(folder.load().history) - self.earlier)
            since -= max(p.stat().st_mtime for p in self.checkpoints.glob("*.fcl-ckpt"))
            outcome.lost_seconds = round(max(0.0, since), 2)
        left_at_once = (
            self.case.kind.endswith("-twice") and "quitting immediately" in command.errors
        )
        if code in (1, 5, 129, 130, 143) and self.case.role != "supervisor" and not left_at_once:
            # the inline driver saves the state before its last pass, and repeats this pass
            if outcome.lost_passes > (self.setting.driver == "inline"):
                outcome.wrong.append(f"{outcome.lost_passes} passes are in no checkpoint")
        elif case.kind.startswith("disk-") or case.kind == "damaged-checkpoint":
            pass  # fcl reports that it cannot save; or this tool damaged the newest checkpoint
        elif outcome.lost_passes > 1 and (outcome.lost_seconds or 99.0) > INTERVAL + PATIENCE:
            outcome.wrong.append(f"{outcome.lost_passes} passes lost")

    def _finish(self, code: int) -> None:
        """Resume the job until it ends."""
        outcome = self.outcome
        while code not in (0, 6) and not outcome.hang and len(outcome.codes) < 4:
            if CheckpointFolder(self.checkpoints).numbers():
                arguments = self.resume_arguments()
            else:
                arguments = self.arguments()
            code = self._end(self.command(arguments))
            outcome.codes.append(code)

    def _files(self) -> list[str]:
        """Files that should not be left."""
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
                if p.name not in ("lock", "complete") and p.suffix != ".fcl-ckpt"
            ]
        return [os.fspath(p.relative_to(folder)) for p in found]

    # -- environment

    @contextlib.contextmanager
    def _surroundings(self) -> Iterator[str]:
        """Set up the data and disk that a case needs; yield the reason if this is not possible."""
        kind, rng = self.case.kind, self.rng
        if kind in ("bad-chunk", "changed", "changed-later"):
            self.data = self.folder / "data.zarr"
            shutil.copytree(self.job.data, self.data)
        if "disk" not in kind:
            yield ""
            return
        disk = self.folder / "disk"
        disk.mkdir()
        size = rng.choice((8, 24, 40, 56)) if kind == "disk-full" else 4096
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", os.fspath(disk)]
        try:
            done = subprocess.run(mount, capture_output=True, text=True, check=False)
            failed = done.returncode and done.stderr.strip()
        except OSError as error:
            failed = str(error)
        if failed:
            yield f"cannot mount a small disk: {failed}"
            return
        if kind.startswith("model"):
            self.model = disk / "model.fcl"
        else:
            self.checkpoints = disk / "checkpoints"
        try:
            yield ""
        finally:
            subprocess.run(["umount", "-l", os.fspath(disk)], check=True)

    def _fault(self) -> dict[str, str]:
        """Environment variables that make the command fail at the point of the case."""
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


def _fired(case: Case, errors: str, code: int) -> bool:
    """Whether the command reached the point of its fault, judged by its messages."""
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
