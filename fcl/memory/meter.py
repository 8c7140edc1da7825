"""Memory accounting: what the processes of a run hold, and what the machine has left.

The private anonymous memory of every process counts against the budget, and every shared segment once, at
its allocated size. PSS is no alternative: it omits shared pages that no process has touched yet, and the
kernel has to walk over all pages to compute it.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
# cgroup v1 has a number near 2^63 where there is no limit
_NO_LIMIT = 1 << 60


class Sized(Protocol):
    """The part of a segment that a Meter uses."""

    @property
    def allocated(self) -> int:
        """Allocated bytes."""


class Meter:
    """Samples the memory of all processes of a run.

    pids : returns the current process ids by name, including the supervisor.
    segments : returns the current shared segments.
    """

    def __init__(
        self,
        pids: Callable[[], Mapping[str, int]],
        segments: Callable[[], Iterable[Sized]],
    ) -> None:
        self._pids = pids
        self._segments = segments
        self.peak = 0  #: largest total of all samples

    def sample(self) -> int:
        """Take a sample, and return the total in bytes."""
        shared = sum(segment.allocated for segment in self._segments())
        total = sum(map(rss_anon, self._pids().values())) + shared
        self.peak = max(self.peak, total)
        return total


def rss_anon(pid: int) -> int:
    """Bytes of private anonymous memory of a process; 0 if it is gone."""
    if PROC.joinpath("self").exists():
        return _field(PROC / str(pid) / "status", "RssAnon:")
    import psutil  # children of a run need not load it

    process = None
    try:
        process = psutil.Process(pid)
        return int(process.memory_full_info().uss)
    except psutil.NoSuchProcess:
        return 0
    except psutil.AccessDenied:  # macOS, for other users' processes: RSS includes shared pages
        try:
            return int(process.memory_info().rss) if process is not None else 0
        except psutil.Error:
            return 0


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes.

    ``ru_maxrss`` is only the fallback: on Linux a child process inherits its parent's value.
    """
    if peak := _field(PROC / "self" / "status", "VmHWM:"):
        return peak
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping or being killed; None if unknown."""
    if not PROC.joinpath("meminfo").exists():
        import psutil

        return int(psutil.virtual_memory().available)
    room = _field(PROC / "meminfo", "MemAvailable:", default=-1)
    if room < 0:  # the file cannot be opened, such as when too many are open
        return None
    rooms = [room]
    for version, folder in _cgroups():
        limit = _number(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes"))
        usage = _number(folder / ("memory.current" if version == 2 else "memory.usage_in_bytes"))
        if limit is None or usage is None or limit >= _NO_LIMIT:
            continue
        # usage includes the page cache, which a large file nearly fills but which is reclaimed on demand
        prefix = "" if version == 2 else "total_"
        cached = sum(
            _field(folder / "memory.stat", f"{prefix}{kind}_file", 1)
            for kind in ("active", "inactive")
        )
        rooms.append(max(0, limit - max(0, usage - cached)))
    return min(rooms)


def oom_kills() -> int | None:
    """Number of out-of-memory kills in our cgroup; None if unknown."""
    for version, folder in _cgroups():
        path = folder / ("memory.events" if version == 2 else "memory.oom_control")
        count = _field(path, "oom_kill", 1, default=-1)
        if count >= 0:
            return count
    return None


def on_tmpfs(path: str | Path) -> bool:
    """Whether files in this folder are kept in memory (tmpfs or ramfs)."""
    device = Path(path).stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = PROC.joinpath("self", "mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return False  # macOS mounts none by itself
    for line in lines:
        mount, _, kind = line.partition(" - ")
        if mount.split()[2:3] == [wanted]:
            return kind.split()[:1] in (["tmpfs"], ["ramfs"])
    return False


def _cgroups() -> Iterator[tuple[int, Path]]:
    """Version and folder of the memory cgroups that limit this process, the innermost first."""
    try:
        lines = PROC.joinpath("self", "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            version, roots = 2, (CGROUPS, CGROUPS / "unified")
        elif "memory" in controllers.split(","):
            version, roots = 1, (CGROUPS / "memory", CGROUPS / controllers)
        else:
            continue
        for root in roots:
            here = root / path.lstrip("/")
            # in a container the path is often the host's and does not exist: then use the root only
            inside = [here, *here.parents] if here.is_dir() else [root]
            for folder in inside:
                if folder.is_relative_to(root) and folder.is_dir():
                    yield version, folder


def _field(path: Path, name: str, unit: int = 1024, default: int = 0) -> int:
    """The number after ``name`` in a file of lines, times `unit`; `default` if there is no number."""
    try:
        with path.open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                words = line.split()
                if len(words) > 1 and words[0] == name:
                    return unit * int(words[1])
    except (OSError, ValueError):  # the process is gone, or the file is not readable
        pass
    return default


def _number(path: Path) -> int | None:
    """The number in a file; None if the file has no number."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max"
        return None
