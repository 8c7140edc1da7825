"""How a fit finds the weight of the penalty: the user gives it, or a path with folds chooses it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.model_selection import PredefinedSplit, check_cv

from fcl.checks import is_whole, whole
from fcl.cli.progress import LineView, PathView
from fcl.data import DataSet
from fcl.drivers.executor import Executor, RunContext, train_job
from fcl.drivers.result import TrainResult, end_in_words
from fcl.errors import InputError
from fcl.estimators.rows import Training
from fcl.objective import resolve_C
from fcl.path.folds import fold_of_rows
from fcl.path.grid import check_alphas
from fcl.path.result import PathPoint, PathResult
from fcl.path.train import run_path
from fcl.run.reasons import StopReason

if TYPE_CHECKING:
    from fcl.model import Model

#: The value of the parameter C that asks for a search.
AUTO = "auto"
DEFAULT_C = 1.0
#: Attributes of an estimator whose C was searched.
SEARCHED = ("alpha_", "C_", "alphas_", "scores_", "folds_", "paths_")


@dataclass(frozen=True)
class ProblemOfFit:
    """One of the problems of a fit, which share the rows.

    number : from 0.  text : for ``verbose``.  initial : the model to start from, if any.  executor : what
    solves it.  class_weight : that a search applies to the training rows of each fold, not to scores.
    """

    number: int
    text: str
    initial: Model | None
    executor: Executor
    class_weight: Any = None


class Given:
    """The weight that the user gives, as C or as alpha."""

    searches = False
    attributes: dict[str, Any] = {}  # noqa: RUF012  # that no fit sets

    def __init__(self, C: float | None, alpha: float | None) -> None:
        # the default of C counts as None, so that alpha can be set alone
        if alpha is not None and C is not None and C != DEFAULT_C:
            raise InputError(
                f"expected either C or alpha, got C={C!r} and alpha={alpha!r}; set C=None to use alpha"
            )
        self._C, self._alpha = C if alpha is None else None, alpha

    def begin(self, training: Training, n_problems: int, classifies: bool, seed: int) -> None:
        """Nothing is shared by the problems."""

    def options(self, training: Training) -> dict[str, Any]:
        """The weight of the losses against the penalty, as an argument of :func:`fcl.train`."""
        return {"C": resolve_C(self._C, self._alpha, training.sum_weights)[0]}

    def view(self) -> Any:
        """Shows the events of a fit."""
        return LineView()

    def solve(
        self, data: DataSet, problem: ProblemOfFit, options: dict[str, Any], report: Any
    ) -> TrainResult:
        """Train at this weight."""
        context = RunContext(report, lambda: False, executor=problem.executor)
        result: TrainResult = context.run(train_job, data, options | {"initial": problem.initial})
        if result.reason == StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        return result


@dataclass
class Search:
    """A path of alphas for each problem, of which cross-validation chooses one.

    Fields are the parameters of :class:`FCLClassifierCV`, and the ``groups`` of a fit.
    """

    alphas: Any = 20
    cv: Any = 5
    select: str = "best"
    patience: int | None = None
    refit: bool = False
    refit_alpha: float = 1e-4
    groups: Any = None
    paths: list[PathResult] = field(default_factory=list, init=False)

    searches = True

    def begin(self, training: Training, n_problems: int, classifies: bool, seed: int) -> None:
        """Make the folds, which all problems share."""
        cv = self.cv
        if not is_whole(cv) and not hasattr(cv, "split"):
            cv = check_cv(cv, training.target, classifier=classifies)
        self._folds = fold_of_rows(cv, training.data, self.groups, classifies, seed)
        self._sum_weights = training.sum_weights
        self.paths = [None] * n_problems  # type: ignore[list-item]

    def options(self, training: Training) -> dict[str, Any]:
        """The grid, as arguments of :func:`fcl.train_path`."""
        if is_whole(self.alphas):
            return {"points": whole("alphas", self.alphas, 1)}
        return {"alphas": check_alphas(self.alphas)}

    def view(self) -> Any:
        """Shows the points of all paths."""
        return PathView()

    def solve(
        self, data: DataSet, problem: ProblemOfFit, options: dict[str, Any], report: Any
    ) -> TrainResult:
        """Train a path, and return its chosen point, or the refit."""
        if "alphas" in options and data.weights is not None:  # they do not count class weights
            options["alphas"] = options["alphas"] * (self._sum_weights / data.weights.sum())
        found = run_path(
            data=data,
            cv=PredefinedSplit(self._folds),  # leaves rows of -1 in all training sets
            patience=self.patience,
            select=self.select,
            refit=self.refit,
            refit_alpha=self.refit_alpha,
            warn=False,
            client=problem.executor,
            progress=report,
            class_weight=problem.class_weight,
            **options,
        )
        if found.reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        self.paths[problem.number] = found
        return _result_of(found.chosen, found.refit, options["tol"])

    @property
    def attributes(self) -> dict[str, Any]:
        """What the estimator tells about the search; of a single problem without a list around it."""
        chosen = [path.chosen for path in self.paths]
        found: dict[str, Any] = {
            "alphas_": [self._alphas_of(path.points) for path in self.paths],
            "scores_": [path.scores.folds for path in self.paths],
            "alpha_": self._alphas_of(chosen),
            "C_": np.array([point.C for point in chosen]),
        }
        if len(self.paths) == 1:
            found = {name: values[0] for name, values in found.items()}
        return found | {"folds_": self._folds, "paths_": self.paths}

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
