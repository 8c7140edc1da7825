"""Columns gathered on a sample of rows, from every encoding, against dense numpy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fcl.cache import ColumnCache
from fcl.kernels import columns as kernels
from fcl.kernels import gather
from fcl.kernels.gather import GatheredColumns
from fcl.kernels.sampling import SampledRows
from fcl.solve.gathered import Gathered
from tests.columns import Filled, close, filled, stage
from tests.samples import sample_rows
from tests.windows import examples


def room_for(
    sample: SampledRows, k: int, rows: int, valued: bool
) -> tuple[GatheredColumns, np.ndarray, np.ndarray]:
    """Buffers for k columns with so many entries, and for one column."""
    cuts = np.full((k, len(sample.firsts)), -1)
    values = np.empty(rows if valued else 0, np.float32)
    columns = GatheredColumns(cuts, np.full(rows, 7, np.uint16), values, sample.firsts)
    most = len(sample.q)
    return columns, np.empty(most, np.uint16), np.empty(most if valued else 0, np.float32)


@given(filled, st.sampled_from([0.0, 0.1, 0.6, 1.0]), st.sampled_from([0.0, 0.2, 2.0]))
@examples(80)
def test_entries_of_chosen_rows(made: Filled, share: float, tau: float) -> None:
    cache, phi, rng = made
    valued = not np.isin(phi, [0.0, 1.0]).all() or cache.largest > 8 * -(-cache.n_rows // 64)
    q = rng.exponential(size=cache.n_rows) * (rng.random(cache.n_rows) < share)
    sample, numbers = sample_rows(q, tau, 3, cache.block_rows)
    taken = np.flatnonzero(numbers >= 0)
    columns = rng.permutation(len(phi))[: rng.integers(1, len(phi) + 1)]
    k = len(columns)
    full = rng.random(k) < 0.5
    room = int(cache.pieces.counts[columns].sum())
    begin = int(rng.integers(5))
    gathered, *buffers = room_for(sample, k, begin + room + 3, valued)
    cross, curve = np.empty(k), np.empty(k)
    end = begin + room
    assert k == gather.gather_columns(
        cache.pieces, columns, full, sample, *buffers, begin, end, gathered, cross, curve
    )
    cuts = gathered.cuts
    assert cuts[0, 0] == begin and cuts[-1, -1] <= end
    assert (cuts[1:, 0] == cuts[:-1, -1]).all() and (np.diff(cuts) >= 0).all()
    assert (gathered.rows[:begin] == 7).all() and (gathered.rows[end:] == 7).all()
    picked = np.zeros((k, len(taken)))
    picked[:, numbers[taken]] = np.float32(phi[columns][:, taken])
    found = Gathered(gathered, sample.q)
    for t in range(k):
        entries = slice(cuts[t, 0], cuts[t, -1])
        rows = found.numbers(slice(t, t + 1))
        assert (np.diff(rows) > 0).all()
        densely = np.isin(cache.pieces.kinds[columns[t]], [kernels.DENSE, kernels.STEPS])
        zeros_too = full[t] & densely[taken // cache.block_rows]
        listed = zeros_too | (phi[columns[t]][taken] != 0.0)
        assert len(rows) == np.count_nonzero(listed)
        dense = np.zeros(len(taken))
        dense[rows] = gathered.values[entries] if valued else 1.0
        assert (dense == picked[t]).all()
    weights = sample.q
    close(cross, picked @ weights, np.abs(picked) @ weights)
    close(curve, picked**2 @ weights, picked**2 @ weights)
    z = rng.normal(size=(len(taken), 2))
    for squared in (False, True):
        of = np.float32(picked) ** 2 if squared else picked  # squares are rounded
        close(found.products(z, squared), of @ z, np.abs(of) @ np.abs(z) + 1e-300)


def test_too_little_room_for_entries_is_reported() -> None:
    cache = ColumnCache(1 << 12, 4, 200, 64)
    staged = stage(cache, np.arange(2), np.ones((2, 200), np.float32))
    assert cache.admit(staged, 0) and cache.admit(staged, 1)
    sample, _ = sample_rows(np.ones(200), 0.0, 0, 64)
    for room, written in ((400, 2), (399, 1), (10, 0)):
        gathered, *buffers = room_for(sample, 2, room, False)
        found = gather.gather_columns(
            cache.pieces,
            np.arange(2),
            np.ones(2, bool),
            sample,
            *buffers,
            0,
            room,
            gathered,
            np.empty(2),
            np.empty(2),
        )
        assert found == written


def test_a_sample_is_smaller_than_its_cache() -> None:
    """Nothing is read beyond its bitmaps, which end where the cache ends."""
    most, held, rng = 65536, 640, np.random.default_rng(0)
    phi = (rng.random((102, held)) < 0.5).astype(np.float32)
    cache = ColumnCache(ColumnCache.largest_column(most, most, True), len(phi), most, most, True)
    cache.resize(held, cache.mean)
    staged = stage(cache, np.arange(len(phi)), phi)
    n = sum(cache.admit(staged, t) for t in range(len(phi)))
    assert n > 90 and cache.free < 8 * held // 64 + 8  # without bounds, much more would be read
    sample, numbers = sample_rows(np.ones(held), 0.0, 0, most)
    gathered, *buffers = room_for(sample, n, n * held, False)
    cross, curve = np.empty(n), np.empty(n)
    full = np.zeros(n, bool)
    assert n == gather.gather_columns(
        cache.pieces, np.arange(n), full, sample, *buffers, 0, n * held, gathered, cross, curve
    )
    assert (cross == phi[:n].sum(axis=1)).all() and (numbers == np.arange(held)).all()


@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.5]))
@examples(20)
def test_whole_columns_are_centred(seed: int, tau: float) -> None:
    rng = np.random.default_rng(seed)
    cache = ColumnCache(1 << 14, 3, 200, 64, binary=False)
    phi = rng.normal(size=(2, 200)).astype(np.float32) + 100.0
    phi[1, 5] = 0.0
    staged = stage(cache, np.arange(2), phi, False)
    assert cache.admit(staged, 0) and cache.admit(staged, 1)
    sample, numbers = sample_rows(rng.exponential(size=200) + 0.5, tau, seed, 64)
    gathered, *buffers = room_for(sample, 2, 400, True)
    cross, curve, centres = np.empty(2), np.empty(2), np.empty(2)
    columns, full = np.arange(2), np.zeros(2, bool)
    args = cache.pieces, columns, full, sample, *buffers, 0, 400, gathered, cross, curve
    assert gather.gather_columns(*args) == 2
    before = gathered.values.copy()
    q = sample.q
    gather.centre(gathered, q, float(q.sum()), cross, curve, centres)
    own = np.empty(200)
    own[numbers] = phi[0]
    np.testing.assert_allclose(centres, [q @ own / q.sum(), 0.0], rtol=1e-12)
    np.testing.assert_allclose(gathered.values[:200], own - centres[0], atol=1e-5)
    assert (gathered.values[200:399] == before[200:399]).all()
    assert abs(cross[0]) < 1e-3 * q.sum()
    np.testing.assert_allclose(curve[0], q @ (own - centres[0]) ** 2, rtol=1e-4)
