"""Parameters are declared once, have the defaults of their options, and are described."""

from __future__ import annotations

import re
from inspect import Parameter, signature
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.estimators.parameters import RENAMED, passed_options
from fcl.options import TRAINING
from fcl.options.online import ONLINE_OPTIONS
from fcl.options.option import Option
from fcl.options.path import PATH_OPTIONS
from fcl.options.stagewise import SETTINGS

ESTIMATORS = [fcl.FCLClassifier, fcl.FCLRegressor, fcl.FCLClassifierCV, fcl.FCLRegressorCV]
ONLINE = [fcl.FCLOnlineClassifier, fcl.FCLOnlineRegressor]
STAGEWISE = [fcl.StagewiseClassifier, fcl.StagewiseRegressor]
#: Defaults of estimators that differ from those of the functions; None: a constructor cannot know it.
OTHER_DEFAULTS = {
    "features": "columns", "C": 1.0, "tol": 1e-4, "max_iter": 1000, "memory": "1GiB", "patience": None,
    "passes": 5,
}  # fmt: skip


def described(estimator: type) -> set[str]:
    """The parameters that a docstring describes; ``others`` refers to another class."""
    text = (estimator.__doc__ or "").partition("Parameters\n")[2].partition("Attributes\n")[0]
    heads = re.findall(r"^    (\w[\w, ]*?)(?: :.*)?$", text, re.MULTILINE)
    named = [name for head in heads for name in head.split(", ")]
    assert len(set(named)) == len(named)
    if "others" in named:
        named.remove("others")
        kind = re.findall(r"^    others\n        As in :class:`(\w+)`\.$", text, re.MULTILINE)
        named += [name for name in described(getattr(fcl, kind[0])) if name not in named]
    return set(named)


@pytest.mark.parametrize("estimator", [*ESTIMATORS, *STAGEWISE])
def test_every_parameter_is_described(estimator: type) -> None:
    names = signature(estimator).parameters.keys()
    assert names <= described(estimator)
    if "others" not in (estimator.__doc__ or ""):
        assert names == described(estimator)


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
        "group": "group",
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


#: Parameters that libraries check, and those that are not checked by their own names yet.
CHECKED_OTHERWISE = {"cv", "dask", "random_state"}
NOT_NAMED = {
    "FCLOnlineClassifier": {"fit_intercept"},
    "FCLOnlineRegressor": {"fit_intercept"},
    "StagewiseClassifier": {"certify", "class_weight", "loss"},
    "StagewiseRegressor": {"certify"},
}


@pytest.mark.parametrize("kind", [*ESTIMATORS, *ONLINE, *STAGEWISE])
def test_every_parameter_is_checked(kind: Any) -> None:
    """tests/test_options.py has the values that each kind of options refuses."""
    left_out = CHECKED_OTHERWISE | NOT_NAMED.get(kind.__name__, set())
    for name in kind("columns").get_params().keys() - left_out:
        estimator = kind(**({"features": "columns"} | {name: object()}))
        with pytest.raises(fcl.InputError, match=rf"^{name}\b"):
            estimator.fit(np.eye(8), np.arange(8) % 2)
