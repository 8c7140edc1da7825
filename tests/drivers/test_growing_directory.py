"""The directory of the cache grows where columns are smaller than the plan had guessed."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import acceptors

import fcl
from fcl.cache import ColumnCache
from fcl.drivers import plan
from fcl.features.base import BitColumns
from tests import by_name
from tests.columns import broken_invariants

OPTIONS: dict[str, Any] = {"C": 3.0, "tol": 1e-4, "warn": False, "threads": 1}


@pytest.fixture
def _small_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_COLUMNS", "MIN_COLUMNS", "LEAST_COLUMNS"):
        monkeypatch.setattr(plan, name, 64)
    monkeypatch.setattr(plan, "GROWTH_ROOM", 32)


def data() -> fcl.DataSet:
    codes, y = acceptors(30, 2000)
    return fcl.open_data(codes, y=y)


@pytest.mark.usefixtures("_small_directory")
def test_columns_enter_while_bytes_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    assert by_name.plan_training(data(), "kmers:d=4", **OPTIONS).max_columns == 64
    grown = by_name.train(data(), "kmers:d=4", **OPTIONS)
    assert grown.converged and max(entry["cached"] for entry in grown.model.history) > 256
    assert sum(entry["evicted"] for entry in grown.model.history) == 0
    monkeypatch.setattr(ColumnCache, "grow", lambda self, slots: False)
    fixed = by_name.train(data(), "kmers:d=4", **OPTIONS, max_passes=grown.passes)
    assert fixed.certificate.gap > 100 * grown.certificate.gap
    assert sum(entry["evicted"] for entry in fixed.model.history) > 0


@pytest.mark.slow
@pytest.mark.usefixtures("_small_directory")
def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    options = OPTIONS | {"row_view": 512}
    whole = by_name.train(data(), "kmers:d=4", **options)
    assert whole.passes > 4
    for passes in (1, 3):
        folder = tmp_path / str(passes)
        by_name.train(data(), "kmers:d=4", **options, max_passes=passes, checkpoint=folder)
        rest = by_name.train(data(), "kmers:d=4", **options, resume=folder)
        assert rest.model.weights.tobytes() == whole.model.weights.tobytes()
        assert rest.certificate == whole.certificate


def columns(n: int, seed: int) -> list[BitColumns]:
    """Blocks of 128 and 72 rows."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 63, size=(n, 4), dtype=np.uint64)
    words[:, 3] &= np.uint64(255)
    return [BitColumns(words[:, :2].copy(), 128), BitColumns(words[:, 2:].copy(), 72)]


def admit(cache: ColumnCache, first: int, n: int) -> int:
    staged = cache.measure(np.arange(first, first + n), columns(n, first))
    return len(cache.admit_some(staged, np.arange(n)))


def test_bytes_of_the_arena_become_slots() -> None:
    cache = ColumnCache(4000, 4, 200, 128, slot_bytes=50)
    assert admit(cache, 0, 6) == 4
    before = cache.capacity
    assert cache.grow(3) and cache.max_columns == 7 and cache.capacity <= before - 3 * 50
    assert admit(cache, 10, 6) == 3
    assert cache.ids.tolist() == [0, 1, 2, 3, 10, 11, 12]
    assert broken_invariants(cache) == []
    for number, b in ((0, 0), (6, 1)):  # the columns are where they were
        pieces = cache.pieces
        slot = cache.slots[number]
        assert (
            pieces.counts[slot, b]
            == np.bitwise_count(
                columns(6, 0 if number == 0 else 10)[b].bits[0 if number == 0 else 2]
            ).sum()
        )


def test_bytes_that_columns_have_left_become_slots() -> None:
    large = columns(8, 3)
    words = np.repeat(large[0].bits, 512, axis=1)
    made = [BitColumns(words, 65_536)]
    cache = ColumnCache(12 * 8192, 8, 65_536, 65_536, slot_bytes=8)
    staged = cache.measure(np.arange(8), made)
    assert len(cache.admit_some(staged, np.arange(8))) == 8
    cache.evict(np.arange(8) == 2)
    (kept,) = cache.slots
    before, used = cache.store.arena[: cache.used // 8].copy(), cache.used
    assert cache.store.arena[used // 8 : 7 * 1024].all()
    assert cache.grow(9) and cache.max_columns == 10  # as many as the bytes can hold
    assert cache.ids.tolist() == [2] and cache.store.first[kept] == 0
    assert cache.store.arena[: used // 8].tobytes() == before.tobytes()
    page = -(-used // mmap.PAGESIZE) * mmap.PAGESIZE
    if sys.platform == "linux":  # the system has the pages again; they read as zeros from now on
        assert not cache.store.arena[page // 8 :].any()
    assert broken_invariants(cache) == []


def test_slots_return_to_the_arena_when_columns_become_larger() -> None:
    cache = ColumnCache(40_000, 4, 65_536, 128, slot_bytes=50)
    cache.resize(200, cache.mean)
    assert admit(cache, 0, 6) == 4 and cache.grow(100) and cache.grow(100)
    slots, capacity = cache.max_columns, cache.capacity
    assert slots > 100 and capacity == 40_000 - 50 * (slots - 4)
    mean = cache.mean
    cache.evict(np.zeros(4, bool))
    assert cache.resize(65_536, mean) and cache.max_columns == 4 and cache.capacity == 40_000
    assert not cache.resize(200, cache.mean)
    assert admit(cache, 0, 6) == 4 and broken_invariants(cache) == []


def test_a_directory_grows_only_into_free_bytes() -> None:
    full = ColumnCache(4 * 32, 4, 200, 128, slot_bytes=8)
    admit(full, 0, 4)
    assert not full.grow(10)
    assert not ColumnCache(4000, 4, 200, 128).grow(10)  # a directory that cannot grow
    roomy = ColumnCache(4000, 4, 200, 128, slot_bytes=50)
    assert not roomy.extend(4) and not roomy.extend(1000) and not roomy.grow(0)
