"""Setting up a run of several processes: shared memory, and the parts of each stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from fcl.cache.store import largest_column
from fcl.drivers.job import Job, ahead_share
from fcl.drivers.plan import Plan
from fcl.drivers.processes.layout import MOST_BATCH, Config, Layout, in_scratch, segment_names
from fcl.drivers.processes.logic.protocol import LogicSettings, SetUp
from fcl.drivers.processes.shared import Segment
from fcl.drivers.rows import Rows
from fcl.errors import BudgetError
from fcl.features.standardized import attach_scales
from fcl.memory.meter import on_tmpfs
from fcl.parallel import available_cores
from fcl.solve.passes import Vectors
from fcl.units import format_bytes

#: Parts of a stage per writer: enough to balance the work, few enough to cost little.
PARTS_A_WRITER = 4
#: An extent has at least this many bytes, and room for this many columns of the largest size, ...
LEAST_EXTENT = 1 << 20
COLUMNS_AN_EXTENT = 16
#: ... unless a small cache would then have fewer extents than this, plus some for each writer.
LEAST_EXTENTS, EXTENTS_A_WRITER = 16, 4
MOST_EXTENTS = 1024


class SharedMemory:
    """The shared memory of a run.

    The segments exist from the start, since children inherit them. Sizes that depend on the contents of
    the rows are set once the rows are read (:meth:`complete`). ``job`` is the given job, with its
    targets, weights and offsets moved to shared memory.
    """

    def __init__(self, job: Job) -> None:
        self.plan = job.plan
        self.cores = available_cores()
        self.segments: dict[str, Segment] = {}
        try:
            self._make(job)
        except BaseException:
            self.close()
            raise

    def _make(self, job: Job) -> None:
        plan = self.plan
        for name in segment_names(plan.writers):
            folder = job.options.shared_files
            if plan.scratch and in_scratch(name):
                folder = job.checked_scratch_folder()
                if on_tmpfs(folder):
                    raise BudgetError(
                        f"scratch folder {folder}: expected a folder on a disk, since "
                        "prepared rows do not fit into the memory budget, got one in memory (tmpfs); "
                        "name a folder on a disk with --scratch, or raise --memory by "
                        f"{format_bytes(plan.scratch_bytes)}"
                    )
            self.segments[name] = Segment.create(name, folder)
        self.config = _configure(job, self.cores)
        self._lay_out()
        self.job = replace(
            job, train=self._share(job.train, 0), valid=job.valid and self._share(job.valid, 1)
        )
        if self.config.n_scaled:
            attach_scales(job.family, self.layout.array("scales"))
        self.vectors = Vectors(job.train.n, self.layout.allocator, job.n_outputs)

    def _lay_out(self) -> None:
        self.layout = Layout(self.config, self.segments.__getitem__)
        self.layout.allocate()
        self.set_up = SetUp(self.config)  #: the message for all children

    def _share(self, rows: Rows, which: int) -> Rows:
        """Move targets, weights, offsets and covariates to shared memory."""
        prefix = "valid_" if which else ""
        y, s = self.layout.array(f"{prefix}y"), self.layout.array(f"{prefix}s")
        y[:], s[:] = rows.y, rows.s
        if rows.keep is not None:
            self.layout.array(f"keep{which}")[:] = rows.keep
        offset = self.layout.offset(prefix)
        if offset is not None:
            offset[:] = rows.offset
        covariates = self.layout.covariates(prefix)
        if covariates is not None:
            covariates[:] = rows.covariates
        return Rows(rows.data, rows.keep, y, s, offset, covariates)

    def prepare_own(self, between: Callable[[float], None]) -> None:
        """Prepare rows that children cannot read: arrays in this process's memory.

        between : called after each block, with the share of the blocks that are read.
        """
        layout, family = self.layout, self.job.family
        for which, rows in enumerate((self.job.train, self.job.valid)):
            if rows is None or rows.data.source is not None:
                continue
            prepared = layout.prepared(which)
            for number, sides in family.fill(prepared, rows.data.rows, rows.keep):
                layout.keep_sides("sides", layout.first_block(which) + number, 0, sides)
                del sides
                prepared.forget_sides(number)
                between((number + 1) / prepared.n_blocks)

    def settings(self, first_pass: int | None) -> LogicSettings:
        """The settings of the decision logic.

        first_pass : number of the first pass of a run that resumes from a checkpoint; None for a new run.
        """
        parts = self.config.parts
        return LogicSettings(
            writers=self.plan.writers,
            cores=self.cores,
            sharing=self.job.options.share_cores,
            extents=self.n_extents,
            batch=MOST_BATCH,
            prepare_parts=len(parts["prepare"]),
            margins_parts=len(parts["margins"]),
            price_parts=len(parts["price"]),
            measure_parts=len(parts["price"]) if self.config.n_scaled else 0,
            validate_parts=len(parts["validate"]),
            first_pass=first_pass or 0,
            resumed=first_pass is not None,
        )

    @property
    def _largest(self) -> int:
        """Bytes of the largest column over the rows of the trainer."""
        config, family = self.config, self.job.family
        return largest_column(config.n_view, config.block_rows, family.binary, family.step)

    def reserve(self) -> None:
        """Check that there is room for the whole plan, and allocate all of it but the cache.

        Call it after the caller's own copy of targets and weights is freed, which would come on top. The
        cache follows extent by extent (:meth:`Layout.back`): most jobs fill a small part of it, and to
        allocate and free the rest takes about half a second per GiB.

        Raises BudgetError if there is not enough room.
        """
        plan = self.plan
        column = self._largest
        # many extents of many columns each: a writer leaves a part of its last extent unused
        size = min(
            max(LEAST_EXTENT, COLUMNS_AN_EXTENT * column),
            plan.cache_bytes // (LEAST_EXTENTS + EXTENTS_A_WRITER * plan.writers),
        )
        if size < COLUMNS_AN_EXTENT * column:
            size = max(1, size // column) * column
        self._extent_bytes = -(-max(size, plan.cache_bytes // MOST_EXTENTS) // 8) * 8
        self.n_extents = max(plan.cache_bytes // self._extent_bytes, 2)
        reserved = replace(self.config, extents=self.n_extents, extent_bytes=self._extent_bytes)
        Layout(reserved, self.segments.__getitem__).allocate()

    def complete(self) -> int:
        """Plan again with the exact sizes of the read rows, and free the excess memory.

        Returns the number of extents. Raises BudgetError if there is no room for the smallest cache.
        """
        sets = [self.layout.prepared(which) for which in range(2 if self.job.valid else 1)]
        plan = self.job.plan_with(sets)
        self.config = replace(self.config, **_of_plan(plan))
        # rather fewer extents than extents that are too small for a column
        extents = min(self.n_extents, max(2, plan.cache_bytes // self._largest))
        extent_bytes = min(self._extent_bytes, plan.cache_bytes // extents // 8 * 8)
        self.config = replace(self.config, extents=extents, extent_bytes=extent_bytes)
        self._lay_out()
        return extents

    def memory_segments(self) -> list[Segment]:
        """The segments that count against the memory budget."""
        on_disk = in_scratch if self.plan.scratch else lambda name: False
        return [s for name, s in self.segments.items() if not on_disk(name)]

    def close(self) -> None:
        """Close all segments."""
        for segment in self.segments.values():
            segment.close()


def _of_plan(plan: Plan) -> dict[str, Any]:
    """What a plan decides for children, perhaps anew when the rows are read."""
    names = "view_rows max_columns entries hessian_columns staging max_active"
    return {name: getattr(plan, name) for name in names.split()}


def _configure(job: Job, cores: int) -> Config:
    size, plan = job.options.block_rows, job.plan
    rows = (job.train, job.valid)
    blocks = [-(-r.n // size) if r else 0 for r in rows]
    parts = {
        "prepare": [p for i, r in enumerate(rows) if r for p in _read_parts(i, r, blocks[i], plan)],
        "margins": _cut(0, blocks[0], PARTS_A_WRITER * plan.writers),
        "price": _cut(0, job.family.n_price_parts, 2 * PARTS_A_WRITER * plan.writers),
        "validate": _cut(1, blocks[1], PARTS_A_WRITER * plan.writers),
    }
    return Config(
        family=job.family.to_config(),
        sources=[r.data.source if r else None for r in rows],
        options=job.options,
        n_rows=job.train.n,
        n_valid=job.valid.n if job.valid else 0,
        n_outputs=job.n_outputs,
        row_outputs=job.train.target_columns,
        offset=job.train.offset is not None,
        n_scaled=job.family.n_features if job.options.standardize else 0,
        n_kept=[len(r.keep) if r and r.keep is not None else 0 for r in rows],
        record_shape=job.family.record_shape(size),
        cores=cores,
        parts=parts,
        most_ahead=ahead_share(job.options),
        writers=plan.writers,
        scratch=plan.scratch,
        **_of_plan(plan),
    )


def _read_parts(which: int, rows: Rows, blocks: int, plan: Plan) -> list[tuple[int, range]]:
    """Ranges of blocks to read, at most one per storage chunk: a cut chunk is decoded twice."""
    reader = rows.data.rows
    chunks = -(-reader.shape[0] // reader.chunk_rows)
    return _cut(which, blocks, max(1, min(chunks, 2 * PARTS_A_WRITER * plan.writers)))


def _cut(which: int, n: int, most: int) -> list[tuple[int, range]]:
    """Cut [0, n) into at most ``most`` nearly equal ranges of a set of rows."""
    if not n:
        return []
    edges = np.linspace(0, n, min(n, most) + 1).astype(int).tolist()
    return [(which, range(a, b)) for a, b in pairwise(edges)]
