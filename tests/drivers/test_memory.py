"""Allocations of passes beyond the vectors of the plan, and the peak of a run against its budget."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import ACCEPTORS, ROOT

import fcl
from fcl.cache.columns import ColumnCache
from fcl.drivers.session import Session
from fcl.solve.solver import Solver
from fcl.solve.trainer import Trainer

pytestmark = pytest.mark.fresh_interpreters


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_the_peak_is_within_the_budget(tmp_path: Path, compiled: bool) -> None:
    """The peak of the whole process, with imports and compilation, as the system reports it."""
    budget = 440
    settings = {} if compiled else {"NUMBA_CACHE_DIR": str(tmp_path)}
    script = f"""
import warnings, fcl
from fcl.memory.meter import peak_memory
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


@pytest.mark.slow
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
