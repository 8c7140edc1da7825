"""The memory plan of a training, and of a single pass over its rows.

What the rows, the vectors over rows and the tables of a pass leave goes to the cache of columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fcl import kernels
from fcl.arrays import of_outputs
from fcl.cache import ColumnCache
from fcl.data.prepared import SMALL_SIDES
from fcl.drivers.processes.lists import slot_lists, unshared_bytes, watched_lists
from fcl.errors import BudgetError
from fcl.features.base import Family
from fcl.memory.ledger import (
    INTERPRETER,
    LIBRARIES,
    MIB,
    TABLES,
    TARGETS,
    MemoryPlan,
    Use,
    check_budget,
    sum_of,
)
from fcl.solve.coupled import CoupledTrainer
from fcl.solve.exact import MOST_COLUMNS, hessian_bytes
from fcl.solve.passes import KEEP_PER_GROUP, Vectors
from fcl.solve.single import SingleTrainer
from fcl.solve.state import working_arrays
from fcl.solve.view import RowView
from fcl.units import counted, format_bytes

#: Rows on which the trainer works: "all"; "auto", a sample of large data; or rows of the first sample.
RowViewOption = str | int

#: Private memory of each of several processes, which share code and compile kernels beforehand.
SUPERVISOR = 96 * MIB
CHILD = 96 * MIB
#: More for a child that has to compile for itself.
COMPILER = 112 * MIB
#: Threads of a single process that compute features need tables of their own: up to MOST_THREADS may have
#: them, within this share of the budget. The number of cores has no influence on the plan, and thus on
#: no number of the model.
MOST_THREADS = 64
TABLES_SHARE = 1 / 16
#: Staging buffer for new columns before they enter the cache.
STAGING = 32 * MIB
#: The directory has at most this many columns, or one per ROWS_A_SLOT rows if that is more, or half of
#: the columns of sparse rows, up to MAX_LISTED.
MAX_COLUMNS = 1 << 16
MAX_LISTED = 1 << 18
ROWS_A_SLOT = 32
#: Bytes of budget assumed for each column when the directory is sized; most real columns are larger.
COLUMN_SHARE = 4096
#: A directory that can grow has an arena for this many times its columns, so that it may.
GROWTH_ROOM = 4
#: On a sample, which prefers informative rows, columns are much larger: at least this share of the
#: largest column over the first sample is assumed.
SAMPLED_SHARE = 0.5
#: The smallest directory: as many columns, or as the family has features, but LEAST_COLUMNS at least.
MIN_COLUMNS = 1024
LEAST_COLUMNS = 256
#: The smallest cache holds MIN_CACHE_COLUMNS columns of the largest size, and MIN_COLUMNS of them if
#: these take no more than LEAST_CACHE. With 31 columns for 3,000 active features, C. elegans was at a
#: gap of 0.62 after 55 passes, with 900 columns at 0.001.
MIN_CACHE_COLUMNS = 4
LEAST_CACHE = 4 * MIB
#: Prepared rows go to a scratch file if they would leave less than this for the cache.
COMFORTABLE_CACHE = 256 * MIB
#: There is room for this many active features per column of the directory, for LEAST_ACTIVE at least,
#: for ACTIVE_ROOM times as many as the model from which the job starts, and for as many as fit into
#: 1 / ACTIVE_SHARE of the memory that is not needed otherwise.
ACTIVE_A_COLUMN = 2
LEAST_ACTIVE = 1 << 15
ACTIVE_ROOM = 2
ACTIVE_SHARE = 64
#: Shared bytes counted for each active feature and for each column that are in no list of them; with
#: others, the same budget would give another directory than before, and other numbers of a model.
SPARE_BYTES, SPARE_BYTES_A_COLUMN = 8, 24
MIN_ENTRIES = 1 << 20
MAX_ENTRIES = 1 << 29
#: Up to this many rows the trainer works on all of them. Beyond, it starts with a sample of SAMPLE_SHARE
#: of the rows (LEAST_SAMPLE at least), which may grow to all rows if memory allows.
ALL_ROWS = 1 << 16
SAMPLE_SHARE = 1 / 16
LEAST_SAMPLE = 1 << 15
#: A sample may grow only while the cache holds this many columns of the largest size over it, and thus
#: several times as many real columns: vectors over more rows would take memory from more useful columns.
COMFORTABLE_COLUMNS = 8192
#: Where the entries of sparse rows are known, a large column is this many times larger than the mean.
SPREAD = 32


def first_sample(n_rows: int, view_rows: int, row_view: RowViewOption = "auto") -> int:
    """Number of rows of the first sample, for a view that may grow to ``view_rows``."""
    if isinstance(row_view, int):
        return min(view_rows, row_view)
    return min(view_rows, max(LEAST_SAMPLE, int(SAMPLE_SHARE * n_rows)))


@dataclass(frozen=True)
class Plan(MemoryPlan):
    """How the memory budget is divided."""

    cache_bytes: int  #: of the cache of columns
    max_columns: int  #: of the cache's directory
    entries: int  #: column entries that the trainer can gather
    staging: int  #: bytes of new columns before they enter the cache
    scratch: bool  #: whether prepared rows are in a scratch file
    scratch_bytes: int  #: of the scratch file; 0 without one
    writers: int = 0  #: writer processes; 0: a single process
    view_rows: int = 0  #: most rows of the trainer's sample; 0: it has all rows
    hessian_columns: int = 0  #: most columns whose whole Hessian fits in memory
    max_active: int = 0  #: most features of a point in shared memory; 0: a single process
    active_bytes: int = 0  #: shared bytes of each of them
    most_threads: int = 1  #: threads of a single process that have room for tables of a pass
    slot_bytes: int = 0  #: bytes of a slot of the directory, if it may grow; else 0

    @property
    def more_active(self) -> int:
        """A budget with room for twice as many features with a weight."""
        return self.budget + self.max_active * self.active_bytes


def child_bytes() -> int:
    """Bytes of a child's interpreter, with a compiler if there is no cache of kernels."""
    return CHILD if kernels.compilation.cache_folder is not None else CHILD + COMPILER


@dataclass(frozen=True)
class Sizes:
    """The sizes from which a job's memory is planned."""

    family: Family
    n_rows: int
    n_valid: int
    block_rows: int
    reading: int  #: bytes held while the data are read
    extra: int = 0  #: bytes known once the rows are read (:meth:`Family.extra_bytes`)
    sides: int = 0  #: bytes of the side arrays of all rows, as far as they are known
    block_sides: int = 0  #: bytes of the largest side arrays of a block
    held: int = 0  #: bytes of targets and weights as they were read, which stay in memory
    vectors: int = 2  #: float64 vectors over the rows: targets, weights, and offsets if any
    covariates: int = 0  #: unpenalised columns
    n_outputs: int = 1  #: classes or targets
    coupled: bool = False  #: whether the outputs are trained together
    group: bool = False  #: whether the penalty is the group norm
    remote: bool = False  #: whether rows and vectors are on a cluster
    active: int = 0  #: features with a weight at the start

    @property
    def least_columns(self) -> int:
        """The fewest columns of a directory."""
        return min(MIN_COLUMNS, max(LEAST_COLUMNS, self.family.n_features))

    @property
    def least_active(self) -> int:
        """The fewest features with a weight for which shared memory has room."""
        return min(max(LEAST_ACTIVE, ACTIVE_ROOM * self.active), self.family.n_features)

    @property
    def active_bytes(self) -> int:
        """Bytes of a feature with a weight, in shared memory and in messages."""
        watched = watched_lists(1, self.n_outputs).nbytes
        return unshared_bytes(self.n_outputs) + watched + SPARE_BYTES

    def least_cache(self, column: int) -> int:
        """Bytes of the smallest cache, of columns of at most ``column`` bytes."""
        comfortable = min(self.least_columns * column, LEAST_CACHE)
        return max(MIN_CACHE_COLUMNS * column, comfortable)

    @property
    def most_columns(self) -> int:
        """The most columns of a directory: no more than features, which would take long to allocate."""
        most, n_features = max(MAX_COLUMNS, self.n_rows // ROWS_A_SLOT), self.family.n_features
        if self.family.lists_columns:
            most = max(most, min(MAX_LISTED, n_features // 2))
        return min(most, max(self.least_columns, n_features))

    def large_column(self, n_rows: int) -> int:
        """Bytes of a column over ``n_rows`` rows of the data, of which few columns have more."""
        family = self.family
        most = ColumnCache.largest_column(n_rows, self.block_rows, family.binary, family.step)
        if not family.lists_columns:
            return most
        mean = self.sides * n_rows // ((self.n_rows + self.n_valid) * family.row_width)
        return min(most, max(COLUMN_SHARE, SPREAD * mean))

    def prepared(self, n_rows: int) -> int:
        """Bytes of ``n_rows`` prepared rows."""
        blocks = -(-n_rows // self.block_rows)
        sides = self.sides * n_rows // (self.n_rows + self.n_valid)
        return blocks * math.prod(self.family.record_shape(self.block_rows)) + sides

    @property
    def prepared_block(self) -> int:
        """Bytes of the largest prepared block."""
        return math.prod(self.family.record_shape(self.block_rows)) + self.block_sides


def make_plan(
    sizes: Sizes,
    budget: int,
    row_view: RowViewOption = "auto",
    writers: int | None = None,
    *,
    scratch: bool | None = None,
    view_rows: int | None = None,
    most_threads: int | None = None,
) -> Plan:
    """Divide the memory budget.

    budget : bytes.
    row_view : {"all", "auto"} or int, the user's option.
    writers : most writer processes; fewer if the budget does not allow more. None: a single process.
    scratch : whether prepared rows are in a scratch file; None to choose.
    view_rows : from an earlier plan: most rows of the trainer's sample, 0 for all rows. None to choose.
    most_threads : from an earlier plan: threads that have tables of their own. None to choose.

    Raises BudgetError: the budget is too small; the message names the smallest one that works.
    """
    choices: list[tuple[int | None, int]] = [(n, 1) for n in range(writers or 0, 0, -1)]
    if writers is None:
        most = most_threads or _most_threads(sizes, budget)
        choices = [(None, threads) for threads in dict.fromkeys((most, 1))]
    views = _view_sizes(sizes.n_rows, row_view, view_rows)
    refused: BudgetError | None = None
    for n_writers, threads in choices:
        for rows in views:
            try:
                return _divide(sizes, budget, scratch, n_writers, threads, rows, rows != views[-1])
            except BudgetError as error:
                refused = error  # the last combination needs least
    assert refused is not None
    raise refused


def _most_threads(job: Sizes, budget: int) -> int:
    """Threads of a single process for whose tables there is memory, a power of two."""
    if job.remote or not job.family.thread_safe:
        return 1
    each = job.family.workspace_bytes(job.block_rows, scratch=True) + job.prepared_block
    threads = max(1, min(MOST_THREADS, int(TABLES_SHARE * budget / max(each, 1))))
    return 1 << (threads.bit_length() - 1)


def _view_sizes(n_rows: int, row_view: RowViewOption, view_rows: int | None) -> list[int]:
    """Sizes of the trainer's view to try, in order of preference; 0 for all rows."""
    sampled, least = ALL_ROWS, LEAST_SAMPLE
    if isinstance(row_view, int):
        sampled = least = row_view
    if row_view == "all" or view_rows == 0 or (view_rows is None and n_rows <= sampled):
        return [0]
    sizes = [view_rows or n_rows]
    while sizes[-1] > least:
        sizes.append(max(least, sizes[-1] // 2))
    return sizes


def _divide(
    job: Sizes,
    budget: int,
    scratch: bool | None,
    writers: int | None,
    threads: int,
    view_rows: int,
    may_shrink: bool,
) -> Plan:
    family, n_rows, block_rows = job.family, job.n_rows, job.block_rows
    workers = writers or 1
    pricers = writers or threads  # each has tables of a pass, and reads rows of a scratch file
    letters = family.row_kind == "sequences"
    rows = job.prepared(n_rows) + (job.prepared(job.n_valid) if job.n_valid else 0)
    if job.remote and view_rows:  # the trainer's sample alone is here
        rows = 0
    buffers = pricers * job.prepared_block * (2 if job.n_valid else 1)
    n_blocks = -(-n_rows // block_rows) + -(-job.n_valid // block_rows)
    buffers += pricers * min(job.sides, n_blocks * SMALL_SIDES)  # with a scratch file
    n_view, outputs = view_rows or n_rows, job.n_outputs
    column = ColumnCache.largest_column(n_view, block_rows, family.binary, family.step)
    staging = max(min(STAGING, 64 * column), column)
    entry = SingleTrainer.bytes_for(0, 0, 1, family.binary)
    one, each = ((slot_lists(1, k) + watched_lists(1, k)).nbytes for k in (1, outputs))
    per_column = (
        ColumnCache.directory_bytes(1, n_view, block_rows)
        + outputs * working_arrays(1).nbytes
        + SingleTrainer.bytes_for(n_view, 1, 0)
        - SingleTrainer.bytes_for(n_view, 0, 0)
        + (each - one if writers is None else each + SPARE_BYTES_A_COLUMN)
    )
    if job.coupled:
        per_column += CoupledTrainer.column_bytes(outputs)
    arena = job.least_cache(column)
    if writers is not None:  # the trainer always has one extent, to move columns into
        arena += column
    least_cache = arena + job.least_columns * per_column + entry * MIN_ENTRIES
    hessian_columns = min(LEAST_COLUMNS, family.n_features)
    least_cache += hessian_bytes(hessian_columns, n_view)
    view = RowView.bytes_for(n_view, not view_rows, family.verifies_columns, of_outputs(outputs))
    trainer = SingleTrainer.bytes_for(n_view, 0, 0, family.binary) + view
    if job.coupled:
        active = min(job.most_columns, family.n_features)
        trainer += CoupledTrainer.bytes_for(n_view, active, outputs, job.group, job.covariates)
    if view_rows:
        trainer += job.prepared(view_rows) + 24 * view_rows  # the rows, their targets and weights
    # a sample has its own covariates; models need two orthonormal copies
    trainer += 8 * job.covariates * n_view * (3 if view_rows else 2)

    vectors = Vectors.arrays(n_rows, outputs).nbytes * (not job.remote) + 8 * job.n_valid * outputs

    def fixed(scratch: bool, active: int = job.least_active) -> list[Use]:
        held = ("prepared rows (one block; all are in a scratch file)", buffers)
        # a single process makes temporary copies of them
        target = 16 * job.vectors * (n_rows + job.n_valid)
        if writers is not None:
            target = 8 * job.vectors * (n_rows + job.n_valid) + job.held
        covariates = 8 * job.covariates * (n_rows + job.n_valid)
        uses = [
            ("reading (a chunk, compressed and decoded, and a block)", workers * job.reading),
            (TARGETS, target),
            ("margins and residuals", vectors),
            (
                "trainer's vectors" + (f" ({counted(view_rows, 'row')})" if view_rows else ""),
                trainer,
            ),
            (TABLES, pricers * family.workspace_bytes(block_rows, scratch)),
            ("staging of new columns", workers * staging),
            held if scratch else ("prepared rows", rows),
        ]
        if job.covariates:
            # each process that fits them, or balances residuals, has two vectors an output
            fits = 16 * n_rows * outputs
            if job.coupled:  # and a Hessian of all coefficients, with copies and eigenvectors
                fits += 6 * 8 * (outputs * job.covariates) ** 2
            fits *= writers or 1
            uses.insert(2, ("covariates", fits + (covariates if writers else 2 * covariates)))
        if writers is None:
            uses.insert(0, (LIBRARIES, INTERPRETER))
        else:
            name = f"interpreters of {writers + 2} processes"
            uses.insert(0, (name, SUPERVISOR + (writers + 1) * child_bytes()))
            priced = (24 * KEEP_PER_GROUP + 8) * family.n_price_parts
            scores = 24 * job.n_valid
            lists = active * job.active_bytes + outputs * priced + scores
            uses.append(("lists of features", lists))
        name = "unknown letters" if letters else "lists whose lengths depend on the rows"
        return [*uses, (name, job.extra)] if job.extra else uses

    def taken(scratch: bool) -> int:
        return sum_of(fixed(scratch))

    def early(scratch: bool) -> int:
        """Bytes before the children start, while targets and weights are copied to shared memory."""
        if writers is None:
            return 0
        copies = 16 * (job.vectors + job.covariates) * (n_rows + job.n_valid) + job.held
        return SUPERVISOR + copies + vectors + (0 if scratch else rows)

    def needed(scratch: bool) -> int:
        return max(taken(scratch) + least_cache, early(scratch))

    smallest = min(needed(False), needed(True)) if scratch is None else needed(scratch)
    if scratch is None:
        comfortable = max(needed(False), taken(False) + COMFORTABLE_CACHE)
        scratch = comfortable > budget and needed(True) < needed(False)
    if budget < needed(scratch):
        advice = ""
        if early(scratch) > taken(scratch) + least_cache:
            size = format_bytes(early(scratch))
            advice = f"; at the start, with a copy of targets and weights, {size}"
        if letters and not job.extra:
            advice += "; unknown letters in the rows would need more"
        uses = [*fixed(scratch), ("the smallest cache", least_cache)]
        check_budget(budget, uses, "this job", advice, smallest)
    # the smallest cache stays reserved: else the directory of many row blocks could use it up
    spare = budget - taken(scratch) - least_cache
    share = COLUMN_SHARE
    if view_rows:
        first = first_sample(n_rows, view_rows)
        share = max(share, int(SAMPLED_SHARE * job.large_column(first)))
    active_bytes = 0 if writers is None else job.active_bytes
    slot = share + per_column + ACTIVE_A_COLUMN * active_bytes
    max_columns = min(job.most_columns, job.least_columns + spare // slot)
    max_active = 0
    if writers is not None:
        max_active = max(ACTIVE_A_COLUMN * max_columns, spare // ACTIVE_SHARE // active_bytes)
        max_active = min(max(job.least_active, max_active), family.n_features)
        spare -= (max_active - job.least_active) * active_bytes
    spare -= (max_columns - job.least_columns) * per_column
    least = hessian_bytes(hessian_columns, n_view)
    while (
        hessian_columns < min(MOST_COLUMNS, max_columns, family.n_features)
        and hessian_bytes(2 * hessian_columns, n_view) - least <= spare // 8
    ):
        hessian_columns *= 2
    spare -= hessian_bytes(hessian_columns, n_view) - least
    entries = min(MAX_ENTRIES, MIN_ENTRIES + spare // 3 // entry)
    entries = min(entries, 2 * min(max_columns, family.n_features) * (n_view + 1))
    spare -= (entries - MIN_ENTRIES) * entry
    # a cache in which all columns fit at their largest size is large enough; of its extents at most a
    # quarter is with writers, kept for moves, or incomplete
    grows = writers is None  # a directory in private memory
    most = min(max_columns * (GROWTH_ROOM if grows else 1), family.n_features) * column
    most += most // 3 if writers else 0
    cache_bytes = arena + min(spare, most)
    comfortable = min(COMFORTABLE_COLUMNS, family.n_features) * job.large_column(n_view)
    if may_shrink and cache_bytes < comfortable:
        raise BudgetError("memory: the sample could be smaller")  # make_plan tries that next
    parts = (
        *fixed(scratch, max_active),
        ("columns gathered for the trainer", entry * entries),
        ("Hessian of the trainer's columns", hessian_bytes(hessian_columns, n_view)),
        (f"directory of {max_columns} columns", max_columns * per_column),
        ("cache of columns", cache_bytes),
    )
    return Plan(
        parts,
        budget,
        cache_bytes,
        max_columns,
        entries,
        staging,
        scratch,
        rows if scratch else 0,
        writers or 0,
        view_rows,
        hessian_columns,
        max_active,
        active_bytes,
        threads,
        per_column if grows else 0,
    )


def plan_pass(sizes: Sizes, budget: int, scratch: bool | None = None) -> Plan:
    """Divide the memory budget of a job that prices one point in this process.

    scratch : whether prepared rows are in a scratch file; None to choose.

    Raises BudgetError if the budget is too small; the message names the smallest one that works.
    """
    rows = sizes.prepared(sizes.n_rows)

    def uses(scratch: bool) -> list[Use]:
        held = ("prepared rows (one block; all are in a scratch file)", sizes.prepared_block)
        found = [
            (LIBRARIES, INTERPRETER),
            ("reading (a chunk, compressed and decoded, and a block)", sizes.reading),
            (TARGETS, 16 * sizes.vectors * sizes.n_rows + sizes.held),
            ("margins and residuals", Vectors.arrays(sizes.n_rows, sizes.n_outputs).nbytes),
            (TABLES, sizes.family.workspace_bytes(sizes.block_rows, scratch)),
            held if scratch else ("prepared rows", rows),
        ]
        if sizes.covariates:
            found.append(("covariates", 16 * sizes.n_rows * (sizes.covariates + sizes.n_outputs)))
        if sizes.extra:
            found.append(("unknown letters, other lists", sizes.extra))
        return found

    if scratch is None:
        kept, written = sum_of(uses(False)), sum_of(uses(True))
        scratch = kept > budget and written < kept
    check_budget(budget, uses(scratch), "a pass over these rows")
    return Plan(
        tuple(uses(scratch)),
        budget,
        cache_bytes=0,
        max_columns=0,
        entries=0,
        staging=0,
        scratch=scratch,
        scratch_bytes=rows if scratch else 0,
    )
