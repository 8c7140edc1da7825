"""Which features get columns after a pass."""

from __future__ import annotations

import numpy as np
import pytest

from fcl.features.prices import Prices
from fcl.objective import Penalty
from fcl.solve.conditions import Conditions
from fcl.solve.select import select
from fcl.solve.state import Point

CONDITIONS = Conditions(Penalty(), 1.0, lambda ids: np.ones(len(ids)))


def selected(gradients: dict[int, float], wanted: list[int], most: int = 9) -> list[int]:
    ids = np.array(sorted(gradients), np.int64)
    values = np.array([gradients[i] for i in ids.tolist()])
    prices = Prices(ids, values, float(np.abs(values).max()), np.empty(0), 100, np.zeros(1))
    nothing = np.empty(0, np.int64)
    frozen = Point(nothing, np.empty(0), 0.0)
    selection = select(
        prices, np.empty(0), frozen, nothing, CONDITIONS, most, 0.5, np.array(wanted, np.int64)
    )
    assert (np.diff(selection.violations) <= 0.0).all()
    return selection.ids.tolist()


def test_the_largest_violations_and_one_of_equal_columns() -> None:
    gradients = {1: 1.7, 2: -3.0, 3: 1.4, 4: 2.0, 6: 2.0, 7: -1.8}
    assert selected(gradients, []) == [2, 4, 7, 1]
    assert selected(gradients, [], most=2) == [2, 4]


@pytest.mark.parametrize(
    ("gradients", "wanted"),
    [
        ({3: 0.0, 5: 0.0, 7: 0.0}, [3, 5]),
        ({2: 2.0**-53, 3: 2.0**-53, 5: -(2.0**-53)}, [3, 5]),
        ({2: 1.2, 3: 0.3, 5: 0.3, 9: 1.2}, [3, 5, 9]),
    ],
)
def test_wanted_features_whatever_their_gradients(
    gradients: dict[int, float], wanted: list[int]
) -> None:
    """Rounding made their gradients, so equal ones say nothing about the columns."""
    assert selected(gradients, wanted) == wanted
    assert selected({**gradients, 8: 4.0}, wanted, most=len(wanted) + 1) == sorted([*wanted, 8])
