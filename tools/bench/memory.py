#!/usr/bin/env python3
"""Check from outside whether training stays within its memory budget.

    python tools/bench/memory.py budgets [--budgets 1GiB,2GiB,6GiB] [--max-time 4m] [--C 0.03]
    python tools/bench/memory.py wide [--ratio 16] [--budget 768MiB]

``budgets`` trains on all windows of C. elegans under several budgets; ``wide`` trains on windows so wide
that the decoded rows exceed the budget by the factor --ratio. Five times a second the script reads the
memory of all processes of the training from /proc, without any code of fcl: their private anonymous
memory (RssAnon), and every segment of shared memory once. It prints a line of JSON for each training,
then a table. The exit code is 1 if a peak is above its budget, an objective rises from one accepted
anchor to the next, or the end is not clean. Linux only.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from fcl.units import parse_duration, parse_size
from tools.bench import common

#: Seconds between two samples.
EVERY = 0.2
#: A training is killed if it has not ended so many seconds after its time limit.
PATIENCE = 180.0
#: Reasons of a regular end.
CLEAN = ("tolerance", "max-time", "max-passes")
MIB = 1 << 20
UNKNOWN = 4
#: Approximate decoded bytes of a chunk of the wide windows.
CHUNK_BYTES = 6 << 20


def main() -> int:
    """Run the chosen measurement; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    budgets = commands.add_parser("budgets", help="all windows, under several budgets")
    budgets.add_argument("--data", type=Path, help="folder with seq.npy and y.npy of all windows")
    budgets.add_argument("--budgets", default="1GiB,2GiB,6GiB")
    wide = commands.add_parser("wide", help="rows many times larger than the budget")
    wide.add_argument("--ratio", type=float, default=16.0, help="decoded bytes over budget")
    wide.add_argument("--budget", default="768MiB")
    wide.add_argument("--every", type=int, default=4, help="take every k-th site (default 4)")
    wide.add_argument("--block-rows", type=int, default=3072, help="rows per block (default 3072)")
    wide.add_argument("--max-passes", type=int, default=3)
    for command, limit in ((budgets, "4m"), (wide, "10m")):
        command.add_argument("--max-time", default=limit, help=f"time limit (default {limit})")
        command.add_argument("--C", type=float, default=0.03)
        command.add_argument("--d", type=int, default=8, help="letters of a k-mer (default 8)")
        command.add_argument("--nice", type=int, default=0, help="niceness of the training")
        command.add_argument(
            "--work", type=Path, default=common.MADE / "memory", help="folder for logs"
        )
    args = parser.parse_args()
    if not Path("/proc/self/status").exists():
        sys.exit("This benchmark reads /proc, which this system does not have; run it on Linux.")
    args.work.mkdir(parents=True, exist_ok=True)
    jobs = budget_jobs(args) if args.command == "budgets" else wide_job(args)
    subprocess.run(
        [sys.executable, "-m", "fcl", "train", "--warmup", "--quiet"], check=True, env=environment()
    )
    figures = []
    for name, budget, options in jobs:
        figures.append(run(args, name, budget, options))
        print(json.dumps(figures[-1]), flush=True)
    report(figures)
    return 1 if any(f["problems"] for f in figures) else 0


def budget_jobs(args: argparse.Namespace) -> Iterator[tuple[str, str, list[str]]]:
    """The name, budget and arguments of the training for each budget."""
    folder = common.windows_folder(args.data)
    for budget in args.budgets.split(","):
        options = [str(folder), "--x", "seq", "--features", f"kmers:d={args.d},origin=70"]
        yield f"budget-{budget}", budget, options


def wide_job(args: argparse.Namespace) -> Iterator[tuple[str, str, list[str]]]:
    """The name, budget and arguments of the training on wide windows."""
    data, width = wide_windows(int(args.ratio * parse_size(args.budget, "budget")), args.every)
    options = [str(data), "--features", f"kmers:d={args.d},origin={width // 2}"]
    options += ["--block-rows", str(args.block_rows), "--max-passes", str(args.max_passes)]
    yield f"wide-{args.ratio:g}x{args.budget}", args.budget, options


# -- wide windows ----------------------------------------------------------------------------------


def genome_script() -> ModuleType:
    """Import make_celegans.py, which reads the genome."""
    script = common.SHARED / "make_celegans.py"
    spec = importlib.util.spec_from_file_location("make_celegans", script)
    if not script.exists() or spec is None or spec.loader is None:
        sys.exit(f"This benchmark needs the genome of C. elegans: {script} is missing.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wide_windows(decoded: int, every: int) -> tuple[Path, int]:
    """Make a Zarr v3 group of windows with about ``decoded`` bytes, once.

    The windows lie around every k-th site, with the A of its AG at letter width // 2; letters beyond the
    ends of a chromosome are unknown. Returns the folder and the width.
    """
    import zarr

    script, genome = genome_script(), common.SHARED / "celegans_acceptors.npz"
    archive = np.load(genome)
    keys, labels = {}, []
    for name in script.NAMES:
        found = script.candidates(script.chromosome(archive, name))
        found = found[~np.isin(found, archive[f"{name}_unclear"])][::every]
        keys[name] = found
        labels.append(np.where(np.isin(found, archive[f"{name}_acceptors"]), 1, -1))
    y = np.concatenate(labels).astype(np.int8)
    n, width = len(y), -(-decoded // len(y))
    made = common.derived(f"wide-{n}x{width}", genome, Path(str(script.__file__)))
    folder = made.with_suffix(".zarr")
    if folder.exists():
        return folder, width
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"making {n:,} windows of {width:,} letters (once) ...", file=sys.stderr)
    partial = folder.with_suffix(".partial")
    group = zarr.open_group(partial, mode="w", zarr_format=3)
    group.create_array("y", data=y, chunks=(n,))
    rows = max(1, CHUNK_BYTES // width)
    x = group.create_array("X", shape=(n, width), chunks=(rows, width), dtype=np.uint8)
    held, at = np.empty((0, width), np.uint8), 0
    for name in script.NAMES:
        bases = script.chromosome(archive, name)
        for start in range(0, len(keys[name]), rows):
            part = cut(bases, keys[name][start : start + rows], width)
            held = np.concatenate([held, part])
            if len(held) >= rows:  # only whole chunks are written
                x[at : at + rows] = held[:rows]
                held, at = held[rows:].copy(), at + rows
    if len(held):
        x[at:] = held
    partial.rename(folder)
    return folder, width


def cut(
    bases: npt.NDArray[np.uint8], keys: npt.NDArray[np.int64], width: int
) -> npt.NDArray[np.uint8]:
    """Cut windows (len(keys), width) around sites; key = 2 * position + (1 on the forward strand)."""
    place, forward = keys >> 1, (keys & 1).astype(bool)
    left = width // 2
    # On the reverse strand the window is read backwards, so its longer side has larger positions.
    first = place - np.where(forward, left, width - 1 - left)
    low, high = int(first.min()), int(first.max()) + width
    stretch = np.full(high - low, UNKNOWN, np.uint8)
    inside = slice(max(low, 0), min(high, len(bases)))
    stretch[inside.start - low : inside.stop - low] = bases[inside]
    windows = np.lib.stride_tricks.sliding_window_view(stretch, width)[first - low]
    complement = np.array([3, 2, 1, 0, UNKNOWN], np.uint8)
    windows[~forward] = complement[windows[~forward, ::-1]]
    return windows


# -- one training ----------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """The environment of a training, which imports this repository's fcl."""
    return {**os.environ, "PYTHONPATH": str(common.ROOT)}


def run(args: argparse.Namespace, name: str, budget: str, options: list[str]) -> dict[str, Any]:
    """Train under a budget, sample the memory, and return the figures."""
    log, model = args.work / f"{name}.jsonl", args.work / f"{name}.fcl"
    command = [sys.executable, "-m", "fcl", "train", *options, "--C", str(args.C)]
    command += ["--memory", budget, "--max-time", args.max_time, "--checkpoint-every", "60s"]
    command += ["--out", str(model), "--overwrite", "--log-json", str(log), "--quiet"]
    if args.nice:
        command = ["nice", "-n", str(args.nice), *command]
    log.unlink(missing_ok=True)
    limit = time.monotonic() + parse_duration(args.max_time, "max-time") + PATIENCE
    started = time.monotonic()
    late = False
    with (args.work / f"{name}.stderr").open("wb") as errors:
        job = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            env=environment(),
        )
        watch = Watch(job.pid)
        while job.poll() is None:
            watch.look()
            late = late or time.monotonic() > limit
            if late:
                os.killpg(job.pid, signal.SIGKILL)
            time.sleep(EVERY)
    elapsed = time.monotonic() - started
    time.sleep(2.0)  # children exit by themselves
    left = len(watch.pids())
    figures = {
        "name": name,
        "command": command[command.index("-m") + 2 :],
        "budget": parse_size(budget, "budget"),
        "elapsed": round(elapsed, 1),
        "exit_code": job.returncode,
        "processes_left": left,
        "late": late,
        **watch.figures(),
        **logged(log),
    }
    figures["problems"] = problems(figures)
    return figures


def logged(path: Path) -> dict[str, Any]:
    """Figures from the log of a training."""
    events = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                events.append(json.loads(line))
            except json.JSONDecodeError:  # the last line of a killed training may be incomplete
                break

    def last(kind: str) -> dict[str, Any]:
        return next((e for e in reversed(events) if e["event"] == kind), {})

    started, done, stopped = last("Started"), last("PassDone"), last("Stopped")
    passes = [e for e in events if e["event"] == "PassDone"]
    return {
        "rows": started.get("n_rows"),
        "features": started.get("n_features"),
        "plan": (started.get("plan") or {}).get("lines"),
        "passes": len(passes),
        "objectives": [e["objective"] for e in passes],
        "gap": done.get("gap"),
        "cached": done.get("cached"),
        "active": done.get("active"),
        "read": last("Prepared").get("seconds"),
        "reason": stopped.get("reason"),
        "own_peak": stopped.get("peak_memory"),
    }


def problems(figures: dict[str, Any]) -> list[str]:
    """Describe what is wrong with a run."""
    found = []
    if figures["peak"] > figures["budget"]:
        above = (figures["peak"] - figures["budget"]) / MIB
        found.append(f"peak {above:.1f} MiB above the budget")
    values = figures["objectives"]
    rises = [k for k in range(1, len(values)) if values[k] > values[k - 1]]
    if rises or not values:
        found.append(f"objective rises at anchors {rises}" if rises else "no anchor")
    if figures["exit_code"] or figures["reason"] not in CLEAN or figures["late"]:
        found.append(f"ended by {figures['reason']}, exit code {figures['exit_code']}")
    if figures["processes_left"]:
        found.append(f"{figures['processes_left']} processes left")
    return found


# -- the watch -------------------------------------------------------------------------------------


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


def report(figures: list[dict[str, Any]]) -> None:
    """Print the table."""
    print(f"\n{common.machine()}\n")
    rows: list[tuple[object, ...]] = []
    for f in figures:
        values = f["objectives"]
        falls = f"{values[0]:.6g} to {values[-1]:.6g}" if values else "-"
        rows.append(
            (
                f["name"],
                f"{f['rows'] or 0:,}",
                f"{f['budget'] / MIB:,.0f}",
                f"{f['peak'] / MIB:,.0f} ({f['peak'] / f['budget']:.0%})",
                f"{(f['own_peak'] or 0) / MIB:,.0f}",
                f["passes"],
                falls,
                "-" if f["gap"] is None else f"{f['gap']:.1e}",
                f["reason"],
                f["exit_code"],
                f"{f['elapsed']:.0f}",
                "; ".join(f["problems"]) or "none",
            )
        )
    header = (
        "run,rows,budget MiB,peak from outside MiB,by its own report MiB,anchors,objective,gap,end"
    )
    print(common.table(f"{header},exit code,time s,problems".split(","), rows))


if __name__ == "__main__":
    sys.exit(main())
