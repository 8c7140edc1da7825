"""Initial weights: tried after the null model, and certified like any others."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.drivers import plan
from fcl.run.events import Event, PassDone, Prepared
from tests import by_name

drivers = pytest.mark.parametrize("driver", ["inline", "processes"])


def windows(n: int = 500, length: int = 12) -> fcl.DataSet:
    rng = np.random.default_rng(7)
    codes = rng.integers(0, 4, (n, length)).astype(np.uint8)
    y = (codes[:, 2] == 1) & (codes[:, 4] == 2) | (rng.random(n) < 0.2)
    return fcl.open_data(codes, y=y)


def test_the_optimum_is_certified_by_the_next_pass() -> None:
    data = windows()
    cold = fcl.train(data, "kmers:d=4", C=0.3, tol=1e-7)
    warm = fcl.train(data, "kmers:d=4", C=0.3, tol=1e-7, initial=cold.model)
    assert cold.passes > 2 == warm.passes and warm.converged
    assert warm.certificate.gap <= 1e-7
    np.testing.assert_array_equal(warm.model.ids, cold.model.ids)
    assert warm.model.options["C_min"] == cold.model.options["C_min"]


@drivers
@pytest.mark.parametrize("moment", [Prepared, PassDone])
@pytest.mark.parametrize("standardize", [False, True])
def test_a_run_that_is_stopped_keeps_its_start(
    tmp_path: Path, driver: str, moment: type[Event], standardize: bool
) -> None:
    """It stops in pass 0 or just after it; the resumed run tries the initial point in the same pass."""
    if driver == "processes" and standardize and moment is Prepared:
        pytest.skip("the features are not measured yet, and nothing is saved")
    random = np.random.default_rng(3)
    X = random.normal(size=(300, 8)) * np.logspace(-1, 1, 8)
    data = fcl.open_data(X, y=X @ random.normal(size=8) > 0.0)
    options: dict[str, Any] = {"C": 0.3, "tol": 1e-7, "standardize": standardize, "warn": False}
    model = by_name.train(data, "columns", **options).model
    seen: list[Event] = []
    stopping = {
        "progress": lambda event: seen.append(event) if isinstance(event, moment) else None,
        "should_stop": lambda: bool(seen),
        "checkpoint": tmp_path / "c",
    }
    with contextlib.suppress(KeyboardInterrupt):
        by_name.train(data, "columns", **options, initial=model, driver=driver, **stopping)
    assert seen
    again = by_name.train(data, "columns", **options, driver=driver, resume=tmp_path / "c")
    assert again.converged and again.passes == 2
    np.testing.assert_array_equal(again.model.ids, model.ids)


def test_a_start_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan reserves places for its features, or refuses the job before it begins."""
    monkeypatch.setattr(plan, "ACTIVE_A_COLUMN", 0)
    monkeypatch.setattr(plan, "LEAST_ACTIVE", 8)
    monkeypatch.setattr(plan, "ACTIVE_SHARE", 1 << 60)
    model = fcl.train(windows(), "kmers:d=4", C=0.3).model
    assert len(model.ids) > 8
    options: dict[str, Any] = {"C": 0.3, "initial": model, "driver": "processes"}
    result = by_name.train(windows(), "kmers:d=4", **options)
    assert result.converged and result.passes == 2


def test_a_start_on_a_sample_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sample is drawn at the initial point, or at the null model if that point is rejected."""
    monkeypatch.setattr(plan, "ALL_ROWS", 100)
    monkeypatch.setattr(plan, "LEAST_SAMPLE", 128)
    data = windows()
    options: dict[str, Any] = {"C": 0.3, "tol": 1e-6, "block_rows": 64}
    model = by_name.train(data, "kmers:d=4", **options).model
    warm = by_name.train(data, "kmers:d=4", **options, initial=model, driver="processes")
    assert warm.converged and warm.passes == 2
    other = fcl.open_data(data.rows.read(0, 500), y=~np.asarray(data.target))
    bad = by_name.train(other, "kmers:d=4", **options).model
    left = by_name.train(data, "kmers:d=4", **options, initial=bad, driver="processes")
    assert left.converged and left.passes > 2


@pytest.mark.slow
def test_a_bad_start_leaves_no_trace_in_the_first_sample() -> None:
    """The search that rejects it overwrites the residuals, but not what the trainer took from them."""
    data = windows()
    options: dict[str, Any] = {"C": 0.3, "tol": 1e-6, "block_rows": 64, "row_view": 128}
    other = fcl.open_data(data.rows.read(0, 500), y=~np.asarray(data.target))
    bad = by_name.train(other, "kmers:d=4", **options).model
    cold, warm = (by_name.train(data, "kmers:d=4", **options, initial=m).model for m in (None, bad))
    assert len(cold.history) > 3
    np.testing.assert_array_equal(warm.weights, cold.weights)
    assert [h["objective"] for h in warm.history] == [h["objective"] for h in cold.history]
