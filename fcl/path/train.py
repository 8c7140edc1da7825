"""``train_path``: models at many values of C, and the choice among them."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy.typing as npt

from fcl.checks import flag
from fcl.data import DataSet
from fcl.drivers.cluster.connect import check_cluster
from fcl.drivers.cluster.jobs import executor_for, refuse_processes
from fcl.drivers.rows import check_data_set
from fcl.drivers.saving import was_saved
from fcl.errors import ConvergenceWarning, InputError
from fcl.features import Spec
from fcl.files.folder import CheckpointFolder
from fcl.memory.meter import peak_memory
from fcl.options import TRAINING, PathOptions, TrainOptions
from fcl.options.choices import DRIVER, PENALTY, Arguments
from fcl.options.path import PATH_OPTIONS
from fcl.parallel import one_blas_thread
from fcl.path.folds import outer_folds
from fcl.path.grid import Grid, check_alphas
from fcl.path.jobs import make_path_jobs
from fcl.path.result import OuterScores, PathResult
from fcl.path.running import PathContext
from fcl.path.search import PathSearch
from fcl.path.store import Folder, add_result
from fcl.run.bar import Progress
from fcl.run.reasons import StopReason
from fcl.run.reporter import Reporter
from fcl.store import local_path
from fcl.units import counted, score_title

_log = logging.getLogger("fcl")
#: Options of training that a path sets itself, or does not have.
_NOT_OF_PATHS = ("features", "checkpoint", "checkpoint_every", "patience", "C", "alpha")


def train_path(
    data: DataSet,
    features: Spec | str,
    *,
    points: int = 20,
    C_max: float | None = None,
    alphas: npt.ArrayLike | None = None,
    valid: DataSet | float | None = None,
    cv: Any = None,
    groups: npt.ArrayLike | None = None,
    outer: Any = None,
    patience: int | None = 3,
    min_gain: float = 0.0,
    max_active: int | None = None,
    select: str = "best",
    refit: bool = False,
    refit_alpha: float = 1e-4,
    folder: str | os.PathLike[str] | None = None,
    trusted: Collection[str] = (),
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
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
    valid : DataSet or float
        Rows on which to score each model, or the share of rows to set aside.
    cv : int, array (n,) or splitter
        Instead of ``valid``, cross-validation: a number of folds, which keep the shares of the labels;
        the fold of each row; or a splitter of scikit-learn. The folds use the same alphas,
        so that the penalty has the same weight relative to the mean loss.
    groups : array (n,)
        With ``cv``, rows of one group are held out together. With ``valid``, the groups of its rows, for
        the standard error. By default the groups with which ``data`` or ``valid`` was opened.
    outer : int, array (n,) or splitter
        With ``cv``, outer folds, given as ``cv`` is: the search is repeated without the rows of each
        fold, and scored on them. The mean estimates how good a model is whose C was chosen by ``cv``.
    patience : int or None
        Stop after this many points without a better score, of ``valid`` or the mean over the folds. None:
        never. Without held-out rows there are no scores, and only the default and None are accepted.
    min_gain : float
        A score is better if it improves by more than this. It needs held-out rows, too.
    max_active : int
        Stop at a model of at least this many features with a weight.
    select : {"best", "1se"}
        Choose the best score, or the smallest C whose score is within one standard error of the best.
        Without held-out rows, the last point is chosen. The standard error is computed over the
        folds; with ``valid`` only "1se" measures it, by a bootstrap of the rows or groups.
    refit : bool
        Train the features of the chosen model again, nearly without a penalty, since the L1 norm
        shrinks the weights. ``result.refit`` has this second model; its certificate covers its features
        alone, and its score is over the same held-out rows.
    refit_alpha : float
        Weight of the ridge penalty of the refit: it minimises the weighted mean of the losses plus
        refit_alpha sum_j var_j w_j^2 / 2, where var_j is the variance of feature j. Without any penalty,
        separable rows have no optimum.
    folder : path
        Folder in which to save each point. If it holds points of the same path, these are not computed
        again.
    trusted : collection of str
        Modules that models in ``folder`` may import.
    progress, should_stop : callable
        As for :func:`fcl.train`: Started, and for each set of rows PathStarted, and for each point
        PointStarted, PassDone for its passes, and PointDone; then Stopped. A bar such as ``tqdm`` counts
        the finished points of the folds and of all rows. A
        path that one of them ends has the points so far. In a fold, a refit, an outer fold or a job on a
        cluster, ``should_stop`` raises KeyboardInterrupt, and ``progress`` returns what is known: after a
        fold only the empty model of all rows, without scores; ``folder`` keeps the points.
    **training
        The other options of :func:`fcl.train`. ``max_time`` limits the path; with ``cv`` it limits the
        folds, which share it, after which the models over all rows still follow, and it limits the folds
        in each outer fold in the same way. ``max_passes`` limits each point. The driver ``dask`` sends
        folds, outer folds and refits as whole jobs to the workers of the cluster, instead of training
        them in threads of this process, as many at once as ``threads`` and ``memory`` allow; the result
        is the same bit for bit. The rows must be in files that all workers see, or small, and ``memory``
        is the budget of each job. With
        ``driver="processes"``, processes are started for each point, which pays for long points.

    Returns
    -------
    PathResult
        The models, their scores and the chosen one.

    Raises
    ------
    InputError
        Data or options are unusable.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> path = fcl.train_path(data, "columns", points=5, cv=3, patience=None)
    >>> [point.active for point in path.points]
    [0, 2, 2, 3, 3]
    >>> path.chosen is path.best, str(path.reason)
    (True, 'done')
    """
    arguments = dict(locals())
    for name in ("C", "alpha"):
        if name in training:
            raise InputError(
                f"{name}: a path finds its own values; set the largest C with C_max, or give alphas"
            )
    return run_path(**_ARGUMENTS.by_name(arguments))


_TRAINING = {name: option for name, option in TRAINING.items() if name not in _NOT_OF_PATHS}
_ARGUMENTS = Arguments(
    train_path,
    _TRAINING | PATH_OPTIONS,
    DRIVER,
    PENALTY,
    offset=None,
    covariates=None,
    client=None,
    warn=True,
)


def run_path(**given: Any) -> PathResult:
    """Train a path; takes the arguments of :func:`train_path` as keywords.

    client : of a cluster.  warn : whether to warn about columns of uneven scales, and about points above
        the tolerance.
    """
    given = _ARGUMENTS.complete(given)
    data, client, warn = given["data"], given["client"], flag("warn", given["warn"])
    options = PathOptions.checked(**{name: given[name] for name in PATH_OPTIONS if name in given})
    check_data_set("data", data)
    data = data.with_added(given["offset"], given["covariates"])
    training = {name: given[name] for name in _TRAINING if name in given}
    training_options = TrainOptions.checked(training, alpha=1.0)
    if training_options.driver == "dask":
        check_cluster(client, training_options.dask, training_options.dask_tls)
    refuse_processes(training_options.driver, client, training_options.dask)
    grid = Grid(options.points, options.C_max)
    if given["alphas"] is not None:
        if options.C_max is not None:
            raise InputError("give either alphas or C_max, not both")
        values = check_alphas(given["alphas"])
        grid = Grid(len(values), None, values)
    cv, groups, outer, folder = (given[name] for name in ("cv", "groups", "outer", "folder"))
    of_jobs = _of_jobs(training_options, client)
    jobs = make_path_jobs(data, given["features"], given["valid"], of_jobs, cv, groups, warn)
    if not jobs.validates and jobs.folds is None:
        options.check_unscored()
    nested = None
    if outer is not None:
        if jobs.folds is None:
            raise InputError(
                "outer: expected cv beside it, which chooses C in each outer fold, got none; give cv"
            )
        seed = training_options.seed
        nested = outer_folds(data, outer, cv, groups, jobs.loss.classifies, seed)
    place = Folder(
        None if folder is None else local_path(folder, "the points of a path"), given["trusted"]
    )
    reporter = Reporter(given["progress"], given["should_stop"])
    dask, tls = training_options.dask, training_options.dask_tls
    with (
        # another job there would mix its points with these
        nullcontext() if place.path is None else CheckpointFolder(place.path),
        one_blas_thread(),
        reporter.explained(),
        executor_for(
            client, dask, tls, jobs.needs, reporter.report, reporter.should_stop
        ) as executor,
    ):
        reporter.report(jobs.started)
        running = PathContext(reporter.report, reporter.should_stop, executor=executor)
        search = PathSearch(jobs, options, grid, running, place)
        result: PathResult | None = None

        def choose() -> None:
            nonlocal result
            for found in search.results():
                result = found

        def assess() -> OuterScores | None:
            if nested is None or (result and result.reason is StopReason.INTERRUPTED):
                return None
            return search.score_outer_folds(*nested)

        parts: list[Callable[[], Any]] = [choose] if nested is None else [choose, assess]
        try:
            *_, scores = executor.each(lambda part: part(), parts)
        except KeyboardInterrupt:
            if result is None or reporter.cause(StopReason.INTERRUPTED) is StopReason.INTERRUPTED:
                raise
            result, scores = replace(result, reason=StopReason.INTERRUPTED), None
        assert result is not None
        reason = reporter.cause(result.reason)
        result = replace(result, outer=scores, reason=reason, peak_memory=peak_memory())
        if folder is not None:
            kept = was_saved(partial(add_result, folder, result))
            result = replace(result, checkpoint_failed=not kept)
        reporter.report(result.stopped(result.chosen.certificate))
    if warn and reporter.error is None and reason is not StopReason.CALLBACK:
        _warn(result)
    return reporter.finish(result)


def _of_jobs(options: TrainOptions, client: Any) -> TrainOptions:
    """The options of the jobs of a path, which run inline on a cluster."""
    on_cluster = options.driver == "dask" or client is not None or options.dask is not None
    driver = "inline" if on_cluster else options.driver
    return replace(options, driver=driver, dask=None, dask_tls=None)


def _warn(result: PathResult) -> None:
    """Warn about a model that is no better than the empty one, and about points above the tolerance."""
    if result.has_no_gain:
        chosen = result.chosen
        _log.warning(
            "the chosen model, at C %.4g, is not clearly better than one without features: %s %.4g, "
            "without features %.4g; look at the scales of the columns, try other features, or a larger "
            "C_max (--C-max)",
            chosen.C,
            score_title(result.scores.metric),
            result.scores.mean[chosen.number],
            chosen.empty,
        )
    early = [point for point in result.points if not point.converged]
    if early:
        worst = max(early, key=lambda point: point.certificate.gap)
        warnings.warn(
            f"{len(early)} of {counted(len(result.points), 'point')} ended above the tolerance; "
            "the largest gap is "
            f"{worst.certificate.gap_text}, at C {worst.C:.4g} ({worst.reason}); raise max_passes, "
            "max_time or tol",
            ConvergenceWarning,
            stacklevel=4,
        )
    refit = result.refit
    if refit is not None and not refit.converged:
        warnings.warn(
            f"the refit ended above the tolerance, at gap {refit.certificate.gap_text} ({refit.reason}); "
            "raise max_passes, tol or refit_alpha",
            ConvergenceWarning,
            stacklevel=4,
        )
