"""Targets of several outputs: classes, several numbers, several labels, and their offsets."""

import numpy as np
import pandas as pd
import pytest

import fcl
from fcl.data.outputs import check_class_count, refuse_rare_classes
from fcl.data.targets import check_class_weight
from fcl.drivers.rows import select_rows, weighted_by_class
from fcl.drivers.targets import encode_targets, select_valid_rows
from fcl.errors import BudgetError
from fcl.objective import find_loss

SOFTMAX = find_loss("softmax")
X = np.arange(12.0).reshape(6, 2)
KINDS = np.array(["pear", "fig", "apple", "fig", "apple", "pear"])
LABELS = ("apple", "fig", "pear")


def encoded(data, loss):
    target = encode_targets(data, loss, "training")
    assert target.y.flags.c_contiguous and target.y.dtype == np.float64
    return target


def test_classes_are_codes_in_the_order_of_their_labels():
    data = fcl.open_data(X, y=KINDS)
    target = encoded(data, SOFTMAX)
    y, labels = target.y, target.labels
    assert labels == LABELS and target.n_outputs == 3
    np.testing.assert_array_equal(y, [2, 1, 0, 1, 0, 2])
    valid = fcl.open_data(X, y=KINDS[::-1])
    codes = select_valid_rows(valid, SOFTMAX, target).y
    np.testing.assert_array_equal(codes, y[::-1])
    rows = select_rows(data, y, np.array([1.0, 2, 3, 4, 5, 6]), None)
    named = weighted_by_class(rows, check_class_weight({"fig": 10}, labels), 3)
    np.testing.assert_array_equal(named.s, [1, 20, 3, 40, 5, 6])
    balanced = weighted_by_class(rows, "balanced", 3)
    np.testing.assert_allclose(np.bincount(y.astype(int), balanced.s), 7.0)


def test_numbers_and_labels_have_an_output_for_each_column():
    table = np.array([[0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
    data = fcl.open_data(X, y=table)
    target = encoded(data, find_loss("squared"))
    assert target.labels is None and target.n_outputs == 3
    np.testing.assert_array_equal(target.y, table.T)
    np.testing.assert_array_equal(encoded(data, find_loss("logistic")).y, 2.0 * table.T - 1.0)
    frame = pd.DataFrame({"height": np.arange(6.0), "weight": np.ones(6)})
    data = fcl.open_data(X, y=frame)
    assert encoded(data, find_loss("squared")).labels == ("height", "weight")
    assert data.with_target(np.ones((6, 2)), None).target_columns is None
    one = fcl.open_data(X, y=KINDS[:, None])
    assert one.target.shape == (6,)


def test_many_classes_need_a_budget_or_groups():
    least = 24 * 10_001 * 100
    for count, rows, memory, group in (
        (10_000, 10**9, 1, False), (10_001, 100, least, False), (10_001, 100, 1, True)
    ):  # fmt: skip
        check_class_count(count, rows, memory, group, "y")
    message = r"10,001 classes: without --penalty group, .* 22\.9 MiB"
    with pytest.raises(BudgetError, match=message) as caught:
        check_class_count(10_001, 100, least - 1, False, "y")
    assert caught.value.smallest == least


def test_selected_rows_keep_outputs_first():
    offset = np.arange(12.0).reshape(6, 2)
    data = fcl.open_data(X, y=offset + 1, offset=offset)
    y = encoded(data, find_loss("squared")).y
    weights = np.array([1.0, 0, 2, 0, 3, 4])
    rows = select_rows(data, y, weights, None)
    assert rows.n == 4
    for found, whole in ((rows.y, y), (rows.offset, offset.T)):
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, whole[:, weights > 0])


def test_a_row_of_weight_2_is_two_rows():
    refuse_rare_classes(np.array([0.0, 0.0, 1.0]), np.array([1.0, 1.0, 2.0]), ("a", "b"), "y")
