"""How a fit finds the weight of the penalty: the user gives it, or a path with folds chooses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.model_selection import PredefinedSplit, check_cv

from fcl.checks import is_whole, whole
from fcl.cli.progress import LineView, PathView
from fcl.data import DataSet
from fcl.drivers.executor import RunContext, train_job
from fcl.drivers.result import TrainResult, end_in_words
from fcl.errors import InputError
from fcl.estimators.parameters import PathParameters
from fcl.estimators.rows import Training
from fcl.objective import resolve_C
from fcl.path.folds import fold_of_rows
from fcl.path.grid import check_alphas
from fcl.path.result import PathPoint, PathResult
from fcl.path.train import run_path
from fcl.run.reasons import StopReason

#: The value of the parameter C that asks for a search.
AUTO = "auto"
DEFAULT_C = 1.0
#: Attributes of an estimator whose C was searched.
OF_PATHS = ("patience", "select", "refit", "refit_alpha")  #: parameters that are options of a path
SEARCHED = ("alpha_", "C_", "alphas_", "scores_", "folds_", "paths_")


class Given:
    """The weight that the user gives, as C or as alpha."""

    searches = False
    view = LineView
    attributes: dict[str, Any] = {}  # noqa: RUF012  # that no fit sets

    def __init__(self, C: float | None, alpha: float | None) -> None:
        # the default of C counts as None, so that alpha can be set alone
        if alpha is not None and C is not None and C != DEFAULT_C:
            raise InputError(
                f"expected either C or alpha, got C={C!r} and alpha={alpha!r}; set C=None to use alpha"
            )
        self._C, self._alpha = C if alpha is None else None, alpha

    def begin(self, training: Training, class_weight: Any, classifies: bool, seed: int) -> None:
        """Nothing is shared by the problems."""

    def options(self, training: Training) -> dict[str, Any]:
        """The weight of the losses against the penalty, as an argument of :func:`fcl.train`."""
        return {"C": resolve_C(self._C, self._alpha, training.sum_weights)[0]}

    def solve(
        self, number: int, data: DataSet, options: dict[str, Any], context: RunContext
    ) -> TrainResult:
        """Train at this weight."""
        result: TrainResult = context.run(train_job, data, options)
        if result.reason is not StopReason.INTERRUPTED:
            return result
        if not context.should_stop():
            raise KeyboardInterrupt
        return replace(result, reason=StopReason.CALLBACK)


class Search:
    """A path of alphas for each problem, of which cross-validation chooses one.

    groups : of a fit.
    """

    view = PathView
    searches = True

    def __init__(self, parameters: PathParameters, groups: Any) -> None:
        self._given, self._groups = parameters, groups

    def begin(self, training: Training, class_weight: Any, classifies: bool, seed: int) -> None:
        """Make the folds, which all problems share.

        class_weight : applied to the training rows of each fold, not to scores.
        """
        self._class_weight = class_weight
        cv = self._given.cv
        if not is_whole(cv) and not hasattr(cv, "split"):
            cv = check_cv(cv, training.target, classifier=classifies)
        self._folds = fold_of_rows(cv, training.data, self._groups, classifies, seed)
        self._sum_weights = training.sum_weights
        self._paths: dict[int, PathResult] = {}

    def options(self, training: Training) -> dict[str, Any]:
        """The grid, as arguments of :func:`fcl.train_path`."""
        alphas = self._given.alphas
        if is_whole(alphas):
            return {"points": whole("alphas", alphas, 1)}
        return {"alphas": check_alphas(alphas)}

    def solve(
        self, number: int, data: DataSet, options: dict[str, Any], context: RunContext
    ) -> TrainResult:
        """Train a path, and return its chosen point, or the refit."""
        if "alphas" in options and data.weights is not None:  # they do not count class weights
            options["alphas"] = options["alphas"] * (self._sum_weights / data.weights.sum())
        found = run_path(
            data=data,
            cv=PredefinedSplit(self._folds),  # leaves rows of -1 in all training sets
            warn=False,
            client=context.executor,
            progress=context.report,
            should_stop=context.should_stop,
            class_weight=self._class_weight,
            **options | {name: getattr(self._given, name) for name in OF_PATHS},
        )
        if found.reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        self._paths[number] = found
        return _result_of(found.chosen, found.refit, options["tol"])

    @property
    def attributes(self) -> dict[str, Any]:
        """What the estimator tells about the search; of a single problem without a list around it."""
        paths = [self._paths[number] for number in sorted(self._paths)]
        chosen = [path.chosen for path in paths]
        found: dict[str, Any] = {
            "alphas_": [self._alphas_of(path.points) for path in paths],
            "scores_": [path.scores.folds for path in paths],
            "alpha_": self._alphas_of(chosen),
            "C_": np.array([point.C for point in chosen]),
        }
        if len(paths) == 1:
            found = {name: values[0] for name, values in found.items()}
        return found | {"folds_": self._folds, "paths_": paths}

    def _alphas_of(self, points: list[PathPoint]) -> np.ndarray:
        """Alphas with respect to the sample weights, before class weights."""
        return np.array([1.0 / (point.C * self._sum_weights) for point in points])


def _result_of(chosen: PathPoint, refit: PathPoint | None, tol: float) -> TrainResult:
    """The chosen point, or its refit, as the result of training; converged only if both converged."""
    point = refit if refit is not None and chosen.converged else chosen
    message = end_in_words(point.reason, point.certificate, tol)
    seconds = {"path": point.seconds}
    return TrainResult(
        model=(refit or chosen).model,
        reason=point.reason,
        message=message,
        seconds=seconds,
        passes=point.passes,
    )
