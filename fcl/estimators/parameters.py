"""The parameters of the estimators, as fields of dataclasses.

A dataclass writes the constructor that scikit-learn demands: it names every parameter, and stores it
unchanged. Most parameters are options of :mod:`fcl.options`, which validate them. The estimators describe
their parameters, for ``help`` and notebooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from fcl.checks import is_whole
from fcl.features import Spec
from fcl.options import TRAINING, Option
from fcl.options.path import PATH_OPTIONS

#: Parameters whose names are those of scikit-learn, with the names of the options.
RENAMED = {
    "fit_intercept": "intercept",
    "max_iter": "max_passes",
    "validation_fraction": "valid_fraction",
}
#: Options that a fit gives to :func:`fcl.train` in another form.
_NOT_PASSED = (
    "features", "loss", "C", "alpha", "class_weight", "max_time", "dask", "driver",
)  # fmt: skip


def passed_options(estimator: type[Any]) -> dict[str, Option]:
    """The options of training, by the names of the parameters from which a fit passes them on."""
    found = {
        each.name: TRAINING.get(RENAMED.get(each.name, each.name)) for each in fields(estimator)
    }
    left_out = {*_NOT_PASSED, *(PATH_OPTIONS if issubclass(estimator, PathParameters) else ())}
    return {
        name: option
        for name, option in found.items()
        if option is not None and name not in left_out
    }


def seed_of(random_state: Any, option: Option = TRAINING["seed"]) -> int:
    """The seed that scikit-learn's ``random_state`` stands for, as an option; None means 0."""
    if random_state is None:
        return 0
    if is_whole(random_state):
        return int(option.check(random_state, "random_state"))
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


@dataclass(eq=False, repr=False, match_args=False)
class CommonParameters:
    """Parameters of all estimators."""

    features: Spec | str = "columns"
    _: KW_ONLY
    loss: str
    l1_ratio: float = 1.0
    limits: Any = None
    standardize: bool = False
    fit_intercept: bool = True
    tol: float = 1e-4
    max_iter: int = 1000
    random_state: Any = None
    memory: int | str = "1GiB"
    row_view: int | str = "auto"
    max_time: float | None = None
    dask: Any = None
    progress: Any = None
    verbose: bool | int = 0


@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class ClassParameters(CommonParameters):
    """Parameters of classifiers."""

    loss: str = "logistic"
    class_weight: Mapping[Any, float] | str | None = None


@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class RegressionParameters(CommonParameters):
    """Parameters of regressors."""

    loss: str = "squared"


@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class FitParameters:
    """Parameters of estimators that fit at one weight of the penalty."""

    C: float | str | None = 1.0
    alpha: float | None = None
    warm_start: bool = False
    validation_fraction: float | None = None
    patience: int | None = None
    n_jobs: int | None = None
    driver: str = "inline"


@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class GroupParameters:
    """Parameters of estimators of several outputs."""

    group: bool = False


@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class PathParameters:
    """Parameters of estimators that choose the weight of the penalty, and what they do not let choose."""

    C: ClassVar[str] = "auto"
    alpha: ClassVar[None] = None
    warm_start: ClassVar[bool] = False
    driver: ClassVar[str] = "inline"
    alphas: Any = 20
    cv: Any = 5
    select: str = PATH_OPTIONS["select"].default
    patience: int | None = None
    refit: bool = PATH_OPTIONS["refit"].default
    refit_alpha: float = PATH_OPTIONS["refit_alpha"].default
    n_jobs: int | None = None


@dataclass(eq=False, repr=False, match_args=False)
class OnlineParameters:
    """Parameters of the estimators of online learners."""

    features: Spec | str = "columns"
    _: KW_ONLY
    alpha: float = 1e-4
    method: str = "ftrl"
    rate: float | str = "auto"
    passes: int = 5
    power: float = 0.5
    step: str = "implicit"
    period: int = 100
    theta: float = float("inf")
    truncation: str = "soft"
    average: bool = False
    l1_ratio: float = 1.0
    batch: int = 1
    radius: float | None = None
    fit_intercept: bool = True
    hash_bits: int | None = None
    weights: str = "float64"
    gamma: float | None = None
    max_weight: float | None = None
    rates: str = "feature"
    shuffle: bool = True
    random_state: Any = None
    memory: int | str = "1GiB"
    progress: Any = None
