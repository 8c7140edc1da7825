"""The choice of rows by curvature, and their numbers in a sample, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.kernels import sampling
from tests.samples import sample_rows
from tests.windows import examples


@pytest.mark.parametrize("unit", [1.0, 3e20, 1e-250])
def test_the_histogram_counts_every_row_with_curvature_in_its_bin(unit: float) -> None:
    rng = np.random.default_rng(0)
    q = np.concatenate([10.0 ** rng.uniform(-40, 12, 500), [0.0, 1e-50, 0.25, 1.0, 1e50, 0.0]])
    counts, sums = np.full(sampling.BINS, np.nan), np.full(sampling.BINS, np.nan)
    sampling.curvature_histogram(q * unit, unit, counts, sums)
    q = q[q > 0.0] * unit / unit
    edges = sampling.bin_edges()
    inside = np.clip(np.searchsorted(edges, q, side="right") - 1, 0, sampling.BINS - 1)
    assert (counts == np.bincount(inside, minlength=sampling.BINS)).all()
    np.testing.assert_allclose(
        sums, np.bincount(inside, weights=q, minlength=sampling.BINS), rtol=1e-12
    )


@pytest.mark.parametrize("seed", [0, 1, 2**62])
def test_a_sample_of_rows_is_unbiased_and_the_same_every_time(seed: int) -> None:
    rng = np.random.default_rng(7)
    q = rng.exponential(size=4000) * (rng.random(4000) < 0.9)
    q[:20] *= 1e3
    values = rng.normal(size=4000)
    for tau in (0.0, 1.0, 5.0):
        sample, numbers = sample_rows(q, tau, seed)
        rows, weights = np.flatnonzero(numbers >= 0), sample.q[numbers[numbers >= 0]]
        assert (q[rows] > 0.0).all()
        sure = (q > 0.0) & (q >= tau)
        assert (numbers[sure] >= 0).all()
        own = q[rows] >= 2.0**sampling.DOUBLINGS * tau
        assert own.any() and (weights[own] == q[rows[own]]).all()
        # the others have tau times a power of the root of two, the nearest one above or below
        ratio = weights[~own] / max(tau, 1e-300)
        power = 2.0 * np.log2(ratio)
        assert (np.abs(power - np.round(power)) < 1e-9).all()
        away = ratio / np.maximum(q[rows[~own]] / max(tau, 1e-300), 1.0)
        assert (away < 1.42).all() and (away > 0.70).all()
        # within five standard deviations of what is expected
        share = np.where(sure, 1.0, q / max(tau, 1e-300))
        noise = np.sqrt((share * (1 - share)).sum())
        assert abs(len(rows) - share.sum()) <= 5 * noise + 1e-9
        spread = np.maximum(q, tau) ** 2 * share * (1 - share)
        spread += np.where(sure & (tau > 0.0), 0.03 * q**2, 0.0)
        spread = np.sqrt((spread * values**2).sum())
        assert abs(weights @ values[rows] - q @ values) <= 5 * spread + 1e-9
        again, same = sample_rows(q, tau, seed)
        assert (same == numbers).all() and (again.q == sample.q).all()
    _, other = sample_rows(q, 5.0, seed + 1)
    assert ((other >= 0) != (numbers >= 0)).any()


@given(
    st.integers(0, 2**31),
    st.sampled_from([1, 63, 64, 200, 1000]),
    st.sampled_from([64, 100, 4096]),
    st.sampled_from([0.0, 0.3, 3.0]),
)
@examples(60)
def test_numbers_run_through_segments_of_one_weight(
    seed: int, n: int, block_rows: int, tau: float
) -> None:
    rng = np.random.default_rng(seed)
    q = rng.exponential(size=n) ** 3 * (rng.random(n) < 0.8)
    sample, numbers = sample_rows(q, tau, seed, block_rows)
    rows = np.flatnonzero(numbers >= 0)
    assert sorted(numbers[rows]) == list(range(len(rows))) and len(sample.q) == len(rows)
    assert sample.firsts[0] == 0 and sample.firsts[-1] == len(rows)
    assert (np.diff(sample.firsts) > 0).all()
    for s, weight in enumerate(sample.shared):
        inside = slice(sample.firsts[s], sample.firsts[s + 1])
        own = rows[np.isin(numbers[rows], np.arange(inside.start, inside.stop))]
        assert (np.diff(numbers[own]) > 0).all()  # in the order of the rows
        assert (sample.q[inside] == (weight if weight > 0.0 else q[own])).all()


@pytest.mark.slow
@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_long_segments_are_split(tau: float) -> None:
    n = 3 * sampling.SEGMENT_ROWS + 5
    sample, numbers = sample_rows(np.ones(n), tau, 0, 1 << 16)
    assert (numbers == np.arange(n)).all()
    assert (sample.shared == tau).all()
    assert np.diff(sample.firsts).tolist() == [sampling.SEGMENT_ROWS] * 3 + [5]
    assert len(sample.shared) <= sampling.most_segments(n)
