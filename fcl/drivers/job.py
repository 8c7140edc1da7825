"""A job: the validated data, family, objective and memory plan of a run."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.data.base import MOST_AHEAD
from fcl.data.outputs import constant_labels
from fcl.data.prepared import PreparedRows, check_room
from fcl.data.targets import check_class_weight
from fcl.drivers.choice import chosen_driver, driver_in_words
from fcl.drivers.covariates import Design, make_design
from fcl.drivers.limits import resolved
from fcl.drivers.plan import Plan, Sizes, first_sample, make_plan, plan_pass
from fcl.drivers.problem import Problem, make_problem
from fcl.drivers.rows import (
    Rows,
    centred,
    check_data_set,
    weighted_by_class,
)
from fcl.errors import BudgetError, InputError, ScaleWarning
from fcl.features import (
    Family,
    Generator,
    Spec,
)
from fcl.features.centred import with_centres, with_centres_of
from fcl.features.registry import check_home
from fcl.features.standardized import say_divided, standardized, uneven_scales
from fcl.memory.allowance import within
from fcl.objective import Limits, Loss, find_loss, resolve_C
from fcl.options import TrainOptions
from fcl.parallel import SERIAL, Team, available_cores, threads_of_job
from fcl.solve.sampling import SampleSize
from fcl.types import Floats
from fcl.units import counted, least_memory

#: Coefficients of covariates that are fitted together; their Hessian is a dense matrix.
MOST_FREE = 1024
#: Bytes that all processes together request ahead from an object store, as a share of the budget.
AHEAD_SHARE = 16


@dataclass(frozen=True, kw_only=True)
class Job(Problem):
    """Everything that is decided before memory is allocated."""

    options: TrainOptions
    #: The intercept in the user's units minus the intercept of ``train``, whose rows are centred
    #: (:func:`fcl.drivers.rows.centred`), float64 (1,) or (K,).
    intercept_shift: Floats
    plan: Plan
    design: Design | None = None  #: of the covariates
    #: writers that the user named, perhaps more than the memory has room for
    wanted_writers: int = 0
    one_pass: bool = False  #: whether the job prices one point in this process, and trains nothing
    wanted_driver: str = ""  #: as the user named it, perhaps auto
    active: int = 0  #: features with a weight at the start

    def checked_scratch_folder(self) -> str:
        """The folder of the scratch file; InputError if the disk has no room for it."""
        folder = self.scratch_folder
        check_room(Path(folder), self.plan.scratch_bytes)
        return folder

    def objective(self, team: Team = SERIAL) -> Any:
        """The objective over the training rows."""
        train = self.train
        return self.options.objective(
            train.y,
            train.s,
            team,
            offset=train.offset,
            covariates=train.covariates,
            n_outputs=self.n_outputs,
        )

    def warn(self, stacklevel: int = 4) -> None:
        """Warn of what differs from what the user gave: covariates, writers, labels without rows.

        Also of columns of uneven scales.  stacklevel : of the user, as for :func:`warnings.warn`.
        """
        if self.design is not None:
            self.design.warn()
        say_divided(self.family, self.train.data.column_names)
        if self.wanted_writers > (writers := self.options.writers or 0):
            warnings.warn(
                f"writers: the memory budget has room for {counted(writers, 'writer')}, not for "
                f"{self.wanted_writers}; raise memory for more",
                stacklevel=stacklevel,
            )
        data = self.train.data
        constant = uneven = ""
        if self.train.target_columns > 1 and self.loss.classifies:
            constant = constant_labels(self.train.y, data.target_name, data.target_columns)
        if not self.options.standardize:
            uneven = uneven_scales(self.family, data.column_names)
        for text, category in ((constant, UserWarning), (uneven, ScaleWarning)):
            if text:
                warnings.warn(text, category, stacklevel=stacklevel)

    @property
    def limits(self) -> Limits:
        """The limits of the weights."""
        return Limits.from_stored(self.options.limits)

    def at(self, C: float) -> Job:
        """The same job at another C."""
        C, alpha = resolve_C(C, None, self.sum_weights)
        return replace(self, options=replace(self.options, C=C, alpha=alpha))

    @property
    def driver_in_words(self) -> str:
        """The driver with its threads or writers, and the reason if it was chosen."""
        return driver_in_words(self.options, self.wanted_driver, self.family, self.train.n)

    @property
    def scratch_folder(self) -> str:
        """Folder of the scratch file, if the plan uses one."""
        return os.fspath(self.options.scratch or tempfile.gettempdir())

    def sample_size(self, most: int, cache_bytes: int, locked: bool = False) -> SampleSize:
        """The size of the trainer's sample of rows; arguments as in SampleSize."""
        n, row_view = self.train.n, self.options.row_view
        first = first_sample(n, most, row_view)
        return SampleSize(n, most, first, cache_bytes, row_view != "auto", locked)

    def plan_with(self, prepared: Sequence[PreparedRows]) -> Plan:
        """The plan with the sizes that are known only after the rows are read."""
        sides = np.concatenate([rows.side_bytes() for rows in prepared])
        for threads in (self.plan.most_threads, 1):  # tables of many threads may be too much now
            workers = self.plan.writers or threads
            extra = sum(self.family.extra_bytes(rows, workers) for rows in prepared)
            try:
                return self.plan_with_sides(sides, extra, threads)
            except BudgetError:
                if threads == 1:
                    raise
        raise AssertionError("the last plan is returned or refused")

    def plan_with_sides(
        self, sides: npt.NDArray[np.int64], extra: int = 0, most_threads: int | None = None
    ) -> Plan:
        """The plan with sizes that are known only after the rows are read.

        sides : int64 (blocks of all rows,), bytes of the side arrays of each block.
        extra : :meth:`fcl.features.base.Family.extra_bytes`.
        most_threads : of the plan.
        """
        plan = self.plan
        sizes = replace(
            _sizes(self.family, self.train, self.valid, self.options, self.n_outputs),
            active=self.active,
            extra=extra,
            sides=int(sides.sum()),
            block_sides=int(sides.max()),
        )
        if self.one_pass:
            return plan_pass(sizes, self.options.memory, plan.scratch)
        return make_plan(
            sizes,
            self.options.memory,
            self.options.row_view,
            plan.writers or None,
            scratch=plan.scratch,
            view_rows=plan.view_rows,
            most_threads=most_threads,
        )

    def prepare(self, rows: Rows, between: Callable[[float], None]) -> PreparedRows:
        """Read the rows once, into the family's compact form.

        rows : of this job.
        between : called after each block, with the share of the blocks that are read.
        """
        block_rows = self.options.block_rows
        folder = self.checked_scratch_folder() if self.plan.scratch else None
        prepared = PreparedRows(rows.n, block_rows, self.family.record_shape(block_rows), folder)
        try:
            for number, sides in self.family.fill(prepared, rows.data.rows, rows.keep):
                del sides
                between((number + 1) / prepared.n_blocks)
            rows.data.check_unchanged()
        except BaseException:
            prepared.close()
            raise
        return prepared


def make_job(
    data: DataSet,
    features: Spec | str | Family,
    options: TrainOptions,
    *,
    valid: DataSet | None = None,
    resumed: Mapping[str, Any] | None = None,
    active: int = 0,
    one_pass: bool = False,
) -> Job:
    """Check everything that can be checked before the rows are read, and plan the memory.

    data, valid : training rows, and validation rows if any.
    features : a family to bind to the rows, its text, or a family of a model, which is already bound.
    options : as the user gave them, checked; the job has the effective ones.
    resumed : of a job that continues from a checkpoint, the configuration of its family: its numbers
        depend on what the family learnt from the rows. Such a job cannot change ``block_rows``.
    active : features with a weight in the model from which the job starts.
    one_pass : whether the job prices one point in this process, and trains nothing.

    Raises InputError: the message names the option, array or row.
    Raises BudgetError: the memory budget is too small.
    """
    check_data_set("data", data)
    if isinstance(features, Generator):
        check_home(features)
    loss = find_loss(options.loss)
    if not loss.smooth and not one_pass:
        raise InputError(
            f"loss: expected one with a derivative everywhere, got {loss.name}; choose squared_hinge, or "
            "learn with fcl online (fcl.train_online), and certify its model"
        )
    problem = make_problem(data, features, loss, options, valid, resumed)
    labels, n_outputs, sum_weights = problem.labels, problem.n_outputs, problem.sum_weights
    family, train, valid_rows = problem.family, problem.train, problem.valid
    if options.group and n_outputs == 1:
        raise InputError(
            "group: expected several outputs, from the softmax loss or from several columns of "
            f"targets, got one output of the {loss.name} loss; leave group out: the penalty of one "
            "output is the same without it"
        )
    with within(options.memory):  # rows are read before the plan
        if resumed is not None:
            family = with_centres_of(family, resumed)
        elif options.intercept:
            family = with_centres(family, train.data.rows, train.keep)
    if options.standardize:
        family = standardized(family)
    if options.patience is not None and valid_rows is None:
        raise InputError(
            f"patience: expected held-out rows beside {options.patience}, got none; give valid or "
            "valid_fraction"
        )
    design = None
    if data.covariates:
        design = make_design(data, train.keep, train.s, options.intercept)
        if len(design.kept):
            _check_free(n_outputs, design, loss, options)
            train = train.with_covariates(design)
            valid_rows = valid_rows and valid_rows.with_covariates(design)
    C, alpha = resolve_C(options.C, options.alpha, sum_weights)
    (train, valid_rows), intercept_shift = centred(loss, train, valid_rows, options.intercept)
    if train.target_columns > 1 and options.class_weight is not None:
        raise InputError(
            "class_weight: expected none with several columns of targets, whose rows are not of one "
            "class; give each row a weight (weights, --weights)"
        )
    limits = resolved(options.limits, family, options, n_outputs, train.data.column_names)
    by_class = check_class_weight(options.class_weight, labels)
    if by_class is not None:
        train = weighted_by_class(train, by_class, n_outputs)

    given, options = options, replace(options, driver=chosen_driver(options, family, train.n))
    options = replace(
        options,
        features=problem.features,
        C=C,
        alpha=alpha,
        class_weight=by_class,
        limits=limits,
        block_rows=min(
            options.block_rows,
            family.most_block_rows(),
            train.most_block_rows,
            -(-train.n // 64) * 64,
        ),
        writers=(options.writers or available_cores()) if options.driver == "processes" else 0,
        threads=threads_of_job(options.threads),
        offset=data.offset is not None,
        covariates=None if train.covariates is None or design is None else design.names,
    )
    hints = resumed is None and not one_pass  # other jobs choose no blocks
    for rows in filter(None, (train, valid_rows)):
        rows.data.rows.most_ahead = ahead_share(options)
    plan = _plan(options, family, train, valid_rows, n_outputs, active, hints, one_pass)
    return Job(
        **vars(replace(problem, family=family, train=train, valid=valid_rows)),
        options=replace(options, writers=plan.writers),
        intercept_shift=intercept_shift,
        plan=plan,
        design=design,
        wanted_writers=(given.writers or 0) if options.driver == "processes" else 0,
        one_pass=one_pass,
        wanted_driver=given.driver,
        active=active,
    )


def _check_free(n_outputs: int, design: Design, loss: Loss, options: TrainOptions) -> None:
    """Raise InputError for more unpenalised coefficients than are fitted together."""
    together = n_outputs * (len(design.kept) + design.constant)
    if (loss.couples or options.group) and together > MOST_FREE:
        raise InputError(
            f"covariates: expected at most {MOST_FREE:,} coefficients that are fitted together, got "
            f"{together:,}: {len(design.kept)} columns{' and an intercept' * design.constant} for each "
            f"of {n_outputs} outputs; use fewer covariates, or add them to the features"
        )


def _plan(
    options: TrainOptions,
    family: Family,
    train: Rows,
    valid: Rows | None,
    n_outputs: int,
    active: int,
    smaller_blocks: bool,
    one_pass: bool,
) -> Plan:
    """Plan the memory; with ``smaller_blocks`` a BudgetError may suggest smaller blocks."""

    def planned(budget: int, block_rows: int) -> Plan:
        given = replace(options, block_rows=block_rows)
        sizes = replace(_sizes(family, train, valid, given, n_outputs), active=active)
        if one_pass:
            return plan_pass(sizes, budget)
        return make_plan(sizes, budget, options.row_view, options.writers or None)

    try:
        return planned(options.memory, options.block_rows)
    except BudgetError as error:
        if not smaller_blocks:
            raise
        hint = _smaller_blocks(planned, options.memory, options.block_rows, error.smallest)
        raise BudgetError(f"{error}{hint}", error.smallest) from None


def ahead_share(options: TrainOptions) -> int:
    """Bytes that each process which reads the rows may request ahead from an object store."""
    return min(MOST_AHEAD, options.memory // AHEAD_SHARE // max(1, options.writers or 1))


def _sizes(
    family: Family,
    train: Rows,
    valid: Rows | None,
    options: TrainOptions,
    n_outputs: int,
) -> Sizes:
    """The sizes of the rows, for the plan."""
    block_rows, group = options.block_rows, bool(options.group)
    chosen = [r for r in (train, valid) if r is not None]
    # two blocks: the one being cut from the chunk and the one being prepared
    chunk = max(r.data.rows.reading_bytes for r in chosen)
    entries = np.concatenate([r.block_entries(block_rows) for r in chosen])
    sides = family.most_side_bytes(entries)
    return Sizes(
        family=family,
        n_rows=train.n,
        n_valid=valid.n if valid else 0,
        block_rows=block_rows,
        reading=chunk + 2 * max(r.block_bytes(block_rows) for r in chosen),
        sides=int(sides.sum()),
        block_sides=int(sides.max(initial=0)),
        held=sum(r.held_bytes for r in chosen),
        # targets, weights and offsets
        vectors=(train.y.size + train.s.size + (0 if train.offset is None else train.offset.size))
        // train.n,
        n_outputs=n_outputs,
        remote=options.driver == "dask",
        coupled=group or find_loss(options.loss).couples,
        group=group,
        covariates=0 if train.covariates is None else train.covariates.shape[1],
    )


def _smaller_blocks(
    planned: Callable[[int, int], Plan], budget: int, block_rows: int, smallest: int
) -> str:
    """A hint for a message: the largest blocks that fit the budget, or that need least."""
    best = block_rows
    for size in (1 << power for power in range(15, 5, -1)):
        if size < block_rows and smallest > budget:
            try:
                planned(1, size)  # fails for every job, and names the smallest budget
            except BudgetError as error:
                if error.smallest < 0.98 * smallest:  # tiny blocks are slow
                    best, smallest = size, error.smallest
    if best == block_rows:
        return ""
    needed = least_memory(smallest)
    return f". Smaller blocks need less: --block-rows {best} needs at least {needed}"
