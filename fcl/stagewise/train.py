"""From a data set to a stagewise model."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data.dataset import DataSet
from fcl.data.prepared import PreparedRows
from fcl.drivers.job import available_cores
from fcl.drivers.rows import Rows, check_data_set
from fcl.errors import InputError
from fcl.features import Spec, bind_features, parse_features
from fcl.features.generator.family import GeneratedFamily
from fcl.model.columns import by_position, matched
from fcl.parallel import Team, one_blas_thread
from fcl.plain import plain
from fcl.stagewise.blocks import Part, check_family
from fcl.stagewise.certify import JointGap, certify, check_certifiable
from fcl.stagewise.checkpoint import Saved, StateFolder
from fcl.stagewise.learner import BlockDone, Learner, State
from fcl.stagewise.links import LINKS
from fcl.stagewise.model import StagewiseModel
from fcl.stagewise.plan import StagewisePlan, make_plan, tile_rows
from fcl.stagewise.settings import Settings
from fcl.stagewise.sums import Sweeper
from fcl.stagewise.targets import Targets, class_targets, held_out, number_targets, refuse_single

__all__ = ["Running", "StagewiseJob", "StagewiseResult", "make_job", "train_stagewise"]

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Running:
    """How a job runs; nothing here changes a bit of the model.

    Attributes
    ----------
    cores : int or None
        Number of threads; None: all that the process may use.
    scratch : str or None
        Folder for prepared rows that do not fit in memory; None: the system's.
    certify : bool
        Whether to compute the gap to the joint optimum at the end.
    max_time : float or None
        Seconds after which no further block begins.
    checkpoint : StateFolder or None
        Where to save the state.
    checkpoint_every : float
        Seconds between checkpoints.
    resume : Saved or None
        The checkpoint to continue from.
    command : dict
        Options that checkpoints keep for the command.
    progress : callable or None
        Called with each :class:`BlockDone`, and the seconds that the blocks left will take.
    should_stop : callable
        Called after each block; True ends the training.
    """

    cores: int | None = None
    scratch: str | None = None
    certify: bool = False
    max_time: float | None = None
    checkpoint: StateFolder | None = None
    checkpoint_every: float = 300.0
    resume: Saved | None = None
    command: dict[str, Any] = field(default_factory=dict)
    progress: Callable[[BlockDone, float], None] | None = None
    should_stop: Callable[[], bool] = lambda: False

    @property
    def threads(self) -> int:
        """Number of threads."""
        return self.cores or available_cores()


@dataclass(frozen=True)
class StagewiseJob:
    """What is decided before memory is allocated.

    Attributes
    ----------
    family : GeneratedFamily
    settings : Settings
    rows : list of Rows
        The training rows, and the validation rows if there are any.
    targets : list of Targets
        Of the same rows.
    plan : StagewisePlan
    """

    family: GeneratedFamily
    settings: Settings
    rows: list[Rows]
    targets: list[Targets]
    plan: StagewisePlan

    @property
    def fingerprint(self) -> str:
        """Of all data of the job."""
        names = dict.fromkeys(rows.data.fingerprint() for rows in self.rows)
        return " ".join(names)


@dataclass(frozen=True)
class StagewiseResult:
    """A trained model, and how the training ended.

    Attributes
    ----------
    model : StagewiseModel
    reason : {"done", "patience", "max-time", "interrupted"}
    gap : JointGap or None
    visit_seconds : float
        Time that a further visit of all blocks would take, by the last visit of each block.
    """

    model: StagewiseModel
    reason: str
    gap: JointGap | None
    visit_seconds: float


def make_job(
    data: DataSet,
    features: Spec | str,
    settings: Settings,
    valid: DataSet | None = None,
    numbers: bool = False,
    cores: int = 1,
) -> StagewiseJob:
    """Check all that can be checked before rows are read, and plan the memory.

    Parameters
    ----------
    data, valid : DataSet
        Training rows, and validation rows; without ``valid``, ``settings.valid_fraction`` of the rows are
        held out.
    features : family or str
    settings : Settings
    numbers : bool
        Whether targets are numbers, (n,) or (n, K); False: classes.
    cores : int
        Number of threads.

    Raises
    ------
    InputError
        The message names the option, array or row.
    BudgetError
        The memory budget is too small.
    """
    check_data_set("data", data)
    settings = settings.checked()
    if numbers and settings.update != "ls":
        raise InputError(
            f"update: {settings.update} is for classes; set update to ls for a numeric target"
        )
    keep, targets = _targets(data, numbers)
    if valid is None:
        parts, found = _split(data, keep, targets, settings)
    else:
        check_data_set("valid", valid)
        parts, found = [_rows(data, keep, targets)], [targets]
    spec = parse_features(features) if isinstance(features, str) else features
    family = check_family(bind_features(spec, data.rows, parts[0].keep))
    if valid is not None:
        valid = matched(valid, by_position(data.column_names), family.row_width)
        valid_keep, valid_targets = _targets(valid, numbers, targets)
        family.check_rows(valid.rows)
        parts.append(_rows(valid, valid_keep, valid_targets))
        found.append(valid_targets)
    plan = make_plan(family, settings, parts, targets.width, cores)
    return StagewiseJob(family, settings, parts, found, plan)


def _targets(
    data: DataSet, numbers: bool, like: Targets | None = None
) -> tuple[Mask | None, Targets]:
    """The rows of weight above 0 (None: all), and their targets.

    like : targets of the training rows, for validation rows.
    """
    if data.target is None:
        raise InputError(f"{data.name}: expected a target, and none was opened; name it with y")
    if data.offset is not None or data.covariates:
        raise InputError(
            f"{data.name}: offset and covariates are not available for stagewise models"
        )
    keep = None if data.weights is None or data.weights.all() else data.weights > 0.0
    values = data.target if keep is None else np.asarray(data.target)[keep]
    if numbers:
        width = None if like is None else like.width
        return keep, number_targets(values, data.target_name, width)
    known = None if like is None else like.labels
    return keep, class_targets(values, data.target_name, known)


def _rows(data: DataSet, keep: Mask | None, targets: Targets) -> Rows:
    n = len(targets.values)
    weights = data.weights
    s = np.ones(n) if weights is None else weights if keep is None else weights[keep]
    return Rows(data, keep, targets.values, s)


def _split(
    data: DataSet, keep: Mask | None, targets: Targets, settings: Settings
) -> tuple[list[Rows], list[Targets]]:
    """Hold out the validation rows of the settings; without any, only the training rows."""
    if settings.valid_fraction:
        refuse_single(targets, data.target_name)
    held = held_out(targets, settings.valid_fraction, settings.seed)
    if not held.any():
        return [_rows(data, keep, targets)], [targets]
    parts, found = [], []
    for chosen in (~held, held):
        mask = chosen
        if keep is not None:
            mask = keep.copy()
            mask[keep] = chosen
        found.append(targets.select(chosen))
        parts.append(_rows(data, mask, found[-1]))
    return parts, found


def train_stagewise(
    data: DataSet,
    features: Spec | str,
    settings: Settings | None = None,
    valid: DataSet | None = None,
    numbers: bool = False,
    running: Running | None = None,
) -> StagewiseResult:
    """Train a ridge model by stages over blocks of generated features.

    Parameters
    ----------
    data : DataSet
        Rows with a target; numbers may have several columns.
    features : family or str
        A family with a number of features that makes its columns: ``"fourier:n=8192"``, ``"columns"``, or
        your own.
    settings : Settings, optional
    valid : DataSet, optional
        Rows to validate on, in place of a share of ``data``.
    numbers : bool
        Whether the target is numeric; False: classes.
    running : Running, optional
        Threads, checkpoints, progress, certificate.

    Returns
    -------
    StagewiseResult

    Raises
    ------
    InputError
        The message names the option, array, row or block.
    BudgetError
        The memory budget is too small.
    """
    settings, running = settings or Settings(), running or Running()
    if running.certify:
        check_certifiable(settings.checked())
    job = make_job(data, features, settings, valid, numbers, running.threads)
    if running.resume is not None:
        running.resume.check(job.settings, job.fingerprint, job.family.to_config())
    team = Team(running.threads)
    with ExitStack() as stack:
        stack.callback(team.close)
        if running.checkpoint is not None:
            stack.enter_context(running.checkpoint.lock)
        stack.enter_context(one_blas_thread())
        parts = stack.enter_context(_prepared(job, running))
        sweeper = Sweeper(LINKS[str(job.settings.loss)], team)
        state = None if running.resume is None else running.resume.state
        learner = Learner(job.family, job.settings, parts, sweeper, job.plan, state)
        reason = _run(job, learner, running)
        gap = certify(learner) if running.certify else None
    return _result(job, learner, reason, gap)


@contextmanager
def _prepared(job: StagewiseJob, running: Running) -> Iterator[list[Part]]:
    """Read the rows once, into the family's compact form."""
    height, K = tile_rows(job.family), job.targets[0].width
    folder = os.fspath(running.scratch or tempfile.gettempdir()) if job.plan.scratch else None
    with ExitStack() as stack:
        parts = []
        for rows, targets in zip(job.rows, job.targets, strict=True):
            shape = job.family.record_shape(height)
            prepared = PreparedRows(rows.n, height, shape, folder)
            stack.callback(prepared.close)
            for _ in job.family.fill(prepared, rows.data.rows, rows.keep):
                pass
            rows.data.check_unchanged()
            parts.append(Part(prepared, targets, rows.s, np.empty((0, K))))
        yield parts


def _run(job: StagewiseJob, learner: Learner, running: Running) -> str:
    """Visit the blocks; returns why the training ended."""
    start = saved_at = time.monotonic()

    def save() -> None:
        if running.checkpoint is not None and learner.state.history:
            running.checkpoint.save(_saved(job, learner.state, running))

    for done in learner.run():
        now = time.monotonic()
        if running.progress is not None:
            running.progress(done, _seconds_left(learner))
        if running.should_stop() or (
            running.max_time is not None and now - start >= running.max_time
        ):
            save()
            return "interrupted" if running.should_stop() else "max-time"
        if now - saved_at >= running.checkpoint_every:
            save()
            saved_at = time.monotonic()
    save()
    return "patience" if learner.out_of_patience else "done"


def _saved(job: StagewiseJob, state: State, running: Running) -> Saved:
    family = plain(job.family.to_config())
    return Saved(job.settings, running.command, job.fingerprint, family, state)


def _seconds_left(learner: Learner) -> float:
    """The time that the blocks left will take: as long as the last visit of each, or as the others."""
    history, n = learner.state.history, learner.n_blocks
    mean = sum(done.seconds for done in history[-n:]) / min(n, len(history))
    return mean * (learner.n_steps - len(history))


def _result(
    job: StagewiseJob, learner: Learner, reason: str, gap: JointGap | None
) -> StagewiseResult:
    state, n = learner.state, learner.n_blocks
    certificate = None if gap is None else asdict(gap) | {"gap": gap.gap}
    model = StagewiseModel(
        family=job.family,
        weights=state.best,
        settings=job.settings,
        labels=job.targets[0].labels,
        history=[asdict(done) for done in state.history],
        best_number=state.best_number,
        n_rows=job.rows[0].n,
        fingerprint=job.rows[0].data.fingerprint(),
        column_names=by_position(job.rows[0].data.column_names),
        certificate=certificate,
    )
    last = [done.seconds for done in state.history[-n:]]
    return StagewiseResult(model, reason, gap, sum(last) * n / max(1, len(last)))
