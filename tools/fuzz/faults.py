"""Faults: killed or stopped processes, signals, full disks, damaged files, pipes without a reader."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import psutil

from fcl.drivers.processes.logic.protocol import TASKS
from tools.fuzz.case import Case
from tools.fuzz.damage import damage_bytes
from tools.fuzz.run import Session

if TYPE_CHECKING:
    from tools.fuzz.faulted import Run
    from tools.fuzz.training import Training

SIGNALS = {
    "kill": signal.SIGKILL,
    "terminate": signal.SIGTERM,
    "interrupt": signal.SIGINT,
    "hangup": signal.SIGHUP,
}
#: The commands beside ``fcl train``; "path" is ``fcl train --path``.
OTHERS = ("online", "stagewise", "path", "convert", "predict", "report")
#: Points of the code that are marked with ``fault(...)``, by role.
POINTS = {
    "writer": (
        *(f"{task}-{end}" for task in TASKS for end in ("begin", "done")),
        "prepare-block",
        "columns-piece",
        "columns-commit",
    ),
    "trainer": (
        *(f"order-{name}" for name in ("anchor", "restore", "commit", "lend", "make_room")),
        "order-drop_all",
        "order-rejected",
        "anchor-taken",
        "compaction",
        "step",
        "publish",
    ),
    "supervisor": ("write-open", "write-flush", "write-rename", "write-renamed"),
}
#: Points at which the successors of a process fail, too.
DEADLY = {"writer": ("prepare-begin", "price-begin"), "trainer": ("publish", "step")}
#: The property that a job needs to reach a point.
NEEDS = {
    **dict.fromkeys(("draw", "sample"), "sampled"),
    **dict.fromkeys(("order-drop_all", "order-rejected"), "sampled"),
    **dict.fromkeys(("validate", "score"), "valid"),
    **dict.fromkeys(("order-make_room", "compaction"), "small"),
    "accept": "resumed",
}
# -- acts ------------------------------------------------------------------------------------------


def on_child(run: Run, session: Session) -> bool:
    """Kill or stop a random child of the fault's role; it may continue after a while."""
    if not run.wait_for_moment(session):
        return False
    role = run.fault.role or run.rng.choice(("writer", "trainer"))
    found: list[int] = []
    while session.running and not found:
        found = session.children(role)
        session.pause()
    pid, act = run.rng.choice(found or [0]), run.fault.act
    if not pid or not session.signal(signal.SIGKILL if act == "kill" else signal.SIGSTOP, pid):
        return False
    if act in ("kill", "freeze"):
        return True
    longest = 1.5 if act == "pause" else 0.2
    session.pause_until(time.monotonic() + run.rng.uniform(0.2, longest))
    if act == "pause":
        return session.signal(signal.SIGCONT, pid)
    run.stop_requested = time.monotonic()
    return session.signal(signal.SIGTERM)


def stop(run: Run, session: Session) -> bool:
    """Send a signal to the command, or to its whole group; perhaps again after a moment."""
    if not run.wait_for_moment(session):
        return False
    name, _, how = run.fault.act.partition("-")
    run.stop_requested = time.monotonic()
    if not session.signal(SIGNALS[name], group=how == "group"):
        return False
    if how == "twice" and session.pause_until(time.monotonic() + run.rng.uniform(0.26, 0.6)):
        session.signal(SIGNALS[name])
    return True


def freeze_all(run: Run, session: Session) -> bool:
    if not run.wait_for_moment(session):
        return False
    session.signal(signal.SIGSTOP, group=True)
    time.sleep(run.rng.uniform(0.1, 2.0))
    return session.signal(signal.SIGCONT, group=True)


def kill_saving(run: Training, session: Session) -> bool:
    """Kill the command while it writes a checkpoint, as far as this is visible from outside."""
    if not session.wait_for("Prepared", run.rng.uniform(0.0, 1.0)):
        return False
    before = run.saved()
    while session.running:
        writing = any(path.suffix == ".tmp" for path in run.checkpoints.iterdir())
        if writing or run.saved() != before:
            return session.signal(signal.SIGKILL)
        session.pause(0.0005)
    return False


def save_now(run: Run, session: Session) -> bool:
    for _ in range(3):
        if not session.wait_for("Started", run.rng.uniform(0.0, 1.0)):
            return False
        session.signal(signal.SIGUSR1)
    return True


def no_reader(run: Run, session: Session) -> bool:
    """Close the reading end of standard error."""
    fired = run.wait_for_moment(session)
    session.stop_reading()
    return fired


def disk_full(run: Run, session: Session) -> bool:
    return session.wait() == 6 or "could not be written" in session.errors


def disk_freed(run: Run, session: Session) -> bool:
    """The disk of the checkpoints is full for a while."""
    if not session.wait_for("Prepared", run.rng.uniform(0.0, 0.5)):
        return False
    run.fill_disk()
    session.pause_until(time.monotonic() + run.rng.uniform(0.3, 1.0))
    run.free_disk()
    return "could not be written" in session.errors


def model_disk_full(run: Run, session: Session) -> bool:
    """The disk of the model fills up before the end; there may be room again after a while."""
    session.wait_for("Started")
    run.fill_disk()
    session.wait_for("Stopped", run.rng.uniform(0.2, 0.8))
    met = "cannot be written" in session.errors
    if run.fault.act == "model-disk-full":
        session.wait()
    run.free_disk()
    return met


def output_disk_full(run: Run, session: Session) -> bool:
    """The disk of the output is full from the start; there may be room after a while."""
    if run.wait_for_moment(session) and run.fault.act == "output-disk-freed":
        run.free_disk()
    return True


def damaged_checkpoint(run: Training, session: Session) -> bool:
    """Kill the group, and damage the newest of two checkpoints: the one before it must be used."""
    if not run.wait_for_moment(session) or not session.signal(signal.SIGKILL, group=True):
        return False
    files = sorted(run.saved(), key=lambda path: int(path.stem.split("-")[1]))
    if len(files) > 1:
        files[-1].write_bytes(damage_bytes(run.case, files[-1].read_bytes()))
    return True


def bad_chunk(run: Training, session: Session) -> bool:
    """Truncate a chunk before it is read, and restore it after the end."""
    chunk = run.rng.choice(sorted(p for p in (run.array / "c").rglob("*") if p.is_file()))
    good = chunk.read_bytes()
    # changed bytes could decode to other valid numbers
    chunk.write_bytes(good[: run.rng.randrange(4, len(good) // 2)])
    session.wait()
    chunk.write_bytes(good)
    return "error" in session.errors


def changed(run: Training, session: Session) -> bool:
    """Rewrite the data while the writer that reads them is stopped."""
    while session.running:
        for pid in session.children("writer"):
            with contextlib.suppress(psutil.Error):
                if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                    described = run.array / "zarr.json"
                    described.write_bytes(described.read_bytes())
                    return session.signal(signal.SIGCONT, pid)
        session.pause()
    return False


def changed_later(run: Training, session: Session) -> bool:
    """Replace the data after they were read, which must not matter."""
    if not session.wait_for("PassDone"):
        return False
    shutil.rmtree(run.data)
    shutil.copytree(run.sites.data, run.data)
    return True


def at_point(run: Run, session: Session) -> bool:
    """The process fails by itself; its messages say so."""
    code = session.wait()
    if run.fault.role == "supervisor":
        return code != 0 or run.fault.action == "stop"
    killed = "was killed by signal 9"
    words = {"kill": killed, "kill!": killed, "stop": "has been silent", "raise": "InjectedFault"}
    return words[run.fault.action] in session.errors


@dataclass(frozen=True)
class Act:
    """What makes a command fail; the function returns whether the fault took effect."""

    function: Callable[[Any, Session], bool]
    codes: tuple[int, ...] = (0,)  #: the exit codes that may follow
    train: int = 0  #: how often a round has it for ``fcl train``
    others: int = 0  #: how often a round has it for each of the other commands
    disk: tuple[int, ...] = ()  #: KiB of the disk that has checkpoints, model or output


SMALLEST = (4, 8, 16, 64, 256, 1024)
ACTS = {
    "point": Act(at_point),
    "deaths": Act(at_point),
    "kill": Act(on_child),
    "pause": Act(on_child),
    "freeze": Act(on_child),
    "terminate-frozen": Act(on_child, (0, 143), train=3),
    "terminate": Act(stop, (0, 143), train=4, others=2),
    "terminate-group": Act(stop, (0, 143), train=3),
    "terminate-twice": Act(stop, (0, 143), train=3, others=2),
    "interrupt": Act(stop, (0, 130), train=4, others=2),
    "interrupt-twice": Act(stop, (0, 130), train=3),
    "hangup": Act(stop, (0, 129), train=4, others=1),
    "kill-supervisor": Act(stop, (0, -9), train=6, others=5),
    "kill-group": Act(stop, (0, -9), train=4),
    "kill-saving": Act(kill_saving, (0, -9), train=5),
    "freeze-all": Act(freeze_all, train=3, others=1),
    "save-now": Act(save_now, train=3),
    "no-reader": Act(no_reader, train=4, others=2),
    "disk-full": Act(disk_full, (0, 6), train=4, disk=(8, 24, 40, 56)),
    "disk-freed": Act(disk_freed, (0, 6), train=3, disk=(4096,)),
    "model-disk-full": Act(model_disk_full, (0, 1), train=4, disk=(4096,)),
    "model-disk-freed": Act(model_disk_full, (0, 1), train=3, disk=(4096,)),
    "output-disk-full": Act(output_disk_full, (0, 1, 6), others=3, disk=SMALLEST),
    "output-disk-freed": Act(output_disk_full, (0, 1, 6), others=2, disk=SMALLEST),
    "damaged-checkpoint": Act(damaged_checkpoint, (0, -9), train=5),
    "bad-chunk": Act(bad_chunk, (2,), train=3),
    "changed": Act(changed, (2,), train=3),
    "changed-later": Act(changed_later, train=2),
}


# -- the faults ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A fault, and the exit codes that may follow."""

    name: str
    act: str  #: a key of ACTS, or "point" or "deaths"
    codes: tuple[int, ...] = (0,)
    command: str = "train"  #: or a key of OUTPUTS
    role: str = ""
    point: str = ""
    action: str = ""
    needs: str = ""

    @property
    def group(self) -> str:
        """The row of the summary table."""
        if self.command != "train":
            return f"{self.command}: {self.act}"
        return f"{self.role} {self.action} at a point" if self.act == "point" else self.name

    @property
    def needs_processes(self) -> bool:
        """Whether the fault needs the driver ``processes``."""
        return (
            bool(self.role) or self.needs == "small" or self.act in ("terminate-frozen", "changed")
        )


def _at_point(role: str, point: str, action: str) -> Fault:
    """A fault at a marked point."""
    need = NEEDS.get(point, NEEDS.get(point.partition("-")[0], ""))
    codes: tuple[int, ...] = (0,)
    if role == "supervisor":
        codes = {"kill": (-9,), "stop": (0,), "raise": (1,)}[action]
    elif action == "raise":
        codes = (1,)
    elif point == "order-restore":  # every successor reaches this point
        codes = (0, 5)
    name = f"{role}-{point}-{action}"
    return Fault(name, "point", (0, *codes), "train", role, point, action, need)


@cache
def all_faults() -> list[Fault]:
    """One round: each point with each action once, and the other acts several times."""
    faults = [
        _at_point(role, point, action)
        for role, points in POINTS.items()
        for point in points
        for action in ("kill", "stop", "raise")
    ]
    for role, points in DEADLY.items():
        for name in ("kill", "kill", "kill", "pause", "freeze", "freeze"):
            faults.append(Fault(f"{name}-{role}", name, role=role))
        faults += [
            Fault(f"deaths-{role}-{point}", "deaths", (0, 5), "train", role, point, "kill!")
            for point in points
        ]
    for name, act in ACTS.items():
        faults += [Fault(name, name, act.codes)] * act.train
        for command in OTHERS:
            faults += [Fault(f"{command}-{name}", name, act.codes, command)] * act.others
    return faults


def choose(case: Case) -> Fault:
    """The fault of a case: all faults in a random order, repeated."""
    faults = [fault for fault in all_faults() if case.within in fault.name]
    random.Random(case.seed).shuffle(faults)
    return faults[case.number % len(faults)]
