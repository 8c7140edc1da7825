"""The list of columns to be made."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from explicit import explicit_family

from fcl.drivers.processes import wanted
from fcl.drivers.processes.logic.protocol import Stage, WriterTask
from fcl.drivers.processes.wanted import GradientTable, WantedColumns
from fcl.features.prices import Prices
from fcl.solve.state import Point


def wanted_columns(capacity: int = 1 << 20, max_active: int = 64) -> WantedColumns:
    """A list of columns of 8 bytes."""
    config: Any = SimpleNamespace(block_rows=64, max_active=max_active, max_columns=64, n_view=10)
    store: Any = SimpleNamespace(sizes=np.full(64, 8), capacity=capacity)
    return WantedColumns(config, store, explicit_family(np.ones((10, 64))))


def test_committed_candidates_are_listed_once() -> None:
    """Columns that entered the cache during pricing are candidates of the same pass."""
    columns = wanted_columns()

    def select(prices: Prices, *_: Any) -> Any:
        return SimpleNamespace(ids=prices.ids, violations=np.ones(len(prices.ids)))

    outer: Any = SimpleNamespace(
        frozen=lambda there: Point.make(np.array([7]), np.array([1.0]), 0.0),
        select=select,
        point=Point.make(np.array([7]), np.array([1.0]), 0.0),
    )
    prices = Prices(np.array([3, 5, 9]), np.full(3, 2.0), 2.0, np.zeros(0), 64, np.zeros(1))
    cached = np.arange(4), np.array([5, 7, 9, 11])
    known = GradientTable(prices.ids, prices.gradients, np.ones(3))
    n = columns.choose(outer, prices, known, cached, np.zeros(0, np.int64), drop_cache=True)
    task = WriterTask(Stage.COLUMNS, 0, n, 0, 1)
    assert columns.part(task).ids.tolist() == [3, 5, 7, 9, 11]
    assert columns.made(task, np.array([3, 0])).ids.tolist() == [9, 3]
    assert columns.part(task).ids.tolist() == [9, 3, 5, 7, 11]


def test_groups_of_larger_violations_come_first_if_room_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A group has at most as many features as a part of the cache holds."""
    monkeypatch.setattr(wanted, "MOST_BATCH", 2)
    for capacity, most, share, expected in (
        (1 << 20, 3, 1.0, [9, 1, 2, 4, 5, 7, 8]),
        (64, 3, 1.0, [9, 2, 5, 1, 4, 8, 7]),
        (64, 9, 0.25, [9, 5, 2, 8, 1, 4, 7]),
        (64, 9, 0.01, [9, 5, 2, 8, 1, 4, 7]),
    ):
        monkeypatch.setattr(wanted, "GROUP", most)
        monkeypatch.setattr(wanted, "ROOM_SHARE", share)
        ids = np.array([9, 5, 2, 8, 1, 4, 7])
        order = wanted_columns(capacity)._order(ids, np.arange(4), drop_cache=False)
        assert ids[order].tolist() == expected


def test_new_features_wait_while_too_many_have_a_weight() -> None:
    """Features of the anchor and the cache may have a weight at the next anchor; they need room, too."""
    columns = wanted_columns(max_active=6)
    ids = np.array([9, 5, 2, 8, 1, 4, 7])
    for known, expected in (
        ([5, 8], [9, 5, 2, 8, 1, 4]),
        ([5, 8, 30, 31, 32], [9, 5, 8]),
        ([5, 8, 30, 31, 32, 33, 34], [5, 8]),
    ):
        assert ids[columns._allowed(ids, np.array(known))].tolist() == expected
        assert columns.withheld == len(ids) - len(expected)
