"""Allocations of passes beyond the vectors of the plan, and the peak of a run against its budget."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explicit import make_solver
from judge import LOSSES, Problem
from rows import ACCEPTORS, ROOT

import fcl
from fcl.cache.columns import ColumnCache
from fcl.drivers.session import Session
from fcl.features import KmerFamily
from fcl.features.kmers import margins
from fcl.solve.inner import EXTRAPOLATE_VECTORS, LEAST_ROWS
from fcl.solve.solver import Solver
from fcl.solve.trainer import Trainer

pytestmark = pytest.mark.fresh_interpreters

N = 131_072


@pytest.fixture(scope="module")
def windows() -> tuple[np.ndarray, np.ndarray]:
    import zarr

    group = zarr.open_group(ACCEPTORS, mode="r")
    codes = np.ascontiguousarray(group["X"][:N, 64:76])
    return codes, group["y"][:N].astype(np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_passes_allocate_no_vectors_over_rows(
    loss: str, windows: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are made at the start; what comes on top is far below one of them (8 N bytes)."""
    # tables of margins that positions share do not depend on the rows, and are as large as a vector
    monkeypatch.setattr(margins, "SHARED_ROWS", N + 1)
    codes, y = windows
    problem = Problem(np.zeros((N, 1)), y, np.ones(N), loss, 0.01 if loss == "squared" else 0.1)
    solver = make_solver(
        KmerFamily(3, 12), codes, problem, tol=1e-5, block_rows=4096, capacity=1 << 25
    )
    peaks: dict[str, int] = {}

    def measured(step: Callable[[], Any], name: str) -> Any:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        result = step()
        peaks[name] = max(peaks.get(name, 0), tracemalloc.get_traced_memory()[1] - before)
        return result

    tracemalloc.start()
    try:
        for number in range(5):
            measured(solver.price, "price")
            measured(solver.admit, "admit")
            measured(solver.train, "train")
            measured(lambda: solver.propose(solver.proposal()), "propose")
            if number <= 1:  # kernels may be compiled
                peaks.clear()
    finally:
        tracemalloc.stop()
    most = N * 8 // 4
    assert max(peaks[name] for name in ("price", "admit", "propose")) < most, peaks
    # the inner model works on a sample of the rows, and extrapolation on vectors over those
    sample = 8 * EXTRAPOLATE_VECTORS * 2 * LEAST_ROWS
    assert peaks["train"] < most + sample < most + Trainer.bytes_for(N, 0, 0), peaks


@pytest.mark.parametrize("compiled", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_the_peak_is_within_the_budget(tmp_path: Path, compiled: bool) -> None:
    """The peak of the whole process, with imports and compilation, as the system reports it."""
    budget = 440
    settings = {} if compiled else {"NUMBA_CACHE_DIR": str(tmp_path)}
    script = f"""
import warnings, fcl
from fcl.drivers.memory import peak_memory
warnings.simplefilter("ignore", fcl.ConvergenceWarning)
data = fcl.open_data({str(ACCEPTORS)!r})
result = fcl.train(data, "kmers:d=4", C=0.1, max_passes=3, memory="{budget}MiB")
print(peak_memory(), result.model.n_rows)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    peak, rows = map(int, done.stdout.split())
    assert rows == 394_023
    assert peak <= budget << 20, f"{peak >> 20} MiB"


@pytest.mark.parametrize("train", [fcl.train, fcl.train_path])
def test_a_finished_run_leaves_nothing_in_memory(train: Callable[..., Any]) -> None:
    """Reference counts free the buffers: cycles would keep them beside those of the next run."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20))
    data = fcl.open_data(X, y=np.where(X[:, 0] + rng.normal(size=300) > 0.0, 1, -1))
    options = {"C": 1.0} if train is fcl.train else {"points": 3, "C_max": 1.0, "valid": data}
    gc.collect()
    gc.disable()
    try:
        result = train(data, "columns", **options)
        kinds = (Solver, Trainer, ColumnCache, Session)
        left = [kind.__name__ for kind in map(type, gc.get_objects()) if issubclass(kind, kinds)]
    finally:
        gc.enable()
    assert result is not None and not left
