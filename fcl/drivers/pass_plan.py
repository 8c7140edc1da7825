"""The memory plan of a single pass over the rows, without trainer and cache."""

from __future__ import annotations

from fcl.drivers.plan import Plan, Sizes
from fcl.memory.ledger import (
    INTERPRETER,
    LIBRARIES,
    TABLES,
    TARGETS,
    Use,
    check_budget,
    sum_of,
)
from fcl.solve.passes import Vectors


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
