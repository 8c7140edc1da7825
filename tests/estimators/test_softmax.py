"""FCLClassifier with the softmax loss: one model of all classes."""

from __future__ import annotations

import numpy as np
import pytest

import fcl
from fcl import FCLClassifier


def _rows(k=3):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(120, 8))
    y = (X[:, :k] + 0.5 * rng.gumbel(size=(120, k))).argmax(axis=1)
    return X, np.array(["one", "three", "two", "zero"])[y]


@pytest.mark.parametrize("group", [False, True])
def test_one_model_of_all_classes(group):
    X, y = _rows()
    model = FCLClassifier(loss="softmax", C=0.3, group=group, tol=1e-6).fit(X, y)
    assert len(model.models_) == 1 and model.coef_.shape == (3, len(model.feature_keys_))
    assert model.column_weights_.shape == (3, 8)
    margins = X @ model.column_weights_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), margins, rtol=1e-10)
    own = np.exp(margins)
    own /= own.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), own, rtol=1e-10)
    assert model.score(X, y) > 0.6
    again = FCLClassifier(loss="softmax", C=0.3, group=group, tol=1e-6, warm_start=True).fit(X, y)
    assert again.fit(X, y).objective_ == pytest.approx(model.objective_, rel=1e-6)


def test_two_classes_are_the_logistic_loss():
    X, y = _rows(k=2)
    two, one = (FCLClassifier(loss=loss, C=0.3).fit(X, y) for loss in ("softmax", "logistic"))
    np.testing.assert_array_equal(two.coef_, one.coef_)
    assert two.decision_function(X).shape == (120,)
    grouped = FCLClassifier(loss="softmax", C=0.3, group=True).fit(X, y)
    np.testing.assert_array_equal(grouped.coef_, one.coef_)


def test_rows_of_weight_0_may_have_other_labels():
    X, y = _rows()
    weights = np.ones(120)
    weights[:5], y[:5] = 0.0, "other"
    model = FCLClassifier(loss="softmax", C=0.3).fit(X, y, sample_weight=weights)
    assert model.classes_.tolist() == ["one", "three", "two"]


def test_the_path_of_two_classes_is_that_of_the_logistic_loss():
    X, y = _rows(k=2)
    options = {"alphas": [0.1, 0.02], "cv": 3}
    two = fcl.FCLClassifierCV(loss="softmax", group=True, class_weight="balanced", **options)
    one = fcl.FCLClassifierCV(class_weight="balanced", **options)
    np.testing.assert_array_equal(two.fit(X, y).coef_, one.fit(X, y).coef_)
    np.testing.assert_array_equal(two.scores_, one.scores_)
