"""What tests of several drivers share."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from judge import Problem, Solution, confirm

import fcl
from fcl.drivers import plan
from tests import by_name

#: The fields of a pass that are times, memory of the process, or marks of a resumed run.
INEXACT = {
    "seconds",
    "rows_per_second",
    "memory_bytes",
    "time_left",
    "busy",
    "resumed",
    "sample",
    "models",
}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the smallest cache have room for so few columns, however small these are."""

    def limit(columns: int) -> None:
        for name in ("MIN_COLUMNS", "LEAST_COLUMNS", "MAX_COLUMNS", "MAX_LISTED"):
            monkeypatch.setattr(plan, name, columns)

    return limit


def fit(data: fcl.DataSet, features: Any = "columns", **options: Any) -> fcl.TrainResult:
    """Train, without the warning of an early end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fcl.ConvergenceWarning)
        return by_name.train(data, features, **({"block_rows": 64, "memory": "1GiB"} | options))


def dense(model: fcl.Model, p: int) -> np.ndarray:
    """The weights of all features, (p,) or (p, K)."""
    w = np.zeros((p, *model.weights.shape[1:]))
    w[model.ids] = model.weights
    return w


def coefficients(model: fcl.Model) -> np.ndarray:
    """The coefficients of all covariates."""
    return np.concatenate([term.coefficients for term in model.covariates])


def check(
    result: fcl.TrainResult, problem: Problem, best: Solution | None = None, rel: float = 1e-8
) -> np.ndarray:
    """Check that the judge confirms the optimum and all claims; returns the weights of all features."""
    model, p = result.model, problem.phi.shape[1]
    w, b = dense(model, p), model.intercept
    if problem.z is not None:
        b = np.append(np.full(int(problem.intercept), b), coefficients(model))
    best = problem.solve(1e-9) if best is None else best
    assert result.converged, result.message
    assert result.certificate.n_priced == p
    confirm(problem, w, b, result.certificate, best)
    assert result.certificate.objective == pytest.approx(best.objective, rel=rel)
    for entry in model.history:
        assert entry["bound"] <= best.objective * (1.0 + 1e-12)
    return w


def bits(result: fcl.TrainResult) -> tuple[Any, ...]:
    """Everything except times and memory."""
    model = result.model
    history = [
        {name: value for name, value in entry.items() if name not in INEXACT}
        for entry in model.history
    ]
    return (
        model.ids.tobytes(),
        model.weights.tobytes(),
        model.support.tobytes(),
        np.asarray(model.intercept).tobytes(),
        repr([term.coefficients for term in model.covariates]),
        json.dumps(history, sort_keys=True),
        repr(model.certificate),
        model.fingerprint,
        repr(model.options["C_min"]),
        result.reason,
        result.passes,
    )
