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
from fcl.solve.state import WorkingSet
from fcl.solve.trainer import Trainer
from fcl.units import format_bytes

MIB = 1 << 20
#: Interpreter, numpy, numba, the readers: 183 MiB measured, 281 MiB where kernels are compiled first.
INTERPRETER = 320 * MIB
#: Bitmaps of new columns on their way to the cache.
STAGING = 32 * MIB
MAX_COLUMNS = 1 << 16
#: Budget a column, for the size of the directory: real ones are mostly larger.
COLUMN_SHARE = 4096
MIN_COLUMNS = 256
#: The least cache, in largest columns. Fewer would work but crawl.
MIN_CACHE_COLUMNS = 4
#: The cache is not worth more than this before prepared rows go to disk.
COMFORTABLE_CACHE = 256 * MIB
MIN_ENTRIES = 1 << 20
MAX_ENTRIES = 1 << 28


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

    @property
    def total(self) -> int:
        """Bytes of all uses."""
        return sum(size for _, size in self.parts)

    def lines(self) -> list[tuple[str, int]]:
        """(use, bytes), in the order in which they are made."""
        return list(self.parts)


def make_plan(
    family: Family,
    n_rows: int,
    n_valid: int,
    block_rows: int,
    reading: int,
    budget: int,
    extra: int = 0,
    scratch: bool | None = None,
) -> Plan:
    """Divide the budget.

    reading : bytes that reading the data holds at once.
    extra : what only the rows could tell, once they are read (:meth:`Family.extra_bytes`).
    scratch : whether prepared rows live in a scratch file; None to choose.

    Raises BudgetError naming the smallest budget that works.
    """
    record = math.prod(family.record_shape(block_rows))
    rows = record * (-(-n_rows // block_rows) + -(-n_valid // block_rows))
    buffers = record * (2 if n_valid else 1)
    column = ColumnCache.largest_column(n_rows, block_rows, family.binary)
    staging = max(min(STAGING, 64 * column), column)
    entry = Trainer.bytes_for(0, 0, 1, family.binary)
    per_column = (
        ColumnCache.directory_bytes(1, n_rows, block_rows)
        + WorkingSet.bytes_for(1)
        + Trainer.bytes_for(0, 1, 0)
    )
    least_cache = MIN_CACHE_COLUMNS * column + MIN_COLUMNS * per_column + entry * MIN_ENTRIES

    def fixed(scratch: bool) -> list[tuple[str, int]]:
        held = ("prepared rows (a block; all in a scratch file)", buffers)
        uses = [
            ("interpreter and libraries", INTERPRETER),
            ("reading (a chunk, compressed and decoded, and a block)", reading),
            ("targets and weights", 32 * n_rows + 32 * n_valid),
            ("margins and residuals", 6 * 8 * n_rows + 8 * n_valid),
            ("trainer's vectors", Trainer.bytes_for(n_rows, 0, 0)),
            ("tables of a pass", family.workspace_bytes(block_rows, scratch)),
            ("new columns on their way", staging),
            held if scratch else ("prepared rows", rows),
        ]
        return [*uses, ("unknown letters and the like", extra)] if extra else uses

    def taken(scratch: bool) -> int:
        return sum(size for _, size in fixed(scratch))

    least_taken = min(taken(False), taken(True)) if scratch is None else taken(scratch)
    if scratch is None:
        comfortable = taken(False) + max(least_cache, COMFORTABLE_CACHE)
        scratch = comfortable > budget and taken(True) < taken(False)
    if budget < taken(scratch) + least_cache:
        smallest = least_taken + least_cache
        raise BudgetError(
            f"memory: a budget of {format_bytes(budget)} is too small; this job needs at least "
            f"{-(-smallest // MIB)}MiB: "
            + ", ".join(f"{name} {format_bytes(size)}" for name, size in fixed(scratch))
            + f", the smallest cache {format_bytes(least_cache)}"
            + ("" if extra else "; unknown letters in the rows would need more")
        )
    # beyond the least, which stays whole: else the directory of many row blocks could eat the cache
    spare = budget - taken(scratch) - least_cache
    max_columns = min(MAX_COLUMNS, MIN_COLUMNS + spare // (COLUMN_SHARE + per_column))
    spare -= (max_columns - MIN_COLUMNS) * per_column
    entries = min(MAX_ENTRIES, MIN_ENTRIES + spare // 3 // entry)
    spare -= (entries - MIN_ENTRIES) * entry
    cache_bytes = MIN_CACHE_COLUMNS * column + spare
    parts = (
        *fixed(scratch),
        ("columns gathered for the trainer", entry * entries),
        (f"directory of {max_columns} columns", max_columns * per_column),
        ("cache of columns", cache_bytes),
    )
    return Plan(
        parts, budget, cache_bytes, max_columns, entries, staging, scratch, rows if scratch else 0
    )
