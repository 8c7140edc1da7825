"""Faults at random moments: signals, full disks, damaged data."""

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
    """Wait for a random moment, more often in the passes than before them."""
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


def _stop(run: Run, command: Command, signum: int, group: bool = False) -> bool:
    if not _moment(run, command):
        return False
    run.wished = time.monotonic()
    if not group:
        return command.signal(signum)
    try:
        os.killpg(command.pid, signum)
    except ProcessLookupError:
        return False
    return True


def terminate(run: Run, command: Command) -> bool:
    return _stop(run, command, signal.SIGTERM)


def terminate_group(run: Run, command: Command) -> bool:
    return _stop(run, command, signal.SIGTERM, group=True)


def interrupt(run: Run, command: Command) -> bool:
    return _stop(run, command, signal.SIGINT)


def kill_supervisor(run: Run, command: Command) -> bool:
    return _stop(run, command, signal.SIGKILL)


def kill_group(run: Run, command: Command) -> bool:
    return _stop(run, command, signal.SIGKILL, group=True)


def twice(run: Run, command: Command) -> bool:
    if not _stop(run, command, signal.SIGTERM):
        return False
    until = time.monotonic() + run.rng.uniform(0.26, 0.6)
    while command.running and time.monotonic() < until:
        command.pause()
    command.signal(signal.SIGTERM)
    return True


def terminate_frozen(run: Run, command: Command) -> bool:
    if not _moment(run, command):
        return False
    pid = _one_of(run, command, run.rng.choice(("writer", "trainer")))
    if not pid or not command.signal(signal.SIGSTOP, pid):
        return False
    until = time.monotonic() + 0.2
    while command.running and time.monotonic() < until:
        command.pause()
    run.wished = time.monotonic()
    return command.signal(signal.SIGTERM)


def kill_saving(run: Run, command: Command) -> bool:
    """Killed while it writes a checkpoint, as far as one can tell from outside."""
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
    """Full for a while, then no more."""
    if not command.wait_for("Prepared", run.rng.uniform(0.0, 0.5)):
        return False
    filler = run.checkpoints.parent / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))
    until = time.monotonic() + run.rng.uniform(0.3, 1.0)
    while command.running and time.monotonic() < until:
        command.pause()
    filler.unlink()
    return "could not be written" in command.errors


# -- damaged data


def _chunk(run: Run) -> Path:
    chunks = sorted(p for p in (run.data / "X" / "c").rglob("*") if p.is_file())
    return run.rng.choice(chunks)


def bad_chunk(run: Run, command: Command) -> bool:
    """Damaged before it is read; put right after the end."""
    chunk = _chunk(run)
    good = chunk.read_bytes()
    at = run.rng.randrange(4, len(good) // 2)
    chunk.write_bytes(good[:at] + bytes(64) + good[at + 64 :])
    command.wait()
    chunk.write_bytes(good)
    return "error" in command.errors


def changed(run: Run, command: Command) -> bool:
    """While a writer that reads the data is stopped, they become others."""
    while command.running:
        for pid in command.children("writer"):
            with contextlib.suppress(psutil.Error):
                if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                    described = run.data / "X" / "zarr.json"
                    described.write_bytes(described.read_bytes())
                    return command.signal(signal.SIGCONT, pid)
        command.pause()
    return False


def changed_later(run: Run, command: Command) -> bool:
    """When all is read, the data may go where they want."""
    if not command.wait_for("PassDone"):
        return False
    shutil.rmtree(run.data)
    shutil.copytree(run.job.data, run.data)
    return True


#: By kind of case; each returns whether the command was still there.
ACTS: dict[str, Callable[[Run, Command], bool]] = {
    "kill": kill,
    "pause": pause,
    "freeze": freeze,
    "freeze-all": freeze_all,
    "terminate": terminate,
    "terminate-group": terminate_group,
    "interrupt": interrupt,
    "kill-supervisor": kill_supervisor,
    "kill-group": kill_group,
    "twice": twice,
    "terminate-frozen": terminate_frozen,
    "kill-saving": kill_saving,
    "save-now": save_now,
    "disk-full": disk_full,
    "disk-freed": disk_freed,
    "bad-chunk": bad_chunk,
    "changed": changed,
    "changed-later": changed_later,
}
