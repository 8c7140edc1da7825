"""Average precision against scikit-learn's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.objective.metrics import auroc, average_precision

sklearn_metrics = pytest.importorskip("sklearn.metrics")

# few distinct scores, so that ties are the rule; and wide ones
scores = st.one_of(
    st.integers(-3, 3).map(float), st.floats(allow_nan=False, allow_infinity=False, width=32)
)


@given(st.lists(st.tuples(st.booleans(), scores), min_size=1, max_size=60))
def test_equals_scikit_learn(rows: list[tuple[bool, float]]) -> None:
    y = np.array([label for label, _ in rows])
    s = np.array([score for _, score in rows])
    if y.any():
        expected = sklearn_metrics.average_precision_score(y, s)
        assert average_precision(y, s) == pytest.approx(expected, rel=1e-12)
    else:
        assert math.isnan(average_precision(y, s))


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), scores, st.integers(0, 2)), min_size=1, max_size=60))
def test_auroc_equals_scikit_learn(rows: list[tuple[bool, float, int]]) -> None:
    y, s, weights = (np.array(column, float) for column in zip(*rows, strict=True))
    if len(np.unique(y[weights > 0.0])) < 2:
        assert math.isnan(auroc(y, s, weights))
    else:
        expected = sklearn_metrics.roc_auc_score(y, s, sample_weight=weights)
        assert auroc(y, s, weights) == pytest.approx(expected, rel=1e-12)


def test_forms_of_labels_and_order_of_rows() -> None:
    rng = np.random.default_rng(0)
    y = rng.random(500) < 0.1
    s = np.round(rng.normal(size=500) + y, 1)
    wanted = average_precision(y, s)
    assert average_precision(np.where(y, 1.0, -1.0), s) == wanted
    assert average_precision(y.astype(int), s) == wanted
    shuffled = rng.permutation(500)
    assert average_precision(y[shuffled], s[shuffled]) == pytest.approx(wanted, rel=1e-14)
    assert 0.1 < wanted < 0.9


def test_weights_are_repetitions() -> None:
    rng = np.random.default_rng(1)
    y, s = rng.random(200) < 0.2, np.round(rng.normal(size=200), 1)
    weights = rng.integers(0, 4, 200)
    expected = average_precision(y.repeat(weights), s.repeat(weights))
    assert average_precision(y, s, weights) == pytest.approx(expected, rel=1e-13)
    assert math.isnan(average_precision(y, s, np.where(y, 0.0, 1.0)))


def test_perfect_and_constant_scores() -> None:
    assert average_precision([1, 0, 0], [3, 2, 1]) == 1.0
    assert average_precision([1, 0, 0, 0], [0, 0, 0, 0]) == 0.25
