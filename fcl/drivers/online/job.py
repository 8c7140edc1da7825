"""A job of online learning: everything that is checked before the first row is learnt."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fcl.data import DataSet
from fcl.data.outputs import n_target_columns
from fcl.data.targets import check_class_weight
from fcl.drivers.problem import Problem, make_problem
from fcl.drivers.rows import Rows, check_data_set, weighted_by_class
from fcl.drivers.targets import EncodedTarget
from fcl.errors import InputError
from fcl.features import Spec
from fcl.features.base import Family
from fcl.features.hashed import HashedFamily, hashed_family
from fcl.features.rows import CHUNK_IDS, RowLister
from fcl.features.standardized import say_divided
from fcl.memory.ledger import INTERPRETER, LIBRARIES, TARGETS, MemoryPlan, check_budget, sum_of
from fcl.objective import find_loss, resolve_C
from fcl.online.base import PIECE, Learner, Point
from fcl.online.methods import kind_of, make_learner
from fcl.online.table import WeightGrid
from fcl.options import OnlineOptions, OnlineRunOptions
from fcl.types import Floats

#: Bytes of a feature in a model, id and weight, and of the pieces from which they are joined.
MODEL_BYTES = 32
#: Fewest weights for which a table of those that are not 0 has room.
LEAST_NONZERO = 4096


@dataclass(frozen=True)
class OnlinePlan(MemoryPlan):
    """How the memory budget is used."""

    keeps_blocks: bool  #: whether all raw rows stay in memory between passes


@dataclass(frozen=True, kw_only=True)
class OnlineJob(Problem):
    """The rows, features and options of a checked job.

    ``options.alpha`` is the gravity of the learner, which refers to weights with class weights; ``alpha``
    is the user's, which does not. ``start`` are the weights to start from, None for zeros.
    """

    options: OnlineOptions
    running: OnlineRunOptions
    view: RowLister
    factors: Floats | None
    alpha: float
    C: float
    class_weight: Any
    plan: OnlinePlan
    start: Point | None = None

    def new_learner(self) -> Learner:
        """A learner before its first row, with the weights to start from."""
        learner = make_learner(
            self.running.method, self.family.n_features, self.options, self.factors
        )
        if self.start is not None:
            learner.start_from(*self.start)
        return learner

    def described(self) -> dict[str, Any]:
        """The options for the model, which the certificate and resumed runs need, too."""
        own = asdict(self.options)
        running = asdict(self.running)
        del own["alpha"], running["memory"], running["rate"], running["C"]
        return {
            **own,
            **running,
            "features": self.features,
            "alpha": self.alpha,
            "class_weight": self.class_weight,
            "offset": self.train.data.offset is not None,
            "hash_bits": self.family.bits if isinstance(self.family, HashedFamily) else None,
        }


def make_online_job(
    data: DataSet,
    features: Spec | Family | str,
    options: OnlineOptions,
    running: OnlineRunOptions,
    *,
    endless: bool = False,
    labels: tuple[Any, Any] | None = None,
    valid: DataSet | None = None,
) -> OnlineJob:
    """Check everything that can be checked before the rows are read, and plan the memory.

    options : of the learner; their alpha, rate and seed are set here.
    endless : whether further rows follow those of ``data``.
    labels : the labels, if ``data`` need not have rows of both.

    Raises InputError: the message names the option, array or row. BudgetError, a subclass, names the
        smallest budget.
    """
    check_data_set("data", data)
    running = running.checked()
    if data.covariates:
        raise InputError(
            "covariates: online learners do not take covariates; add the columns to the features"
        )
    # 1.0 stands for a rate and an alpha that are not known yet
    rate = 1.0 if isinstance(running.rate, str) else running.rate
    options = replace(options, alpha=1.0, rate=rate, seed=running.seed)
    options.check_method(running.method)
    loss = find_loss(options.loss)
    if data.target is not None and (n_target_columns(data.target) > 1 or loss.couples):
        raise InputError(
            f"{data.target_name}: expected a target of one column, got {np.shape(data.target)}; learn "
            "one model for each column, or use FCLOnlineClassifier for several classes"
        )
    targets = None
    if labels is not None:
        targets = EncodedTarget(np.where(data.target == labels[1], 1.0, -1.0), labels, 1)
    problem = make_problem(data, features, loss, running, valid, targets=targets)
    family, train = problem.family, problem.train
    say_divided(family, data.column_names)
    if running.hash_bits is not None:
        family = hashed_family(family, running.hash_bits, data.rows)
    sum_weights = math.fsum(train.s)
    C, alpha = resolve_C(running.C, running.alpha, sum_weights)
    by_class = check_class_weight(running.class_weight, problem.labels)
    if by_class is not None:
        train = weighted_by_class(train, by_class)
    options = replace(options, alpha=alpha * sum_weights / math.fsum(train.s))
    running = replace(running, block_rows=block_rows_of(running, family, train))
    view = family.row_view()
    if options.weights == "q":
        options = replace(options, weights=grid_for(family, view, train, running.block_rows))
    most = None if endless else view.most_listed(train.n)
    options, plan = OnlinePlanner(family, running, train, problem.valid, most).chosen(options)
    return OnlineJob(
        **vars(replace(problem, family=family, train=train, sum_weights=sum_weights)),
        options=options,
        running=running,
        view=view,
        factors=penalty_factors(family),
        alpha=alpha,
        C=C,
        class_weight=by_class,
        plan=plan,
    )


def grid_for(family: Family, view: RowLister, rows: Rows, block_rows: int) -> str:
    """The grid for weights ``q``, by the features of the first block of rows, such as ``q2.13``.

    Raises InputError if all features of these rows are 0.
    """
    total, count = 0.0, 0
    _, _, raw = next(iter(family.read_rows(rows.data.rows, block_rows, rows.keep)))
    for chunk in view.chunks(raw):
        values = np.asarray(chunk.values, np.float64)
        total += float(values @ values)
        count += int(np.count_nonzero(values))
    if not count:
        raise InputError(
            f"{rows.data.name}: weights q need features other than 0 in the first rows, to find their "
            "size; name the grid, such as q2.13"
        )
    return WeightGrid.fitting(math.sqrt(total / count)).text


def block_rows_of(running: OnlineRunOptions, family: Family, train: Rows) -> int:
    """Rows of a block: at most as many as asked for, and as the rows' width allows."""
    return min(running.block_rows, family.most_block_rows(), -(-train.n // 64) * 64)


def penalty_factors(family: Family) -> Floats | None:
    """The penalty factors of all features, float64 (p,); None if all are 1."""
    p = family.n_features
    if type(family).penalty_factors is Family.penalty_factors:
        return None
    pieces = [np.arange(first, min(first + PIECE, p)) for first in range(0, p, PIECE)]
    found = (family.penalty_factors(piece) for piece in pieces)
    if all((piece == 1.0).all() for piece in found):
        return None
    return np.concatenate([family.penalty_factors(piece) for piece in pieces])


@dataclass(frozen=True)
class OnlinePlanner:
    """Plans the memory of learning from some rows.

    most_touched : the most features that the rows can have; None if that is not known.
    """

    family: Family
    running: OnlineRunOptions
    train: Rows
    valid: Rows | None = None
    most_touched: int | None = None

    def chosen(self, options: OnlineOptions) -> tuple[OnlineOptions, OnlinePlan]:
        """The options with a table of all weights or of those that are not 0, and their plan.

        The second is chosen where it is smaller even if the rows' features all have a weight, or where
        the first does not fit in the budget; it then has as much room as the budget allows. Raises what
        :meth:`plan` raises.
        """
        p, memory = self.family.n_features, self.running.memory
        if not kind_of(self.running.method, options).drops_zeros(options):
            return options, self.plan(options)
        touched = min(p, self.most_touched or p)
        one, every = (
            self.plan(replace(options, most_nonzero=n), check=False).total for n in (1, touched)
        )
        dense = self.plan(options, check=False).total
        each = (every - one) / max(touched - 1, 1)
        room = int((memory - one) / each) if each else touched
        is_small = room < LEAST_NONZERO and dense < one + LEAST_NONZERO * each
        if not (dense <= min(every, memory) or is_small):
            options = replace(options, most_nonzero=min(touched, max(room, LEAST_NONZERO)))
        return options, self.plan(options)

    def plan(self, options: OnlineOptions, check: bool = True) -> OnlinePlan:
        """Plan the memory; raises BudgetError that names the smallest budget that works.

        check : whether to compare the plan with the budget.
        """
        family, running, train = self.family, self.running, self.train
        p, kind = family.n_features, kind_of(running.method, options)
        kept, title = p, f"table of weights of {p:,} features"
        if options.most_nonzero is not None:
            kept = min(p, options.most_nonzero)
            title = f"table of at most {kept:,} weights that are not 0"
        chosen = [r for r in (train, self.valid) if r is not None]
        block = max(r.block_bytes(running.block_rows) for r in chosen)
        chunk = max(r.data.rows.reading_bytes for r in chosen)
        parts = [
            (LIBRARIES, INTERPRETER),
            (TARGETS, sum(r.held_bytes + 16 * r.n for r in chosen)),
            (title, kind.bytes_for(p, options)),
            ("rows of a chunk as lists of features", 3 * 16 * CHUNK_IDS),
            ("reading ahead (three blocks, and a chunk of the storage)", 3 * block + chunk),
            ("weights while they are counted or saved", kind.settled_bytes_for(kept)),
        ]
        if type(family).penalty_factors is not Family.penalty_factors:
            parts.append(("penalty factors", 8 * p))
        touched = kept if self.most_touched is None else min(kept, self.most_touched)
        each = MODEL_BYTES + kind.saved_bytes_for(options)
        parts.append((f"model and saved state of {touched:,} features", touched * each))
        if check:
            advice = (
                "; choose a method with smaller weights (ftrl and truncated-gradient have float32, ogd "
                "has q2.13 of 3 bytes a feature) or fewer features, raise memory, or give hash_bits, "
                "with which features share weights"
            )
            check_budget(running.memory, parts, "online learning", advice)
        rows = block * -(-train.n // running.block_rows)
        keeps = running.passes > 1 and sum_of(parts) + rows <= running.memory
        if keeps:
            parts.append(("all rows, for the next passes", rows))
        return OnlinePlan(tuple(parts), running.memory, keeps)
