"""A path: its points, scores and choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, compress
from typing import Any

import numpy as np

from fcl.facts import C_fact, Fact, chosen, rows_html
from fcl.model.certificate import Certificate
from fcl.model.facts import proof_facts
from fcl.model.model import Model
from fcl.objective import Loss
from fcl.path.rules import best_point, is_no_gain, one_se_point
from fcl.run.reasons import StopReason
from fcl.run.result import RunResult
from fcl.types import Floats, Ids
from fcl.units import counted, score_text, score_title

#: Why a path ended, in words, where the sentence of the reason does not name the option.
REASONS = {
    StopReason.DONE: "all points are done",
    StopReason.PATIENCE: "the score has not improved for the last points (--patience)",
    StopReason.MAX_ACTIVE: "the model has as many features as --max-active allows",
    StopReason.MAX_TIME: "--max-time was reached",
}

#: The name of the AUPRC of random scores among the held-out scores.
RANDOM_LEVEL = "AUPRC of random scores"


@dataclass(frozen=True)
class PathPoint:
    """A model of a path, certified at its own C.

    Attributes
    ----------
    number : int
        From 0, by increasing C.
    model : Model
    reason : StopReason
        Why training at this C ended.
    seconds : float
        Time of this point.
    passes : int
        Passes of this point; the first one may reuse the prices of the point before.
    score, se : float
        Score on the validation rows, or mean score of the folds, and its standard error; NaN if not
        measured.
    empty : float
        Score of the model without features on the same rows; of a ranking, the mean score of random
        orders, which is a little above the share of positive rows. NaN if it is not known.
    auroc, auroc_se : float
        AUROC over the same rows as the score, and its standard error over folds; NaN but for two classes.
    """

    number: int
    model: Model
    reason: StopReason
    seconds: float
    passes: int
    score: float = np.nan
    se: float = np.nan
    empty: float = np.nan
    auroc: float = np.nan
    auroc_se: float = np.nan

    @property
    def C(self) -> float:
        """Weight of the losses."""
        return self.model.C

    @property
    def alpha(self) -> float:
        """Weight of the penalty: C = 1 / (alpha * sum of the sample weights)."""
        return self.model.alpha

    @property
    def certificate(self) -> Certificate:
        """What is proved about the model."""
        return self.model.certificate

    @property
    def active(self) -> int:
        """Number of features with a weight."""
        return self.model.n_active

    @property
    def converged(self) -> bool:
        """Whether the relative gap reached the tolerance."""
        return self.reason is StopReason.TOLERANCE


@dataclass(frozen=True)
class PathScores:
    """The scores of the points of a path, larger is better if ``higher_is_better``.

    Attributes
    ----------
    metric : str
        Name of the metric.
    higher_is_better : bool
    mean, se : float64 (points,)
        Score and standard error of each point; NaN where undefined.
    folds : float64 (folds, points)
        Scores of the folds; no rows with one validation set.
    error_from : str
        Where the standard errors come from, in words; empty if there are none.
    """

    metric: str
    higher_is_better: bool
    mean: Floats
    se: Floats
    folds: Floats
    error_from: str

    @classmethod
    def of(cls, loss: Loss, mean: Floats, se: Floats, folds: Floats, error_from: str) -> PathScores:
        """Scores by the metric of a loss."""
        return cls(loss.metric, loss.higher_is_better, mean, se, folds, error_from)

    @property
    def oriented(self) -> Floats:
        """The scores, with their sign changed if smaller ones are better."""
        return self.mean if self.higher_is_better else -self.mean

    @property
    def known(self) -> bool:
        """Whether any point has a score."""
        return bool(np.isfinite(self.mean).any())


@dataclass(frozen=True)
class OuterFold:
    """The choice without the rows of an outer fold, and its score on them.

    Attributes
    ----------
    number : int
        From 0.
    chosen : PathPoint
        Its ``score`` comes from the inner cross-validation.
    n_rows : int
        Number of rows of weight above 0 that were held out.
    score : float
        Score on these rows; NaN if undefined.
    """

    number: int
    chosen: PathPoint
    n_rows: int
    score: float


@dataclass(frozen=True)
class OuterScores:
    """The scores of nested cross-validation.

    Attributes
    ----------
    metric : str
    folds : list of OuterFold
    mean, se : float
        Mean of the defined scores, and its standard error.
    """

    metric: str
    folds: list[OuterFold]
    mean: float
    se: float

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each outer fold: fold, C, alpha, active, gap, rows, score."""
        return [
            {
                "fold": fold.number + 1,
                "C": fold.chosen.C,
                "alpha": fold.chosen.alpha,
                "active": fold.chosen.active,
                "gap": fold.chosen.certificate.gap,
                "rows": fold.n_rows,
                "score": fold.score,
            }
            for fold in self.folds
        ]


@dataclass(frozen=True, kw_only=True)
class PathResult(RunResult):
    """A path of certified models.

    Attributes
    ----------
    model : Model
        Of the chosen point.
    message : str
        Why the path ended, in words.
    seconds : dict of str to float
        Time of the points over all rows, of the folds, and of the refit.
    peak_memory : int
        Bytes, of this process.
    points : list of PathPoint
        By increasing C.
    scores : PathScores
    select : {"best", "1se"}
        The rule of ``chosen``.
    reason : StopReason
        Why the path ended.
    oof : float64 (n,) or None
        Margin of each row by the model, at the chosen alpha, of the fold that held the row out; NaN for
        rows that no fold held out. None without folds.
    folds : int64 (n,) or None
        The fold that held each row out, from 0; -1 for none. None without folds.
    held_out : dict of str to (float, float)
        Mean and standard error over the folds of all scores of the chosen model that its rows allow, such
        as AUPRC, AUROC and log loss.
    fold_points : list of list of PathPoint
        The points of each fold; empty without folds.
    refit : PathPoint or None
        The chosen features, trained again nearly without a penalty; its certificate covers them alone.
        None if it was not requested, or if the chosen model has no features.
    outer : OuterScores or None
        Scores of nested cross-validation, if there are outer folds.
    checkpoint_failed : bool
        Whether ``folder`` lacks the last points or the choice, since they could not be written.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> valid = fcl.open_data(-X, y=X[:, 0] < X[:, 3])
    >>> path = fcl.train_path(data, "columns", points=4, C_max=1.0, valid=valid)
    >>> [point.active for point in path.points]
    [0, 2, 2, 3]
    >>> path.chosen is path.best, all(model.certificate.gap <= 1e-3 for model in path.models)
    (True, True)
    """

    model: Model = field(init=False, repr=False)
    message: str = field(init=False)
    seconds: Mapping[str, float] = field(init=False)
    points: list[PathPoint]
    scores: PathScores
    select: str
    oof: Floats | None = None
    folds: Ids | None = None
    held_out: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    fold_points: list[list[PathPoint]] = field(default_factory=list)
    refit: PathPoint | None = None
    outer: OuterScores | None = None

    def __post_init__(self) -> None:
        spent = {"points": self.points, "folds": list(chain(*self.fold_points))}
        spent["refit"] = [] if self.refit is None else [self.refit]
        seconds = {name: sum(each.seconds for each in found) for name, found in spent.items()}
        words = f"{self.reason}: {REASONS.get(self.reason, self.reason.sentence)}"
        # the dataclass is frozen, and these follow from the other fields
        object.__setattr__(self, "model", self.chosen.model)
        object.__setattr__(self, "message", words)
        object.__setattr__(self, "seconds", seconds)

    @property
    def models(self) -> list[Model]:
        """The models, by increasing C."""
        return [point.model for point in self.points]

    @property
    def best(self) -> PathPoint | None:
        """The point of the best score; None without scores."""
        return self.points[best_point(self.scores.oriented)] if self.scores.known else None

    @property
    def one_se(self) -> PathPoint | None:
        """The point of the smallest C within one standard error of the best; None without errors."""
        if not (self.scores.known and np.isfinite(self.scores.se).any()):
            return None
        return self.points[one_se_point(self.scores.oriented, self.scores.se)]

    @property
    def chosen(self) -> PathPoint:
        """``best`` or ``one_se``, as ``select`` says; without scores, the last point."""
        found = (self.select == "1se" and self.one_se) or self.best
        return found or self.points[-1]

    @property
    def has_no_gain(self) -> bool:
        """Whether the chosen model is not clearly better than the model without features."""
        chosen, scores = self.chosen, self.scores
        if not scores.known:
            return False
        score, se = float(scores.mean[chosen.number]), float(scores.se[chosen.number])
        return is_no_gain(score, chosen.empty, se, scores.higher_is_better)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each point; the keys are the columns of :attr:`table`.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(200, 5))
        >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
        >>> path = fcl.train_path(data, "columns", points=3)
        >>> [(row["active"], row["converged"]) for row in path.rows()]
        [(0, True), (2, True), (3, True)]
        """
        scores = self.scores
        found = []
        for point in self.points:
            row = point_row(point)
            row |= {f"fold{i + 1}": fold[point.number] for i, fold in enumerate(scores.folds)}
            found.append(row)
        return found

    @property
    def table(self) -> Any:
        """The points as a ``pandas.DataFrame`` if pandas is installed, else :meth:`rows`.

        Columns: C, alpha, active, objective, bound, gap, seconds, passes, converged, score, se, auroc,
        auroc_se, and with folds fold1, fold2 and so on.
        """
        if find_spec("pandas") is None:
            return self.rows()
        return import_module("pandas").DataFrame(self.rows())

    def facts(self) -> list[Fact]:
        """Why the path ended, which point was chosen and why, and what is proved about it."""
        point, scores = self.chosen, self.scores
        rule = {
            "best": "the best score",
            "1se": "the smallest C within one standard error of the best",
        }
        why = rule[self.select] if scores.known else "the last, since there are no scores"
        facts = [self.stopped_fact()]
        if (
            self.reason is StopReason.DONE
            and self.best is not None
            and self.best is self.points[-1]
        ):
            C_max = 10.0 * self.best.C
            words = (
                "the last point has the best score, so a larger C may be better; the same command with "
                f"--C-max {C_max:.3g} --resume OUT.path continues from these points"
            )
            facts.append(Fact("hint", words, C_max))
        if scores.error_from:
            facts.append(Fact("errors", f"standard errors from {scores.error_from}"))
        if self.held_out:
            text = f"{_scores_text(self.held_out)}, over the folds of the chosen point"
            facts.append(Fact("held out", text))
        return [
            *facts,
            Fact("chosen", f"point {point.number + 1}: {why}", point.number),
            C_fact(point.C, point.alpha),
            *proof_facts(point.model),
        ]

    def point_cells(self) -> list[list[str]]:
        """The points as a table of texts, with its head: without scores that nothing measured."""
        scores = self.scores
        metric = score_title(scores.metric) if scores.known else ""
        se = "se" if scores.error_from else ""
        auroc, auroc_se = (
            name if any(np.isfinite(getattr(point, key)) for point in self.points) else ""
            for key, name in (("auroc", "AUROC"), ("auroc_se", "se"))
        )
        head = ["point", "C", "active", "objective", "gap", metric, se, auroc, auroc_se, "seconds"]
        rows = [
            [
                f"{point.number + 1}", f"{point.C:.4g}", f"{point.active:,}",
                f"{point.certificate.objective:.6g}", point.certificate.gap_text,
                score_text(mean), score_text(error), score_text(point.auroc),
                score_text(point.auroc_se), f"{point.seconds:.2f}",
            ]
            for point, mean, error in zip(self.points, scores.mean, scores.se, strict=True)
        ]  # fmt: skip
        return [list(compress(row, head)) for row in (head, *rows)]

    def _repr_html_(self) -> str:
        facts = chosen(self.facts(), "stopped", "errors", "chosen")
        head, *rows = self.point_cells()
        title = f"path of {counted(len(rows), 'point')}"
        return rows_html(title, head, rows, self.chosen.number) + self.chosen.model.to_html(facts)

    def __repr__(self) -> str:
        points = counted(len(self.points), "point")
        return f"<PathResult {points}, chosen C {self.chosen.C:.4g}, {self.reason}>"


def _scores_text(scores: Mapping[str, tuple[float, float]]) -> str:
    """Means and standard errors of scores; beside AUPRC the level of random scores, without an error."""
    level = f", random {scores[RANDOM_LEVEL][0]:.4f}" if RANDOM_LEVEL in scores else ""
    return ", ".join(
        f"{name} {mean:.4f} (SE {se:.4f}{level if name == 'AUPRC' else ''})"
        for name, (mean, se) in scores.items()
        if name != RANDOM_LEVEL
    )


def point_row(point: PathPoint) -> dict[str, Any]:
    """The numbers of a point by name."""
    certificate = point.certificate
    return {
        "C": point.C,
        "alpha": point.alpha,
        "active": point.active,
        "objective": certificate.objective,
        "bound": certificate.bound,
        "gap": certificate.gap,
        "seconds": point.seconds,
        "passes": point.passes,
        "converged": point.converged,
        "score": point.score,
        "se": point.se,
        "auroc": point.auroc,
        "auroc_se": point.auroc_se,
    }
