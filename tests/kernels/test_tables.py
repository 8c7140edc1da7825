"""Randomised rounding to int16, Morris counters, and their random numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.kernels.compilation import kernel
from fcl.kernels.tables import bounded, count, rounded, words
from fcl.online.table import BASE, morris
from tests.windows import INTERPRETED, examples

#: The largest step of a table of 16 bits.
LIMIT = 32767.0
#: Draws of a test of a mean, and counters of a test of their law.
N_DRAWS, N_COUNTERS = (30_000, 30) if INTERPRETED else (1_000_000, 20_000)

VALUES = st.floats(-1e300, 1e300) | st.floats(-4e4, 4e4) | st.integers(-40000, 40000).map(float)


@given(VALUES, st.integers(0, 2**32 - 1))
@examples(300)
def test_an_int16_never_wraps(value: float, word: int) -> None:
    v = bounded(value, LIMIT)
    found = rounded(v, np.uint64(word))
    assert -LIMIT <= found <= LIMIT and found == math.floor(found)
    assert abs(found - v) < 1.0
    if v == math.floor(v):
        assert found == v
    if abs(value) >= LIMIT:
        assert found == math.copysign(LIMIT, value)
    kept = np.zeros(1, np.int16)
    kept[0] = found
    assert kept[0] == found


@kernel
def _roundings(v, seed, out):
    for i in range(out.shape[0]):
        out[i] = rounded(v, words(seed, 0, i, 5)[1])


@kernel
def _counted(counts, up, events, number):
    """Count events of all counters, each event in a row of its own."""
    for t in range(events):
        for i in range(counts.shape[0]):
            count(counts, i, up, words(1, number, t, i)[0])


@pytest.mark.parametrize("v", [0.25, -3.9, 17.5, -1e-4, 32766.3, -32766.7])
def test_roundings_have_the_mean_of_the_value(v: float) -> None:
    out, other = np.empty((2, N_DRAWS))
    _roundings(v, 1, out)
    low = math.floor(v)
    share = v - low
    assert set(out) == {low, low + 1}
    assert abs(out.mean() - v) <= 4.5 * math.sqrt(share * (1 - share) / len(out))
    _roundings(v, 2, other)
    assert (out != other).any()


def test_words_depend_on_each_part() -> None:
    base = (1, 0, 7, 3)
    seen = {words(*base)}
    for place in range(4):
        for more in (1, 1 << 31 if place == 1 else 1 << 40):
            parts = list(base)
            parts[place] += more
            seen.add(words(*parts))
    assert len(seen) == 9
    # rows beyond 2^32 and passes share a word of the counter: both would have to be as large
    assert words(0, 1, 5, 3) == words(0, 0, 5 + (1 << 32), 3)


def law(t: int) -> np.ndarray:
    """The distribution of a counter after t events, from its definition."""
    p = np.zeros(256)
    p[0] = 1.0
    up = BASE ** -np.arange(256.0)
    up[255] = 0.0
    for _ in range(t):
        rise = p * up
        p = p - rise
        p[1:] += rise[:-1]
    return p


def test_the_thresholds_are_the_probabilities() -> None:
    up, events = morris()
    np.testing.assert_allclose(up[:255] / 2**32, BASE ** -np.arange(255.0), rtol=1e-4, atol=2**-32)
    assert up[0] == 1 << 32 and up[255] == 0
    np.testing.assert_allclose(
        events, (BASE ** np.arange(256.0) - 1) / (BASE - 1), rtol=1e-12, atol=1e-12
    )
    assert events[1] == pytest.approx(1.0, rel=1e-12) and events[255] > 3e11


@pytest.mark.parametrize("t", [1, 2, 10, 1000])
def test_the_law_of_the_counters(t: int) -> None:
    """Mean t, variance (b - 1) t (t - 1) / 2: of the exact law, and of many counters."""
    up, events = morris()
    p, n = law(t), N_COUNTERS
    assert p @ events == pytest.approx(t, rel=1e-9)
    variance = p @ (events - t) ** 2
    assert variance == pytest.approx((BASE - 1) * t * (t - 1) / 2, rel=1e-6, abs=1e-9)
    counts = np.zeros(n, np.uint8)
    _counted(counts, up, t, 0)
    found = events[counts]
    assert abs(found.mean() - t) <= 4.5 * math.sqrt(variance / n)
    fourth = p @ (events - t) ** 4
    assert abs(found.var() - variance) <= 4.5 * math.sqrt((fourth - variance**2) / n) + 1e-9
    seen = np.bincount(counts, minlength=256)
    assert (np.abs(seen - n * p) <= 5 * np.sqrt(n * p * (1 - p)) + 1).all()


def test_counters_never_fall_and_stay_at_the_end() -> None:
    up, _ = morris()
    counts = np.array([0, 1, 254, 255], np.uint8)
    before = counts.copy()
    for number in range(200):
        _counted(counts, up, 5, number)
        assert (counts >= before).all()
        before = counts.copy()
    always = np.full(256, 1 << 32, np.uint64)
    always[255] = 0
    counts[:] = 250
    _counted(counts, always, 300, 0)
    assert (counts == 255).all()
    exact = np.zeros(4, np.uint32)
    _counted(exact, np.empty(0, np.uint64), 300, 0)
    assert (exact == 300).all()
