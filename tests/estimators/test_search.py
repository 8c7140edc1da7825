"""FCLClassifierCV and FCLRegressorCV: the choice of alpha, against paths by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.datasets import make_classification, make_regression
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import average_precision_score, mean_squared_error
from sklearn.model_selection import GroupKFold, KFold, PredefinedSplit, cross_validate
from sklearn.pipeline import make_pipeline

from fcl import FCLClassifier, FCLClassifierCV, FCLRegressor, FCLRegressorCV
from fcl.estimators.base import EstimatorConvergenceWarning


@pytest.mark.thin(2)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier_chooses_the_alpha_of_the_best_mean(classes: int) -> None:
    X, y = make_classification(
        90, 8, n_informative=5, n_classes=classes, random_state=0, flip_y=0.2
    )
    splitter, alphas = KFold(3, shuffle=True, random_state=1), np.array([0.1, 0.03, 0.003])
    model = FCLClassifierCV(alphas=alphas, cv=splitter, tol=1e-6).fit(X, y)
    problems = range(classes) if classes > 2 else [1]
    for number, label in enumerate(problems):
        target = y == label
        scores = np.empty((3, 3))
        for fold, (train, test) in enumerate(splitter.split(X)):
            for k, alpha in enumerate(alphas):
                own = FCLClassifier(C=None, alpha=alpha, tol=1e-6).fit(X[train], target[train])
                margins = own.decision_function(X[test])
                scores[fold, k] = average_precision_score(target[test], margins)
        one = classes == 2
        found = model.scores_ if one else model.scores_[number]
        np.testing.assert_allclose(found, scores, atol=0.02)
        chosen = np.atleast_1d(model.alpha_)[number]
        assert chosen == pytest.approx(alphas[found.mean(axis=0).argmax()])
        whole = FCLClassifier(C=None, alpha=chosen, tol=1e-6).fit(X, target)
        margins = model.decision_function(X)
        margins = margins if one else margins[:, number]
        np.testing.assert_allclose(margins, whole.decision_function(X), atol=0.02)
    assert model.converged_ and np.shape(model.C_) == np.shape(model.alpha_)


def test_rows_that_no_fold_holds_out() -> None:
    X, y = make_classification(90, 6, random_state=0)
    folds = np.arange(90) % 3 - 1
    model = FCLClassifierCV(alphas=[0.1, 0.01], cv=PredefinedSplit(folds)).fit(X, y)
    np.testing.assert_array_equal(model.folds_, folds)
    assert model.scores_.shape == (2, 2)
    np.testing.assert_array_equal(np.isnan(model.paths_[0].oof), folds == -1)


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1.0, 1: 3.0}])
def test_class_weights_count_in_training_alone(class_weight: Any) -> None:
    """They are balanced inside each fold."""
    X, y = make_classification(120, 8, random_state=0, weights=[0.8], flip_y=0.2)
    weights = np.random.default_rng(0).uniform(0.2, 3.0, 120)
    options: dict[str, Any] = {"class_weight": class_weight, "tol": 1e-6}
    model = FCLClassifierCV(alphas=[0.1, 0.01], cv=KFold(3), patience=None, **options)
    model.fit(X, y, sample_weight=weights)
    fold = model.folds_ == 1
    own = FCLClassifier(C=None, alpha=0.01, **options).fit(X[~fold], y[~fold], weights[~fold])
    expected = average_precision_score(
        y[fold], own.decision_function(X[fold]), sample_weight=weights[fold]
    )
    assert model.scores_[1, 1] == pytest.approx(expected, abs=1e-3)


def test_a_regressor_takes_the_1se_rule_and_groups() -> None:
    X, y = make_regression(90, 10, n_informative=4, noise=20.0, random_state=0)
    groups = np.arange(90) // 6
    model = FCLRegressorCV(alphas=8, cv=GroupKFold(5), select="1se").fit(X, y, groups=groups)
    assert all(len(np.unique(model.folds_[groups == g])) == 1 for g in groups)
    mean = model.scores_.mean(axis=0)
    errors = model.scores_.std(axis=0, ddof=1) / np.sqrt(5)
    best = int(mean.argmin())
    expected = int(np.flatnonzero(mean <= mean[best] + errors[best])[0])
    assert model.alpha_ == pytest.approx(model.alphas_[expected]) and expected <= best
    fold = model.folds_ == 2
    own = FCLRegressor(C=None, alpha=model.alpha_).fit(X[~fold], y[~fold])
    error = mean_squared_error(y[fold], own.predict(X[fold]))
    assert model.scores_[2, expected] == pytest.approx(error, rel=0.02)


def test_a_refit_of_a_model_above_the_tolerance_warns() -> None:
    X, y = make_classification(120, 30, random_state=0, flip_y=0.2)
    model = FCLClassifierCV(alphas=[0.03], cv=2, refit=True, refit_alpha=1.0, tol=1e-6, max_iter=2)
    with pytest.warns(EstimatorConvergenceWarning, match="max_iter"):
        model.fit(X, y)
    path = model.paths_[0]
    assert path.refit is not None and path.refit.converged and not path.chosen.converged
    assert not model.converged_ and model.models_[0] is path.refit.model


@pytest.mark.thin(4)
@pytest.mark.parametrize("kind", ["two classes", "three classes", "softmax", "numbers"])
def test_C_auto_is_the_search_with_its_defaults(kind: str) -> None:
    classes = 3 if kind in ("three classes", "softmax") else 2
    X, y = make_classification(90, 8, n_informative=5, n_classes=classes, random_state=0)
    names, groups = [f"c{j}" for j in range(8)], np.arange(90) // 3
    given: dict[str, Any] = {"groups": groups, "feature_names": names, "sample_weight": 1.0 + y}
    plain: Any = FCLRegressor if kind == "numbers" else FCLClassifier
    search: Any = FCLRegressorCV if kind == "numbers" else FCLClassifierCV
    options: dict[str, Any] = {"loss": "softmax"} if kind == "softmax" else {}
    options["tol"] = 0.02
    auto = plain(C="auto", **options).fit(X, y, **given)
    expected = search(**options).fit(X, y, **given)
    for name in ("C_", "alpha_", "coef_", "folds_", "feature_keys_"):
        np.testing.assert_array_equal(getattr(auto, name), getattr(expected, name))
    assert len(auto.paths_) == len(expected.paths_) and auto.paths_[0].points
    assert set(auto.get_feature_names_out()) <= set(names)
    described = {row.feature for row in auto.models_[0].describe(3)}  # the model has the names
    assert described and described <= set(names)
    auto.set_params(C=1.0).fit(X, y)  # what an earlier search found is gone
    assert not any(hasattr(auto, name) for name in ("C_", "alpha_", "paths_", "folds_", "scores_"))


def test_metadata_is_routed_through_a_pipeline_of_a_vectorizer() -> None:
    """Groups and weights reach the folds; names of the words come out of the pipeline."""
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 120)
    texts = [" ".join(random.choice(["a1", "b1", "c1", "d1"], 4)) + " bad" * label for label in y]
    groups, weights = np.arange(120) // 4, random.uniform(0.5, 2.0, 120)
    with config_context(enable_metadata_routing=True):
        search = FCLClassifierCV(alphas=3, cv=GroupKFold(3))
        search.set_fit_request(groups=True, sample_weight=True)
        pipeline = make_pipeline(CountVectorizer(), search)
        pipeline.fit(texts, y, groups=groups, sample_weight=weights)
        plain = FCLClassifier().set_fit_request(sample_weight=True)
        plain.set_score_request(sample_weight=True)
        found = cross_validate(
            make_pipeline(CountVectorizer(), plain),
            texts, y, cv=2, params={"sample_weight": weights},
        )  # fmt: skip
    assert (found["test_score"] == 1.0).all()
    fitted = pipeline[-1]
    assert all(len(np.unique(fitted.folds_[groups == g])) == 1 for g in groups)
    own = FCLClassifierCV(alphas=3, cv=GroupKFold(3))
    own.fit(pipeline[:-1].transform(texts), y, groups=groups, sample_weight=weights)
    np.testing.assert_array_equal(fitted.coef_, own.coef_)
    assert "bad" in pipeline.get_feature_names_out()
