"""The search for a C: paths over all rows and over folds, refits, and outer folds around them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fcl.clock import Clock
from fcl.drivers.executor import last
from fcl.errors import InputError
from fcl.features import like_bound
from fcl.model.labels import encoded_target
from fcl.model.model import Model
from fcl.options import PathOptions
from fcl.path.folds import Folds
from fcl.path.grid import Grid
from fcl.path.jobs import PathJobs, fold_name, split_data
from fcl.path.refit import refit_point
from fcl.path.regularization_path import PathRows, RegularizationPath
from fcl.path.result import (
    RANDOM_LEVEL,
    OuterFold,
    OuterScores,
    PathPoint,
    PathResult,
    PathScores,
)
from fcl.path.rules import Rules
from fcl.path.running import PathContext
from fcl.path.scores import SAMPLES, bootstrap_error, fold_scores, margins_on
from fcl.path.store import Folder
from fcl.run.reasons import StopReason
from fcl.scoring.quality import quality
from fcl.types import Floats
from fcl.units import counted


@dataclass(frozen=True)
class PathSearch:
    """The search for a C over the rows of ``jobs``; its points are saved in ``folder``."""

    jobs: PathJobs
    options: PathOptions
    grid: Grid
    running: PathContext
    folder: Folder

    def results(self) -> Iterator[PathResult]:
        """Yield the path as far as it is known; the last one has what follows from its choice, too."""
        crosses = self.jobs.folds is not None
        for result in self.cross_validated() if crosses else self._validated():
            yield result
        if result.reason is StopReason.INTERRUPTED:
            return
        if crosses:
            oof = self._held_out_margins(result)
            scores = self._held_out_scores(result, oof)
            yield (result := replace(result, oof=oof, folds=self.jobs.folds, held_out=scores))
        if self.options.refit:
            yield replace(result, refit=self._refit(result))

    def _path(self, fold: int | None = None, bootstraps: bool = False) -> RegularizationPath:
        """The path over all rows, or over those of a fold, as far as an earlier run saved it."""
        jobs, name, part = self.jobs, "", self.jobs.part
        if fold is not None:
            name, part = f"fold-{fold + 1}", jobs.part_of(fold_name(fold, jobs.n_folds))
        rows = PathRows(self.grid, fold, part, bootstraps)
        store = self.folder.store(name, jobs.about(), self.grid)
        return RegularizationPath(jobs, rows, self.running, store)

    def _result(
        self,
        points: list[PathPoint],
        reason: StopReason,
        scores: tuple[Floats, Floats] | None = None,
        folds: Floats | None = None,
        error_from: str = "",
    ) -> PathResult:
        """The path so far.  scores : of the points, and their standard errors, from ``error_from``."""
        none = np.full(len(points), np.nan)
        folds = np.empty((0, len(points))) if folds is None else folds
        mean, se = scores or (none, none)
        known = PathScores.of(self.jobs.loss, mean, se, folds, error_from)
        return PathResult(points=points, scores=known, select=self.options.select, reason=reason)

    # -- one set of validation rows ------------------------------------------------------------

    def _validated(self) -> Iterator[PathResult]:
        """Yield a path that is scored on one set of rows, or not at all."""
        jobs = self.jobs
        errs = self.options.select == "1se"  # the bootstrap takes time, and only this rule needs it
        path = self._path(bootstraps=errs)
        sign = jobs.sign if jobs.validates else 0.0
        reason = path.extend(replace(Rules.of(self.options), sign=sign)) or StopReason.DONE
        points = self._with_errors(path.points) if errs else path.points
        errors = np.array([point.se for point in points])
        units = "rows" if jobs.groups is None else counted(jobs.groups.max() + 1, "group")
        error_from = f"{SAMPLES} bootstrap samples of the validation {units}"
        known = np.isfinite(errors).any()
        scores = path.scores, errors
        yield self._result(points, reason, scores, error_from=error_from if known else "")

    def _with_errors(self, points: list[PathPoint]) -> list[PathPoint]:
        """The points with the standard errors that an earlier run, with another rule, did not measure."""
        if not any(np.isnan(point.se) and np.isfinite(point.score) for point in points):
            return points
        job = self.jobs.make_job()
        assert job.valid is not None
        found = []
        for point in points:
            margins = margins_on(job, job.valid, point.model)
            seed, groups = job.options.seed, self.jobs.groups
            se = bootstrap_error(job.loss, job.valid, margins, seed, groups)
            found.append(replace(point, se=se))
        return found

    # -- cross-validation ----------------------------------------------------------------------

    def cross_validated(self) -> Iterator[PathResult]:
        """Yield a path over all rows as far as it is known: its first point, then all with scores."""
        jobs, rules = self.jobs, Rules.of(self.options)
        path = self._path()
        path.extend(lambda points: None, 1)  # C_min of all rows, which gives the grid of the folds
        yield self._result(path.points, StopReason.INTERRUPTED)
        alphas = path.grid_alphas(jobs.sum_weights)
        features = like_bound(jobs.features, path.points[0].model.family)
        shared = Grid(len(alphas), None, alphas)
        of_folds = replace(self, jobs=replace(jobs, features=features), grid=shared)
        folds = [of_folds._path(fold) for fold in range(jobs.n_folds)]
        most, reason = self._extend_folds(folds, rules)
        full = path.extend(rules, most)
        if full is not None and full is not StopReason.DONE:
            reason = full
        found = _scores_of(folds)[:, : len(path.points)]
        fold_points = [fold.points[: found.shape[1]] for fold in folds]
        areas = np.array([[point.auroc for point in points] for points in fold_points])
        # each fold has its own share of positive rows
        empty = float(fold_scores(np.array([[fold.points[0].empty] for fold in folds]))[0][0])
        scores = fold_scores(found)
        measured = (each.tolist() for each in (*scores, *fold_scores(areas)))
        points = [
            replace(point, score=mean, se=se, empty=empty, auroc=area, auroc_se=area_se)
            for point, mean, se, area, area_se in zip(path.points, *measured, strict=False)
        ]
        result = self._result(points, reason, scores, found, counted(len(folds), "fold"))
        yield replace(result, fold_points=fold_points)

    def _extend_folds(
        self, paths: list[RegularizationPath], rules: Rules
    ) -> tuple[int, StopReason]:
        """Train the folds until their mean score ends the path; returns at which point, and why.

        Each fold runs until its own score ends it; then the shorter ones continue, until the
        mean over all folds has not improved for ``patience`` points, or a fold cannot continue. A fold
        that was interrupted raises KeyboardInterrupt.
        """
        sign, each = self.jobs.sign, self.running.executor.each
        ends = each(partial(_extended, enough=replace(rules, sign=sign)), paths)
        while True:
            scores = _scores_of(paths)
            common = scores.shape[1]
            found = rules.patient_until(sign * fold_scores(scores)[0])
            if found is not None:
                return found, StopReason.PATIENCE
            final = [
                end
                for path, end in zip(paths, ends, strict=True)
                if len(path.points) == common and end not in (None, StopReason.PATIENCE)
            ]
            if final and final[0] is not None:
                return common, final[0]
            most = common + (rules.patience or 1)
            short = [number for number, path in enumerate(paths) if len(path.points) < most]
            extend = partial(_extended, enough=rules, most=most)
            for number, end in zip(short, each(extend, [paths[n] for n in short]), strict=True):
                ends[number] = end

    # -- what follows from the choice ----------------------------------------------------------

    def _refit(self, result: PathResult) -> PathPoint | None:
        """Refit the chosen point over all rows, and in each fold for the score."""
        jobs, chosen, alpha = self.jobs, result.chosen, self.options.refit_alpha
        points = [fold[chosen.number] for fold in result.fold_points]

        def refit(fold: int | None) -> PathPoint | None:
            if fold is None:
                return self.running.run(refit_point, jobs, None, chosen, alpha, "refit")
            part = f"refit of {fold_name(fold, jobs.n_folds)}"
            return self.running.run(refit_point, jobs, fold, points[fold], alpha, part)

        found, *own = self.running.executor.each(refit, [None, *range(len(points))])
        if found is None or not own:
            return found
        # an empty model has nothing to refit
        scores = [(new or point).score for new, point in zip(own, points, strict=True)]
        mean, se = fold_scores(np.array(scores)[:, None])
        return replace(found, score=float(mean[0]), se=float(se[0]))

    def _held_out_margins(self, result: PathResult) -> Floats:
        """The margin of each row by the chosen model of the fold that held the row out.

        float64 (n,), or (n, K) with K outputs; NaN for rows that no fold held out.
        """
        jobs, chosen = self.jobs, result.chosen
        margins = np.full((jobs.data.n_rows, *chosen.model.weights.shape[1:]), np.nan)

        def of_fold(fold: int) -> Floats:
            model = result.fold_points[fold][chosen.number].model
            found: Floats = self.running.run(margins_of_fold, jobs, fold, model)
            return found

        for fold, found in enumerate(self.running.executor.each(of_fold, range(jobs.n_folds))):
            margins[jobs.folds == fold] = found
        return margins

    def _held_out_scores(self, result: PathResult, oof: Floats) -> dict[str, tuple[float, float]]:
        """Mean and standard error over the folds of each score of the chosen model, by name.

        Empty for several outputs. A score that a fold does not have, such as AUROC of one class, is left
        out.
        """
        model, data = result.chosen.model, self.jobs.data
        if model.n_outputs > 1 or data.target is None:
            return {}
        y = encoded_target(model, data.target, data.target_name)
        found: defaultdict[str, list[float]] = defaultdict(list)
        n_folds = self.jobs.n_folds
        for fold in range(n_folds):
            held = self.jobs.folds == fold
            weights = None if data.weights is None else np.asarray(data.weights, np.float64)[held]
            scores = quality(model, y[held], oof[held], weights)
            if "AUPRC" in scores:
                scores[RANDOM_LEVEL] = float(np.average(y[held] > 0, weights=weights))
            for name, value in scores.items():
                found[name].append(value)
        return {
            name: (float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(n_folds)))
            for name, values in found.items()
            if len(values) == n_folds
        }

    # -- nested cross-validation ---------------------------------------------------------------

    def score_outer_folds(self, outer: Folds, inner: Sequence[Folds]) -> OuterScores:
        """Choose C without the rows of each outer fold in turn, and score the choice on them.

        The folds are from :func:`fcl.path.folds.outer_folds`. A search that was interrupted raises
        KeyboardInterrupt.
        """

        def scored(fold: int) -> OuterFold:
            train, held = split_data(self.jobs.data, outer, fold, "outer")
            assert train.weights is not None
            jobs = replace(
                self.jobs,
                data=train,
                folds=inner[fold],
                sum_weights=float(train.weights.sum()),
                part=f"outer {fold_name(fold, len(inner))}",
            )
            # with its own time limit
            running = replace(self.running, begun=time.monotonic(), clock=Clock())
            folder = self.folder.within(f"outer-{fold + 1}")
            search = replace(self, jobs=jobs, running=running, folder=folder)
            result = last(search.cross_validated())
            if result.reason is StopReason.INTERRUPTED:
                raise KeyboardInterrupt
            validated = replace(jobs, valid=held)
            found: OuterFold = running.run(score_choice, validated, fold, result.chosen)
            return found

        found = self.running.executor.each(scored, range(len(inner)))
        mean, se = fold_scores(np.array([[fold.score] for fold in found]))
        return OuterScores(self.jobs.loss.metric, found, float(mean[0]), float(se[0]))


def _scores_of(paths: list[RegularizationPath]) -> Floats:
    """Scores of the points that all folds have, float64 (folds, points)."""
    common = min(len(path.points) for path in paths)
    return np.array([path.scores[:common] for path in paths])


def _extended(
    path: RegularizationPath, enough: Rules, most: int | None = None
) -> StopReason | None:
    """Extend a path; an interrupt ends all folds, and an error names the fold."""
    try:
        end = path.extend(enough, most)
    except InputError as error:
        raise InputError(f"{path.part}: {error}") from error
    if end is StopReason.INTERRUPTED:
        raise KeyboardInterrupt
    return end


def margins_of_fold(
    jobs: PathJobs, running: PathContext, fold: int, model: Model
) -> Iterator[Floats]:
    """Yield the margins of the rows that a fold held out, as a job."""
    yield model.margins(jobs.data)[jobs.folds == fold]


def score_choice(
    jobs: PathJobs, running: PathContext, fold: int, chosen: PathPoint
) -> Iterator[OuterFold]:
    """Yield the choice of a search, scored on the validation rows of a path."""
    job = jobs.make_job()
    rows = job.valid
    assert rows is not None
    margins = margins_on(job, rows, chosen.model)
    yield OuterFold(fold, chosen, rows.n, job.loss.score_outputs(rows.y, rows.s, margins))
