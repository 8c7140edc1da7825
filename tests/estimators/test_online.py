"""Online estimators: the same bits as ``train_online``, streams, certificates."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

import fcl
from fcl import FCLOnlineClassifier, FCLOnlineRegressor

N, P = 900, 12
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(N, P))
MARGIN = X[:, :3] @ np.array([1.5, -1.0, 0.7]) + 0.3
Y = np.where(MARGIN + RANDOM.logistic(size=N) > 0.0, "yes", "no")
S = RANDOM.choice([0.0, 1.0, 2.0], N)
CLASSES = np.digitize(MARGIN + RANDOM.normal(size=N), [-1.0, 1.0])


def test_coef_is_sparse_and_gives_the_margins() -> None:
    found = FCLOnlineClassifier(alpha=0.02).fit(X, Y)
    assert issparse(found.coef_) and found.coef_.shape == (1, P) and found.coef_.nnz < P
    margins = (found.coef_ @ X.T)[0] + found.intercept_[0]
    assert found.decision_function(X) == pytest.approx(margins, abs=1e-12)
    shares = found.predict_proba(X)
    assert shares[:, 1] == pytest.approx(1.0 / (1.0 + np.exp(-margins)), abs=1e-12)
    assert np.array_equal(found.predict(X), np.where(margins > 0.0, "yes", "no"))
    same = pickle.loads(pickle.dumps(found)).partial_fit(X[:50], Y[:50])
    found.partial_fit(X[:50], Y[:50])
    assert np.array_equal(same.decision_function(X), found.decision_function(X))


def test_a_stream_in_pieces_is_learnt_as_in_one_piece() -> None:
    parts = FCLOnlineRegressor(alpha=1e-3, rate=0.1, fit_intercept=False)
    for rows in np.array_split(np.arange(N), [1, 40, 41, 500]):
        parts.partial_fit(X[rows], MARGIN[rows], sample_weight=S[rows] + 1.0)
    whole = FCLOnlineRegressor(alpha=1e-3, rate=0.1, fit_intercept=False)
    whole.partial_fit(csr_array(X), MARGIN, sample_weight=S + 1.0)
    assert np.array_equal(parts.coef_.toarray(), whole.coef_.toarray())
    for found in (parts, whole):
        assert found.models_[0].n_rows == N
        assert pytest.approx(1.0 / (1e-3 * (S + 1.0).sum()), rel=1e-12) == found.models_[0].C


def test_several_classes_are_each_against_the_rest() -> None:
    found = FCLOnlineClassifier(alpha=1e-3, rate=0.2).fit(X, CLASSES)
    margins = found.decision_function(X)
    assert margins.shape == (N, 3) and found.coef_.shape == (3, P)
    assert np.array_equal(found.predict(X), margins.argmax(axis=1))
    shares = 1.0 / (1.0 + np.exp(-margins))
    shares /= shares.sum(axis=1, keepdims=True)
    assert found.predict_proba(X) == pytest.approx(shares, abs=1e-12)
    for k, margin in enumerate(margins.T):
        one = FCLOnlineClassifier(alpha=1e-3, rate=0.2).fit(X, k == CLASSES)
        assert np.array_equal(one.decision_function(X), margin)
    proofs = found.certify(X, CLASSES)
    optima = [
        fcl.train(fcl.open_data(X, y=k == CLASSES), alpha=1e-3, features="columns")
        for k in range(3)
    ]
    for proof, optimum in zip(proofs, optima, strict=True):
        assert proof.bound <= optimum.certificate.objective
        assert proof.objective >= optimum.certificate.bound


OFFSET = RANDOM.normal(size=N)


def test_offsets_are_added_to_the_margins() -> None:
    """As in ``train_online``, for either loss; predictions need them, too."""
    data = fcl.open_data(X, y=Y, offset=OFFSET)
    given = {"alpha": 1e-3, "passes": 2}
    model = fcl.train_online(data, "columns", **given, certify=False).model
    found = FCLOnlineClassifier(**given).fit(X, Y, offset=OFFSET)
    assert np.array_equal(found.models_[0].weights, model.weights)
    assert np.array_equal(found.decision_function(X, OFFSET), model.margins(data))
    assert found.certify(X, Y, offset=OFFSET).own_objective is not None
    numbers = fcl.open_data(X, y=MARGIN, offset=OFFSET)
    model = fcl.train_online(numbers, "columns", **given, loss="squared", certify=False).model
    regressor = FCLOnlineRegressor(**given).fit(X, MARGIN, offset=OFFSET)
    assert np.array_equal(regressor.models_[0].weights, model.weights)
    assert np.array_equal(regressor.predict(X, OFFSET), model.margins(numbers))


def test_class_weights_are_those_of_the_batch_estimator() -> None:
    """The same problem: sample weights times class weights, alpha before them."""
    weights = {"yes": 3.0}
    own = FCLOnlineClassifier(alpha=1e-3, passes=2, class_weight=weights).fit(X, Y, S)
    batch = fcl.FCLClassifier(alpha=1e-3, class_weight=weights, tol=1e-8).fit(X, Y, S)
    proof = own.certify(X, Y, S)
    optimum = batch.models_[0].certificate.objective
    assert proof.own_bound <= optimum * (1 + 1e-9) <= proof.objective * (1 + 2e-9)
    several = FCLOnlineClassifier(class_weight="balanced").fit(X, CLASSES)
    assert len(several.certify(X, CLASSES)) == 3
    assert [own.labels for own in several.models_] == [
        (f"not {c}", f"{c}") for c in np.unique(CLASSES)
    ]


def test_class_weights_of_a_stream() -> None:
    """The first call says how much the classes weigh, which sets alpha."""
    given: dict[str, Any] = {"alpha": 1e-3, "rate": 0.2, "class_weight": {"yes": 3.0}}
    whole = FCLOnlineClassifier(**given).partial_fit(X, Y, ["no", "yes"])
    parts = FCLOnlineClassifier(**given).partial_fit(X[:450], Y[:450], ["no", "yes"])
    parts.partial_fit(X[450:], Y[450:])
    assert pytest.approx(whole.models_[0].C, rel=0.2) == parts.models_[0].C
    assert parts.score(X, Y) > 0.7


def test_hashed_columns() -> None:
    wide = csr_array((RANDOM.random((N, 300)) < 0.05).astype(float))
    found = FCLOnlineClassifier(hash_bits=5, alpha=1e-3).fit(wide, Y)
    assert found.coef_.shape == (1, 32) and found.decision_function(wide).shape == (N,)
    assert found.certify(wide, Y).certificate.n_priced == 32
