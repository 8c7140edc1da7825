"""Cross-validation of a path: the tracks of the folds, and where their mean score ends the path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.errors import InputError
from fcl.path.folds import Folds
from fcl.path.grid import Grid
from fcl.path.options import PathOptions
from fcl.path.problem import Folder, Problem
from fcl.path.refit import refit_support
from fcl.path.result import PathPoint, PathResult, Scores
from fcl.path.rules import PathStop, Rules
from fcl.path.running import Running
from fcl.path.scores import fold_scores
from fcl.path.track import Track
from fcl.units import counted

__all__ = ["cross_validated", "extend_folds", "held_out_margins"]

Floats = npt.NDArray[np.float64]


def cross_validated(
    problem: Problem, options: PathOptions, grid: Grid, running: Running, folder: Folder
) -> PathResult:
    """A path that is scored by cross-validation; without the margins of the rows that were held out."""
    folds, loss, rules = problem.folds, problem.loss, options.rules
    assert folds is not None
    store = folder.track("", problem, grid)
    path = Track(problem.make_job, grid, running, part=problem.part, store=store)
    path.extend(never, 1)  # C_min of all rows, which gives the grid of the folds
    shared = Grid(grid.points, None, path.grid_alphas(problem.sum_weights))
    tracks = []
    for fold in range(int(folds.max()) + 1):
        store = folder.track(f"fold-{fold + 1}", problem, grid)
        make = partial(problem.make_fold_job, fold, running.begun)
        part = problem.part_of(fold_name(fold, folds))
        tracks.append(Track(make, shared, running, part=part, store=store, bootstraps=False))
    sign = 1.0 if loss.higher_is_better else -1.0
    most, reason = extend_folds(tracks, rules, sign)
    full = path.extend(lambda points: rules.reason(np.empty(0), points[-1].active), most)
    if full is not None and full is not PathStop.GRID:
        reason = full
    found = scores_of(tracks)[:, : len(path.points)]
    scores = Scores.of(loss, *fold_scores(found), found, counted(len(tracks), "fold"))
    scored = zip(path.points, scores.mean.tolist(), scores.se.tolist(), strict=False)
    points = [replace(point, score=mean, se=se) for point, mean, se in scored]
    tracked = [track.points[: found.shape[1]] for track in tracks]
    return PathResult(points, scores, options.select, reason, fold_points=tracked)


def fold_name(fold: int, folds: Folds) -> str:
    """The name of a fold in events."""
    return f"fold {fold + 1} of {folds.max() + 1}"


def refit_cross_validated(
    problem: Problem, result: PathResult, alpha: float, running: Running
) -> PathPoint | None:
    """Refit the chosen point over all rows, and in each fold for the score."""
    folds, number = problem.folds, result.chosen.number
    assert folds is not None
    found = refit_support(problem.make_job(driver="inline"), result.chosen, alpha, running, "refit")
    if found is None:
        return None
    scores = []
    for fold, points in enumerate(result.fold_points):
        job = problem.make_fold_job(fold, running.begun, driver="inline")
        part = f"refit of {fold_name(fold, folds)}"
        own = refit_support(job, points[number], alpha, running, part)
        # an empty model stays as it is
        scores.append(points[number].score if own is None else own.score)
    mean, se = fold_scores(np.array(scores)[:, None])
    return replace(found, score=float(mean[0]), se=float(se[0]))


def never(points: list[PathPoint]) -> PathStop | None:
    """No reason to stop before the requested number of points."""
    return None


def scores_of(tracks: list[Track]) -> Floats:
    """Scores of the points that all folds have, float64 (folds, points)."""
    common = min(len(track.points) for track in tracks)
    return np.array([track.scores[:common] for track in tracks])


def extend_folds(tracks: list[Track], rules: Rules, sign: float) -> tuple[int, PathStop]:
    """Train the folds until their mean score ends the path.

    One fold after the other runs until its own score ends it; then the shorter ones continue, until the
    mean over all folds has not improved for ``patience`` points, or a fold cannot continue.

    Parameters
    ----------
    tracks : list of Track
        One for each fold.
    rules : Rules
    sign : float
        1 if larger scores are better, else -1.

    Returns
    -------
    tuple of int, PathStop
        The number of points at which the path ends, and why.

    Raises
    ------
    KeyboardInterrupt
        A fold was interrupted; there is no model over all rows yet.
    """

    def own(points: list[PathPoint]) -> PathStop | None:
        return rules.reason(sign * np.array([p.score for p in points]), points[-1].active)

    ends = [_extended(track, own) for track in tracks]
    while True:
        scores = scores_of(tracks)
        common = scores.shape[1]
        found = rules.patient_until(sign * fold_scores(scores)[0])
        if found is not None:
            return found, PathStop.PATIENCE
        final = [
            end
            for track, end in zip(tracks, ends, strict=True)
            if len(track.points) == common and end is not None and end is not PathStop.PATIENCE
        ]
        if final:
            return common, final[0]
        most = common + (rules.patience or 1)
        for number, track in enumerate(tracks):
            if len(track.points) < most:
                ends[number] = _extended(
                    track, lambda points: rules.reason(np.empty(0), points[-1].active), most
                )


def _extended(
    track: Track, enough: Callable[[list[PathPoint]], PathStop | None], most: int | None = None
) -> PathStop | None:
    """Extend a track; an interrupt ends all folds, and an error names the fold."""
    try:
        end = track.extend(enough, most)
    except InputError as error:
        raise InputError(f"{track.part}: {error}") from error
    if end is PathStop.INTERRUPTED:
        raise KeyboardInterrupt
    return end


def held_out_margins(data: DataSet, result: PathResult, folds: Folds) -> Floats:
    """The margin of each row by the chosen model of the fold that held the row out.

    float64 (n,), or (n, K) with K outputs; NaN for rows that no fold held out.
    """
    outputs = result.chosen.model.weights.shape[1:]
    margins = np.full((data.n_rows, *outputs), np.nan)
    for fold, points in enumerate(result.fold_points):
        held = folds == fold
        margins[held] = points[result.chosen.number].model.margins(data)[held]
    return margins
