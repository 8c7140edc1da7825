"""The jobs that a path makes of its rows: over all of them, and of each fold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.drivers.executor import Needs
from fcl.drivers.job import Job, make_job
from fcl.drivers.session import started
from fcl.errors import InputError
from fcl.features import Spec
from fcl.features.base import is_sampled
from fcl.objective import Loss, find_loss
from fcl.options import FIXED, TrainOptions
from fcl.path.folds import Folds, check_labels_of_folds, encode_groups, fold_of_rows
from fcl.path.running import PathContext
from fcl.run.events import Started

#: Options that determine the models of a path.
_FIXED = ("tol", "max_passes", *(name for name in FIXED if name not in ("C", "alpha")))


@dataclass(frozen=True)
class PathJobs:
    """What the jobs of a path are made of, at any C."""

    data: DataSet
    features: Spec | str
    valid: DataSet | None
    options: TrainOptions  #: of training, at any C
    sum_weights: float  #: of the training rows of all folds
    validates: bool  #: whether there are validation rows without folds
    folds: Folds | None
    groups: npt.NDArray[np.int64] | None  #: of the validation rows
    fixed: Mapping[str, Any]  #: effective options that determine the models, but for C
    needs: Needs  #: of each job
    started: Started  #: the event of the start
    part: str = ""  #: name of the rows in events; empty for all

    @property
    def loss(self) -> Loss:
        """The loss, of the validation rows too."""
        return find_loss(self.options.loss)

    @property
    def sign(self) -> float:
        """1 if larger scores are better, else -1."""
        return 1.0 if self.loss.higher_is_better else -1.0

    @property
    def n_folds(self) -> int:
        """The number of folds; 0 without folds."""
        return 0 if self.folds is None else int(self.folds.max()) + 1

    def make_job(self, resumed: Mapping[str, Any] | None = None) -> Job:
        """The job over all training rows, at any C; it has no time limit if the folds have one.

        resumed : as for :func:`fcl.drivers.job.make_job`.
        """
        options = self.options
        if self.folds is not None:
            options = replace(options, max_time=None)
        return make_job(self.data, self.features, options, valid=self.valid, resumed=resumed)

    def make_fold_job(
        self, fold: int, running: PathContext, resumed: Mapping[str, Any] | None = None
    ) -> Job:
        """The job of one fold, at any C; this fold and the later ones share the time that is left."""
        assert self.folds is not None
        train, held = split_data(self.data, self.folds, fold)
        job = make_job(train, self.features, self.options, valid=held, resumed=resumed)
        limit = job.options.max_time
        if limit is None:
            return job
        spent = running.clock.seconds
        share = max(0.0, limit - spent) / running.shares(self.n_folds - fold, self.n_folds)
        return replace(job, options=replace(job.options, max_time=spent + share))

    def part_of(self, name: str) -> str:
        """The name in events of a part of these rows."""
        return f"{self.part}, {name}" if self.part else name

    def about(self) -> dict[str, Any]:
        """What defines the path beside its grid, for its folder: rows, options and folds."""
        folds = None if self.folds is None else hashlib.sha256(self.folds.tobytes()).hexdigest()
        return {
            "data": self.data.fingerprint(),
            "valid": self.valid and self.valid.fingerprint(),
            "folds": folds,
            "driver": self.options.driver,
            **self.fixed,
        }


def fold_name(fold: int, n_folds: int) -> str:
    """The name of a fold in events."""
    return f"fold {fold + 1} of {n_folds}"


def make_path_jobs(
    data: DataSet,
    features: Spec | str,
    valid: DataSet | None,
    options: TrainOptions,
    cv: Any,
    groups: Any,
    warn: bool,
) -> PathJobs:
    """Validate data and options; arguments and errors as for :func:`fcl.train_path`."""
    job = make_job(data, features, options, valid=valid)
    if is_sampled(job.family):
        raise InputError(
            "features: a path needs a family whose passes price all features, since a bound over a "
            "sample does not hold for the next point; give fourier a number of "
            "features, such as fourier:n=10000"
        )
    if warn:
        job.warn(stacklevel=5)
    folds = units = None
    if groups is None:
        groups = data.groups if cv is not None else valid and valid.groups
    if cv is not None:
        if job.valid is not None:
            raise InputError("give either valid, valid_fraction or cv, not two of them")
        if job.train.target_columns > 1:
            raise InputError(
                f"cv: expected a single column of targets, got {job.n_outputs} in {data.target_name}; "
                "validate on other rows (valid, valid_fraction), or cross-validate each column"
            )
        folds = fold_of_rows(cv, data, groups, job.loss.classifies, job.options.seed)
        if job.loss.classifies:
            check_labels_of_folds(folds, data, warn)
    elif groups is not None:
        if valid is None:
            raise InputError("groups: expected cv or valid beside it, got neither; leave it out")
        units = encode_groups("groups", groups, valid.n_rows)
        if job.valid is not None and job.valid.keep is not None:
            units = units[job.valid.keep]
    return PathJobs(
        data=data,
        features=features,
        valid=valid,
        options=options,
        sum_weights=job.sum_weights,
        validates=job.valid is not None,
        folds=folds,
        groups=units,
        fixed={name: value for name, value in job.options.of_job().items() if name in _FIXED},
        needs=Needs.of(job),
        started=replace(started(job, "path"), C=None, alpha=None),
    )


def split_data(data: DataSet, folds: Folds, fold: int, name: str = "cv") -> tuple[DataSet, DataSet]:
    """The rows to train on, and the rows that a fold holds out: the others have weight 0.

    name : of the argument that made the folds, for messages.
    """
    held = folds == fold
    weights = np.ones(data.n_rows) if data.weights is None else data.weights
    parts = []
    for kept, purpose in ((~held, "to train on"), (held, "held out")):
        some = np.where(kept, weights, 0.0)
        if not some.any():
            raise InputError(
                f"{name}: fold {fold + 1} has no rows of weight above 0 {purpose}; use fewer folds"
            )
        parts.append(data.with_target(data.target, some, data.target_name))
    return parts[0], parts[1]
