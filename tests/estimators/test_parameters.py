"""Parameters are declared once, and described in every estimator that has them."""

from __future__ import annotations

import re
from inspect import Parameter, signature

import pytest

import fcl

ESTIMATORS = [fcl.FCLClassifier, fcl.FCLRegressor, fcl.FCLClassifierCV, fcl.FCLRegressorCV]


STAGEWISE = [fcl.StagewiseClassifier, fcl.StagewiseRegressor]


@pytest.mark.parametrize("estimator", [*ESTIMATORS, *STAGEWISE])
def test_every_parameter_is_described(estimator: type) -> None:
    text = (estimator.__doc__ or "").partition("Parameters\n")[2].partition("Attributes\n")[0]
    heads = re.findall(r"^    (\w[\w, ]*?)(?: :.*)?$", text, re.MULTILINE)
    named = [name for head in heads for name in head.split(", ")]
    assert sorted(named) == sorted(signature(estimator).parameters)


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
