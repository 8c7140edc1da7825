"""Paths on one validation set: the points' certificates, the grid, stopping, and the choice."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.errors import ConvergenceWarning
from fcl.options.path import PATH_OPTIONS
from fcl.path import regularization_path as paths
from fcl.run.events import PointDone, PointStarted
from fcl.run.reasons import StopReason
from tests.path.conftest import problem_of, rows, split, train_path


def test_large_points_begin_beyond_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "LEAST_EXTRAPOLATED", 5)
    data, _ = split()
    path = train_path(data, points=8)
    tried = [model.history[1] for model in path.models[4:]]
    assert any(event["beta"] > 0.0 and event["evicted"] == 0 for event in tried)


def test_the_grid_begins_at_C_min_and_is_geometric() -> None:
    """Events and the table say the same as the points."""
    pandas = pytest.importorskip("pandas")
    data, valid = split()
    events: list[Any] = []
    given: dict[str, Any] = {"patience": None, "valid": valid, "progress": events.append}
    path = train_path(data, points=5, C_max=1.0, select="1se", **given)
    values = np.array([point.C for point in path.points])
    _, C_min = problem_of(data, path.models[0]).null()
    assert values[0] == pytest.approx(C_min, rel=1e-10) and values[-1] == 1.0
    ratios = values[1:] / values[:-1]
    np.testing.assert_allclose(ratios, ratios[0])
    started = [event for event in events if isinstance(event, PointStarted)]
    done = [event for event in events if isinstance(event, PointDone)]
    assert [(e.number, e.of) for e in started] == [(k, 5) for k in range(1, 6)]
    assert [e.C for e in started] == values.tolist()
    assert [e.score for e in done] == [p.score for p in path.points]
    assert isinstance(path.table, pandas.DataFrame)
    assert path.table["gap"].tolist() == [point.certificate.gap for point in path.points]
    assert path.table["se"].tolist() == path.scores.se.tolist()
    assert path.one_se is not None and path.chosen is path.one_se
    same = train_path(data, alphas=[p.alpha for p in path.points], **given)
    np.testing.assert_allclose([point.C for point in same.points], values)
    assert same.one_se is None and same.chosen is same.best


def test_why_a_path_stops() -> None:
    data, valid = split()
    full = train_path(data, points=10, valid=valid, patience=None)
    scores = full.scores.mean
    first = next(n for n in range(2, 11) if scores[n - 1] <= scores[: n - 1].max())
    patient = train_path(data, points=10, valid=valid, patience=1)
    assert patient.reason is StopReason.PATIENCE and len(patient.points) == first < 10
    active = train_path(data, points=10, max_active=8)
    assert active.reason is StopReason.MAX_ACTIVE
    assert active.points[-1].active >= 8 > active.points[-2].active
    assert active.chosen is active.points[-1] and active.best is None is active.one_se
    timed = train_path(data, points=10, max_time=1e-9)
    assert timed.reason is StopReason.MAX_TIME and len(timed.points) == 1


def stop_after(points: int) -> dict[str, Callable[..., Any]]:
    """Options that stop a path once it has this many points."""
    done: list[PointDone] = []

    def progress(event: Any) -> None:
        if isinstance(event, PointDone):
            done.append(event)

    return {"progress": progress, "should_stop": lambda: len(done) >= points}


def test_an_interrupted_path_has_its_points() -> None:
    data, _ = split()
    path = train_path(data, **stop_after(3))
    assert path.reason is StopReason.INTERRUPTED and len(path.points) == 3
    with pytest.raises(KeyboardInterrupt):
        train_path(data, **stop_after(0))


def test_a_warning_names_points_above_the_tolerance() -> None:
    data, _ = split()
    with pytest.warns(ConvergenceWarning, match=r"of 4 points ended above the tolerance"):
        fcl.train_path(data, fcl.Kmers(2), points=4, max_passes=1, tol=1e-9, memory="1GiB")


def test_an_objective_of_0_has_a_path() -> None:
    codes, _ = rows(n=128)
    options = {"loss": "squared", "row_view": 64, "memory": "1GiB"}
    path = fcl.train_path(
        fcl.open_data(codes, y=np.ones(128)), fcl.Kmers(2), alphas=[0.1, 0.01], **options
    )
    assert [point.certificate.objective for point in path.points] == [0.0, 0.0]


def test_the_signature_is_that_of_the_table_of_options() -> None:
    arguments = signature(fcl.train_path).parameters
    for option in PATH_OPTIONS.values():
        assert arguments[option.name].default == option.default, option.name
    text = (fcl.train_path.__doc__ or "").partition("Parameters\n")[2].partition("Returns\n")[0]
    heads = [line.partition(" : ")[0] for line in text.splitlines() if line.startswith("    ")]
    described = {name.strip() for head in heads for name in head.split(",")}
    assert {name.replace("training", "**training") for name in arguments} <= described
