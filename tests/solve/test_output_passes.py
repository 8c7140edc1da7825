"""Steps of a pass with several outputs that processes share."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

import fcl
from fcl.data.prepared import PreparedRows
from fcl.features import bind_features
from fcl.features.base import Family
from fcl.objective import GroupPenalty, Penalty, find_loss, make_objective
from fcl.solve.passes import Passes, Vectors

N, BLOCK_ROWS, K = 900, 128, 4


def matrix() -> np.ndarray:
    return np.random.default_rng(0).integers(-3, 9, (N, 7)).astype(float)


def shared_passes(text: str, group: bool) -> tuple[Passes, Passes]:
    """The passes of two processes over the same vectors, and whole numbers as features."""
    rng, X = np.random.default_rng(1), matrix()
    y = rng.integers(0, K, N)
    family: Family = bind_features(fcl.features.parse_features(text), fcl.open_data(X, y=y).rows)
    prepared = PreparedRows(N, BLOCK_ROWS, family.record_shape(BLOCK_ROWS), None)
    for number, (_, _, raw) in enumerate(family.read_rows(fcl.open_data(X, y=y).rows, BLOCK_ROWS)):
        sides = family.prepare(raw, prepared.writable(number), prepared.block_rows)
        prepared.commit(number, sides)
    penalty = GroupPenalty(1.0) if group else Penalty(1.0)
    objective = make_objective(
        find_loss("softmax"),
        y.astype(float),
        rng.uniform(0.5, 2.0, N),
        0.05,
        n_outputs=K,
        penalty=penalty,
        block_rows=BLOCK_ROWS,
    )
    made: dict[str, np.ndarray] = {}

    def allocate(name: str, dtype: object, shape: tuple[int, ...]) -> np.ndarray:
        return made.setdefault(name, np.zeros(shape, dtype))

    one, other = (Passes(objective, family, prepared, Vectors(N, allocate, K)) for _ in range(2))
    one.vectors.accepted[:] = rng.normal(size=(K, N)) * 3.0
    return one, other


@pytest.mark.parametrize("text", ["columns", "products:degree=2", "fourier:n=50"])
@pytest.mark.parametrize("group", [False, True])
def test_residuals_are_closed_by_their_writers_and_then_only_read(text: str, group: bool) -> None:
    one, other = shared_passes(text, group)
    r = one.vectors.residuals
    loss = one.objective.loss_sum(one.vectors.accepted)
    blocks = range(one.prepared.n_blocks)
    one.write_residuals(0.0, blocks, loss)
    assert not np.any(r.sum(axis=0))
    expected = r.copy()
    r[:] = np.nan
    for number in blocks[::-1]:
        (one, other)[number % 2].write_residuals(0.0, range(number, number + 1), loss)
    assert np.array_equal(r, expected)
    r.flags.writeable = False  # what prices them must not change them: others read them meanwhile
    watch = np.arange(3)
    bounds = []
    for passes in (one, other):
        passes.vectors.residuals.flags.writeable = False
        prices, bound = passes.prove(watch, 0.0)
        assert passes.gradients(watch) == pytest.approx(prices.watched, rel=1e-12)
        bounds.append(bound)
    assert bounds[0] == bounds[1]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0])
@pytest.mark.parametrize("right", [True, False])
def test_prices_on_the_grid_of_the_losses(scale: float, right: bool) -> None:
    """Whether the rows are undecided, or almost certain of the right or of a wrong class."""
    one, _ = shared_passes("columns", False)
    m, y = one.vectors.accepted, one.objective.y.astype(int)
    m[:] = 0.0
    m[y if right else (y + 1) % K, np.arange(N)] = scale
    one.write_residuals(0.0, range(one.prepared.n_blocks), one.objective.loss_sum(m))
    prices, _ = one.prove(np.arange(7), 0.0)
    p = softmax(m, axis=0)
    p[y, np.arange(N)] -= 1.0
    exact = (p * one.objective.s) @ matrix()
    assert prices.watched == pytest.approx(exact.T, rel=1e-9, abs=1e-9 * np.abs(exact).max())
