"""The rows of an inner model: as many as wanted, by curvature, whatever the weights are measured in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from explicit import make_solver, run
from judge import Problem, kmer_matrix
from rows import acceptors

from fcl.cache import ColumnCache
from fcl.features import KmerFamily
from fcl.solve import inner
from fcl.solve.inner import InnerModel
from fcl.solve.state import WorkingSet
from tests.columns import stage

SCALES = (1e-30, 1e-12, 1.0, 1e12, 1e30)


def choose(q: np.ndarray, most: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a sample, increasing, and their weights in it."""
    model = InnerModel(len(q), 1, 1, seed)
    assert model._choose_rows(q, most) == len(model.gathered(0).q)
    rows = model.chosen(len(q))
    order = np.argsort(rows)
    return rows[order], model.gathered(0).q[order]


@pytest.mark.parametrize("power", [-1000, -90, 90, 990])
def test_the_same_rows_whatever_the_unit(power: int) -> None:
    q = np.random.default_rng(2).exponential(size=4000) * (np.arange(4000) % 3 > 0)
    for most in (4000, 2000, 100, 1):
        rows, weights = choose(q, most)
        again, scaled = choose(q * 2.0**power, most)
        assert (again == rows).all()
        assert (scaled == weights * 2.0**power).all()


@pytest.mark.parametrize("scale", SCALES)
def test_fewer_rows_than_any_tau_of_the_histogram_gives(scale: float) -> None:
    """Rows of one curvature, and far fewer wanted; the steepest tau, not all rows, if none is enough."""
    q = np.full(100_000, 0.25 * scale)
    assert 40 < len(choose(q, 100)[0]) < 150
    assert len(choose(q, 1)[0]) < 10
    assert len(choose(q, 0)[0]) < 10


def test_room_for_all_entries_is_enough() -> None:
    """Also where zeros of nearly full columns are entries."""
    rng = np.random.default_rng(4)
    phi = rng.normal(size=(6, 3000)).astype(np.float32) * (rng.random((6, 3000)) < 0.95)
    phi[4:] *= rng.random((2, 3000)) < 0.2
    cache = ColumnCache(1 << 20, 6, 3000, 1024, binary=False)
    staged = stage(cache, np.arange(6), phi.astype(np.float32), False)
    assert all(cache.admit(staged, t) for t in range(6))
    entries = 4 * 3000 + int(np.count_nonzero(phi[4:]))
    for room, whole in ((entries, True), (entries - 700, False)):
        model = InnerModel(3000, 6, room, binary=False, block_rows=1024)
        cross, h = np.empty(6), np.empty(6)
        # more rows than seem to fit, so that only the room itself limits them
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(inner, "FILLED", 1.2)
            rows = model.gather(WorkingSet(cache), np.arange(6), np.ones(3000), cross, h, 3000)
        assert (rows == 3000) == whole == (model.drawn == 1)
        if whole:
            np.testing.assert_allclose(cross, phi.sum(axis=1, dtype=float), rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("coordinate_descent")
@pytest.mark.parametrize("scale", [2.0**-100, 1e-12, 1e12, 2.0**100])
def test_weights_and_C_scaled_inversely_are_the_same_problem(
    monkeypatch: pytest.MonkeyPatch, scale: float
) -> None:
    monkeypatch.setattr(inner, "LEAST_ROWS", 200)
    monkeypatch.setattr(inner, "ROWS_A_COLUMN", 1)
    sizes: list[int] = []
    before = InnerModel._choose_rows

    def watched(model: InnerModel, q: np.ndarray, most: int) -> int:
        sizes.append(before(model, q, most))
        return sizes[-1]

    monkeypatch.setattr(InnerModel, "_choose_rows", watched)
    codes, y = acceptors(12, 2000)
    problem = Problem(kmer_matrix(codes, 2), y, np.ones(2000), "logistic", 0.3)
    ends, drawn = [], []
    for s, C in ((1.0, 0.3), (scale, 0.3 / scale)):
        solver = make_solver(
            KmerFamily(2, 12), codes, replace(problem, s=np.full(2000, s), C=C), tol=1e-6
        )
        passes = run(solver, 60)
        assert passes[-1].gap <= 1e-6
        ends.append(passes[-1].objective)
        drawn.append(list(sizes))
        sizes.clear()
    assert ends[1] == pytest.approx(ends[0], rel=2e-6)
    assert max(drawn[0]) < 1500
    if scale in (1e-12, 1e12):  # rounding moves the points, and a few rows
        assert drawn[1][:5] == pytest.approx(drawn[0][:5], rel=0.1)
    else:
        assert drawn[1] == drawn[0]
