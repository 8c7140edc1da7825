"""Prepared rows: records in memory and in a scratch file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.data import prepared as module
from fcl.data.prepared import PreparedRows
from fcl.errors import InputError
from tests.windows import examples

Places = list[Path | None]


def record_of(rows: PreparedRows, block: int) -> np.ndarray:
    return np.random.default_rng(block).integers(0, 256, rows.record_shape).astype(np.uint8)


def fill(rows: PreparedRows) -> None:
    for block, span in rows.blocks():
        record = rows.writable(block)
        assert not record.any()  # whatever was in the buffer before
        record[...] = record_of(rows, block)
        rows.commit(block, (np.arange(block), np.array([span.start, span.stop])))


def check(rows: PreparedRows, block: int) -> None:
    record, sides = rows.read(block)
    assert (record == record_of(rows, block)).all()
    assert sides[0].tolist() == list(range(block))
    assert sides[1].tolist() == [rows.rows_of(block).start, rows.rows_of(block).stop]


@given(
    n_rows=st.integers(1, 400),
    block_rows=st.sampled_from([1, 7, 64, 256]),
    shape=st.sampled_from([(3,), (2, 5), (1, 1, 4)]),
    order=st.lists(st.integers(0, 1000), max_size=20),
)
@examples(60)
def test_records_come_back_in_any_order(
    tmp_path_factory: pytest.TempPathFactory,
    n_rows: int,
    block_rows: int,
    shape: tuple[int, ...],
    order: list[int],
) -> None:
    places: Places = [None, tmp_path_factory.getbasetemp()]
    for scratch in places:
        rows = PreparedRows(n_rows, block_rows, shape, scratch)
        spans = [span for _, span in rows.blocks()]
        assert [i for span in spans for i in range(span.start, span.stop)] == list(range(n_rows))
        assert all(span.stop - span.start == block_rows for span in spans[:-1])
        assert rows.n_blocks == len(spans)
        assert rows.in_memory == (scratch is None)
        fill(rows)
        for number in order:
            check(rows, number % rows.n_blocks)
        assert rows.side_bytes().tolist() == [8 * (b + 2) for b in range(rows.n_blocks)]
        rows.close()


@given(
    height=st.integers(1, 6),
    reads=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5), st.integers(0, 6)), max_size=30),
)
@examples(60)
def test_parts_of_records_come_back_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, height: int, reads: list[tuple[int, int, int]]
) -> None:
    for scratch in (None, tmp_path_factory.getbasetemp()):
        for shape in ((height, 5), (8 * height,)):
            rows = PreparedRows(9, 1, shape, scratch)
            fill(rows)
            for block, first, size in reads:
                part = slice(first % height, first % height + size)
                found = rows.read(block, part)[0]
                assert found.shape == shape
                assert (found[part] == record_of(rows, block)[part]).all()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is read from files."""
    sizes: list[int] = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *a: (sizes.append(a[1][0].nbytes), preadv(*a))[1])
    return sizes


def test_blocks_that_fit_in_the_buffer_together_are_read_from_the_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[int]
) -> None:
    rows = PreparedRows(70, 10, (6, 5), tmp_path)
    fill(rows)
    part = slice(1, 3)
    assert rows.together(range(3, 6), part) == [range(3, 6)]
    assert rows.together(range(2, 4), slice(None)) == [range(2, 3), range(3, 4)]
    # what the buffer still has of other blocks, of a larger or of another part is not in the way
    for before in (slice(1, 3), slice(None), slice(1, 5), slice(4, 6)):
        rows.read(6, before)
        read.clear()
        for _ in range(3):
            for block in range(3, 6):
                assert (rows.read(block, part)[0][part] == record_of(rows, block)[part]).all()
        assert read == [2 * 5] * 3
    flat = PreparedRows(70, 10, (30,), tmp_path)  # parts keep their places
    assert flat.together(range(2, 4), part) == [range(2, 3), range(3, 4)]
    in_memory = PreparedRows(70, 10, (6, 5))
    assert in_memory.together(range(2, 6), part) == [range(2, 6)]
    assert rows.at_hand and in_memory.at_hand
    monkeypatch.setattr(module, "SMALL_FILE", 7 * 6 * 5 - 1)
    assert in_memory.at_hand and not rows.at_hand


def test_what_comes_next_is_read_at_once_if_there_is_room(tmp_path: Path, read: list[int]) -> None:
    rows = PreparedRows(3, 1, (10, 5), tmp_path)
    fill(rows)
    for first in range(9):
        part = slice(first, first + 2)
        for block in range(3):
            assert (rows.read(block, part)[0][part] == record_of(rows, block)[part]).all()
    # three of ten rows at a time, from rows 0, 2, 4, 6 and 8 on
    assert read == [3 * 5] * 12 + [2 * 5] * 3


def test_a_read_that_failed_leaves_no_block_in_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = PreparedRows(4, 1, (6, 5), tmp_path)
    fill(rows)
    part = slice(2, 4)
    for block in range(3):
        rows.read(block, part)
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", lambda *_: 0)
        with pytest.raises(OSError, match="ended"):
            rows.read(3, part)
    for block in (3, 2, 1, 0):
        assert (rows.read(block, part)[0][part] == record_of(rows, block)[part]).all()


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_record_may_be_overwritten(on_disk: bool, tmp_path: Path) -> None:
    rows = PreparedRows(30, 10, (4,), tmp_path if on_disk else None)
    fill(rows)
    check(rows, 2)
    rows.writable(1)[:] = 7
    rows.commit(1, ())
    check(rows, 2)
    assert rows.read(1)[0].tolist() == [7] * 4 and rows.read(1)[1] == ()
    check(rows, 0)
    rows.writable(1)[:] = 8
    check(rows, 0)
    check(rows, 2)


@pytest.mark.parametrize("on_disk", [False, True])
def test_reading_what_was_never_prepared_is_an_error(on_disk: bool, tmp_path: Path) -> None:
    rows = PreparedRows(30, 10, (4,), tmp_path if on_disk else None)
    with pytest.raises(AssertionError, match="row block 2 was never prepared"):
        rows.read(2)


def test_a_scratch_file_has_no_name_and_is_allocated_and_not_mapped(tmp_path: Path) -> None:
    rows = PreparedRows(1000, 100, (1 << 16,), tmp_path)
    handle = rows._file
    assert handle is not None
    assert list(tmp_path.iterdir()) == []
    status = os.fstat(handle)
    assert status.st_size == 10 << 16
    assert status.st_blocks * 512 >= status.st_size  # real blocks: a full disk shows at once
    fill(rows)
    check(rows, 7)
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(tmp_path) not in maps.read_text()
    rows.close()
    rows.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_forgetting_the_rows_closes_the_file(tmp_path: Path) -> None:
    rows = PreparedRows(10, 10, (4,), tmp_path)
    handle = rows._file
    assert handle is not None
    del rows
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_short_reads_and_writes_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, preadv = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda file, view, at: pwrite(file, view[:5], at))
    monkeypatch.setattr(os, "preadv", lambda file, views, at: preadv(file, [views[0][:3]], at))
    rows = PreparedRows(50, 10, (3, 7), tmp_path)
    fill(rows)
    for block in (4, 0, 2):
        check(rows, block)
    monkeypatch.setattr(os, "preadv", lambda file, views, at: 0)
    with pytest.raises(OSError, match="scratch file ended inside row block 3"):
        rows.read(3)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(
            InputError, match=r"cannot create a file .* name another folder with --scr"
        ):
            PreparedRows(10, 10, (4,), folder)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="macOS has no posix_fallocate")
def test_a_full_disk_is_reported_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "posix_fallocate", full)
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(InputError, match="room for 8 MiB of prepared rows, got No space left"):
        PreparedRows(64, 8, (1 << 20,), tmp_path)
    assert list(tmp_path.iterdir()) == [] and len(os.listdir("/dev/fd")) == before


def test_only_small_side_arrays_of_a_file_stay_in_memory(tmp_path: Path) -> None:
    rows = PreparedRows(20, 10, (1,), tmp_path)
    sides = {0: np.arange(module.SMALL_SIDES // 8), 1: np.arange(module.SMALL_SIDES // 8 + 1)}
    for block, array in sides.items():
        rows.writable(block)
        rows.commit(block, (array,))
    for block, array in sides.items():
        (found,) = rows.sides(block)
        assert (found == array).all()
        assert (found.base is None) == (block == 0)  # else it is a view of the file
        assert (rows.sides(block)[0] is found) == (block == 0)
        rows.forget_sides(block)
        assert (rows.sides(block)[0] == array).all()


def test_checksums_of_blocks_in_memory_are_made_when_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    checksum = module._checksum
    monkeypatch.setattr(module, "_checksum", lambda *a: (made.append(1), checksum(*a))[1])
    rows = {scratch: PreparedRows(25, 10, (3,), scratch) for scratch in (None, tmp_path)}
    fill(rows[None])
    assert not made
    fill(rows[tmp_path])  # reading the blocks again would take longer
    assert len(made) == 3
    expected = rows[tmp_path].checksums.tolist()
    assert rows[None].checksums.tolist() == expected and len(set(expected)) == 3
    assert rows[None].checksums.tolist() == expected and len(made) == 6
    rows[None].commit(1, (np.arange(9),))
    assert (rows[None].checksums != expected).tolist() == [False, True, False]
