"""Labels, regression targets, weights."""

import json

import numpy as np
import pytest

from fcl.data import check_weights, encode_labels, regression_target


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (np.array([1, -1, 1]), (-1, 1)),
        (np.array([7, 3, 7], dtype=np.uint8), (3, 7)),
        (np.array([1.0, 0.0, 1.0]), (0.0, 1.0)),
        (np.array([True, False, True]), (False, True)),
        (np.array([b"yes", b"no", b"yes"]), ("no", "yes")),
        (np.array(["ü", "a", "ü"]), ("a", "ü")),
        (np.array(["b", "a", "b"], dtype=object), ("a", "b")),
        (np.array(["b", "a", "b"], dtype=np.dtypes.StringDType()), ("a", "b")),
        (np.array([[1], [0], [1]]), (0, 1)),
    ],
    ids=str,
)
def test_two_labels_of_any_kind(values, labels):
    y, found = encode_labels(values, "y")
    assert found == labels
    assert [type(label) for label in found] == [type(label) for label in labels]
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y, [1, -1, 1])
    json.dumps(found)


@pytest.mark.parametrize("dtype", ["f4", "i2", "u8", ">f8", "?"])
def test_regression_target(dtype):
    target = regression_target(np.array([[0], [1]], dtype=dtype), "y")
    assert target.dtype == np.float64
    np.testing.assert_array_equal(target, [0, 1])


def test_weights():
    weights = check_weights(np.array([[0], [2]], dtype=np.int32), 2, "w")
    assert weights.dtype == np.float64
    np.testing.assert_array_equal(weights, [0, 2])
