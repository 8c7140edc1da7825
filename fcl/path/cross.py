"""Cross-validation of a path: the paths of the folds, and where their mean score ends the path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from fcl.drivers.executor import INLINE, Executor
from fcl.errors import InputError
from fcl.features import like_bound
from fcl.model.labels import encoded_target
from fcl.model.model import Model
from fcl.options import PathOptions
from fcl.path.folds import Folds
from fcl.path.grid import Grid
from fcl.path.jobs import PathJobs
from fcl.path.refit import refit_point
from fcl.path.regularization_path import PathRows, RegularizationPath
from fcl.path.result import RANDOM_LEVEL, PathPoint, PathResult, PathScores
from fcl.path.rules import Rules
from fcl.path.running import PathContext
from fcl.path.scores import fold_scores
from fcl.path.store import Folder
from fcl.run.reasons import StopReason
from fcl.scoring.quality import quality
from fcl.types import Floats
from fcl.units import counted


def cross_validated(
    jobs: PathJobs, options: PathOptions, grid: Grid, running: PathContext, folder: Folder
) -> Iterator[PathResult]:
    """Yield a path over all rows as far as it is known: its first point, then all with their scores."""
    folds, loss, rules = jobs.folds, jobs.loss, Rules.of(options)
    assert folds is not None
    store = folder.store("", jobs.about(), grid)
    path = RegularizationPath(jobs, PathRows(grid, part=jobs.part), running, store)
    path.extend(lambda points: None, 1)  # C_min of all rows, which gives the grid of the folds
    none = np.full(len(path.points), np.nan)
    unscored = PathScores.of(loss, none, none, none[:, None][:0], "")
    reason = StopReason.INTERRUPTED
    yield PathResult(points=path.points, scores=unscored, select=options.select, reason=reason)
    features = like_bound(jobs.features, path.points[0].model.family)
    jobs = replace(jobs, features=features)
    alphas = path.grid_alphas(jobs.sum_weights)
    shared = Grid(len(alphas), None, alphas)
    fold_paths = []
    for fold in range(int(folds.max()) + 1):
        store = folder.store(f"fold-{fold + 1}", jobs.about(), shared)
        rows = PathRows(shared, fold, jobs.part_of(fold_name(fold, folds)))
        fold_paths.append(RegularizationPath(jobs, rows, running, store))
    sign = 1.0 if loss.higher_is_better else -1.0
    most, reason = extend_folds(fold_paths, rules, sign, running.executor)
    full = path.extend(rules, most)
    if full is not None and full is not StopReason.DONE:
        reason = full
    found = scores_of(fold_paths)[:, : len(path.points)]
    fold_points = [fold.points[: found.shape[1]] for fold in fold_paths]
    areas = np.array([[point.auroc for point in points] for points in fold_points])
    measured = (*fold_scores(found), *fold_scores(areas))
    scored = zip(path.points, *(each.tolist() for each in measured), strict=False)
    # each fold has its own share of positive rows
    empty = float(fold_scores(np.array([[fold.points[0].empty] for fold in fold_paths]))[0][0])
    points = [
        replace(point, score=mean, se=se, empty=empty, auroc=area, auroc_se=area_se)
        for point, mean, se, area, area_se in scored
    ]
    error_from = counted(len(fold_paths), "fold")
    yield PathResult(
        points=points,
        scores=PathScores.of(loss, measured[0], measured[1], found, error_from),
        select=options.select,
        reason=reason,
        fold_points=fold_points,
    )


def fold_name(fold: int, folds: Folds) -> str:
    """The name of a fold in events."""
    return f"fold {fold + 1} of {folds.max() + 1}"


def refit_cross_validated(
    jobs: PathJobs, result: PathResult, alpha: float, running: PathContext
) -> PathPoint | None:
    """Refit the chosen point over all rows, and in each fold for the score."""
    folds, number = jobs.folds, result.chosen.number
    assert folds is not None

    def refit(fold: int) -> PathPoint | None:
        if fold < 0:
            return running.run(refit_point, jobs, None, result.chosen, alpha, "refit")
        part = f"refit of {fold_name(fold, folds)}"
        return running.run(refit_point, jobs, fold, result.fold_points[fold][number], alpha, part)

    found, *own = running.executor.each(refit, [-1, *range(len(result.fold_points))])
    if found is None:
        return None
    # an empty model stays as it is
    points = [fold[number] for fold in result.fold_points]
    scores = [(new or point).score for new, point in zip(own, points, strict=True)]
    mean, se = fold_scores(np.array(scores)[:, None])
    return replace(found, score=float(mean[0]), se=float(se[0]))


def scores_of(paths: list[RegularizationPath]) -> Floats:
    """Scores of the points that all folds have, float64 (folds, points)."""
    common = min(len(path.points) for path in paths)
    return np.array([path.scores[:common] for path in paths])


def extend_folds(
    paths: list[RegularizationPath], rules: Rules, sign: float, executor: Executor = INLINE
) -> tuple[int, StopReason]:
    """Train the folds until their mean score ends the path; returns at which point, and why.

    Each fold runs until its own score ends it; then the shorter ones continue, until the
    mean over all folds has not improved for ``patience`` points, or a fold cannot continue.

    sign : 1 if larger scores are better, else -1.

    Raises KeyboardInterrupt if a fold was interrupted.
    """
    ends = executor.each(partial(_extended, enough=replace(rules, sign=sign)), paths)
    while True:
        scores = scores_of(paths)
        common = scores.shape[1]
        found = rules.patient_until(sign * fold_scores(scores)[0])
        if found is not None:
            return found, StopReason.PATIENCE
        final = [
            end
            for path, end in zip(paths, ends, strict=True)
            if len(path.points) == common and end is not None and end is not StopReason.PATIENCE
        ]
        if final:
            return common, final[0]
        most = common + (rules.patience or 1)
        short = [number for number, path in enumerate(paths) if len(path.points) < most]
        extend = partial(_extended, enough=rules, most=most)
        new_ends = executor.each(extend, [paths[n] for n in short])
        for number, end in zip(short, new_ends, strict=True):
            ends[number] = end


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


def held_out_margins(jobs: PathJobs, result: PathResult, running: PathContext) -> Floats:
    """The margin of each row by the chosen model of the fold that held the row out.

    float64 (n,), or (n, K) with K outputs; NaN for rows that no fold held out.
    """
    folds, number = jobs.folds, result.chosen.number
    assert folds is not None
    outputs = result.chosen.model.weights.shape[1:]
    margins = np.full((jobs.data.n_rows, *outputs), np.nan)

    def of_fold(fold: int) -> Floats:
        found: Floats = running.run(
            margins_of_fold, jobs, fold, result.fold_points[fold][number].model
        )
        return found

    for fold, found in enumerate(running.executor.each(of_fold, range(len(result.fold_points)))):
        margins[folds == fold] = found
    return margins


def held_out_scores(
    jobs: PathJobs, result: PathResult, oof: Floats
) -> dict[str, tuple[float, float]]:
    """Mean and standard error over the folds of each score of the chosen model, by name.

    Empty for several outputs. A score that a fold does not have, such as AUROC of one class, is left out.
    """
    model, data = result.chosen.model, jobs.data
    if model.n_outputs > 1 or data.target is None or jobs.folds is None:
        return {}
    y = encoded_target(model, data.target, data.target_name)
    found: defaultdict[str, list[float]] = defaultdict(list)
    n_folds = len(result.fold_points)
    for fold in range(n_folds):
        held = jobs.folds == fold
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


def margins_of_fold(
    jobs: PathJobs, running: PathContext, fold: int, model: Model
) -> Iterator[Floats]:
    """Yield the margins of the rows that a fold held out, as a job."""
    yield model.margins(jobs.data)[jobs.folds == fold]
