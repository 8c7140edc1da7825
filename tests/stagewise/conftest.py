"""A small problem for each test, its joint optimum, and jobs that were stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from waves import Problem

from fcl.run.events import BlockVisited
from fcl.stagewise.checkpoint import StateFolder
from fcl.stagewise.train import StagewiseRunOptions


@pytest.fixture
def problem() -> Problem:
    return Problem()


def interrupted(
    problem: Problem, path: Path, after: int, cores: int = 1, **options: Any
) -> StateFolder:
    """The checkpoint of a job that was stopped after some blocks."""
    seen: list[int] = []
    folder = StateFolder(path)
    running = StagewiseRunOptions(
        cores=cores,
        checkpoint=folder,
        progress=lambda event: seen.append(1) if isinstance(event, BlockVisited) else None,
        should_stop=lambda: len(seen) == after,
    )
    assert problem.train(**options, running=running).reason == "interrupted"
    return folder


def labels_of(problem: Problem) -> np.ndarray:
    """Three labels, of which a row has any number."""
    random = np.random.default_rng(5)
    return (problem.x[:, :3] + 0.7 * random.standard_normal((300, 3)) > 0.3).astype(int)


def joint(
    link: Any, F: np.ndarray, Y: np.ndarray, s: np.ndarray, alpha: float
) -> tuple[float, np.ndarray]:
    """The optimum over weights and intercepts and its margins, by L-BFGS on the explicit matrix."""
    A, K = np.column_stack([F, np.ones(len(F))]), Y.shape[1]

    def at(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W = flat.reshape(A.shape[1], K)
        u = A @ W
        slope = A.T @ (s[:, None] * (link.mean(u) - Y))
        slope[:-1] += alpha * W[:-1]
        value = s @ link.losses(u, Y) + 0.5 * alpha * np.square(W[:-1]).sum()
        return float(value), slope.ravel()

    options = {"maxiter": 20_000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-9}
    start = np.full(A.shape[1] * K, 0.01)
    found = minimize(at, start, jac=True, method="L-BFGS-B", options=options)
    return float(found.fun), A @ found.x.reshape(A.shape[1], K)
