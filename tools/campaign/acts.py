"""Faults at random moments: signals, full disks, damaged data and checkpoints, closed pipes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tools.campaign.command import Command

if TYPE_CHECKING:
    from tools.campaign.run import Run


def _moment(run: Run, command: Command) -> bool:
    """Wait until a random moment, more often during the passes than before them."""
    if run.rng.random() < 0.3:
        return command.wait_for("Started", run.rng.uniform(0.0, 3.0))
    return command.wait_for("Prepared", run.rng.uniform(0.0, 1.5))


def _one_of(run: Run, command: Command, role: str) -> int:
    found: list[int] = []
    while command.running and not found:
        found = command.children(role)
        command.pause()
    return run.rng.choice(found) if found else 0


def kill(run: Run, command: Command) -> bool:
    if not _moment(run, command):
        return False
    pid = _one_of(run, command, run.case.role)
    return bool(pid) and command.signal(signal.SIGKILL, pid)


def pause(run: Run, command: Command) -> bool:
    if not _moment(run, command):
        return False
    pid = _one_of(run, command, run.case.role)
    if not pid or not command.signal(signal.SIGSTOP, pid):
        return False
    until = time.monotonic() + run.rng.uniform(0.3, 1.5)
    while command.running and time.monotonic() < until:
        command.pause()
    return command.signal(signal.SIGCONT, pid)


def freeze(run: Run, command: Command) -> bool:
    if not _moment(run, command):
        return False
    pid = _one_of(run, command, run.case.role)
    return bool(pid) and command.signal(signal.SIGSTOP, pid)


def freeze_all(run: Run, command: Command) -> bool:
    if not _moment(run, command):
        return False
    os.killpg(command.pid, signal.SIGSTOP)
    time.sleep(run.rng.uniform(0.5, 2.0))
    os.killpg(command.pid, signal.SIGCONT)
    return True


def stop_by(
    signum: int, group: bool = False, twice: bool = False
) -> Callable[[Run, Command], bool]:
    """Send a signal to the command, or to its whole group; twice : send it again after a moment."""

    def act(run: Run, command: Command) -> bool:
        if not _moment(run, command):
            return False
        run.stop_requested = time.monotonic()
        try:
            (os.killpg if group else os.kill)(command.pid, signum)
        except ProcessLookupError:
            return False
        if twice:
            until = time.monotonic() + run.rng.uniform(0.26, 0.6)
            while command.running and time.monotonic() < until:
                command.pause()
            command.signal(signum)
        return True

    return act


def terminate_frozen(run: Run, command: Command) -> bool:
    if not _moment(run, command):
        return False
    pid = _one_of(run, command, run.rng.choice(("writer", "trainer")))
    if not pid or not command.signal(signal.SIGSTOP, pid):
        return False
    until = time.monotonic() + 0.2
    while command.running and time.monotonic() < until:
        command.pause()
    run.stop_requested = time.monotonic()
    return command.signal(signal.SIGTERM)


def kill_saving(run: Run, command: Command) -> bool:
    """Kill the command while it writes a checkpoint, as far as this is visible from outside."""
    if not command.wait_for("Prepared", run.rng.uniform(0.0, 1.0)):
        return False
    before = set(run.checkpoints.glob("*.fcl-ckpt"))
    while command.running:
        writing = any(p.name.endswith(".tmp") for p in run.checkpoints.iterdir())
        if writing or set(run.checkpoints.glob("*.fcl-ckpt")) != before:
            return command.signal(signal.SIGKILL)
        command.pause(0.0005)
    return False


def save_now(run: Run, command: Command) -> bool:
    for _ in range(3):
        if not command.wait_for("Started", run.rng.uniform(0.0, 1.0)):
            return False
        command.signal(signal.SIGUSR1)
    return True


def disk_full(run: Run, command: Command) -> bool:
    code = command.wait()
    return code == 6 or "could not be written" in command.errors


def disk_freed(run: Run, command: Command) -> bool:
    """The disk of the checkpoints is full for a while."""
    if not command.wait_for("Prepared", run.rng.uniform(0.0, 0.5)):
        return False
    filler = _fill(run.checkpoints.parent)
    until = time.monotonic() + run.rng.uniform(0.3, 1.0)
    while command.running and time.monotonic() < until:
        command.pause()
    filler.unlink()
    return "could not be written" in command.errors


def model_disk(freed: bool) -> Callable[[Run, Command], bool]:
    """The disk of the model fills up before the end; freed : there is room again after a while."""

    def act(run: Run, command: Command) -> bool:
        command.wait_for("Started")
        filler = _fill(run.model.parent)
        command.wait_for("Stopped", run.rng.uniform(0.2, 0.8))
        met = "cannot be written" in command.errors
        if freed:
            filler.unlink()
        command.wait()
        filler.unlink(missing_ok=True)
        return met

    return act


def _fill(folder: Path) -> Path:
    """Fill the disk of a folder with a file."""
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))
    return filler


def damaged_checkpoint(run: Run, command: Command) -> bool:
    """Kill the group, and damage the newest of two checkpoints: the one before it must be used."""
    if not stop_by(signal.SIGKILL, group=True)(run, command):
        return False
    files = sorted(run.checkpoints.glob("*.fcl-ckpt"), key=lambda p: int(p.stem.split("-")[1]))
    if len(files) < 2:
        return True
    content = files[-1].read_bytes()
    cut = run.rng.randrange(len(content) // 2)
    damaged = content[:cut], b"", content[:cut] + bytes(99) + content[cut + 99 :]
    files[-1].write_bytes(run.rng.choice(damaged))
    return True


def no_reader(run: Run, command: Command) -> bool:
    """Close the reading end of standard error."""
    if not _moment(run, command):
        return False
    command.stop_reading()
    return True


# -- damaged data


def _array(run: Run) -> Path:
    """The array that the family of the run reads."""
    return run.data / run.job.rows(run.setting.family)


def _chunk(run: Run) -> Path:
    chunks = sorted(p for p in (_array(run) / "c").rglob("*") if p.is_file())
    return run.rng.choice(chunks)


def bad_chunk(run: Run, command: Command) -> bool:
    """Truncate a chunk before it is read, and restore it after the end."""
    chunk = _chunk(run)
    good = chunk.read_bytes()
    at = run.rng.randrange(4, len(good) // 2)
    chunk.write_bytes(good[:at])  # changed bytes could decode to other valid numbers
    command.wait()
    chunk.write_bytes(good)
    return "error" in command.errors


def changed(run: Run, command: Command) -> bool:
    """Rewrite the data while the writer that reads them is stopped."""
    while command.running:
        for pid in command.children("writer"):
            with contextlib.suppress(psutil.Error):
                if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                    described = _array(run) / "zarr.json"
                    described.write_bytes(described.read_bytes())
                    return command.signal(signal.SIGCONT, pid)
        command.pause()
    return False


def changed_later(run: Run, command: Command) -> bool:
    """Replace the data after they were read, which must not matter."""
    if not command.wait_for("PassDone"):
        return False
    shutil.rmtree(run.data)
    shutil.copytree(run.job.data, run.data)
    return True


#: The act of each kind of case; it returns whether the fault took effect.
ACTS: dict[str, Callable[[Run, Command], bool]] = {
    "kill": kill,
    "pause": pause,
    "freeze": freeze,
    "freeze-all": freeze_all,
    "terminate": stop_by(signal.SIGTERM),
    "terminate-group": stop_by(signal.SIGTERM, group=True),
    "terminate-twice": stop_by(signal.SIGTERM, twice=True),
    "interrupt": stop_by(signal.SIGINT),
    "interrupt-twice": stop_by(signal.SIGINT, twice=True),
    "hangup": stop_by(signal.SIGHUP),
    "kill-supervisor": stop_by(signal.SIGKILL),
    "kill-group": stop_by(signal.SIGKILL, group=True),
    "terminate-frozen": terminate_frozen,
    "kill-saving": kill_saving,
    "save-now": save_now,
    "disk-full": disk_full,
    "disk-freed": disk_freed,
    "model-disk-full": model_disk(freed=False),
    "model-disk-freed": model_disk(freed=True),
    "damaged-checkpoint": damaged_checkpoint,
    "no-reader": no_reader,
    "bad-chunk": bad_chunk,
    "changed": changed,
    "changed-later": changed_later,
}
