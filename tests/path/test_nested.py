"""Nested cross-validation, against searches on the rows that are left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import KFold

import fcl
from fcl.path.folds import outer_folds
from fcl.run.events import PointDone
from tests.path.conftest import rows, train_path

OPTIONS: dict[str, Any] = {"points": 3, "C_max": 0.5}


def test_groups_are_held_out_together_in_both() -> None:
    y, groups = np.arange(60) % 2, np.arange(60) // 12
    data = fcl.open_data(rows(n=60)[0], y=y)
    outer, every = outer_folds(data, 5, 5, groups, True, 0)
    for fold, inner in enumerate(every):
        held = outer == fold
        assert (inner[held] == -1).all() and set(inner[~held]) == {0, 1, 2, 3}  # groups are left
        for group in range(5):
            assert len(set(inner[groups == group])) == len(set(outer[groups == group])) == 1
    shuffled = outer_folds(data, KFold(3), KFold(4), None, True, 0)
    assert [set(inner) for inner in shuffled[1]] == [{-1, 0, 1, 2, 3}] * 3


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
