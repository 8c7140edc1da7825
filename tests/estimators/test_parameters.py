"""Parameters are declared once, and have the defaults of their options."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import fcl
from fcl.estimators.parameters import RENAMED, passed_options
from fcl.options import TRAINING
from fcl.options.online import ONLINE_OPTIONS
from fcl.options.option import Option
from fcl.options.path import PATH_OPTIONS
from fcl.options.stagewise import SETTINGS
from fcl.run.events import BlockVisited, OnlineProgress, PassDone, Started, Stopped

ESTIMATORS = [fcl.FCLClassifier, fcl.FCLRegressor, fcl.FCLClassifierCV, fcl.FCLRegressorCV]
ONLINE = [fcl.FCLOnlineClassifier, fcl.FCLOnlineRegressor]
STAGEWISE = [fcl.StagewiseClassifier, fcl.StagewiseRegressor]
#: Defaults of estimators that differ from those of the functions; None: a constructor cannot know it.
OTHER_DEFAULTS = {
    "features": "columns", "C": 1.0, "tol": 1e-4, "max_iter": 1000, "memory": "1GiB", "patience": None,
    "passes": 5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("estimators", "options"),
    [
        (ESTIMATORS, TRAINING | PATH_OPTIONS),
        (ONLINE, TRAINING | ONLINE_OPTIONS),
        (STAGEWISE, TRAINING | SETTINGS),
    ],
    ids=["train", "online", "stagewise"],
)
def test_defaults_are_those_of_the_table(
    estimators: list[type], options: dict[str, Option]
) -> None:
    for estimator in estimators:
        for name, parameter in signature(estimator).parameters.items():
            option: Any = options.get(RENAMED.get(name, name))
            if option is None or (estimators is not ESTIMATORS and name == "memory"):
                continue
            expected = OTHER_DEFAULTS.get(name, option.default)
            if estimators is ONLINE and name == "alpha":
                expected = 1e-4
            if estimators is not STAGEWISE and name == "loss" and "Regressor" in estimator.__name__:
                expected = "squared"
            allowed = (expected, option.default)
            assert parameter.default in allowed, (estimator, name)


def test_options_of_estimators_reach_the_training() -> None:
    found = {name: option.name for name, option in passed_options(fcl.FCLClassifier).items()}
    assert found == {
        "l1_ratio": "l1_ratio", "limits": "limits", "standardize": "standardize", "memory": "memory",
        "fit_intercept": "intercept", "tol": "tol", "max_iter": "max_passes", "row_view": "row_view",
        "group": "group", "validation_fraction": "valid_fraction", "patience": "patience",
    }  # fmt: skip
    assert "group" not in passed_options(fcl.FCLRegressorCV)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_only_the_family_is_positional(estimator: type) -> None:
    first, *others = signature(estimator).parameters.values()
    assert first.name == "features" and first.kind is Parameter.POSITIONAL_OR_KEYWORD
    assert {other.kind for other in others} == {Parameter.KEYWORD_ONLY}
    names = {other.name for other in others}
    assert ("C" in names) != ("cv" in names)
    assert ("class_weight" in names) == ("Classifier" in estimator.__name__)
    loss = signature(estimator).parameters["loss"].default
    assert loss == ("logistic" if "Classifier" in estimator.__name__ else "squared")


#: Parameters that libraries check.
CHECKED_OTHERWISE = {"cv", "dask", "random_state"}


@pytest.mark.parametrize("kind", [*ESTIMATORS, *ONLINE, *STAGEWISE])
def test_every_parameter_is_checked(kind: Any) -> None:
    """tests/test_options.py has the values that each kind of options refuses."""
    for name in kind("columns").get_params().keys() - CHECKED_OTHERWISE:
        estimator = kind(**({"features": "columns"} | {name: object()}))
        with pytest.raises(fcl.InputError, match=rf"^{name}\b"):
            estimator.fit(np.eye(8), np.arange(8) % 2)


@pytest.mark.parametrize("kind", [*ESTIMATORS, *ONLINE, *STAGEWISE])
def test_a_wrong_seed_is_named(kind: Any) -> None:
    with pytest.raises(fcl.InputError, match=r"^random_state\b"):
        kind(random_state=-1).fit(np.eye(8), np.arange(8) % 2)


@pytest.mark.parametrize("kind", [fcl.FCLClassifier, fcl.FCLRegressor])
def test_a_callback_sees_events_and_ends_a_fit_without_a_warning(kind: Any) -> None:
    seen: list[Any] = []

    def progress(event: Any) -> bool:
        seen.append(event)
        return not isinstance(event, PassDone)

    X = np.random.default_rng(0).normal(size=(80, 5))
    model = kind(alpha=1e-4, tol=1e-12, progress=progress).fit(X, (X[:, 0] > 0.0) * 1)
    assert not model.converged_ and isinstance(seen[0], Started)
    classes = np.digitize(X[:, 0], [-0.5, 0.5])
    model = fcl.FCLClassifier(alpha=1e-4, tol=1e-12, progress=progress).fit(X, classes)
    assert not model.converged_ and len(model.models_) == 3
    with pytest.raises(fcl.StopTraining, match=r"before each of its 3 problems had a model"):
        fcl.FCLClassifierCV(alphas=3, cv=2, progress=progress).fit(X, classes)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (fcl.StagewiseClassifier(block=2), BlockVisited),
        (fcl.StagewiseRegressor(block=2), BlockVisited),
        (fcl.FCLOnlineClassifier(rate=0.1), OnlineProgress),
        (fcl.FCLOnlineRegressor(rate=0.1), OnlineProgress),
    ],
)
def test_other_estimators_show_progress_and_end_at_a_callback(model: Any, kind: Any) -> None:
    X = np.random.default_rng(0).normal(size=(90, 6))
    y, seen = np.digitize(X[:, 0], [-0.5, 0.5]), []
    quiet = clone(model).fit(X, y)
    found = clone(model).set_params(progress=seen.append).fit(X, y)
    np.testing.assert_array_equal(found.predict(X), quiet.predict(X))
    assert isinstance(seen[0], Started) and isinstance(seen[-1], Stopped)
    n_seen = sum(isinstance(event, kind) for event in seen)
    assert n_seen > 1

    def stop(event: Any) -> bool:
        seen.append(event)
        return not isinstance(event, kind)

    seen.clear()
    clone(model).set_params(progress=stop).fit(X, y).predict(X)
    assert 0 < sum(isinstance(event, kind) for event in seen) < n_seen
    assert seen[-1].reason == "callback"


def test_patience_ends_a_fit_at_the_best_held_out_loss() -> None:
    X = np.random.default_rng(0).normal(size=(300, 40))
    y = X[:, 0] + np.random.default_rng(1).normal(size=300) > 0.0
    options = {"alpha": 1e-6, "tol": 1e-12, "validation_fraction": 0.3, "patience": 1}
    model = fcl.FCLClassifier(**options).fit(X, y)
    assert model.model_.options["patience"] == 1 and not model.converged_
    with pytest.raises(fcl.InputError, match=r'^patience: expected None for C="auto"'):
        fcl.FCLClassifier(C="auto", patience=1).fit(X, y)
