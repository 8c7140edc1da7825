"""Make the trainer's side for a view of some rows."""

from __future__ import annotations

from fcl.cache import LiveColumns
from fcl.features.base import Family
from fcl.solve.coupled import CoupledTrainer
from fcl.solve.exact import MOST_COLUMNS
from fcl.solve.inner import InnerModel
from fcl.solve.local import LocalProblem
from fcl.solve.separate import SeparateProblem
from fcl.solve.single import SingleTrainer
from fcl.solve.view import RowView


def make_local(
    view: RowView,
    cache: LiveColumns,
    family: Family,
    n_rows: int,
    most_rows: int,
    entries: int,
    seed: int,
    hessian_columns: int = MOST_COLUMNS,
) -> LocalProblem:
    """The local problem of a view, and its trainer.

    Outputs whose penalty or loss couples them are trained together, others one after the other.

    n_rows : of the whole problem.  most_rows : of a view.
    entries, seed : of :class:`fcl.solve.inner.InnerModel`.
    hessian_columns : number of columns whose whole Hessian fits in memory.
    """
    factors, objective = family.penalty_factors, view.objective
    inner = InnerModel(
        most_rows,
        cache.max_columns,
        entries,
        seed,
        family.binary,
        objective.block_rows,
        objective.team,
        family.lists_columns,
    )
    if objective.coupled:
        return LocalProblem(view, cache, CoupledTrainer(inner, objective.outputs), factors)
    trainer = SingleTrainer(inner, hessian_columns, family.quick_passes)
    if objective.outputs:
        return SeparateProblem(view, cache, trainer, factors)
    # a limit need not be a multiple of the step
    rounds = family.rounds_weights(n_rows) and not objective.penalty.limits.exact
    return LocalProblem(view, cache, trainer, factors, rounds)
