"""Random numbers by a counter, and sums over cosines."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fcl.features.fourier import STEP
from fcl.kernels import fourier

F32 = (fourier.QUARTER_32, fourier.SINE_32, fourier.STEPS_32, np.float32)
F64 = (fourier.QUARTER_64, fourier.SINE_64, fourier.STEPS_64, np.float64)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_is_that_of_the_paper(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """Known answers that the authors published with Random123."""
    words = fourier.philox(*(np.uint64(word) for word in counter + key))
    assert tuple(int(word) for word in words) == expected


def test_all_parts_of_a_counter_count() -> None:
    arguments = [(5, 7, 3, 0), (6, 7, 3, 0), (5, 8, 3, 0), (5, 7, 4, 0), (5, 7, 3, 1)]
    arguments += [(5 + (1 << 32), 7, 3, 0), (5, 7 + (1 << 32), 3, 0)]
    drawn = [fourier.uniforms(*some) for some in arguments]
    assert len({u for pair in drawn for u in pair}) == 2 * len(arguments)
    assert drawn[0] == fourier.uniforms(*arguments[0])


def test_logarithm() -> None:
    points = np.concatenate(
        [2.0 ** -np.arange(1.0, 54.0, 0.37), [0.5**54, 1.0, 0.999999, 0.71, 0.70]]
    )
    found = np.array([fourier.logarithm(x) for x in points])
    np.testing.assert_allclose(found, np.log(points), rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize(("kind", "tolerance"), [(F32, 2.5e-7), (F64, 5e-16)])
def test_cosines(kind: tuple, tolerance: float) -> None:
    *value, dtype = kind
    turns = np.linspace(-3.0, 3.0, 4000).astype(dtype).reshape(500, 8)
    found = turns.copy()
    fourier.cosines(found, np.zeros(8, dtype), *value, dtype(0.0))
    whole = turns.astype(np.longdouble)
    exact = np.cos(2 * np.longdouble("3.14159265358979323846264338") * (whole - np.rint(whole)))
    assert np.abs(found - exact).max() <= tolerance
    assert found.dtype == dtype


@pytest.mark.parametrize("kind", [F32, F64])
def test_cosines_of_huge_angles_stay_within_their_bound(kind: tuple) -> None:
    *value, dtype = kind
    turns = np.array([[1e6 + 0.3, -3e7, 1e20, -1e30, 4194304.5, 0.25, 0.5, 0.0]], dtype)
    fourier.cosines(turns, np.zeros(8, dtype), *value, dtype(0.0))
    assert np.isfinite(turns).all() and np.abs(turns).max() <= 1.0 + 1e-6
    assert turns[0, 2] == pytest.approx(1.0, abs=1e-6)  # whole turns


@pytest.mark.parametrize("kind", [F32, F64])
def test_cosines_in_steps(kind: tuple) -> None:
    *value, dtype = kind
    turns = np.linspace(-2.0, 2.0, 4000).astype(dtype).reshape(500, 8)
    plain, found = turns.copy(), turns.copy()
    fourier.cosines(plain, np.zeros(8, dtype), *value, dtype(0.0))
    fourier.cosines(found, np.zeros(8, dtype), *value, dtype(STEP))
    assert (found == np.rint(dtype(127.0) * plain) * STEP).all()
    assert {-127, 0, 1, 127} <= set(np.rint(found / STEP).astype(int).ravel())
    assert np.abs(found - plain).max() <= 0.5 / 127 + 1e-6


@pytest.mark.parametrize("kind", [F32, F64])
@pytest.mark.parametrize("n", [1, 4, 7])
@pytest.mark.parametrize("step", [0.0, STEP])
def test_sums_and_margins_are_those_of_the_cosines(kind: tuple, n: int, step: float) -> None:
    *value, dtype = kind
    value.append(dtype(step))
    random = np.random.default_rng(n)
    turns, phases = random.standard_normal((9, 16)).astype(dtype), random.random(16).astype(dtype)
    values = turns.copy()
    fourier.cosines(values, phases, *value)
    r, weights = random.standard_normal(n), random.standard_normal(16)
    sums, margins = np.ones(5), np.ones(n)
    fourier.cosine_sums(turns.copy(), phases, *value, r, sums)
    fourier.cosine_margins(turns.copy(), phases, *value, weights, margins)
    exact = values.astype(np.float64)
    np.testing.assert_allclose(sums, 1.0 + r @ exact[:n, :5], rtol=0, atol=1e-13)
    np.testing.assert_allclose(margins, 1.0 + exact[:n] @ weights, rtol=0, atol=1e-13)


def test_frequencies_of_an_odd_number_of_inputs() -> None:
    """The last number of the last pair is left out; the others are those of more inputs."""
    ids = np.array([3, 1 << 39])
    for kind in (fourier.NORMAL, fourier.CAUCHY):
        odd, even = np.zeros((3, 4)), np.zeros((4, 2))
        fourier.frequencies(1, ids, kind, 2.0, fourier.SINE_64, odd)
        fourier.frequencies(1, ids, kind, 2.0, fourier.SINE_64, even)
        assert (odd[:, :2] == even[:3]).all() and (odd[:, 2:] == 0.0).all()
        u, v = fourier.uniforms(1, 3, 1, fourier.FREQUENCIES)
        exact = math.sqrt(-2.0 * math.log(u)) * np.array(
            [math.cos(2 * math.pi * v), math.sin(2 * math.pi * v)]
        )
        if kind == fourier.CAUCHY:
            exact = np.tan(math.pi * (np.array([u, v]) - 0.5))
        np.testing.assert_allclose(even[2:, 0], 2.0 * exact, rtol=1e-12)
