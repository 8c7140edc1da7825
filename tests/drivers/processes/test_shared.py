"""Segments: allocated at the start, visible to all processes, freed with the last of them."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fcl.drivers.processes import shared
from fcl.drivers.processes.shared import ALIGNMENT, GROWTH, Segment
from fcl.errors import BudgetError

pytestmark = pytest.mark.fresh_interpreters


@pytest.fixture(params=["memfd", "folder", "neither"])
def segment(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Segment]:
    if request.param == "neither":  # macOS
        monkeypatch.delattr(os, "memfd_create", raising=False)
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = Segment.create("toy", tmp_path if request.param == "folder" else None)
    assert not list(tmp_path.iterdir())
    yield made
    made.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


def test_an_allocated_segment_is_zero_and_seen_through_every_descriptor(segment: Segment) -> None:
    assert segment.size == segment.allocated == 0
    segment.allocate(3_000_000)
    assert segment.size == 3_000_000
    assert 3_000_000 <= segment.allocated < 4_000_000
    mine = segment.array(np.float64, (5, 7), 4096)
    assert not segment.array(np.uint8, segment.size).any()
    other = Segment.of_fd("other", os.dup(segment.fd))
    theirs = other.array(np.float64, (5, 7), 4096)
    mine[3, 2] = 2.5
    assert theirs[3, 2] == 2.5 and theirs.flags.writeable
    other.close()


def test_a_segment_grows_and_arrays_of_before_stay_valid(segment: Segment) -> None:
    segment.allocate(4096)
    early = segment.array(np.int64, 512)
    early[:] = range(512)
    segment.allocate(10_000)
    segment.allocate(100)  # never shrinks
    late = segment.array(np.int64, 1250)
    assert late.sum() == early.sum() and segment.size == 10_000
    late[0] = -1
    assert early[0] == -1


def test_a_part_that_is_allocated_later(segment: Segment) -> None:
    segment.allocate(64 << 20, 1 << 20)
    assert segment.size == 64 << 20
    assert 1 << 20 <= segment.allocated < 2 << 20
    segment.fill(1000)  # there already
    segment.fill(3 << 20)
    assert 3 << 20 <= segment.allocated < 4 << 20
    segment.shrink(2 << 20)
    segment.allocate(4 << 20)
    assert segment.size == 4 << 20 <= segment.allocated


def test_arrays_outlive_the_segment(segment: Segment) -> None:
    segment.allocate(1 << 16)
    values = segment.array(np.int32, 100)
    values[:] = 3
    segment.close()
    segment.close()
    assert values.sum() == 300 and segment.size == 0
    with pytest.raises(ValueError, match="closed"):
        Segment.array(segment, np.int32, 1)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_descriptors_are_given_back() -> None:
    gc.collect()  # what tests before this one have left
    before = open_files()
    for _ in range(5):
        segment = Segment.create("toy")
        segment.allocate(4096)
        values = segment.array(np.int8, 7)
        segment.allocate(8192)
        values = segment.array(np.int8, 8000)
        segment.close()
        del values
    gc.collect()
    assert open_files() == before


def test_wrong_arrays_are_refused(segment: Segment) -> None:
    with pytest.raises(ValueError, match="at least 8 bytes, got 0"):
        segment.array(np.float64, 1)
    assert segment.array(np.float64, (0, 3)).shape == (0, 3)
    segment.allocate(64)
    with pytest.raises(ValueError, match="at least 72 bytes, got 64"):
        segment.array(np.float64, 1, 64)
    with pytest.raises(ValueError, match="multiple of 8 for float64, got 4"):
        segment.array(np.float64, 1, 4)


def test_appended_pieces_are_read_by_those_who_mapped_early(segment: Segment) -> None:
    reader = Segment.of_fd("reader", os.dup(segment.fd))
    pieces = [np.arange(n, dtype=np.int32) for n in (5, 0, 1000, 3_000_000, 1)]
    offsets = []
    for piece in pieces:
        offsets.append(segment.append(piece.tobytes())[0])
        reader.array(np.uint8, 1)
    for offset, piece in zip(offsets, pieces, strict=True):
        assert offset % ALIGNMENT == 0
        np.testing.assert_array_equal(reader.array(np.int32, len(piece), offset), piece)
    used = offsets[-1] + 4
    assert used <= segment.size <= used + GROWTH
    # the successor of a killed writer writes behind what may still be read
    successor = Segment.of_fd("successor", os.dup(segment.fd))
    assert successor.append(b"abc")[0] >= used
    np.testing.assert_array_equal(reader.array(np.int32, 1000, offsets[2]), pieces[2])
    reader.close()
    successor.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ENOMEM])
def test_lack_of_room_is_reported_and_nothing_is_kept(
    segment: Segment, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment.allocate(4096)

    def full(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(shared, "_fill", full)
        with pytest.raises(BudgetError, match=r"'toy': expected room for 1 MiB.*lower --memory"):
            segment.allocate(1 << 20)
    assert segment.size == 4096
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(BudgetError, match="'toy'"):
            segment.append(b"abc")
    segment.append(b"abc")


def test_memory_that_is_not_there_is_refused_before_the_kernel_kills(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared, "available_memory", lambda: 1 << 20)
    segment = Segment("toy", os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT), True)
    with pytest.raises(BudgetError, match=r"1\.95 MiB, got: 1 MiB are available"):
        segment.allocate(2_048_000)
    assert segment.size == 0
    segment.allocate(1_000_000)
    segment.close()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match=r"cannot make a file in .*nowhere"):
        Segment.create("toy", tmp_path / "nowhere")


def test_a_file_system_that_cannot_allocate_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "posix_fallocate", unable, raising=False)
    segment = Segment.create("toy", tmp_path)
    segment.allocate(3_000_001)
    assert segment.size == 3_000_001 <= segment.allocated
    segment.close()


def test_the_parts_of_the_plumbing_are_light() -> None:
    code = """
import sys
import fcl.drivers.processes.shared, fcl.drivers.processes.channel
import fcl.drivers.processes.children, fcl.drivers.processes.child
import fcl.memory.meter, fcl.drivers.processes.faults
print(sorted({"numba", "zarr", "h5py", "psutil", "click", "rich"} & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "[]\n"
