"""The memory plan: what a run will hold, named and added up before it starts.

``--memory`` is one number and covers everything: the interpreter, the rows, the vectors over rows, the
tables of a pass, and what is left goes to the cache of columns. A budget too small is refused with the
smallest that works.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fcl.cache import ColumnCache
from fcl.errors import BudgetError
from fcl.features.base import Family
from fcl.solve.exact import MOST_COLUMNS, ExactModel
from fcl.solve.passes import KEEP_PER_GROUP, Vectors
from fcl.solve.state import WorkingSet
from fcl.solve.trainer import Trainer
from fcl.solve.view import RowView
from fcl.units import format_bytes

#: Rows of the trainer: "all"; "auto", a sample where that pays; or a sample that begins with so many.
RowViewOption = str | int

MIB = 1 << 20
#: Interpreter, numpy, numba, the readers: 183 MiB measured, 281 MiB where kernels are compiled first.
INTERPRETER = 320 * MIB
#: Of several processes each has private memory alone: code is shared, kernels are compiled beforehand.
SUPERVISOR = 96 * MIB
CHILD = 96 * MIB
COMPILER = 112 * MIB
#: Bitmaps of new columns on their way to the cache.
STAGING = 32 * MIB
#: Columns of the directory at most: so many, or one for so many rows (8.3 M rows, C = 0.1: 70,000
#: features have a weight, 100,000 are cached, and of 65,536 the last never found a place).
MAX_COLUMNS = 1 << 16
ROWS_A_SLOT = 32
#: Budget a column, for the size of the directory: real ones are mostly larger. On a sample, whose rows
#: are those that matter, they are so by far (k-mers with a weight: two thirds of a bitmap): this share of
#: the largest column on the first sample is counted.
COLUMN_SHARE = 4096
SAMPLED_SHARE = 0.5
MIN_COLUMNS = 256
#: The least cache, in largest columns. Fewer would work but crawl.
MIN_CACHE_COLUMNS = 4
#: The cache is not worth more than this before prepared rows go to disk.
COMFORTABLE_CACHE = 256 * MIB
#: Room for so many times as many active features as columns, and for so many at least.
ACTIVE_A_COLUMN = 2
LEAST_ACTIVE = 1 << 15
#: What the processes tell one another of an active feature: six points, what is watched, the list of new
#: ones.
ACTIVE_BYTES = 6 * 16 + 3 * 8 + 8 * 8
#: ... and of a column: gradients and curvatures of two anchors, weight, slots.
SHARED_BYTES_A_COLUMN = 12 * 8 + ACTIVE_A_COLUMN * ACTIVE_BYTES
MIN_ENTRIES = 1 << 20
MAX_ENTRIES = 1 << 27
#: Up to so many rows the trainer works on all of them; beyond, on a sample that begins with this share of
#: the rows, at least, and may grow to all, if there is memory for that. One core, C = 0.1, d = 8: 208,096
#: rows 2.5 s instead of 3.8 on all; 52,026 rows 0.75 s either way.
ALL_ROWS = 1 << 16
SAMPLE_SHARE = 1 / 16
LEAST_SAMPLE = 1 << 15
#: A sample may be so large that the cache holds this many of the largest columns over it, and several
#: times as many real ones. Vectors for all of 8.3 M rows are a gigabyte that 70,000 columns need more.
COMFORTABLE_COLUMNS = 8192


def first_sample(n_rows: int, view_rows: int, row_view: RowViewOption = "auto") -> int:
    """Rows of the first sample of a view that may grow to ``view_rows``."""
    if isinstance(row_view, int):
        return min(view_rows, row_view)
    return min(view_rows, max(LEAST_SAMPLE, int(SAMPLE_SHARE * n_rows)))


@dataclass(frozen=True)
class Plan:
    """Bytes by use. ``scratch``: prepared rows live in a scratch file."""

    parts: tuple[tuple[str, int], ...]
    budget: int
    cache_bytes: int
    max_columns: int
    entries: int
    staging: int
    scratch: bool
    scratch_bytes: int
    writers: int = 0  #: processes; 0: a single process
    view_rows: int = 0  #: most rows of the trainer's sample; 0: it has all rows
    hessian_columns: int = 0  #: columns of which there is memory for a whole Hessian

    @property
    def total(self) -> int:
        """Bytes of all uses."""
        return sum(size for _, size in self.parts)

    def lines(self) -> list[tuple[str, int]]:
        """(use, bytes), in the order in which they are made."""
        return list(self.parts)


def child_bytes() -> int:
    """Bytes of a child's interpreter; without a cache of kernels each compiles for itself."""
    from fcl.kernels import cache_folder

    return CHILD if cache_folder is not None else CHILD + COMPILER


@dataclass(frozen=True)
class Sizes:
    """What a job needs memory for."""

    family: Family
    n_rows: int
    n_valid: int
    block_rows: int
    reading: int  #: bytes that reading the data holds at once
    extra: int = (
        0  #: what only the rows could tell, once they are read (:meth:`Family.extra_bytes`)
    )
    held: int = 0  #: bytes of target and weights as they were read, which stay
    vectors: int = (
        2  #: float64 vectors over the rows: targets, weights, and offsets if there are any
    )

    def records(self, n_rows: int) -> int:
        """Bytes of the prepared form of so many rows."""
        blocks = -(-n_rows // self.block_rows)
        return blocks * math.prod(self.family.record_shape(self.block_rows))


def make_plan(
    sizes: Sizes,
    budget: int,
    row_view: RowViewOption = "auto",
    writers: int | None = None,
    *,
    scratch: bool | None = None,
    view_rows: int | None = None,
) -> Plan:
    """Divide the budget.

    row_view : "all", "auto" or the rows of the first sample, as the user wants it.
    writers : most of them; fewer where the budget does not allow for more. None: a single process.
    scratch : whether prepared rows live in a scratch file; None to choose.
    view_rows : most rows of the trainer's sample, 0 for all, of a plan made before; None to choose.

    Raises BudgetError naming the smallest budget that works.
    """
    crews = [None] if writers is None else list(range(writers, 0, -1))
    views = _view_sizes(sizes.n_rows, row_view, view_rows)
    refused: BudgetError | None = None
    for crew in crews:
        for rows in views:
            try:
                return _divide(sizes, budget, scratch, crew, rows, rows != views[-1])
            except BudgetError as error:
                refused = error  # the last one needs least
    assert refused is not None
    raise refused


def _view_sizes(n_rows: int, row_view: RowViewOption, view_rows: int | None) -> list[int]:
    """Sizes of the trainer's view to try, 0 for all rows, the one that is wanted most first."""
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
    view_rows: int,
    may_shrink: bool,
) -> Plan:
    family, n_rows, block_rows = job.family, job.n_rows, job.block_rows
    crew = writers or 1
    letters = family.row_kind == "sequences"
    rows = job.records(n_rows) + (job.records(job.n_valid) if job.n_valid else 0)
    buffers = crew * job.records(1) * (2 if job.n_valid else 1)
    n_view = view_rows or n_rows
    column = ColumnCache.largest_column(n_view, block_rows, family.binary, family.step)
    staging = max(min(STAGING, 64 * column), column)
    entry = Trainer.bytes_for(0, 0, 1, family.binary)
    per_column = (
        ColumnCache.directory_bytes(1, n_view, block_rows)
        + WorkingSet.bytes_for(1)
        + Trainer.bytes_for(0, 1, 0)
        + (0 if writers is None else SHARED_BYTES_A_COLUMN)
    )
    least_cache = MIN_CACHE_COLUMNS * column + MIN_COLUMNS * per_column + entry * MIN_ENTRIES
    hessian_columns = min(MIN_COLUMNS, family.n_features)
    least_cache += ExactModel.bytes_for(hessian_columns)
    if writers is not None:  # one extent is always the trainer's, to move columns into
        least_cache += column
    trainer = Trainer.bytes_for(n_view, 0, 0) + RowView.bytes_for(
        n_view, complete=not view_rows, verified=family.verifies_columns
    )
    if view_rows:
        trainer += job.records(view_rows) + 24 * view_rows  # the rows, their targets and weights

    def fixed(scratch: bool) -> list[tuple[str, int]]:
        held = ("prepared rows (a block; all in a scratch file)", buffers)
        # what is made of them; in one process with copies on the way
        target = 16 * job.vectors * (n_rows + job.n_valid)
        if writers is not None:
            target = 8 * job.vectors * (n_rows + job.n_valid) + job.held
        uses = [
            ("reading (a chunk, compressed and decoded, and a block)", crew * job.reading),
            ("targets and weights", target),
            ("margins and residuals", Vectors.bytes_for(n_rows) + 8 * job.n_valid),
            ("trainer's vectors" + (f" ({view_rows:,} rows)" if view_rows else ""), trainer),
            ("tables of a pass", crew * family.workspace_bytes(block_rows, scratch)),
            ("new columns on their way", crew * staging),
            held if scratch else ("prepared rows", rows),
        ]
        if writers is None:
            uses.insert(0, ("interpreter and libraries", INTERPRETER))
        else:
            name = f"interpreters of {writers + 2} processes"
            uses.insert(0, (name, SUPERVISOR + (writers + 1) * child_bytes()))
            priced = (24 * KEEP_PER_GROUP + 8) * family.n_price_parts
            scores = 24 * job.n_valid
            uses.append(("lists of features", LEAST_ACTIVE * ACTIVE_BYTES + priced + scores))
        name = "unknown letters" if letters else "entries of sparse rows and the like"
        return [*uses, (name, job.extra)] if job.extra else uses

    def taken(scratch: bool) -> int:
        return sum(size for _, size in fixed(scratch))

    def early(scratch: bool) -> int:
        """Bytes before the children are there, when targets and weights are copied to shared memory."""
        if writers is None:
            return 0
        copies = 16 * job.vectors * (n_rows + job.n_valid) + job.held
        vectors = Vectors.bytes_for(n_rows) + 8 * job.n_valid
        return SUPERVISOR + copies + vectors + (0 if scratch else rows)

    def needed(scratch: bool) -> int:
        return max(taken(scratch) + least_cache, early(scratch))

    smallest = min(needed(False), needed(True)) if scratch is None else needed(scratch)
    if scratch is None:
        comfortable = max(needed(False), taken(False) + COMFORTABLE_CACHE)
        scratch = comfortable > budget and needed(True) < needed(False)
    if budget < needed(scratch):
        raise BudgetError(
            f"memory: a budget of {format_bytes(budget)} is too small; this job needs at least "
            f"{-(-smallest // MIB)}MiB: "
            + ", ".join(f"{name} {format_bytes(size)}" for name, size in fixed(scratch))
            + f", the smallest cache {format_bytes(least_cache)}"
            + f"; at the start, with a copy of targets and weights, {format_bytes(early(scratch))}"
            * (early(scratch) > taken(scratch) + least_cache)
            + "; unknown letters in the rows would need more" * (letters and not job.extra),
            smallest,
        )
    # beyond the least, which stays whole: else the directory of many row blocks could eat the cache
    spare = budget - taken(scratch) - least_cache
    share = COLUMN_SHARE
    if view_rows:
        first = first_sample(n_rows, view_rows)
        largest = ColumnCache.largest_column(first, block_rows, family.binary, family.step)
        share = max(share, int(SAMPLED_SHARE * largest))
    max_columns = max(MAX_COLUMNS, n_rows // ROWS_A_SLOT)
    max_columns = min(max_columns, MIN_COLUMNS + spare // (share + per_column))
    # no more than there can be: to make room that is never used takes longer than to fit a small model
    max_columns = min(max_columns, max(MIN_COLUMNS, family.n_features))
    spare -= (max_columns - MIN_COLUMNS) * per_column
    least = ExactModel.bytes_for(hessian_columns)
    while (
        hessian_columns < min(MOST_COLUMNS, max_columns, family.n_features)
        and ExactModel.bytes_for(2 * hessian_columns) - least <= spare // 8
    ):
        hessian_columns *= 2
    spare -= ExactModel.bytes_for(hessian_columns) - least
    entries = min(MAX_ENTRIES, MIN_ENTRIES + spare // 3 // entry)
    entries = min(entries, 2 * min(max_columns, family.n_features) * (n_view + 1))
    spare -= (entries - MIN_ENTRIES) * entry
    # more than the largest columns of all can take is of no use
    most = min(max_columns, family.n_features) * column
    cache_bytes = (MIN_CACHE_COLUMNS + (writers is not None)) * column + min(spare, most)
    if may_shrink and cache_bytes < min(COMFORTABLE_COLUMNS, family.n_features) * column:
        raise BudgetError("memory: the sample could be smaller")  # which is tried next
    parts = (
        *fixed(scratch),
        ("columns gathered for the trainer", entry * entries),
        ("their Hessian", ExactModel.bytes_for(hessian_columns)),
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
    )
