"""Labels, regression targets, weights."""

import json

import numpy as np
import pytest

from fcl.data import check_weights, encode_labels, regression_target
from fcl.errors import InputError


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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([2, 2, 2], "train.zarr:y holds only one class, 2, in all 3 rows; two are needed"),
        (["a"], "only one class, 'a', in all 1 rows"),
        (
            [0, 1, 2],
            '3 distinct labels (0, 1, 2); expected two. For more classes choose loss="softmax"',
        ),
        (range(9), "holds 9 distinct labels (0, 1, 2, 3, 4, ...); expected two"),
        ([0.0, 1.0, np.nan, np.nan], "y: row 2 is nan; labels must be finite (2 such rows of 4)"),
        ([0.0, np.inf, 0.0], "y: row 1 is inf; labels must be finite"),
        ([[0, 1], [1, 0]], "has shape (2, 2); expected one value per row"),
        ([], "train.zarr:y is empty"),
    ],
)
def test_bad_labels(values, message):
    with pytest.raises(InputError) as caught:
        encode_labels(np.array(values), "train.zarr:y")
    assert message in str(caught.value)


def test_object_labels_are_refused_with_their_types():
    with pytest.raises(InputError, match=r"y holds Python objects \(dict, str\)"):
        encode_labels(np.array(["a", {}], dtype=object), "y")
    with pytest.raises(InputError, match=r"y: row 1 is missing \(NA\), as are 1 of 2 values"):
        encode_labels(np.array(["a", None], dtype=object), "y")


@pytest.mark.parametrize("dtype", ["f4", "i2", "u8", ">f8", "?"])
def test_regression_target(dtype):
    target = regression_target(np.array([[0], [1]], dtype=dtype), "y")
    assert target.dtype == np.float64
    np.testing.assert_array_equal(target, [0, 1])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.0, np.inf], "train.h5:y: row 1 is inf; a regression target must be finite"),
        ([np.nan, 1.0], "train.h5:y: row 0 is nan; a regression target must be finite"),
        (["a", "b"], "train.h5:y has dtype <U1; a regression target must be numeric"),
    ],
)
def test_bad_regression_target(values, message):
    with pytest.raises(InputError) as caught:
        regression_target(np.array(values), "train.h5:y")
    assert message in str(caught.value)


def test_weights():
    weights = check_weights(np.array([[0], [2]], dtype=np.int32), 2, "w")
    assert weights.dtype == np.float64
    np.testing.assert_array_equal(weights, [0, 2])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, -0.5, -1.0], "w: row 1 is -0.5; weights must not be negative (2 such rows of 3)"),
        ([1.0, 1.0, np.inf], "w: row 2 is inf; weights must be finite"),
        ([np.nan, 1.0, 1.0], "w: row 0 is nan; weights must be finite"),
        ([0.0, 0.0, 0.0], "w: all weights are zero"),
        ([1.0, 1.0], "w has 2 weights for 3 rows"),
        (["1", "2", "3"], "w has dtype <U1; weights must be numeric"),
    ],
)
def test_bad_weights(values, message):
    with pytest.raises(InputError) as caught:
        check_weights(np.array(values), 3, "w")
    assert message in str(caught.value)
