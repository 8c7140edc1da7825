"""``train_path``: models at many values of C, and the choice among them."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.checks import flag
from fcl.data import DataSet
from fcl.drivers.job import Job, make_job
from fcl.drivers.session import Progress
from fcl.errors import ConvergenceWarning, InputError, ScaleWarning
from fcl.features.base import is_sampled
from fcl.features.standardized import uneven_scales
from fcl.objective import Loss
from fcl.options import FIXED
from fcl.parallel import one_blas_thread
from fcl.path.cross import extend_folds, held_out_margins, never, scores_of, split_data
from fcl.path.folds import Folds, encode_groups, fold_of_rows
from fcl.path.grid import Grid, check_alphas
from fcl.path.options import PathOptions, check_training
from fcl.path.result import PathPoint, PathResult, Scores
from fcl.path.rules import PathStop
from fcl.path.scores import SAMPLES, bootstrap_error, fold_scores
from fcl.path.store import TrackFolder, add_result
from fcl.path.track import Running, Track

if TYPE_CHECKING:
    from fcl.features import Spec

__all__ = ["train_path"]

Floats = npt.NDArray[np.float64]

#: Options that determine the models of a path.
_FIXED = ("tol", "max_passes", *(name for name in FIXED if name not in ("C", "alpha")))


def train_path(
    data: DataSet,
    features: Spec | str,
    *,
    points: int = 20,
    C_max: float | None = None,
    alphas: npt.ArrayLike | None = None,
    valid: DataSet | None = None,
    cv: Any = None,
    groups: npt.ArrayLike | None = None,
    patience: int | None = 3,
    min_gain: float = 0.0,
    max_active: int | None = None,
    select: str = "best",
    folder: str | os.PathLike[str] | None = None,
    trusted: Collection[str] = (),
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
    warn: bool = True,
    **training: Any,
) -> PathResult:
    """Train at increasing values of C, each from the model before, and choose one by held-out rows.

    Every model has its own certificate. The path begins at C_min, the largest C at which the model is
    empty, and its values of C grow by a constant factor.

    Parameters
    ----------
    data : DataSet
        From :func:`fcl.open_data`, with a target.
    features : family or str
        As for :func:`fcl.train`.
    points : int
        Number of values of C. One point is C_max alone.
    C_max : float
        The largest C; by default 100 C_min.
    alphas : array of float (k,)
        Weights of the penalty, instead of ``points`` and ``C_max``: C = 1 / (alpha * sum of the
        sample weights).
    valid : DataSet
        Rows on which to score each model; or ``valid_fraction``, as for :func:`fcl.train`.
    cv : int, array (n,) or splitter
        Instead of ``valid``, cross-validation: a number of folds, which keep the shares of the labels;
        the fold of each row; or a splitter of scikit-learn. The folds use the same alphas,
        so that the penalty has the same weight relative to the mean loss.
    groups : array (n,)
        With ``cv``, rows of one group are held out together. With ``valid``, the groups of its rows, for
        the standard error. By default the groups with which ``data`` or ``valid`` was opened.
    patience : int or None
        Stop after this many points without a better score, of ``valid`` or the mean over the folds. None:
        never.
    min_gain : float
        A score is better if it improves by more than this.
    max_active : int
        Stop at a model of at least this many features with a weight.
    select : {"best", "1se"}
        Choose the best score, or the smallest C whose score is within one standard error of the best.
        Without held-out rows, the last point is chosen. The error is that of the mean over the
        folds; with ``valid`` only "1se" measures it, by a bootstrap of the rows or groups.
    folder : path
        Folder in which to save each point. If it holds points of the same path, these are not computed
        again.
    trusted : collection of str
        Modules that models in ``folder`` may import.
    progress, should_stop : callable
        As for :func:`fcl.train`; events of :mod:`fcl.path.events` come between those of the points. A
        path that ``should_stop`` ends has the points so far. If it ends a fold, no model over all rows
        has a score yet, so KeyboardInterrupt is raised; ``folder`` keeps the points.
    warn : bool
        Whether to warn about columns of uneven scales, and about points above the tolerance.
    **training
        The other options of :func:`fcl.train`. ``max_time`` limits the path; with ``cv`` it limits the
        folds, which share it, after which the models over all rows still follow. ``max_passes`` limits
        each point.

    Returns
    -------
    PathResult

    Raises
    ------
    InputError
        Data or options are unusable.
    """
    options = PathOptions.checked(
        points=points,
        C_max=C_max,
        patience=patience,
        min_gain=min_gain,
        max_active=max_active,
        select=select,
    )
    warn = flag("warn", warn)
    if (offset := training.pop("offset", None)) is not None:
        data = data.with_offset(offset)
    if (covariates := training.pop("covariates", None)) is not None:
        data = data.with_covariates(covariates)
    check_training(training, training.pop("driver", None))
    grid = Grid(options.points, options.C_max)
    if alphas is not None:
        if C_max is not None:
            raise InputError("give either alphas or C_max, not both")
        found = check_alphas(alphas)
        grid = Grid(len(found), None, found)
    problem = _problem(data, features, valid, training, cv, groups, warn)
    running = Running(progress or (lambda event: None), should_stop or (lambda: False))
    make = _validated if problem.folds is None else _cross_validated
    with one_blas_thread():
        result = make(problem, options, grid, running, _Folder(folder, trusted))
    if folder is not None:
        add_result(folder, result)
    if warn:
        _warn(result)
    return result


@dataclass(frozen=True)
class _Problem:
    """What is trained on and validated on."""

    data: DataSet
    features: Spec | str
    valid: DataSet | None
    training: Mapping[str, Any]  #: other options of training
    loss: Loss
    sum_weights: float
    validates: bool  #: whether there are validation rows without folds
    folds: Folds | None
    groups: npt.NDArray[np.int64] | None  #: of the validation rows
    fixed: Mapping[str, Any]  #: effective options that determine the models, but for C

    def make_job(self) -> Job:
        """The job over all training rows, at any C; it has no time limit if the folds have one."""
        training = dict(self.training)
        if self.folds is not None:
            training["max_time"] = None
        return make_job(self.data, self.features, alpha=1.0, valid=self.valid, **training)

    def make_fold_job(self, fold: int, begun: float) -> Job:
        """The job of one fold, at any C; this fold and the later ones share the time that is left.

        begun : ``time.monotonic()`` at the beginning of the path.
        """
        assert self.folds is not None
        train, held = split_data(self.data, self.folds, fold)
        job = make_job(train, self.features, alpha=1.0, valid=held, **self.training)
        limit = job.options.max_time
        if limit is None:
            return job
        spent = time.monotonic() - begun
        share = max(0.0, limit - spent) / (int(self.folds.max()) + 1 - fold)
        return replace(job, options=replace(job.options, max_time=spent + share))

    def about(self, grid: Grid) -> dict[str, Any]:
        """What defines the path, for its folder: rows, options, folds and grid."""
        folds = None if self.folds is None else hashlib.sha256(self.folds.tobytes()).hexdigest()
        return {
            "data": self.data.fingerprint(),
            "valid": self.valid and self.valid.fingerprint(),
            "folds": folds,
            "points": grid.points,
            "C_max": grid.C_max,
            "alphas": None if grid.alphas is None else grid.alphas.tolist(),
            **self.fixed,
        }


@dataclass(frozen=True)
class _Folder:
    """Where the tracks of a path are saved, if anywhere."""

    path: str | os.PathLike[str] | None
    trusted: Collection[str]

    def track(self, name: str, problem: _Problem, grid: Grid) -> dict[str, Any]:
        """The store of a track and its saved points, as arguments of :class:`Track`."""
        if self.path is None:
            return {}
        store = TrackFolder(Path(self.path, name), problem.about(grid), self.trusted)
        return {"store": store, "saved": store.load() if store.exists() else None}


def _problem(
    data: DataSet,
    features: Spec | str,
    valid: DataSet | None,
    training: Mapping[str, Any],
    cv: Any,
    groups: Any,
    warn: bool,
) -> _Problem:
    """Validate data and options."""
    job = make_job(data, features, alpha=1.0, valid=valid, **training)
    if is_sampled(job.family):
        raise InputError(
            "features: a path needs a family whose passes price all features, since a bound over a "
            "sample does not hold for the next point; give fourier a number of "
            "features, such as fourier:n=10000"
        )
    if warn and not job.options.standardize and (text := uneven_scales(job.family)):
        warnings.warn(text, ScaleWarning, stacklevel=3)
    folds = units = None
    if groups is None:
        groups = data.groups if cv is not None else valid and valid.groups
    if cv is not None:
        if job.valid is not None:
            raise InputError("give either valid, valid_fraction or cv, not two of them")
        folds = fold_of_rows(cv, data, groups, job.loss.classifies, job.options.seed)
    elif groups is not None:
        if valid is None:
            raise InputError("groups: expected cv or valid beside it, got neither; leave it out")
        units = encode_groups("groups", groups, valid.n_rows)
        if job.valid is not None and job.valid.keep is not None:
            units = units[job.valid.keep]
    return _Problem(
        data,
        features,
        valid,
        training,
        job.loss,
        job.sum_weights,
        job.valid is not None,
        folds,
        units,
        {name: value for name, value in job.options.of_job().items() if name in _FIXED},
    )


def _validated(
    problem: _Problem, options: PathOptions, grid: Grid, running: Running, folder: _Folder
) -> PathResult:
    """A path that is scored on one set of rows, or not at all."""
    loss, rules = problem.loss, options.rules
    saved = folder.track("", problem, grid)
    errs = options.select == "1se"  # the bootstrap takes time, and only this rule needs it
    groups = problem.groups
    track = Track(problem.make_job, grid, running, groups=groups, bootstraps=errs, **saved)
    sign = 1.0 if loss.higher_is_better else -1.0

    def enough(points: list[PathPoint]) -> PathStop | None:
        known = [point.score for point in points] if problem.validates else []
        return rules.reason(sign * np.array(known), points[-1].active)

    reason = track.extend(enough) or PathStop.GRID
    points = _with_errors(track.points, problem) if errs else track.points
    errors = np.array([point.se for point in points])
    units = "rows" if groups is None else f"{groups.max() + 1} groups"
    error_from = f"{SAMPLES} bootstrap samples of the validation {units}"
    no_folds = np.empty((0, len(points)))
    known = np.isfinite(errors).any()
    scores = _scores(loss, track.scores, errors, no_folds, error_from if known else "")
    return PathResult(points, scores, options.select, reason)


def _with_errors(points: list[PathPoint], problem: _Problem) -> list[PathPoint]:
    """The points with the standard errors that an earlier run, with another rule, did not measure."""
    if not any(np.isnan(point.se) and np.isfinite(point.score) for point in points):
        return points
    job = problem.make_job()
    rows = job.valid
    assert rows is not None and rows.data.target is not None
    keep = slice(None) if rows.keep is None else rows.keep
    # of losses of y - m, the job shifts the targets
    shift = rows.data.target[keep] - rows.y if job.loss.translates else 0.0
    found = []
    for point in points:
        margins = point.model.margins(rows.data)[keep] - shift
        se = bootstrap_error(job.loss, rows, margins, job.options.seed, problem.groups)
        found.append(replace(point, se=se))
    return found


def _cross_validated(
    problem: _Problem, options: PathOptions, grid: Grid, running: Running, folder: _Folder
) -> PathResult:
    """A path that is scored by cross-validation."""
    folds, loss, rules = problem.folds, problem.loss, options.rules
    assert folds is not None
    path = Track(problem.make_job, grid, running, **folder.track("", problem, grid))
    path.extend(never, 1)  # C_min of all rows, which gives the grid of the folds
    shared = Grid(grid.points, None, path.grid_alphas(problem.sum_weights))
    tracks = []
    for fold in range(int(folds.max()) + 1):
        saved = folder.track(f"fold-{fold + 1}", problem, grid)
        part = f"fold {fold + 1} of {folds.max() + 1}"
        make = partial(problem.make_fold_job, fold, running.begun)
        tracks.append(Track(make, shared, running, part=part, bootstraps=False, **saved))
    sign = 1.0 if loss.higher_is_better else -1.0
    most, reason = extend_folds(tracks, rules, sign)
    full = path.extend(lambda points: rules.reason(np.empty(0), points[-1].active), most)
    if full is not None and full is not PathStop.GRID:
        reason = full
    found = scores_of(tracks)[:, : len(path.points)]
    scores = _scores(loss, *fold_scores(found), found, f"{len(tracks)} folds")
    points = path.points[: found.shape[1]]
    result = PathResult(points, scores, options.select, reason)
    oof = held_out_margins(problem.data, tracks, folds, result.chosen.number)
    return replace(result, oof=oof)


def _scores(loss: Loss, mean: Floats, se: Floats, folds: Floats, error_from: str) -> Scores:
    return Scores(loss.metric, loss.higher_is_better, mean, se, folds, error_from)


def _warn(result: PathResult) -> None:
    """Warn about points above the tolerance."""
    early = [point for point in result.points if not point.converged]
    if early:
        worst = max(early, key=lambda point: point.certificate.gap)
        warnings.warn(
            f"{len(early)} of {len(result.points)} points ended above the tolerance; the largest gap is "
            f"{worst.certificate.gap:.2e}, at C {worst.C:.4g} ({worst.reason}); raise max_passes, "
            "max_time or tol",
            ConvergenceWarning,
            stacklevel=3,
        )
