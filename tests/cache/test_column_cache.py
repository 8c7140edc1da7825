"""The cache keeps its columns, in few bytes, whatever is admitted and evicted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fcl.cache import ColumnCache, StagedColumns
from fcl.errors import BudgetError
from fcl.features.fourier import STEP
from tests.columns import broken_invariants, make_phi, read_back, stage
from tests.windows import examples

seeds = st.integers(0, 2**31)


def equal_to(cache: ColumnCache, staged: StagedColumns, t: int) -> np.ndarray:
    """The numbers of the live columns equal to a staged one."""
    return cache.find(int(staged.nonzeros[t]), int(staged.hashes[t]))


class CacheMachine(RuleBasedStateMachine):
    """Admissions and evictions in any order, beside a plain list of dense columns."""

    @initialize(
        shape=st.sampled_from([(63, 64), (200, 64), (201, 128), (130, 256)]),
        kind=st.sampled_from(["binary", "real", "fine", "steps", "whole"]),
        columns=st.integers(1, 6),
        entries=st.integers(1, 12),
        seed=seeds,
    )
    def start(
        self, shape: tuple[int, int], kind: str, columns: int, entries: int, seed: int
    ) -> None:
        n_rows, block_rows = shape
        self.binary, self.fine = kind == "binary", kind == "fine"
        self.step = {"steps": STEP, "whole": 1.0}.get(kind, 0.0)
        self.told = STEP if kind == "steps" else 0.0  # the cache detects whole numbers
        capacity = columns * ColumnCache.largest_column(n_rows, block_rows, self.binary, self.told)
        self.cache = ColumnCache(capacity + 3, entries, n_rows, block_rows, self.binary, self.told)
        self.rng = np.random.default_rng(seed)
        self.next_id = 0
        self.columns: list[tuple[int, np.ndarray]] = []
        self.refused = False

    @rule(n=st.integers(1, 5), equal=st.booleans())
    def admit(self, n: int, equal: bool) -> None:
        phi = make_phi(self.rng, n, self.cache.n_rows, self.binary, self.step)
        if self.fine:
            phi = phi.astype(np.float64) / 3.0
        if equal and self.columns:
            phi[-1] = self.columns[self.rng.integers(len(self.columns))][1]
        ids = self.next_id + self.rng.permutation(n)
        self.next_id += n
        listed = bool(self.rng.random() < 0.5)
        staged = stage(self.cache, ids, phi, self.binary, self.told, listed)
        assert staged.nonzeros.tolist() == (phi != 0.0).sum(axis=1).tolist()
        for t in range(n):
            held = [column for _, column in self.columns]
            alike = [j for j, column in enumerate(held) if (column == phi[t]).all()]
            assert equal_to(self.cache, staged, t).tolist() == alike
            free, size = self.cache.free, int(staged.sizes[t])
            room = size <= free and self.cache.n < self.cache.max_columns
            assert self.cache.admit(staged, t) == room
            assert self.cache.free == free - (size if room else 0)
            if room:
                self.columns.append((int(ids[t]), phi[t].copy()))
            self.refused |= not room

    @rule(n=st.integers(2, 5), data=st.data())
    def admit_together(self, n: int, data: st.DataObject) -> None:
        """Of several columns each enters that fits beside those before it."""
        phi = make_phi(self.rng, n, self.cache.n_rows, self.binary, self.step)
        ids = self.next_id + np.arange(n)
        self.next_id += n
        listed = data.draw(st.booleans())
        staged = stage(self.cache, ids, phi, self.binary, self.told, listed)
        which = np.array(data.draw(st.permutations(range(n))))
        expected, free = [], self.cache.free
        for t in which.tolist():
            size, taken = int(staged.sizes[t]), self.cache.n + len(expected)
            if size <= free and taken < self.cache.max_columns:
                expected.append(t)
                free -= size
        assert self.cache.admit_some(staged, which).tolist() == expected
        assert self.cache.free == free
        self.columns += [(int(ids[t]), phi[t].copy()) for t in expected]
        self.refused |= len(expected) < n

    @precondition(lambda self: self.columns)
    @rule(share=st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    def evict(self, share: float) -> None:
        keep = self.rng.random(len(self.columns)) < share
        self.cache.evict(keep)
        self.columns = [c for c, stays in zip(self.columns, keep, strict=True) if stays]

    @rule()
    def evict_for_the_largest(self) -> None:
        # any column fits into an empty cache: the working set cannot stay empty for want of room
        self.cache.evict(np.zeros(len(self.columns), bool))
        self.columns = []
        phi = np.full((1, self.cache.n_rows), 1.0 if self.binary else 127.0 * STEP, np.float32)
        staged = stage(self.cache, np.array([self.next_id]), phi, self.binary, self.told)
        assert staged.sizes[0] <= self.cache.largest
        assert self.cache.admit(staged, 0)
        self.columns = [(self.next_id, phi[0])]
        self.next_id += 1

    @invariant()
    def contents(self) -> None:
        cache = self.cache
        assert broken_invariants(cache) == []
        assert cache.ids.tolist() == [feature for feature, _ in self.columns]
        assert cache.n == len(self.columns)
        assert cache.used == cache.sizes.sum() == cache.capacity - cache.free
        if self.columns:
            dense = np.array([column for _, column in self.columns])
            assert (read_back(cache) == dense).all()
            assert cache.store.nonzeros[cache.slots].tolist() == (dense != 0.0).sum(axis=1).tolist()


@pytest.mark.slow
def test_contents_survive_any_order_of_admissions_and_evictions() -> None:
    run_state_machine_as_test(CacheMachine, settings=examples(150))


@pytest.mark.parametrize(("binary", "step"), [(True, 0.0), (False, 0.0), (False, STEP)])
def test_fewer_rows_need_no_more_room(binary: bool, step: float) -> None:
    cache = ColumnCache(1 << 14, 2, 1000, 128, binary, step)
    before = cache.largest
    for n_rows in (1000, 999, 500, 129, 128, 127, 1, 0):
        cache.resize(n_rows, cache.mean)
        assert cache.largest == ColumnCache.largest_column(n_rows, 128, binary, step)
        assert cache.largest <= before
        before = cache.largest


def cost(phi: np.ndarray, block_rows: int = 65536) -> int:
    """Bytes of one binary column in a cache."""
    n = len(phi)
    cache = ColumnCache(ColumnCache.largest_column(n, block_rows), 1, n, block_rows)
    staged = stage(cache, np.array([0]), phi[None])
    assert cache.admit(staged, 0) and cache.used == staged.sizes[0]
    assert (read_back(cache)[0] == phi).all()
    return cache.used


@pytest.mark.parametrize("density", [0.003, 0.02, 0.06])
def test_a_sparse_column_costs_two_bytes_a_nonzero(density: float) -> None:
    phi = (np.random.default_rng(0).random(200_000) < density).astype(np.float32)
    assert cost(phi) <= 2.1 * phi.sum()
    assert cost(np.zeros(200_000, np.float32)) == 0


@pytest.mark.parametrize("density", [0.07, 0.5, 1.0])
@pytest.mark.parametrize(("n", "block_rows"), [(200_000, 65536), (1000, 256), (1001, 64)])
def test_a_dense_column_costs_a_bit_a_row(density: float, n: int, block_rows: int) -> None:
    phi = (np.random.default_rng(0).random(n) < density).astype(np.float32)
    blocks = -(-n // block_rows)
    assert cost(phi, block_rows) <= n / 8 + 8 * blocks
    assert cost(phi, block_rows) <= ColumnCache.largest_column(n, block_rows)


def test_values_cost_six_bytes_a_nonzero_or_four_a_row() -> None:
    rng = np.random.default_rng(0)
    n = 100_000
    sparse = rng.normal(size=n) * (rng.random(n) < 0.05)
    for values, most in ((sparse, 6.1 * (sparse != 0).sum()), (rng.normal(size=n), 4 * n + 16)):
        cache = ColumnCache(1 << 20, 1, n, 65536, binary=False)
        staged = stage(cache, np.array([3]), values[None].astype(np.float32), binary=False)
        assert cache.admit(staged, 0)
        assert cache.used <= most


def small(columns: int, n: int, most: int) -> np.ndarray:
    """Whole numbers from -most to most, seldom 0: float32 (columns, n)."""
    random = np.random.default_rng(columns)
    return random.integers(-most, most + 1, (columns, n)).astype(np.float32)


def test_small_multiples_of_a_step_cost_a_byte_a_row() -> None:
    """Whether or not the cache knows the step; four times as many columns fit into the same room."""
    n, room = 1000, 4 * 16 * 1000
    real = np.random.default_rng(0).normal(size=(70, n)).astype(np.float32)
    held = {}
    for name, phi, step in (
        ("real", real, 0.0),
        ("told", (STEP * small(70, n, 127)).astype(np.float32), STEP),
        ("found", (STEP * small(70, n, 127)).astype(np.float32), 0.0),
        ("counts", small(70, n, 127), 0.0),
    ):
        cache = ColumnCache(room, 100, n, 65536, False, step)
        staged = stage(cache, np.arange(70), phi, False, step)
        admitted = [cache.admit(staged, t) for t in range(70)]
        assert admitted == sorted(admitted, reverse=True) and broken_invariants(cache) == []
        assert (read_back(cache) == phi[: cache.n]).all()
        held[name] = cache.n
    assert held == {"real": 16, "told": 63, "found": 63, "counts": 63}


@pytest.mark.parametrize("step", [1.0, STEP, 0.25])
def test_columns_of_which_no_value_is_a_single_step(step: float) -> None:
    """Columns of 2 and 3: a step of 1 is detected; with a declared step they are stored as usual."""
    n = 1000
    phi = (step * np.random.default_rng(0).integers(2, 4, (1, n))).astype(np.float32)
    sizes = {}
    for told in (0.0, step):
        cache = ColumnCache(1 << 20, 1, n, 65536, False, told)
        assert cache.admit(stage(cache, np.array([0]), phi, False, told), 0)
        assert (read_back(cache) == phi).all()
        sizes[told] = cache.used
    assert sizes == {0.0: 1008 if step == 1.0 else 4000, step: 1008}


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 128.0],  # too many steps
        [0.3, 0.6, 0.9],  # of which float32 makes no multiples of the first
        [1e-45, 1.0],
        [1.0, 1.5],
    ],
)
def test_values_that_are_not_multiples_are_kept(values: list[float]) -> None:
    phi = np.resize(np.array(values, np.float32), (1, 999))
    cache = ColumnCache(1 << 20, 1, 999, 256, binary=False)
    assert cache.admit(stage(cache, np.array([0]), phi, False), 0)
    assert (read_back(cache) == phi).all() and cache.used == 4000


def test_equal_columns_are_found_however_they_came() -> None:
    phi = (0.5 * small(3, 300, 5)).astype(np.float32)
    cache = ColumnCache(1 << 20, 6, 300, 128, binary=False)
    told, plain = (
        stage(cache, np.arange(3), phi, False, 0.5),
        stage(cache, np.arange(3), phi, False),
    )
    assert all(cache.admit(told, t) for t in range(3))
    assert [equal_to(cache, plain, t).tolist() for t in range(3)] == [[0], [1], [2]]


@pytest.mark.parametrize(("binary", "step"), [(True, 0.0), (False, 0.0), (False, STEP)])
@pytest.mark.parametrize(("n", "block_rows"), [(64, 64), (1000, 256), (1001, 64), (70_000, 65536)])
def test_a_cache_too_small_for_one_column_is_refused(
    binary: bool, step: float, n: int, block_rows: int
) -> None:
    need = ColumnCache.largest_column(n, block_rows, binary, step)
    cache = ColumnCache(need, 1, n, block_rows, binary, step)
    worst = np.full((1, n), 127.0 * step or 1.0, np.float32)
    assert cache.admit(stage(cache, np.array([0]), worst, binary, step), 0)
    with pytest.raises(BudgetError, match=rf"{need} bytes\), got {need - 1} bytes; raise"):
        ColumnCache(need - 1, 1, n, block_rows, binary, step)
    with pytest.raises(BudgetError):
        ColumnCache(need, 0, n, block_rows, binary, step)


@pytest.mark.parametrize("block_rows", [0, -64, 65537])
def test_rows_of_a_block_fit_sixteen_bits(block_rows: int) -> None:
    with pytest.raises(ValueError, match="block_rows must be from 1 to 65536"):
        ColumnCache(1 << 20, 1, 100, block_rows)


def test_the_last_row_of_the_largest_block_is_kept() -> None:
    phi = np.zeros(131_072, np.float32)
    phi[[0, 65_535, 65_536, 131_071]] = 1.0
    assert cost(phi) == 16


def test_the_directory_is_counted() -> None:
    n, block_rows, columns = 1000, 256, 50
    cache = ColumnCache(1 << 16, columns, n, block_rows)
    arrays = [
        v for part in (cache, cache.store) for v in vars(part).values() if isinstance(v, np.ndarray)
    ]
    held = sum(a.nbytes for a in arrays)
    assert held == cache.capacity + ColumnCache.directory_bytes(columns, n, block_rows)


@pytest.mark.parametrize("binary", [True, False])
def test_columns_moved_by_blocks_words_and_rows_are_distinguished(binary: bool) -> None:
    rng = np.random.default_rng(1)
    cache = ColumnCache(1 << 16, 10, 512, 128, binary)
    base = (rng.random(512) < 0.3).astype(np.float32)
    moved = np.array([np.roll(base, k) for k in (0, 128, 256, 64, 1)])
    staged = stage(cache, np.arange(5), moved, binary)
    for t in range(5):
        assert not len(equal_to(cache, staged, t))
        assert cache.admit(staged, t)
    assert [equal_to(cache, staged, t).tolist() for t in range(5)] == [[t] for t in range(5)]
