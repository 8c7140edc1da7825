"""Estimators of several targets or labels, against scikit-learn and against one model for each."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.linear_model import MultiTaskLasso
from sklearn.model_selection import GridSearchCV
from sklearn.utils import get_tags

import fcl

RANDOM = np.random.default_rng(3)
N, P, K = 120, 9, 3
X = RANDOM.normal(size=(N, P))
TRUE = np.where(RANDOM.random((P, K)) < 0.4, RANDOM.normal(size=(P, K)), 0.0)
NUMBERS = X @ TRUE + RANDOM.normal(size=(N, K)) * 0.3 + [1.0, -2.0, 5.0]
LABELS = (X @ TRUE + RANDOM.logistic(size=(N, K)) > 0.0).astype(np.int64)
WEIGHTS = RANDOM.uniform(0.5, 2.0, N)


def dense(estimator: object) -> np.ndarray:
    return np.asarray(estimator.column_weights_)  # type: ignore[attr-defined]


def test_group_is_the_multi_task_lasso() -> None:
    alpha = 0.2
    ours = fcl.FCLRegressor(C=1.0 / (2 * N * alpha), group=True, tol=1e-8).fit(X, NUMBERS)
    theirs = MultiTaskLasso(alpha, tol=1e-10, max_iter=100_000).fit(X, NUMBERS)
    np.testing.assert_allclose(dense(ours), theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-3)
    assert ours.score(X, NUMBERS) == pytest.approx(theirs.score(X, NUMBERS), abs=1e-5)
    assert ours.dual_gap_ <= 1e-8 and ours.coef_.shape == (K, len(ours.feature_keys_))
    assert get_tags(ours).target_tags.multi_output


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_l1_of_several_is_one_model_for_each(weights: np.ndarray | None) -> None:
    for one, y in ((fcl.FCLRegressor(C=0.05), NUMBERS), (fcl.FCLClassifier(C=0.5), LABELS)):
        one.set_params(tol=1e-9)
        together = clone(one).fit(X, y, sample_weight=weights)
        for k in range(K):
            alone = clone(one).fit(X, y[:, k], sample_weight=weights)
            np.testing.assert_allclose(dense(together)[k], dense(alone), atol=2e-4)
            np.testing.assert_allclose(together.intercept_[k], alone.intercept_, atol=2e-4)


def test_several_labels() -> None:
    model = fcl.FCLClassifier(C=0.5, group=True).fit(X, LABELS)
    margins = model.decision_function(X)
    assert model.multilabel_ and margins.shape == (N, K) and model.classes_.tolist() == [0, 1, 2]
    assert model.predict(X).dtype == np.int64
    np.testing.assert_array_equal(model.predict(X), margins > 0.0)
    np.testing.assert_allclose(model.predict_proba(X), 1.0 / (1.0 + np.exp(-margins)), rtol=1e-12)
    assert model.score(X, LABELS) == np.mean((model.predict(X) == LABELS).all(axis=1))
    rows = np.linalg.norm(dense(model), axis=0) > 0.0
    assert (rows == (dense(model) != 0.0).all(axis=0)).all()  # in or out for all labels
    sparse = clone(model).fit(X, csr_array(LABELS))
    np.testing.assert_array_equal(dense(sparse), dense(model))
    tags = get_tags(model)
    assert tags.classifier_tags.multi_label and tags.target_tags.multi_output


def test_a_label_that_all_rows_have_or_none_has_is_named() -> None:
    y, weights = LABELS.copy(), np.ones(N)
    y[:, 2] = np.arange(N) == 3  # the only row with this label does not count
    weights[3] = 0.0
    message = "y: expected .*, but none has that of column 2; nothing can be learnt"
    with pytest.warns(UserWarning, match=message):
        fcl.FCLClassifier(C=0.1).fit(X, y, sample_weight=weights)
    y[:, 0] = 1
    data = fcl.open_data(X, y=y, weights=weights)
    data.target_columns = ("a", "b", "c")
    with pytest.warns(UserWarning, match=r"all have that of column 0 \(a\), none .* 2 \(c\);"):
        fcl.train(data, "columns", C=0.1)


def test_names_search_and_warm_start() -> None:
    pd = pytest.importorskip("pandas")
    y = pd.DataFrame(NUMBERS, columns=["height", "width", "depth"])
    model = fcl.FCLRegressor(C=0.05, warm_start=True).fit(X, y)
    assert tuple(model.model_.labels) == ("height", "width", "depth")
    first = model.model_
    again = model.fit(X, y)
    assert again.model_ is not first and again.n_iter_ <= 2
    one = model.fit(X, NUMBERS[:, 0])  # another number of targets starts afresh
    assert one.coef_.ndim == 1 and isinstance(one.intercept_, float)
    search = GridSearchCV(fcl.FCLRegressor(), {"C": [1e-4, 0.1]}, cv=2).fit(X, NUMBERS)
    assert search.best_params_ == {"C": 0.1}
