"""The parameters of the estimators, each declared once, as a field of a dataclass.

A dataclass writes the constructor that scikit-learn demands: it names every parameter, and stores it
unchanged. The estimators describe their parameters, for ``help`` and notebooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from fcl.features import Spec


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

    C: float | None = 1.0
    alpha: float | None = None
    warm_start: bool = False
    n_jobs: int | None = None
    driver: str = "inline"


@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class GroupParameters:
    """Parameters of estimators of several outputs."""

    group: bool = False


@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class PathParameters:
    """Parameters of estimators that choose the weight of the penalty."""

    alphas: Any = 20
    cv: Any = 5
    select: str = "best"
    patience: int | None = None
    refit: bool = False
    refit_alpha: float = 1e-4
    n_jobs: int | None = None
