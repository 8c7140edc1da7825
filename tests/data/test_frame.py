"""Data frames as data sets: columns by name, dtypes, and text where numbers are expected."""

import numpy as np
import pandas as pd
import pytest

import fcl
from fcl.errors import InputError

FRAME = pd.DataFrame({"age": [30, 40, 50], "dose": np.array([0.5, 0.25, 1.0], np.float32)})


def test_columns_with_roles_and_targets_that_are_no_columns():
    given = FRAME.assign(y=["a", "b", "a"], w=[1.0, 2.0, 0.0], site=["s", "s", "t"])
    data = fcl.open_data(given, weights="w", groups="site")
    assert data.column_names == ["age", "dose"]
    assert data.rows.read(0, 3).tolist() == [[30.0, 0.5], [40.0, 0.25], [50.0, 1.0]]
    assert data.target.tolist() == ["a", "b", "a"]
    assert (data.weights.tolist(), data.groups.tolist()) == ([1.0, 2.0, 0.0], ["s", "s", "t"])
    assert fcl.open_data(FRAME).target is None
    assert fcl.open_data(FRAME, y=np.arange(3)).target.tolist() == [0, 1, 2]


def test_dtypes_keep_all_digits():
    small = FRAME.assign(age=np.array([1, 2, 3], np.int16), sick=[True, False, True])
    assert fcl.open_data(small).rows.dtype == np.float32
    large = FRAME.assign(age=[2**24 + 1, 2, 3])
    assert fcl.open_data(large).rows.read(0, 1)[0, 0] == 2**24 + 1


@pytest.mark.parametrize("features", ["columns", "products:degree=2"])
def test_text_names_its_column(features):
    given = FRAME.assign(colour=["red", "blue", "red"])
    with pytest.raises(InputError, match=r"column 'colour' of the data frame holds text, 'red' in"):
        fcl.FCLClassifier(features).fit(given, [0, 1, 0])


@pytest.mark.slow
def test_many_columns():
    """Names are compared in linear time."""
    wide = pd.DataFrame(np.zeros((1, 30_000), np.float32))
    assert len(wide.columns) == len(fcl.open_data(wide, y=None).column_names)
