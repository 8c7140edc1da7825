"""Nested cross-validation: how good is a model whose C was chosen by cross-validation?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fcl.checks import is_whole
from fcl.clock import Clock
from fcl.data import DataSet
from fcl.data.memory import MemoryReader
from fcl.drivers.executor import last
from fcl.errors import InputError
from fcl.options import PathOptions
from fcl.path.cross import cross_validated, fold_name
from fcl.path.folds import Folds, fold_of_rows
from fcl.path.grid import Grid
from fcl.path.jobs import PathJobs, split_data
from fcl.path.result import OuterFold, OuterScores, PathPoint
from fcl.path.running import PathContext
from fcl.path.scores import fold_scores, margins_on
from fcl.path.store import Folder
from fcl.run.reasons import StopReason


def outer_folds(
    jobs: PathJobs, outer: Any, cv: Any, groups: Any
) -> tuple[Folds, list[tuple[int, Folds]]]:
    """The outer fold of each row, and for each of these folds the folds of the rows that are left.

    Arguments and errors as for :func:`fcl.train_path`.
    """
    if jobs.folds is None:
        raise InputError(
            "outer: expected cv beside it, which chooses C in each outer fold, got none; give cv"
        )
    data, seed = jobs.data, int(jobs.fixed["seed"])
    groups = data.groups if groups is None else groups
    classifies = jobs.loss.classifies
    try:
        found = fold_of_rows(outer, data, groups, classifies, seed)
    except InputError as error:
        raise InputError(f"outer: {str(error).removeprefix('cv: ')}") from None
    inner = []
    for fold in range(int(found.max()) + 1):
        left = np.flatnonzero(found != fold)
        own = np.full(data.n_rows, -1, np.int64)
        some = None if groups is None else np.asarray(groups).reshape(data.n_rows)[left]
        rows = MemoryReader(np.zeros((len(left), 1)), data.name)
        part = DataSet(data.name, rows, None if data.target is None else data.target[left])
        own[left] = fold_of_rows(_cv_of(cv, left, some), part, some, classifies, seed)
        inner.append((fold, own))
    return found, inner


def _cv_of(cv: Any, left: np.ndarray, groups: Any) -> Any:
    """The argument ``cv`` for some of the rows: their labels, or at most as many folds as groups."""
    if is_whole(cv) and not isinstance(cv, bool):
        return cv if groups is None else min(cv, len(np.unique(groups)))
    return cv if hasattr(cv, "split") else np.asarray(cv).reshape(-1)[left]


def score_outer_folds(
    jobs: PathJobs,
    folds: tuple[Folds, list[tuple[int, Folds]]],
    options: PathOptions,
    grid: Grid,
    running: PathContext,
    folder: Folder,
) -> OuterScores:
    """Choose C without the rows of each outer fold in turn, and score the choice on them.

    Raises KeyboardInterrupt if a search was interrupted.
    """
    outer, every = folds

    def scored(numbered: tuple[int, Folds]) -> OuterFold:
        fold, inner = numbered
        train, held = split_data(jobs.data, outer, fold, "outer")
        assert train.weights is not None
        part = replace(
            jobs,
            data=train,
            folds=inner,
            sum_weights=float(train.weights.sum()),
            part=f"outer {fold_name(fold, outer)}",
        )
        # with its own time limit
        own = replace(running, begun=time.monotonic(), clock=Clock())
        within = folder.within(f"outer-{fold + 1}")
        result = last(cross_validated(part, options, grid, own, within))
        if result.reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        found: OuterFold = own.run(score_choice, replace(part, valid=held), fold, result.chosen)
        return found

    found = running.executor.each(scored, every)
    mean, se = fold_scores(np.array([[fold.score] for fold in found]))
    return OuterScores(jobs.loss.metric, found, float(mean[0]), float(se[0]))


def score_choice(
    jobs: PathJobs, running: PathContext, fold: int, chosen: PathPoint
) -> Iterator[OuterFold]:
    """Yield the choice of a search, scored on the validation rows of a path."""
    job = jobs.make_job()
    rows = job.valid
    assert rows is not None
    margins = margins_on(job, rows, chosen.model)
    yield OuterFold(fold, chosen, rows.n, job.loss.score_outputs(rows.y, rows.s, margins))
