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

on_disk = pytest.mark.parametrize("on_disk", [False, True])


def record_of(rows, block):
    return np.random.default_rng(block).integers(0, 256, rows.record_shape).astype(np.uint8)


def fill(rows):
    for block, span in rows.blocks():
        record = rows.writable(block)
        assert not record.any()  # whatever was in the buffer before
        record[...] = record_of(rows, block)
        rows.commit(block, (np.arange(block), np.array([span.start, span.stop])))


def filled(n_rows, block_rows, shape, scratch=None):
    rows = PreparedRows(n_rows, block_rows, shape, scratch)
    fill(rows)
    return rows


def check(rows, block, part=slice(None)):
    record, sides = rows.read(block, part)
    assert record.shape == rows.record_shape
    assert (record[part] == record_of(rows, block)[part]).all()
    assert sides[0].tolist() == list(range(block))
    assert sides[1].tolist() == [rows.rows_of(block).start, rows.rows_of(block).stop]


@given(
    n_rows=st.integers(1, 400),
    block_rows=st.sampled_from([1, 7, 64, 256]),
    shape=st.sampled_from([(3,), (2, 5), (1, 1, 4), (6, 5)]),
    reads=st.lists(
        st.tuples(st.integers(0, 1000), st.integers(0, 5), st.integers(0, 6)), max_size=20
    ),
)
@examples(60)
def test_records_and_parts_come_back_in_any_order(
    tmp_path_factory, n_rows, block_rows, shape, reads
):
    for scratch in (None, tmp_path_factory.getbasetemp()):
        rows = filled(n_rows, block_rows, shape, scratch)
        spans = [span for _, span in rows.blocks()]
        assert [i for span in spans for i in range(span.start, span.stop)] == list(range(n_rows))
        assert all(span.stop - span.start == block_rows for span in spans[:-1])
        assert (rows.n_blocks, rows.in_memory) == (len(spans), scratch is None)
        for number, first, size in reads:
            check(rows, number % rows.n_blocks)
            check(rows, number % rows.n_blocks, slice(first % shape[0], first % shape[0] + size))
        assert rows.side_bytes().tolist() == [8 * (b + 2) for b in range(rows.n_blocks)]
        rows.close()


@pytest.fixture
def read(monkeypatch):
    """The sizes of what is read from files."""
    sizes = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *a: (sizes.append(a[1][0].nbytes), preadv(*a))[1])
    return sizes


def test_blocks_that_fit_in_the_buffer_together_are_read_from_the_file_once(
    tmp_path, monkeypatch, read
):
    rows = filled(70, 10, (6, 5), tmp_path)
    part = slice(1, 3)
    assert rows.together(range(3, 6), part) == [range(3, 6)]
    assert rows.together(range(2, 4), slice(None)) == [range(2, 3), range(3, 4)]
    # what the buffer still has of other blocks, of a larger or of another part is not in the way
    for before in (slice(1, 3), slice(None), slice(1, 5), slice(4, 6)):
        rows.read(6, before)
        read.clear()
        for block in 3 * [3, 4, 5]:
            check(rows, block, part)
        assert read == [2 * 5] * 3
    flat = PreparedRows(70, 10, (30,), tmp_path)  # parts keep their places
    assert flat.together(range(2, 4), part) == [range(2, 3), range(3, 4)]
    in_memory = PreparedRows(70, 10, (6, 5))
    assert in_memory.together(range(2, 6), part) == [range(2, 6)]
    assert rows.at_hand and in_memory.at_hand
    monkeypatch.setattr(module, "SMALL_FILE", 7 * 6 * 5 - 1)
    assert in_memory.at_hand and not rows.at_hand


def test_a_read_that_failed_leaves_no_block_in_the_place_of_another(tmp_path, monkeypatch):
    rows, part = filled(4, 1, (6, 5), tmp_path), slice(2, 4)
    for block in range(3):
        rows.read(block, part)
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", lambda *_: 0)
        with pytest.raises(OSError, match="scratch file ended inside row block 3"):
            rows.read(3, part)
    for block in (3, 2, 1, 0):
        check(rows, block, part)


@on_disk
def test_reading_what_was_never_prepared_is_an_error(on_disk, tmp_path):
    rows = PreparedRows(30, 10, (4,), tmp_path if on_disk else None)
    with pytest.raises(AssertionError, match="row block 2 was never prepared"):
        rows.read(2)


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_scratch_file_has_no_name_and_is_allocated_and_not_mapped(forgotten, tmp_path):
    rows = PreparedRows(1000, 100, (1 << 16,), tmp_path)
    handle = rows._file
    assert list(tmp_path.iterdir()) == []
    status = os.fstat(handle)
    assert status.st_size == 10 << 16
    assert status.st_blocks * 512 >= status.st_size  # real blocks: a full disk shows at once
    fill(rows)
    check(rows, 7)
    maps = Path("/proc/self/maps")
    assert not maps.exists() or str(tmp_path) not in maps.read_text()
    if forgotten:
        del rows
    else:
        rows.close()
        rows.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_short_reads_and_writes_are_continued(tmp_path, monkeypatch):
    pwrite, preadv = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda file, view, at: pwrite(file, view[:5], at))
    monkeypatch.setattr(os, "preadv", lambda file, views, at: preadv(file, [views[0][:3]], at))
    rows = filled(50, 10, (3, 7), tmp_path)
    for block in (4, 0, 2):
        check(rows, block)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(
            InputError, match=r"cannot create a file .* name another folder with --"
        ):
            PreparedRows(10, 10, (4,), folder)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="macOS has no posix_fallocate")
def test_a_full_disk_is_reported_before_anything_is_read(tmp_path, monkeypatch):
    def full(file, offset, size):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "posix_fallocate", full)
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(InputError, match="room for 8 MiB of prepared rows, got No space left"):
        PreparedRows(64, 8, (1 << 20,), tmp_path)
    assert list(tmp_path.iterdir()) == [] and len(os.listdir("/dev/fd")) == before


def test_only_small_side_arrays_of_a_file_stay_in_memory(tmp_path):
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


def test_checksums_of_blocks_are_those_of_their_records(tmp_path):
    rows, stored = (filled(25, 10, (3,), scratch) for scratch in (None, tmp_path))
    expected = stored.checksums.tolist()
    assert rows.checksums.tolist() == expected and len(set(expected)) == 3
    rows.commit(1, (np.arange(9),))
    assert (rows.checksums != expected).tolist() == [False, True, False]
