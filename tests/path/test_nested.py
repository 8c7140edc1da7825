"""Nested cross-validation, against searches on the rows that are left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import KFold

import fcl
from fcl.path.events import PointDone
from fcl.path.nested import outer_folds
from fcl.path.problem import make_problem
from tests.path.conftest import D, N, rows, train_path

OPTIONS: dict[str, Any] = {"points": 3, "C_max": 0.5}


def test_outer_folds_are_searches_without_their_rows(tmp_path: Path) -> None:
    codes, y = rows()
    random = np.random.default_rng(3)
    weights, outer, inner = random.uniform(0.5, 2.0, N), np.arange(N) % 2, np.arange(N) // 2 % 3
    data = fcl.open_data(codes, y=y, weights=weights)
    options = OPTIONS | {"class_weight": "balanced"}
    path = train_path(data, cv=inner, outer=outer, folder=tmp_path, **options)
    assert path.outer is not None and path.outer.metric == "auprc"
    for fold in path.outer.folds:
        held = outer == fold.number
        left, rest = (
            fcl.open_data(codes[some], y=y[some], weights=weights[some]) for some in (~held, held)
        )
        own = train_path(left, cv=inner[~held], **options)
        np.testing.assert_allclose(fold.chosen.C, own.chosen.C)
        assert fold.n_rows == held.sum()
        margins = own.chosen.model.margins(rest)
        expected = fcl.average_precision(rest.target, margins, rest.weights)
        assert fold.score == pytest.approx(expected, abs=0.01)
        assert fold.chosen.score == pytest.approx(own.chosen.score, abs=0.01)
    scores = [fold.score for fold in path.outer.folds]
    assert path.outer.mean == pytest.approx(np.mean(scores))
    assert path.outer.se == pytest.approx(np.std(scores, ddof=1) / 2**0.5)
    stored = json.loads((tmp_path / "path.json").read_text())["result"]["outer"]
    assert [row["score"] for row in stored["folds"]] == scores
    assert stored["mean"] == path.outer.mean and stored["folds"][1]["rows"] == 210
    done: list[Any] = []
    again = train_path(
        data,
        cv=inner,
        outer=outer,
        folder=tmp_path,
        progress=lambda event: isinstance(event, PointDone) and done.append(event),
        **options,
    )
    assert again.outer is not None and not done  # all points were saved
    assert [fold.score for fold in again.outer.folds] == scores


def test_groups_are_held_out_together_in_both() -> None:
    y, groups = np.arange(60) % 2, np.arange(60) // 12
    data = fcl.open_data(rows(n=60)[0], y=y)
    problem = make_problem(data, fcl.Kmers(D), None, {"memory": "1GiB"}, 5, groups, False)
    folds = outer_folds(problem, 5, 5, groups)
    for fold, inner in folds:
        held = folds.outer == fold
        assert (inner[held] == -1).all() and set(inner[~held]) == {0, 1, 2, 3}  # groups are left
        for group in range(5):
            assert len(set(inner[groups == group])) == len(set(folds.outer[groups == group])) == 1
    shuffled = outer_folds(problem, KFold(3), KFold(4), None)
    assert [set(inner) for _, inner in shuffled] == [{-1, 0, 1, 2, 3}] * 3


def test_an_interrupt_of_an_outer_fold_is_raised() -> None:
    codes, y = rows(n=120)
    done: list[str] = []

    def progress(event: Any) -> None:
        if isinstance(event, PointDone):
            done.append(event.part)

    def should_stop() -> bool:
        return bool(done) and done[-1] == "outer fold 1 of 2, fold 1 of 2"

    data = fcl.open_data(codes, y=y)
    with pytest.raises(KeyboardInterrupt):
        train_path(data, cv=2, outer=2, progress=progress, should_stop=should_stop, **OPTIONS)
    assert done[-1] == "outer fold 1 of 2, fold 1 of 2"
