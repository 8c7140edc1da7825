"""Memory of all processes of a training, read from /proc, without any code of fcl. Linux only."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any


class Watch:
    """Memory of all processes of a session, read from /proc."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.looks = 0
        self.longest = 0.0  #: most seconds between two samples
        self.peak = 0
        self.at_peak: dict[str, Any] = {}  #: private bytes by process, shared bytes by segment
        self.highest: dict[str, int] = {}  #: most private bytes of each process
        self.most_shared = 0
        self._last = time.monotonic()
        self._start = self._last
        self._sizes: dict[tuple[int, int], tuple[str, int]] = {}  # of all segments ever seen
        self._tmpfs = _tmpfs_devices()

    def pids(self) -> list[int]:
        """Ids of the live processes of the session."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                text = Path("/proc", entry, "stat").read_text(errors="replace")
            except OSError:
                continue
            state, _, _, session = text[text.rindex(")") + 2 :].split()[:4]
            if int(session) == self.session and state not in "ZX":
                found.append(int(entry))
        return found

    def look(self) -> None:
        """Take one sample."""
        now = time.monotonic()
        self.looks += 1
        self.longest, self._last = max(self.longest, now - self._last), now
        private: dict[str, int] = {}
        mapped = 0
        segments: dict[tuple[int, int], tuple[str, int]] = {}
        for pid in self.pids():
            anonymous, shared = _resident(pid)
            name = _name(pid)
            private[name] = private.get(name, 0) + anonymous
            mapped = max(mapped, shared)
            segments.update(self._segments(pid))
        sizes: dict[str, int] = {}
        for name, size in segments.values():
            sizes[name] = sizes.get(name, 0) + size
        # Shared memory that is mapped but not found among the segments counts as well.
        sizes["not found"] = max(0, mapped - sum(sizes.values()))
        for name, size in private.items():
            self.highest[name] = max(self.highest.get(name, 0), size)
        total = sum(private.values()) + sum(sizes.values())
        self.most_shared = max(self.most_shared, sum(sizes.values()))
        if total > self.peak:
            self.peak = total
            seconds = round(now - self._start, 1)
            self.at_peak = {"seconds": seconds, "private": private, "shared": sizes}

    def _segments(self, pid: int) -> dict[tuple[int, int], tuple[str, int]]:
        """Name and allocated bytes of the in-memory files that a process has open or mapped."""
        found: dict[tuple[int, int], tuple[str, int]] = {}
        folder = f"/proc/{pid}/fd"
        try:
            entries = os.listdir(folder)
        except OSError:
            return {}
        for entry in entries:
            try:
                target = os.readlink(f"{folder}/{entry}")
                status = os.stat(f"{folder}/{entry}")
            except OSError:
                continue
            in_memory = target.startswith("/memfd:") or status.st_dev in self._tmpfs
            if in_memory and stat.S_ISREG(status.st_mode):
                name = target.split()[0].rpartition(":")[2]
                found[status.st_dev, status.st_ino] = (name, 512 * status.st_blocks)
        self._sizes.update(found)
        # A mapping remains when its descriptor is closed.
        return {key: self._sizes[key] for key in _mapped(pid) if key in self._sizes} | found

    def figures(self) -> dict[str, Any]:
        """The results so far."""
        return {
            "peak": self.peak,
            "at_peak": self.at_peak,
            "highest_private": self.highest,
            "most_shared": self.most_shared,
            "looks": self.looks,
            "longest_between_looks": round(self.longest, 2),
        }


def _resident(pid: int) -> tuple[int, int]:
    """Private anonymous and shared resident bytes of a process; 0 if it is gone."""
    found = {"RssAnon": 0, "RssShmem": 0}
    try:
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name in found:
                found[name] = 1024 * int(value.split()[0])
    except OSError:
        pass
    return found["RssAnon"], found["RssShmem"]


def _mapped(pid: int) -> set[tuple[int, int]]:
    """Device and inode of the files that a process has mapped as shared."""
    found = set()
    try:
        for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
            if "s " not in line[:64]:
                continue
            _, rights, _, device, inode = line.split()[:5]
            if rights.endswith("s"):
                major, minor = device.split(":")
                found.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    except OSError:
        pass
    return found


def _name(pid: int) -> str:
    """The role of a process, from its command line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return "gone"
    for role in ("writer", "trainer"):
        if role in words:
            return f"{role} {words[words.index(role) + 1]}"
    return "supervisor" if "train" in words else "other"


def _tmpfs_devices() -> set[int]:
    """Device numbers of the in-memory file systems."""
    found = set()
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] in ("tmpfs", "ramfs"):
            major, minor = before.split()[2].split(":")
            found.add(os.makedev(int(major), int(minor)))
    return found
