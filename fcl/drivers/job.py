"""A job: the validated data, family, objective and memory plan of a run."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.data.numeric import NumericReader
from fcl.data.prepared import PreparedRows
from fcl.drivers.covariates import Design, make_design
from fcl.drivers.plan import MIB, Plan, Sizes, first_sample, make_plan
from fcl.errors import BudgetError, InputError
from fcl.features import Generator, Spec, bind_features, is_spec, parse_features, spell_features
from fcl.features.registry import check_home
from fcl.features.standardized import standardized
from fcl.model.columns import by_position, matched
from fcl.objective import Loss, Objective, find_loss, resolve_C
from fcl.options import Options
from fcl.solve.sampling import SampleSize

if TYPE_CHECKING:
    from fcl.features.base import Family

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """The selected rows of a data set, with their targets and weights."""

    data: DataSet
    keep: npt.NDArray[np.bool_] | None  #: bool (data.n_rows,), the selection; None: all rows
    y: Floats  #: float64 (n,), targets
    s: Floats  #: float64 (n,), weights, above 0
    offset: Floats | None = None  #: float64 (n,), added to the margins; None for zeros
    covariates: Floats | None = None  #: float64 (n, q), orthonormal; None for none

    @property
    def n(self) -> int:
        """Number of selected rows."""
        return len(self.y)


@dataclass(frozen=True)
class Job:
    """Everything that is decided before memory is allocated."""

    options: Options
    loss: Loss
    family: Family
    train: Rows
    valid: Rows | None
    labels: tuple[Any, Any] | None  #: (negative, positive); None for regression
    sum_weights: float  #: of the training rows, before class weights
    #: The intercept in the user's units minus the intercept of ``train``, whose rows are centred
    #: (:func:`_centred`).
    intercept_shift: float
    plan: Plan
    design: Design | None = None  #: of the covariates

    def objective(self) -> Objective:
        """The objective over the training rows."""
        train = self.train
        return self.options.objective(
            train.y, train.s, offset=train.offset, covariates=train.covariates
        )

    def at(self, C: float) -> Job:
        """The same job at another C."""
        C, alpha = resolve_C(C, None, self.sum_weights)
        return replace(self, options=replace(self.options, C=C, alpha=alpha))

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
        crew = max(1, self.plan.writers)
        extra = sum(self.family.extra_bytes(rows, crew) for rows in prepared)
        # a sample has side arrays of its own
        extra += prepared[0].side_bytes() * self.plan.view_rows // self.train.n
        plan = self.plan
        return make_plan(
            _sizes(self.family, self.train, self.valid, self.options.block_rows, extra),
            self.options.memory,
            self.options.row_view,
            plan.writers or None,
            scratch=plan.scratch,
            view_rows=plan.view_rows,
        )

    def prepare(self, rows: Rows, between: Callable[[float], None]) -> PreparedRows:
        """Read the rows once, into the family's compact form.

        rows : of this job.
        between : called after each block, with the share of the blocks that are read.
        """
        block_rows = self.options.block_rows
        folder = self.scratch_folder if self.plan.scratch else None
        prepared = PreparedRows(rows.n, block_rows, self.family.record_shape(block_rows), folder)
        try:
            for number, _ in self.family.fill(prepared, rows.data.rows, rows.keep):
                between((number + 1) / prepared.n_blocks)
            rows.data.check_unchanged()
        except BaseException:
            prepared.close()
            raise
        return prepared


def available_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def make_job(
    data: DataSet,
    features: Spec | str,
    *,
    valid: DataSet | None = None,
    resumed: bool = False,
    **given: Any,
) -> Job:
    """Check everything that can be checked before the rows are read, and plan the memory.

    Parameters
    ----------
    data, valid : DataSet
        Training rows, and validation rows if any.
    features : family or str
    resumed : bool
        Whether the job continues from a checkpoint, whose ``block_rows`` it cannot change.
    **given
        Options as the user gave them; see :class:`fcl.options.Options`.

    Raises
    ------
    InputError
        The message names the option, array or row.
    BudgetError
        The memory budget is too small.
    """
    from fcl.data.targets import check_class_weight

    for name, opened in (("data", data), ("valid", valid)):
        if not isinstance(opened, DataSet) and not (name == "valid" and opened is None):
            raise InputError(
                f"{name} must be a data set, got {type(opened).__name__}; open it with fcl.open_data"
            )
    spec = parse_features(features) if isinstance(features, str) else features
    if isinstance(spec, type):
        raise InputError(
            f"features must be an instance, got the class {spec.__name__}; give "
            f"{spec.__name__}(...) with its options"
        )
    if not is_spec(spec):
        raise InputError(
            "features must be a family such as Kmers(d=8), a Generator, a Concat, or their text, got "
            f"{features!r}"
        )
    options = Options.checked(**given)
    if valid is not None and options.valid_fraction is not None:
        raise InputError("give either valid or valid_fraction, not both")
    loss = find_loss(options.loss)

    if isinstance(spec, Generator):
        check_home(spec)
    y, labels = _targets(data, loss, "training")
    held = None
    if options.valid_fraction is not None:
        held = (
            np.random.default_rng([options.seed, 0xFC1]).random(data.n_rows)
            < options.valid_fraction
        )
    train = _rows(data, y, data.weights, None if held is None else ~held)
    loss.check_training(train.y, data.target_name)
    family = bind_features(spec, data.rows, train.keep)
    if options.standardize:
        family = standardized(family)
    valid_rows = None
    if held is not None:
        valid_rows = _rows(data, y, data.weights, held, "validate on: raise valid_fraction")
    elif valid is not None:
        if (data.offset is None) != (valid.offset is None):
            with_one, without = (valid, data) if data.offset is None else (data, valid)
            raise InputError(
                f"{without.name}: expected an offset as {with_one.name} has one, got none; give zeros "
                "where there is nothing to add"
            )
        valid = matched(valid, by_position(data.column_names), family.row_width)
        family.check_rows(valid.rows)
        valid_rows = _valid_rows(valid, loss, labels)
    sum_weights = float(train.s.sum())
    design = None
    if data.covariates:
        design = make_design(data, train.keep, train.s, options.intercept)
        if len(design.kept):
            train = _with_covariates(train, design)
            valid_rows = valid_rows and _with_covariates(valid_rows, design)
    C, alpha = resolve_C(options.C, options.alpha, sum_weights)
    (train, valid_rows), intercept_shift = _centred(loss, train, valid_rows, options.intercept)
    by_class = check_class_weight(given.get("class_weight"), labels)
    if by_class is not None:
        train = replace(train, s=train.s * _class_factors(by_class, train))

    options = replace(
        options,
        features=spell_features(spec),
        C=C,
        alpha=alpha,
        class_weight=by_class,
        block_rows=min(options.block_rows, family.most_block_rows(), -(-train.n // 64) * 64),
        writers=(options.writers or available_cores()) if options.driver == "processes" else 0,
        offset=data.offset is not None,
        covariates=None if train.covariates is None or design is None else design.names,
    )
    plan = _plan(options, family, train, valid_rows, smaller_blocks=not resumed)
    return Job(
        options=replace(options, writers=plan.writers),
        loss=loss,
        family=family,
        train=train,
        valid=valid_rows,
        labels=labels,
        sum_weights=sum_weights,
        intercept_shift=intercept_shift,
        plan=plan,
        design=design,
    )


def _with_covariates(rows: Rows, design: Design) -> Rows:
    return replace(rows, covariates=design.columns(rows.data, rows.keep))


def _centred(
    loss: Loss, train: Rows, valid: Rows | None, intercept: bool
) -> tuple[tuple[Rows, Rows | None], float]:
    """Centre targets or offsets, and return the rows with the shift of the intercept.

    Margins are about as large as targets and offsets, and around 1e6 they would lose six digits to
    rounding. If the loss depends on y - m alone, offsets are subtracted from the targets. A free
    intercept then absorbs the mean of the targets, or for other losses the mean of the offsets.
    """
    rows = [train] if valid is None else [train, valid]
    if loss.translates:
        rows = [r if r.offset is None else replace(r, y=r.y - r.offset, offset=None) for r in rows]
    shift = 0.0
    if intercept and loss.translates:
        shift = float(np.average(rows[0].y, weights=train.s))
        rows = [replace(r, y=r.y - shift) for r in rows]
    elif intercept and train.offset is not None:
        shift = -float(np.average(train.offset, weights=train.s))
        rows = [r if r.offset is None else replace(r, offset=r.offset + shift) for r in rows]
    return (rows[0], rows[1] if valid is not None else None), shift


def _class_factors(by_class: str | tuple[tuple[Any, float], ...], rows: Rows) -> Floats:
    """Factors for the weights of rows; balanced ones give both classes equal sums."""
    positive = rows.y > 0.0
    if isinstance(by_class, str):
        sums = [math.fsum(rows.s[~positive]), math.fsum(rows.s[positive])]
        low, high = (0.5 * sum(sums) / part for part in sums)
    else:
        (_, low), (_, high) = by_class
    return np.where(positive, high, low)


def _plan(
    options: Options, family: Family, train: Rows, valid: Rows | None, smaller_blocks: bool
) -> Plan:
    """Plan the memory; with ``smaller_blocks`` a BudgetError may suggest smaller blocks."""

    def divide(budget: int, block_rows: int) -> Plan:
        sizes = _sizes(family, train, valid, block_rows)
        return make_plan(sizes, budget, options.row_view, options.writers or None)

    try:
        return divide(options.memory, options.block_rows)
    except BudgetError as error:
        if not smaller_blocks:
            raise
        hint = _smaller_blocks(divide, options.memory, options.block_rows, error.smallest)
        raise BudgetError(f"{error}{hint}", error.smallest) from None


def _sizes(
    family: Family, train: Rows, valid: Rows | None, block_rows: int, extra: int = 0
) -> Sizes:
    """The sizes of the rows, for the plan."""
    chosen = [r for r in (train, valid) if r is not None]
    # a chunk twice, decoded and compressed (at most about as large); two blocks, the one being cut from
    # the chunk and the one being prepared
    chunk = max(2 * r.data.rows.chunk_bytes for r in chosen)
    return Sizes(
        family=family,
        n_rows=train.n,
        n_valid=valid.n if valid else 0,
        block_rows=block_rows,
        reading=chunk + 2 * max(_block_bytes(r, block_rows) for r in chosen),
        extra=extra,
        held=sum(_bytes_held(r) for r in chosen),
        vectors=2 if train.offset is None else 3,
        covariates=0 if train.covariates is None else train.covariates.shape[1],
    )


def _smaller_blocks(
    divide: Callable[[int, int], Plan], budget: int, block_rows: int, smallest: int
) -> str:
    """A hint for a message: the largest blocks that fit the budget, or that need least."""
    best = block_rows
    for size in (1 << power for power in range(15, 5, -1)):
        if size < block_rows and smallest > budget:
            try:
                divide(1, size)  # fails for every job, and names the smallest budget
            except BudgetError as error:
                if error.smallest < 0.98 * smallest:  # tiny blocks are slow
                    best, smallest = size, error.smallest
    if best == block_rows:
        return ""
    needed = f"{-(-smallest // MIB)}MiB"
    return f". Smaller blocks need less: --block-rows {best} needs at least {needed}"


def _block_bytes(rows: Rows, block_rows: int) -> int:
    """Bytes of the largest block of raw rows, and of row pointers that are kept in memory."""
    from fcl.data.sparse import SparseRowReader

    reader = rows.data.rows
    if not isinstance(reader, SparseRowReader):
        return block_rows * reader.dtype.itemsize * int(np.prod(reader.shape[1:]))
    entries = NumericReader(reader, rows.keep).block_entries(block_rows)
    return reader.resident_bytes + 20 * int(entries.max())


def _bytes_held(rows: Rows) -> int:
    """Bytes of all arrays but X as they were read, and of two copies of the row mask."""
    arrays = (rows.data.target, rows.data.weights, rows.data.offset, rows.keep, rows.keep)
    held = sum(a.nbytes for a in arrays if a is not None)
    return held + sum(array.values.nbytes for array in rows.data.covariates or ())


def _rows(
    data: DataSet,
    y: Floats,
    weights: Floats | None,
    keep: npt.NDArray[np.bool_] | None,
    purpose: str = "train on",
) -> Rows:
    """The rows of ``keep``, without rows of weight 0, which have no effect."""
    if weights is not None and (weights == 0.0).any():
        keep = weights > 0.0 if keep is None else keep & (weights > 0.0)
    if keep is not None and keep.all():
        keep = None
    if keep is None:
        s = np.ones(len(y)) if weights is None else np.ascontiguousarray(weights, np.float64)
        return Rows(data, None, np.ascontiguousarray(y), s, data.offset)
    if not keep.any():
        raise InputError(f"{data.name}: no rows are left to {purpose}")
    s = np.ones(int(keep.sum())) if weights is None else weights[keep]
    return Rows(data, keep, y[keep], s, None if data.offset is None else data.offset[keep])


def _valid_rows(valid: DataSet, loss: Loss, labels: tuple[Any, Any] | None) -> Rows:
    """The rows of a validation data set, whose target must be of the kind that was trained on."""
    y, found = _targets(valid, loss, "validation")
    if found != labels:
        raise InputError(
            f"{valid.target_name}: labels {found} differ from those trained on, {labels}"
        )
    return _rows(valid, y, valid.weights, None)


def _targets(data: DataSet, loss: Loss, purpose: str) -> tuple[Floats, tuple[Any, Any] | None]:
    """The targets for a loss; and the labels (negative, positive), None for regression."""
    from fcl.data.targets import encode_labels, regression_target

    if data.target is None:
        raise InputError(f"{data.name}: {purpose} needs a target, and none was opened (y=None)")
    if loss.classifies:
        return encode_labels(data.target, data.target_name)
    y = regression_target(data.target, data.target_name)
    loss.check_targets(y, data.target_name)
    return y, None
