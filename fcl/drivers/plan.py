"""The memory plan: what a run will hold, named and added up before it starts.

``--memory`` is one number and covers everything: the interpreter, the rows, the vectors over rows, the
tables of a pass, and what is left goes to the cache of columns. A budget too small is refused with the
smallest that works.
"""

from __future__ import annotations

from dataclasses import dataclass

from fcl.cache import ColumnCache
from fcl.errors import BudgetError
from fcl.features.base import Family
from fcl.solve.state import WorkingSet
from fcl.solve.trainer import Trainer
from fcl.units import format_bytes

MIB = 1 << 20
#: Interpreter, numpy, numba with its compiler, the readers: 190 MiB measured at the end of a cold run.
INTERPRETER = 256 * MIB
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
    side_bytes: int = 0,
) -> Plan:
    """Divide the budget.

    reading : bytes that reading the data holds at once.  side_bytes : of what goes with prepared rows.
    Raises BudgetError naming the smallest budget that works.
    """

    def prepared(n: int) -> int:
        blocks = -(-n // block_rows)
        record = 1
        for axis in family.record_shape(block_rows):
            record *= axis
        return blocks * record

    rows_in_memory = prepared(n_rows) + prepared(n_valid)
    column = ColumnCache.largest_column(n_rows, block_rows, family.binary)
    staging = max(min(STAGING, 64 * column), column)

    def per_column() -> int:
        directory = ColumnCache.directory_bytes(1, n_rows, block_rows)
        return directory + WorkingSet.bytes_for(1) + Trainer.bytes_for(0, 1, 0)

    fixed = [
        ("interpreter and libraries", INTERPRETER),
        ("reading (a chunk, compressed and decoded, and a block)", reading),
        ("targets and weights", 32 * n_rows + 32 * n_valid),
        ("margins and residuals", 5 * 8 * n_rows + 8 * n_valid),
        ("trainer's vectors", Trainer.bytes_for(n_rows, 0, 0)),
        ("tables of a pass", family.workspace_bytes(block_rows) + side_bytes),
        ("new columns on their way", staging),
    ]
    taken = sum(size for _, size in fixed)
    entry = Trainer.bytes_for(0, 0, 1, family.binary)
    least_columns = MIN_CACHE_COLUMNS * column + MIN_COLUMNS * per_column() + entry * MIN_ENTRIES
    one_record = rows_in_memory // max(1, -(-n_rows // block_rows))
    smallest = taken + least_columns + min(one_record, rows_in_memory)
    if budget < smallest:
        raise BudgetError(
            f"memory: a budget of {format_bytes(budget)} is too small; this job needs at least "
            f"{-(-smallest // MIB)}MiB: "
            + ", ".join(f"{name} {format_bytes(size)}" for name, size in fixed)
            + f", rows of one block {format_bytes(one_record)}"
            + f", the smallest cache {format_bytes(least_columns)}"
        )
    scratch = budget - taken - rows_in_memory < max(least_columns, COMFORTABLE_CACHE) and (
        rows_in_memory > one_record
    )
    held = one_record if scratch else rows_in_memory
    left = budget - taken - held
    max_columns = min(MAX_COLUMNS, max(MIN_COLUMNS, left // (COLUMN_SHARE + per_column())))
    left -= max_columns * per_column()
    entries = min(MAX_ENTRIES, max(MIN_ENTRIES, left // 3 // entry))
    cache_bytes = left - entry * entries
    parts = (
        *fixed,
        ("prepared rows" + (" (a block; the rest in a scratch file)" if scratch else ""), held),
        ("columns gathered for the trainer", entry * entries),
        (f"directory of {max_columns} columns", max_columns * per_column()),
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
        rows_in_memory if scratch else 0,
    )
