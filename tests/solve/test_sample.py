"""Drawing rows: as many as asked, by curvature, unbiased, all of a rare class, the same each time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fcl.objective import SingleOutput, find_loss
from fcl.solve.sampling import LastStep, SampledPass, SampleSize, draw_rows

N = 20_000


def draw(
    q: np.ndarray, size: int, y: np.ndarray, s: np.ndarray, seed: int = 0, block_rows: int = 1024
) -> tuple[np.ndarray, np.ndarray]:
    objective = SingleOutput(find_loss("logistic"), y, s, 1.0, True, block_rows)
    rows, weights = np.empty(2 * size, np.int64), np.empty(2 * size)
    n = draw_rows(objective, q, size, seed, rows, weights)
    return rows[:n], weights[:n]


@pytest.fixture
def labels() -> np.ndarray:
    return np.where(np.random.default_rng(1).random(N) < 0.5, 1.0, -1.0)


def test_sums_over_the_sample_are_unbiased(labels: np.ndarray) -> None:
    rng = np.random.default_rng(2)
    q, s = rng.exponential(size=N) ** 3, rng.uniform(0.5, 2.0, N)
    value = rng.normal(size=N) + 1.0
    ends = []
    for seed in range(60):
        rows, weights = draw(q, 1500, labels, s, seed)
        assert 1100 < len(rows) < 1500
        assert (np.diff(rows) > 0).all()
        ends.append(float(weights @ value[rows]))
    exact = float(s @ value)
    error = np.std(ends) / np.sqrt(len(ends))
    assert abs(np.mean(ends) - exact) < 4 * error
    assert error < 0.02 * exact  # else the test shows nothing


def test_rows_with_curvature_are_preferred_and_flat_ones_still_there(labels: np.ndarray) -> None:
    q = np.where(np.arange(N) < 1000, 1.0, 1e-6)
    rows, weights = draw(q, 1500, labels, np.ones(N))
    steep = rows < 1000
    assert steep.sum() == 1000 and (weights[steep] == 1.0).all()
    assert 150 < (~steep).sum() < 450


@pytest.mark.parametrize("power", [-90, 90])
def test_the_unit_of_weights_does_not_matter(labels: np.ndarray, power: int) -> None:
    rng = np.random.default_rng(2)
    q, s = rng.exponential(size=N) ** 3, rng.uniform(0.5, 2.0, N)
    rows, weights = draw(q, 1500, labels, s)
    again, scaled = draw(q * 2.0**power, 1500, labels, s * 2.0**power)
    assert (again == rows).all() and (scaled == weights * 2.0**power).all()


def test_a_rare_class_is_in_as_a_whole() -> None:
    y = np.where(np.arange(N) % 100 == 0, 1.0, -1.0)
    for sign in (1.0, -1.0):
        rows, weights = draw(np.ones(N), 1000, sign * y, np.ones(N))
        rare = np.flatnonzero(sign * y == sign)
        assert np.isin(rare, rows).all()
        assert (weights[np.isin(rows, rare)] == 1.0).all()
        assert (weights[~np.isin(rows, rare)] > 10.0).all()


def test_a_rare_class_takes_its_room_from_the_others() -> None:
    y = np.where(np.arange(N) % 50 == 0, 1.0, -1.0)
    objective = SingleOutput(find_loss("logistic"), y, np.ones(N), 1.0, True, 1024)
    rows, weights = np.empty(2000, np.int64), np.empty(2000)
    n = draw_rows(objective, np.ones(N), 2000, 0, rows, weights)
    assert 1700 < n < 2000 and rows[n - 1] > 0.99 * N
    assert weights[:n].sum() == pytest.approx(N, rel=0.1)


def test_all_rows_if_so_many_are_wanted(labels: np.ndarray) -> None:
    """Flat rows too: a sample that has grown to all rows must allow convergence."""
    s = np.random.default_rng(3).uniform(0.5, 2.0, N)
    rows, weights = draw(np.where(s > 1.0, 1.0, 1e-9), N, labels, s)
    assert (rows == np.arange(N)).all()
    assert (weights == s).all()


def test_the_same_seed_draws_the_same_rows_whatever_the_curvature_of_none(
    labels: np.ndarray,
) -> None:
    first = draw(np.ones(N), 900, labels, np.ones(N), seed=5)
    again = draw(np.ones(N), 900, labels, np.ones(N), seed=5)
    other = draw(np.ones(N), 900, labels, np.ones(N), seed=6)
    assert (first[0] == again[0]).all()
    assert not np.array_equal(first[0], other[0])
    flat, _ = draw(np.zeros(N), 900, labels, np.ones(N), seed=5)
    assert 600 < len(flat) < 1200


def test_no_more_rows_than_there_is_room_for(labels: np.ndarray) -> None:
    objective = SingleOutput(find_loss("logistic"), labels, np.ones(N), 1.0, True, 1024)
    rows, weights = np.empty(100, np.int64), np.empty(100)
    n = draw_rows(objective, np.ones(N), 5000, 0, rows, weights)
    assert 40 <= n <= 100
    assert rows[n - 1] > 0.9 * N  # none of the last ones were cut off


def test_passes_of_the_final_phase_renew_the_sample_or_let_it_grow() -> None:
    size = SampleSize(1_000_000, 500_000, 100_000, 1 << 30)

    good, bad = LastStep(), LastStep(beta=0.4)

    def reason(objective: float, gap: float, step: LastStep = good) -> str:
        return size.redraw_reason(SampledPass(objective, gap, step, 100, 1e6))

    assert reason(100.0, np.inf) == "first"
    size.draws, size.drawn = 1, 100_000
    assert reason(90.0, 50.0) == ""  # the objective still falls
    assert reason(89.9, 5.0) == ""  # the gap falls to a tenth
    assert reason(89.8, 2.0) == "renewed" and size.wanted == 100_000
    assert reason(89.7, 1.9) == "larger" and size.wanted == 200_000
    assert reason(50.0, 1.5) == "stale"
    size.wanted = size.most
    assert reason(49.9, 0.1, bad) == ""  # the sample is too young
    assert reason(49.8, 0.01, bad) == "mispredicted"


def test_a_sample_whose_columns_are_dear_is_kept_while_passes_close_the_gap() -> None:
    for dear in (False, True):
        size = SampleSize(10_000_000, 5_000_000, 100_000, 1 << 40)
        size.draws, size.drawn = 1, 100_000
        cached_bytes = float(1 << 30 if dear else 1 << 20)
        redrawn = [
            bool(size.redraw_reason(SampledPass(objective, gap, LastStep(), 100, cached_bytes)))
            for objective, gap in ((200.0, 99.0), (190.0, 50.0), (189.9, 25.0), (189.8, 20.0))
        ]
        assert redrawn == [True, False, not dear, True]


def test_a_sample_is_kept_while_weights_are_frozen() -> None:
    """Features that do not fit keep the gap open; only a step that was predicted badly is a reason."""
    for n_frozen, decrease in itertools.product((0, 5), (0.4, 0.6)):
        size = SampleSize(10_000_000, 5_000_000, 100_000, 1 << 20)
        size.draws, size.drawn, size.objective = 1, 100_000, 200.0
        step = LastStep(decrease=decrease, promised=1.0)
        bool(size.redraw_reason(SampledPass(200.0, 50.0, step, 100, 1e6, n_frozen)))
        redrawn = bool(size.redraw_reason(SampledPass(199.9, 49.0, step, 100, 1e6, n_frozen)))
        assert redrawn == (n_frozen == 0 or decrease < 0.5)


def test_a_sample_that_predicted_the_step_is_kept_if_its_columns_are_dear() -> None:
    """While the gap is wide; later, errors of the sample may keep it open all the same."""
    for dear, share, gap in itertools.product((False, True), (0.8, 0.95), (50.0, 10.0)):
        size = SampleSize(10_000_000, 5_000_000, 100_000, 1 << 40)
        size.draws, size.drawn = 1, 100_000
        step = LastStep(decrease=share, promised=1.0)
        cached_bytes = float(1 << 30 if dear else 1 << 20)
        bool(size.redraw_reason(SampledPass(200.0, gap, step, 100, cached_bytes)))
        redrawn = bool(size.redraw_reason(SampledPass(199.9, 0.98 * gap, step, 100, cached_bytes)))
        assert redrawn == (not dear or share == 0.8 or gap == 10.0)


def test_a_sample_whose_columns_are_dear_grows_only_while_it_is_thin() -> None:
    for n_cached, grows in ((10_000, True), (8_000, False)):
        size = SampleSize(10_000_000, 5_000_000, 100_000, 1 << 40)
        size.draws, size.drawn = 1, 100_000
        bad = LastStep(decrease=0.1, promised=1.0)
        bool(size.redraw_reason(SampledPass(90.0, 50.0, bad, n_cached, 1 << 30)))
        assert (size.wanted > 100_000) == grows
        bool(size.redraw_reason(SampledPass(80.0, 50.0, bad, n_cached, 1 << 20)))
        assert size.wanted > 100_000
