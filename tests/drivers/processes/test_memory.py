"""Memory accounting, and the estimate of available memory."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import zarr
from rows import ACCEPTORS

from fcl.drivers.plan import CHILD
from fcl.drivers.processes.shared import Segment
from fcl.memory import meter as memory
from fcl.memory.meter import Meter, available_memory, on_tmpfs, oom_kills, rss_anon
from tools.bench.memory import Watch

pytestmark = pytest.mark.fresh_interpreters

MIB = 1 << 20
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up machine with 1000 MiB available and no cgroup yet."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "cgroup").mkdir()
    write(tmp_path / "proc/meminfo", "MemTotal: 9999999 kB\nMemAvailable:  1024000 kB\n")
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroup")
    return tmp_path


def write(path: Path, text: str | int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@pytest.mark.slow
def test_anonymous_memory_counts_at_once_and_shared_memory_by_its_segments() -> None:
    meter = Meter(lambda: {"supervisor": os.getpid(), "gone": 2**22 + 1}, lambda: segments)
    segments: list[Segment] = []
    gc.collect()  # what earlier tests left is not to be freed meanwhile
    start = meter.sample()
    assert start > 5 * MIB
    private = np.ones(256 * MIB, np.uint8)
    grown = meter.sample()
    assert grown - start > 128 * MIB
    segment = Segment.create("toy")
    segments.append(segment)
    segment.allocate(64 * MIB)
    untouched = meter.sample()
    assert abs(untouched - grown - 64 * MIB) < 8 * MIB
    segment.array(np.uint8, segment.size)[:] = 1  # once, not again in the process
    assert abs(meter.sample() - untouched) < 8 * MIB
    peak = meter.peak
    assert peak >= untouched
    segments.clear()
    segment.close()
    assert private.all() and meter.sample() < peak == meter.peak


def test_without_proc_psutil_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PROC", tmp_path / "none")
    assert rss_anon(os.getpid()) > 5 * MIB
    assert rss_anon(2**22 + 1) == 0
    assert oom_kills() is None
    assert available_memory() == pytest.approx(psutil.virtual_memory().available, rel=0.2)

    def denied(_: object) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "memory_full_info", denied)
    assert rss_anon(os.getpid()) > 5 * MIB


@linux
def test_this_machine() -> None:
    available = available_memory()
    assert available is not None and 0 < available <= psutil.virtual_memory().total
    assert (oom_kills() or 0) >= 0


def test_available_without_cgroup(machine: Path) -> None:
    assert available_memory() == 1000 * MIB
    assert oom_kills() is None
    write(machine / "proc/self/cgroup", "0::/")
    assert available_memory() == 1000 * MIB


def test_the_tightest_cgroup_bounds_and_its_page_cache_gives_way(machine: Path) -> None:
    job = machine / "cgroup/slurm/job"
    write(machine / "proc/self/cgroup", "0::/slurm/job")
    write(job / "memory.max", "max")
    write(job / "memory.current", 900 * MIB)
    write(job / "memory.events", "low 0\noom 5\noom_kill 3")
    assert available_memory() == 1000 * MIB
    assert oom_kills() == 3
    write(job / "memory.max", 1200 * MIB)
    assert available_memory() == 300 * MIB
    write(job / "memory.stat", f"anon 5\ninactive_file {300 * MIB}\nactive_file {100 * MIB}")
    assert available_memory() == 700 * MIB
    write(job.parent / "memory.max", 500 * MIB)
    write(job.parent / "memory.current", 600 * MIB)
    assert available_memory() == 0


def test_the_older_cgroups_and_a_path_of_the_host(machine: Path) -> None:
    root = machine / "cgroup/memory"
    write(machine / "proc/self/cgroup", "4:memory:/docker/0123\n3:cpu,cpuacct:/\n0::/")
    write(root / "memory.limit_in_bytes", 9223372036854771712)
    write(root / "memory.usage_in_bytes", 800 * MIB)
    write(root / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1")
    assert available_memory() == 1000 * MIB
    assert oom_kills() == 1
    write(root / "memory.limit_in_bytes", 900 * MIB)
    write(root / "memory.stat", f"inactive_file 7\ntotal_inactive_file {50 * MIB}")
    assert available_memory() == 150 * MIB


@linux
def test_on_tmpfs(tmp_path: Path) -> None:
    kinds = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    for folder in ("/", "/dev/shm"):
        if folder in kinds:
            assert on_tmpfs(folder) == (kinds[folder] in ("tmpfs", "ramfs"))


@pytest.mark.slow
@linux
def test_the_peak_of_all_processes_is_within_the_budget(tmp_path: Path) -> None:
    """Measured from outside, through /proc, without code of fcl."""
    options = ["--features", "kmers:d=6", "--C", "0.1", "--max-passes", "4"]
    watch, _ = watched(tmp_path, ACCEPTORS, 640, options)
    assert watch.peak > 320 * MIB


def watched(
    folder: Path, data: Path, budget: int, options: list[str]
) -> tuple[Watch, dict[str, Any]]:
    """Train within a budget in MiB; returns the watch, and the plan at the start."""
    command = ["train", str(data), "--memory", f"{budget}MiB", "--no-checkpoint", *options]
    command += ["--driver", "processes:writers=2", "--out", str(folder / f"{budget}.fcl")]
    log = folder / f"{budget}.jsonl"
    job = subprocess.Popen(
        [sys.executable, "-m", "fcl", *command, "--quiet", "--log-json", str(log)],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    watch = Watch(job.pid)
    while job.poll() is None:
        watch.look()
        time.sleep(0.05)
    assert job.returncode == 0
    assert watch.looks > 20
    assert {"supervisor", "trainer 0", "writer 0", "writer 1"} <= set(watch.highest)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert events[-1]["event"] == "Stopped"
    assert watch.peak <= budget * MIB, watch.at_peak
    assert events[-1]["peak_memory"] <= budget * MIB
    return watch, next(e["plan"] for e in events if e["event"] == "Started")


@pytest.mark.slow
@linux
def test_wide_sparse_rows_are_within_the_budget(tmp_path: Path) -> None:
    """Their entries, 126 MB, are in memory or in the scratch file, as the budget demands."""
    rows, columns, each = 1 << 15, 40_000, 384
    random = np.random.default_rng(0)
    step = columns // each
    group = zarr.open_group(tmp_path / "data.zarr", mode="w")
    matrix = group.create_group("X")
    matrix.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
    matrix.attrs["shape"] = [rows, columns]
    indices = random.integers(0, step, (rows, each), np.int32)
    indices += step * np.arange(each, dtype=np.int32)
    values = random.normal(size=(rows, each))
    matrix.create_array("indices", data=indices.ravel())
    matrix.create_array("data", data=values.ravel())
    matrix.create_array("indptr", data=each * np.arange(rows + 1))
    group.create_array("y", data=(values[:, :9].sum(axis=1) > 0).astype(np.int8))
    options = ["--x", "X", "--y", "y", "--features", "columns", "--C", "0.1", "--max-passes", "2"]
    options += ["--scratch", str(tmp_path)]
    for budget, kept in ((1100, False), (2000, True)):
        watch, plan = watched(tmp_path, tmp_path / "data.zarr", budget, options)
        uses = plan["lines"]
        assert ("prepared rows" in uses) == kept
        # a writer holds most while it reads
        reading = uses["reading (a chunk, compressed and decoded, and a block)"] / 2
        for writer in range(2):
            assert watch.highest[f"writer {writer}"] <= CHILD + reading, (watch.highest, uses)
