"""The contract of paths: certified points, folds by hand, the same bits in any order, after any kill."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judge import ALL_LOSSES
from sklearn.metrics import average_precision_score, mean_squared_error

import fcl
from fcl.drivers import executor
from fcl.drivers.executor import ThreadExecutor
from fcl.drivers.processes import supervisor
from fcl.path import regularization_path as paths
from fcl.run.events import PointDone
from tests import by_name
from tests.path.conftest import Killed, N, OneProcess, bits, confirm_points, rows, split, train_path

RANDOM = np.random.default_rng(5)
WEIGHTS = RANDOM.uniform(0.5, 2.0, N)
FOLDS = RANDOM.integers(3, size=N)
ADDED = {"offset": RANDOM.normal(size=N), "weights": WEIGHTS}
VARIANTS: dict[str, dict[str, Any]] = {
    **{loss: {"loss": loss} for loss in ALL_LOSSES},
    "offsets and weights": {},
    "elastic net": {"l1_ratio": 0.5},
    "sample": {"row_view": 96},
    "class weights": {"class_weight": {-1: 1.0, 1: 3.0}},
    "processes": {"driver": "processes", "writers": 1},
}


@pytest.fixture(autouse=True)
def _small_problems_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points begin beyond the last one, and folds run side by side, however small they are.

    Jobs of the driver ``processes`` run in this process.
    """
    monkeypatch.setattr(supervisor, "Supervisor", OneProcess)
    monkeypatch.setattr(paths, "LEAST_EXTRAPOLATED", 5)
    monkeypatch.setattr(executor, "LEAST_ENTRIES", 1)


def weighted() -> fcl.DataSet:
    codes, y = rows()
    return fcl.open_data(codes, y=y, weights=WEIGHTS)


def part(data: fcl.DataSet, some: np.ndarray) -> fcl.DataSet:
    """Some rows of a data set in memory."""
    codes = np.asarray(data.rows.read(0, N))
    weights = None if data.weights is None else data.weights[some]
    return fcl.open_data(codes[some], y=np.asarray(data.target)[some], weights=weights)


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", VARIANTS)
def test_every_point_is_certified_and_is_the_fit_at_its_C(name: str) -> None:
    own = VARIANTS[name]
    data, valid = split(own.get("loss", "logistic"), **(ADDED if name.startswith("off") else {}))
    path = train_path(data, valid=valid, points=4, patience=None, **own)
    s = np.where(data.target == 1, 3.0, 1.0) if name == "class weights" else None
    confirm_points(path, data, s)
    assert path.points[0].active == 0 and path.points[-1].active > 10
    assert all(point.converged for point in path.points) and len(path.points) == 4
    given = {"tol": 1e-4, "block_rows": 128, "memory": "1GiB"} | own
    given.pop("driver", None)
    given.pop("writers", None)
    for point in path.points[1:]:
        alone = by_name.train(data, fcl.Kmers(2), C=point.C, **given).certificate
        ours = point.certificate
        allowed = ours.gap * ours.objective + alone.gap * alone.objective
        assert abs(ours.objective - alone.objective) <= allowed
        if "loss" not in own:
            margins = point.model.margins(valid)
            assert point.score == fcl.average_precision(valid.target, margins, valid.weights)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_scores_of_folds_are_those_of_their_held_out_rows(loss: str) -> None:
    """By scikit-learn, from the models of each fold, which are certified on the rows that are left."""
    codes, y = rows(loss)
    data = fcl.open_data(codes, y=y, weights=WEIGHTS)
    options: dict[str, Any] = {"loss": loss, "points": 5, "patience": None, "C_max": 1.0}
    path = train_path(data, cv=FOLDS, select="1se", **options)
    assert bits(path)[2 : 2 + 25] == bits(train_path(data, **options))[2 : 2 + 25]
    metric = average_precision_score if loss == "logistic" else mean_squared_error
    for fold, points in enumerate(path.fold_points):
        held = fold == FOLDS
        for number, point in enumerate(points):
            margins = point.model.margins(codes[held])
            score = metric(y[held], margins, sample_weight=WEIGHTS[held])
            assert path.scores.folds[fold, number] == pytest.approx(score, rel=1e-9)
            assert point.model.alpha == pytest.approx(path.points[number].alpha)
        chosen = points[path.chosen.number].model
        np.testing.assert_array_equal(path.oof[held], chosen.margins(codes[held]))
        alone = train_path(part(data, ~held), alphas=[p.alpha for p in path.points], **options | {
            "points": 20, "C_max": None
        })  # fmt: skip
        confirm_points(alone, part(data, ~held))
        for point, other in zip(points, alone.points, strict=True):
            ours, theirs = point.certificate, other.certificate
            assert ours.bound <= theirs.objective * (1 + 1e-12)
            assert theirs.bound <= ours.objective * (1 + 1e-12)
    folds = np.asarray(path.scores.folds)
    np.testing.assert_allclose(path.scores.mean, folds.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(path.scores.se, folds.std(axis=0, ddof=1) / 3**0.5, rtol=1e-12)
    np.testing.assert_array_equal([point.score for point in path.points], path.scores.mean)
    up = folds.mean(axis=0) if loss == "logistic" else -folds.mean(axis=0)
    assert path.best is not None and path.best.number == up.argmax()
    within = np.flatnonzero(up >= up.max() - path.scores.se[up.argmax()])
    assert path.chosen is path.one_se and path.chosen.number == within[0]


@pytest.mark.slow
def test_outer_folds_are_searches_without_their_rows(tmp_path: Path) -> None:
    data, outer, inner = weighted(), np.arange(N) % 2, np.arange(N) // 2 % 3
    options: dict[str, Any] = {"points": 3, "C_max": 0.5, "class_weight": "balanced"}
    path = train_path(data, cv=inner, outer=outer, folder=tmp_path, **options)
    assert path.outer is not None and path.outer.metric == "auprc"
    for fold in path.outer.folds:
        held = outer == fold.number
        own = train_path(part(data, ~held), cv=inner[~held], **options)
        rest = part(data, held)
        assert fold.n_rows == held.sum() and pytest.approx(own.chosen.C) == fold.chosen.C
        assert fold.chosen.score == pytest.approx(own.chosen.score, abs=0.01)
        expected = fcl.average_precision(rest.target, own.chosen.model.margins(rest), rest.weights)
        assert fold.score == pytest.approx(expected, abs=0.01)
    scores = [fold.score for fold in path.outer.folds]
    assert path.outer.mean == pytest.approx(np.mean(scores))
    assert path.outer.se == pytest.approx(np.std(scores, ddof=1) / 2**0.5)
    stored = json.loads((tmp_path / "path.json").read_text())["result"]["outer"]
    assert [row["score"] for row in stored["folds"]] == scores
    assert stored["mean"] == path.outer.mean and stored["folds"][1]["rows"] == 210


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"refit": True, "outer": 2}])
def test_folds_side_by_side_have_the_bits_of_folds_in_turn(
    more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback need not be safe for threads: it is called from this one."""
    here, there, used = [], [], []
    each = ThreadExecutor.each

    def counted(self: ThreadExecutor, function: Any, items: Any) -> Any:
        used.append(self.lanes)
        return each(self, function, items)

    monkeypatch.setattr(ThreadExecutor, "each", counted)
    serial = train_path(weighted(), cv=3, points=4, threads=1, progress=here.append, **more)
    assert not any(lanes > 1 for lanes in used)

    def progress(event: Any) -> None:
        assert threading.current_thread() is threading.main_thread()
        there.append(event)

    both = train_path(weighted(), cv=3, points=4, threads=3, progress=progress, **more)
    assert bits(both) == bits(serial) and 3 in used
    parts = [
        sorted(event.part for event in events if isinstance(event, PointDone))
        for events in (here, there)
    ]
    assert parts[0] == parts[1]


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "more",
    [
        {"points": 5, "select": "1se"},
        {"row_view": 96, "points": 4},
        {"cv": 2, "points": 3, "refit": True},
        pytest.param({"cv": 2, "points": 2, "outer": 2}, marks=pytest.mark.slow),
    ],
    ids="-".join,
)
def test_a_path_resumes_after_every_point(tmp_path: Path, more: dict[str, Any]) -> None:
    """Killed after the k-th event of a point, for each k, it has the bits of a path that ran through."""
    data, valid = split()
    options = more if "cv" in more else {"valid": valid, "C_max": 0.5} | more
    events: list[Any] = []
    whole = train_path(data, folder=tmp_path / "whole", progress=events.append, **options)
    total = sum(isinstance(event, PointDone) for event in events)
    assert total >= 4
    refits = 3 * ("refit" in more)  # of all rows and of each fold, which are made anew
    for killed in range(1, total + 1, 1 + total // 12):
        left = killed

        def progress(event: Any) -> None:
            nonlocal left
            left -= isinstance(event, PointDone)
            if left == 0 and isinstance(event, PointDone):
                raise Killed

        folder, rest = tmp_path / f"{killed}", []
        with pytest.raises(Killed):
            train_path(data, folder=folder, progress=progress, **options)
        again = train_path(data, folder=folder, progress=rest.append, **options)
        assert bits(again) == bits(whole)
        done = sum(isinstance(event, PointDone) for event in rest)
        assert done == max(total - killed, refits)
    events.clear()
    once_more = train_path(data, folder=tmp_path / "whole", progress=events.append, **options)
    assert bits(once_more) == bits(whole)
    assert sum(isinstance(event, PointDone) for event in events) <= refits
