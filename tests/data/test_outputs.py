"""Targets of several outputs: classes, several numbers, several labels, and their offsets."""

from types import SimpleNamespace

import numpy as np
import pytest

import fcl
from fcl.data.outputs import (
    check_class_count,
    refuse_rare_classes,
)
from fcl.data.targets import check_class_weight
from fcl.drivers.rows import (
    encode_outputs,
    has_several_outputs,
    select_rows,
    select_valid_outputs,
    weighted_by_code,
)
from fcl.errors import BudgetError
from fcl.objective import find_loss

SOFTMAX = SimpleNamespace(name="softmax")
X = np.arange(12.0).reshape(6, 2)
KINDS = np.array(["pear", "fig", "apple", "fig", "apple", "pear"])


def opened(y, **more):
    return fcl.open_data(X, y=y, **more)


def test_classes_are_codes_in_the_order_of_their_labels():
    data = opened(KINDS)
    y, labels = encode_outputs(data, SOFTMAX, "training")
    assert labels == ("apple", "fig", "pear") and has_several_outputs(data, SOFTMAX)
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y, [2, 1, 0, 1, 0, 2])


def test_numbers_and_labels_have_an_output_for_each_column(tmp_path):
    table = np.array([[0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", table)
    data = fcl.open_data(tmp_path / "X.npy", y="y.npy")
    assert has_several_outputs(data, find_loss("squared"))
    y, labels = encode_outputs(data, find_loss("squared"), "training")
    assert labels is None and y.flags.c_contiguous
    np.testing.assert_array_equal(y, table.T)
    signs, _ = encode_outputs(data, find_loss("logistic"), "training")
    assert signs.flags.c_contiguous
    np.testing.assert_array_equal(signs, 2.0 * table.T - 1.0)


def test_columns_of_a_frame_name_the_outputs():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"height": np.arange(6.0), "weight": np.ones(6)})
    data = opened(frame)
    assert encode_outputs(data, find_loss("squared"), "training")[1] == ("height", "weight")
    assert data.with_target(np.ones((6, 2)), None).target_columns is None


def test_one_column_stays_one_output():
    data = opened(KINDS[:, None])
    assert data.target.shape == (6,)
    assert not has_several_outputs(data, find_loss("logistic"))


def test_many_classes_need_a_budget_or_groups():
    check_class_count(10_000, 10**9, 1, False, "y")
    check_class_count(10_001, 100, 24 * 10_001 * 100, False, "y")
    check_class_count(10_001, 100, 1, True, "y")
    with pytest.raises(
        BudgetError, match=r"10,001 classes: without --group .* 22\.9 MiB"
    ) as caught:
        check_class_count(10_001, 100, 24 * 10_001 * 100 - 1, False, "y")
    assert caught.value.smallest == 24 * 10_001 * 100


def test_selected_rows_keep_outputs_first():
    offset = np.arange(12.0).reshape(6, 2)
    data = opened(np.arange(12.0).reshape(6, 2), offset=offset)
    y, _ = encode_outputs(data, find_loss("squared"), "training")
    weights = np.array([1.0, 0, 2, 0, 3, 4])
    rows = select_rows(data, y, weights, None)
    some = weights > 0
    assert rows.n == 4 and rows.y.flags.c_contiguous and rows.offset.flags.c_contiguous
    np.testing.assert_array_equal(rows.y, y[:, some])
    np.testing.assert_array_equal(rows.offset, offset.T[:, some])


def test_validation_rows_have_the_codes_of_the_training():
    valid = opened(np.array(["pear", "fig", "apple", "fig", "apple", "apple"]))
    labels = ("apple", "fig", "pear")
    np.testing.assert_array_equal(
        select_valid_outputs(valid, SOFTMAX, labels, 3).y, [2, 1, 0, 1, 0, 0]
    )


def test_class_weights_multiply_by_code():
    data = opened(KINDS)
    y, labels = encode_outputs(data, SOFTMAX, "training")
    rows = select_rows(data, y, np.array([1.0, 2, 3, 4, 5, 6]), None)
    named = weighted_by_code(rows, check_class_weight({"fig": 10}, labels), 3)
    np.testing.assert_array_equal(named.s, [1, 20, 3, 40, 5, 6])
    balanced = weighted_by_code(rows, "balanced", 3)
    np.testing.assert_allclose(np.bincount(y.astype(int), balanced.s), 7.0)


def test_a_row_of_weight_2_is_two_rows() -> None:
    codes = np.array([0.0, 0.0, 1.0])
    refuse_rare_classes(codes, np.array([1.0, 1.0, 2.0]), ("a", "b"), "y")
