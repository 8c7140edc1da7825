"""Fallbacks of the trainer of coupled outputs: the same optimum, within the memory of the plan."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from judge_outputs import ClassProblem, confirm

import fcl
from fcl.kernels.coupled_blocks import block_length
from fcl.solve import coupled_exact, coupled_groups, coupled_model, inner
from fcl.solve.coupled import CoupledTrainer
from fcl.solve.line import norm_rise
from fcl.solve.trainer import StepResult
from tests import by_name


def problem(group: bool, n: int = 90) -> ClassProblem:
    """Four classes, one of three rows; duplicate, constant, shifted and sparse columns."""
    random = np.random.default_rng(5)
    phi = random.normal(size=(n, 12))
    phi[:, 1], phi[:, 2] = phi[:, 0], 3.0
    phi[:, 3] += 200.0
    phi[:, 4:7] *= random.random((n, 3)) < 0.2
    score = (phi[:, :4] - phi[:, :4].mean(axis=0)) @ random.normal(size=(4, 4))
    y = (score[:, :3] + random.gumbel(size=(n, 3))).argmax(axis=1)
    y[[3, 40, 77]] = 3
    return ClassProblem(phi, y, np.ones(n), 4, 0.3, np.ones(12), group=group)


def check(own: ClassProblem, **options: Any) -> None:
    """fcl ends at the judge's optimum."""
    options = {"tol": 1e-7, "group": own.group, "warn": False} | options
    data = fcl.open_data(own.phi, y=own.y)
    result = by_name.train(data, "columns", C=own.C, loss="softmax", **options)
    W = np.zeros((12, 4))
    W[result.model.ids] = result.model.weights
    assert result.converged and 0 < len(result.model.ids) < 12
    confirm(own, W, result.model.intercept, result.certificate, options["tol"])
    if own.group:
        assert np.abs(W.sum(axis=1)).max() < 1e-6


@pytest.mark.thin(2)
@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (coupled_model, "MOST_CROSS", 0),  # no elimination, and a bound of the blocks
        (coupled_exact, "CHUNK_ENTRIES", 1000),  # 9 rows of 12 weights of 3 outputs
        (inner, "MOST_SAMPLED", 40),  # rows of the inner model
    ],
    ids=lambda value: str(getattr(value, "__name__", value)),
)
def test_fallbacks(
    module: Any, name: str, value: int, group: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, value)
    check(problem(group))


@pytest.mark.thin(2)
@pytest.mark.parametrize("group", [True, False])
def test_a_sample_of_the_rows(group: bool) -> None:
    check(problem(group, 300), row_view=128, max_passes=200)


def test_newton_steps_of_groups_solve_their_system_in_any_units() -> None:
    random = np.random.default_rng(4)
    factor, units = random.normal(size=(9, 6)), 10.0 ** random.integers(-6, 7, 6)
    matrix = (factor.T @ factor) * units * units[:, None]
    found = coupled_groups._solved(matrix, matrix @ (1.0 / units))
    np.testing.assert_allclose(found * units, 1.0, rtol=1e-9)


def test_lengths_of_blocks_and_changes_of_norms() -> None:
    random = np.random.default_rng(0)
    for scale in (1e-8, 1.0, 1e8):
        e, c = scale * random.uniform(1e-6, 3.0, 5), random.normal(size=5)
        threshold = 0.3 * np.linalg.norm(c)
        length = block_length(c, e, threshold)
        z = c / (e + threshold / length)
        assert np.linalg.norm(z) == pytest.approx(length, rel=1e-10)
    w, d = random.normal(size=(2, 3, 4))
    w[0], d[1] = 0.0, -w[1]
    for group, order in ((True, 2), (False, 1)):
        change = np.linalg.norm(w + d, order, axis=1) - np.linalg.norm(w, order, axis=1)
        assert norm_rise(w, d, group) == pytest.approx(change, rel=1e-12, abs=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("group", [False, True])
def test_the_plan_covers_the_allocations_of_a_step(
    group: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors over rows, products of classes and columns; the buffers were made before."""
    n, k, K = 1500, 40, 30
    random = np.random.default_rng(0)
    x, y = random.normal(size=(n, k)), np.arange(n) % K
    x[:, :20] += random.normal(size=(K, 20))[y]
    step, peaks = CoupledTrainer.step, []

    def measured(self: CoupledTrainer, *arguments: object) -> StepResult:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        result = step(self, *arguments)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
        return result

    monkeypatch.setattr(CoupledTrainer, "step", measured)
    data = fcl.open_data(x, y=y)
    for _ in range(2):  # the first time, kernels are loaded
        peaks.clear()
        tracemalloc.start()
        try:
            by_name.train(
                data, "columns", C=0.1, loss="softmax", group=group, max_passes=3, tol=0.1
            )
        finally:
            tracemalloc.stop()
    planned = CoupledTrainer.bytes_for(n, k, K, group) + k * CoupledTrainer.column_bytes(K)
    planned -= 4 * 8 * K * n
    assert 0.3 * planned < max(peaks) <= planned
