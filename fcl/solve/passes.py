"""The steps of a pass over all rows: margins, search, residuals, prices, bound.

This module holds the vectors over rows and fills them in parts: margins and residuals by row blocks,
prices by groups of features. Several processes may do the parts in any order on the same memory.

Arrays over rows are (n,), or (K, n) with K outputs; prices are (features,) or (features, K).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcl.arrays import Allocate, Arrays, fresh, of_outputs
from fcl.data.prepared import PreparedRows, Readers
from fcl.features.base import Family, MeasuringPricer, is_sampled
from fcl.features.prices import (
    Box,
    PriceQuery,
    Prices,
    Progress,
    RowVector,
    grid_step,
    ones,
    silent,
)
from fcl.features.run import Joining, row_vectors, run
from fcl.features.steps import common_step, rounded_to, useful_step
from fcl.objective import ROUNDING, Objective
from fcl.objective.block_sums import EPSILON
from fcl.objective.unpenalised import EXACT, check_null
from fcl.parallel import SERIAL, cut
from fcl.solve.conditions import Conditions
from fcl.solve.margins import write_features
from fcl.solve.named import apart, with_named
from fcl.solve.search import search
from fcl.solve.state import Anchor, Point
from fcl.types import Floats, Ids

#: The estimate of rounding assumes the worst case. It is added to the largest violation up to this share;
#: a larger one means that the margins do not resolve the violation.
MOST_ROUNDING = 1e-3
#: Share to which the losses of the null model fall in a fit that has not reached the minimum.
FALLING = 0.5
#: Maximum candidates that the pricer reports from each of its groups (positions of k-mers): neighbours of
#: one strong motif would fill the list otherwise. More than 64 matter only while tens of thousands of
#: features have yet to enter.
KEEP_PER_GROUP = 256
#: Multiple of these candidates that the pricer lists for each output of a group penalty. A feature that
#: no list has may have the smallest price of every list, so full lists leave the bound on its norm loose.
GROUPED_LISTS = 16


class Vectors:
    """Vectors over all rows, float64 (n_rows,), or (K, n_rows) with K outputs, unless stated otherwise.

    margins : of the anchor and of the proposed point, without intercepts; ``anchor`` is the index of the
        anchor's margins.
    residuals : at the anchor; during a search, the difference of the margins.
    curvatures : at the anchor.
    units : int64, the residuals as multiples of their grid; all pricing processes write the same values.
    loss : an upper bound of the sum of the losses at the anchor, on which the grid of coupled outputs
        depends. Processes that share residuals have to agree on it.
    """

    def __init__(self, n_rows: int, allocate: Allocate = fresh, n_outputs: int = 1) -> None:
        made = self.arrays(n_rows, n_outputs).allocate(allocate)
        self.margins = [made["margins0"], made["margins1"]]
        self.residuals, self.curvatures = made["residuals"], made["curvatures"]
        self.units = made["units"]
        self.anchor = 0
        self.loss = math.inf

    @staticmethod
    def arrays(n_rows: int, n_outputs: int = 1) -> Arrays:
        """The vectors by name."""
        shape = *of_outputs(n_outputs), n_rows
        return Arrays(
            ("f8", shape, "margins0 margins1 residuals curvatures"), ("i8", shape, "units")
        )

    @property
    def accepted(self) -> Floats:
        return self.margins[self.anchor]

    @property
    def proposed(self) -> Floats:
        return self.margins[1 - self.anchor]


@dataclass(frozen=True)
class Searched:
    """The result of a search along a step.

    ``point`` has the lowest objective on the line, or is None if the anchor has. Unless ``beta`` is 1,
    the caller must write its margins from its weights and then call :meth:`Passes.fit_at`.
    """

    beta: float
    point: Point | None
    objective: float


@dataclass(frozen=True)
class DualPoint:
    """The residuals at the anchor that are priced and that prove a bound.

    residuals : on the grid of the family's sums, balanced against covariates.
    imbalance : largest change of a constant column's price by balancing.

    With K outputs, K vectors and float64 (K,).
    """

    residuals: Any
    imbalance: Any


class Passes:
    """The steps of a pass, over vectors that may be shared.

    objective : over all rows.
    family, prepared : over all rows.
    keep : maximum candidates that the pricer reports from each of its groups.
    most_threads : threads for whose tables there is memory.
    """

    def __init__(
        self,
        objective: Any,
        family: Family,
        prepared: PreparedRows,
        vectors: Vectors,
        keep: int = KEEP_PER_GROUP,
        most_threads: int = 1,
    ) -> None:
        self.objective = objective
        self.family = family
        self.prepared = prepared
        self.vectors = vectors
        self.keep = keep
        self.listed = keep * (GROUPED_LISTS if objective.penalty.grouped else 1)
        #: threads that compute features
        self.team = objective.team.at_most(most_threads) if family.thread_safe else SERIAL
        self.readers = Readers(prepared)
        self.pricer = family.pricer(prepared, self.listed, self.team)
        self._joining = Joining(
            self.listed, keep, family.penalty_factors, objective.penalty.grouped
        )
        #: called from time to time with the share of prices that are done
        self.on_progress: Progress = silent
        self.conditions = Conditions(objective.penalty, objective.C, family.penalty_factors)
        self.sampled = is_sampled(family)
        self._blocks = range(prepared.n_blocks)

    @property
    def blocks(self) -> range:
        return self._blocks

    def rows_here(self) -> PreparedRows:
        """All prepared rows, in this process."""
        return self.prepared

    def select(self, rows: Ids, chosen: PreparedRows) -> None:
        """Prepare some rows, int64, increasing, as the rows of ``chosen``."""

        def block(number: int) -> None:
            with self.readers.one() as prepared:
                self.family.select(prepared, rows, chosen, number)

        self.team.map(block, range(chosen.n_blocks))

    def near(self) -> Passes:
        """The steps at the same anchor, with rows and vectors in this process."""
        return self

    @property
    def parts(self) -> range:
        return range(self.pricer.n_parts)

    def measure(self, parts: range) -> None:
        """Measure some parts of a family of standardised features, before any other step."""
        assert isinstance(self.pricer, MeasuringPricer)
        self.pricer.measure(self.objective.s, parts)

    def null_model(self) -> tuple[Point, float]:
        """The model without features and its objective; writes its margins as the anchor's."""
        objective, margins = self.objective, self._start()
        before = objective.loss_sum(margins)
        q = 0 if objective.covariates is None else objective.n_free
        start = Point.nothing(objective.outputs, q)
        b, v = self.fit_unpenalised(margins, 0.0, start.covariates)
        if objective.covariates is not None:
            value, last = objective.loss_sum(margins), before
            # where covariates separate the classes, the squared hinge falls to 0 in many short steps
            while EXACT * before < value <= FALLING * last:
                _, more = self.fit_unpenalised(margins, 0.0, start.covariates)
                v, last = v + more, value
                value = objective.loss_sum(margins)
            check_null(objective, margins, v)
        point = replace(start, intercept=b, covariates=v)
        return point, self.value(point, margins)

    def _start(self) -> Any:
        """Write the margins of the model without features, and return them."""
        margins, offset = self.vectors.accepted, self.objective.offset
        margins[:] = 0.0 if offset is None else offset
        return margins

    def fit_unpenalised(self, margins: Floats, guess: float, v: Floats) -> tuple[float, Floats]:
        """The best intercept, or coefficients of covariates, which are added to the margins.

        They are added once, so that equal weights and coefficients give bitwise equal margins; the
        search for the coefficients ``v`` overwrites the residuals.
        """
        objective = self.objective
        if objective.intercept_apart:
            return objective.best_intercept(margins, guess), v
        moved = self.vectors.residuals
        moved[:] = margins
        objective.add_covariates(v, moved)
        if objective.n_free:
            v = v + objective.fit_unpenalised(moved, guess=guess).x
        objective.add_covariates(v, margins)
        return 0.0, v

    def write_margins(self, point: Point, blocks: range) -> None:
        """Step A: margins of the proposed point without covariates, on some row blocks."""
        out, offset = self.vectors.proposed, self.objective.offset

        def some(blocks: range) -> None:
            with self.readers.one() as prepared:
                write_features(self.family, prepared, point, out, blocks)
            if offset is not None:
                for number in blocks:
                    rows = self.prepared.rows_of(number)
                    out[..., rows] += offset[..., rows]

        self.team.map(some, cut(blocks, self.team.most))

    def search(self, anchor: Point, value: float, proposed: Point) -> Searched:
        """Step B: the best point on the line from the anchor through the proposed one."""
        vectors = self.vectors
        found = search(
            self.objective,
            Anchor(anchor, vectors.accepted, value),
            proposed,
            self._step_to(proposed),
            self.family.penalty_factors,
        )
        if found.beta == 0.0:
            return Searched(0.0, None, value)
        if found.beta == 1.0:
            return self.fit_at(proposed, value, 1.0, found.intercept)
        point = anchor.toward(proposed, found.beta, found.intercept)
        point = point.within(self.objective.penalty.limits)
        if not self.objective.outputs and self.family.rounds_weights(self.objective.n_rows):
            step = common_step(proposed.weights)
            if step <= useful_step(proposed.weights):  # else the trainer did not round them
                weights = rounded_to(point.weights, min(step, useful_step(point.weights)))
                point = Point.make(point.ids, weights, point.intercept, point.covariates)
        return Searched(found.beta, point, found.objective)

    def _step_to(self, proposed: Point) -> Any:
        """The difference of the margins; overwrites the residuals."""
        vectors, step = self.vectors, self.vectors.residuals
        np.subtract(vectors.proposed, vectors.accepted, out=step)
        self.objective.add_covariates(proposed.covariates, step)
        return step

    def fit_at(self, point: Point, value: float, beta: float, guess: float) -> Searched:
        """Fit the intercept and covariates of a point, and add the latter to the proposed margins.

        Rejects the point if its objective exceeds ``value``, the anchor's, by more than rounding.
        """
        margins = self.vectors.proposed
        b, v = self.fit_unpenalised(margins, guess, point.covariates)
        point = Point(point.ids, point.weights, b, v)
        objective = self.value(point, margins)
        if not objective <= value * (1.0 + ROUNDING):
            return Searched(0.0, None, value)
        return Searched(beta, point, min(objective, value))

    def value(self, point: Point, margins: Floats) -> float:
        return self.objective.value(self.conditions.value(point), margins, point.intercept)

    def write_residuals(self, b: float, blocks: range, loss: float = math.inf) -> None:
        """Step C: residuals, closed on their grid, and curvatures at the anchor, on some row blocks.

        loss : an upper bound of the sum of the losses at the anchor, for :attr:`Vectors.loss`.
        """
        vectors, objective = self.vectors, self.objective
        vectors.loss = loss

        def block(number: int) -> None:
            rows, residuals = objective.rows_of(number), vectors.residuals
            objective.residuals_curvatures_of(
                rows, vectors.accepted, residuals, vectors.curvatures, b
            )
            if objective.least_step and objective.covariates is None:  # else once they are balanced
                step = self._step_for(objective.residual_sum(residuals, loss))
                objective.close(rows, residuals, max(step, objective.least_step))

        objective.team.map(block, blocks)

    def dual_point(self) -> DualPoint:
        """The residuals that are now in the vectors, truncated to their grid."""
        vectors, objective = self.vectors, self.objective
        values = vectors.residuals
        total = objective.residual_sum(values, vectors.loss)
        if objective.covariates is not None:
            total *= 2.0  # room for the change by balancing
            step = self._step_for(total)
            values = objective.balanced(
                values, vectors.curvatures, vectors.accepted, step, lambda r: RowVector(r, step)
            )
            total = max(total, objective.residual_sum(values, vectors.loss))
        residuals = self._on_grid(values, self._step_for(total), vectors.units)
        return DualPoint(residuals, objective.imbalance(residuals))

    def _step_for(self, total: float) -> float:
        """Step of the grid of residuals whose absolute values sum to ``total``; 0 for none."""
        step = grid_step(total, self.family.integer_bound)
        return max(step, self.objective.least_step) if step else 0.0

    def _on_grid(self, values: Any, step: Any, units: Any = None) -> Any:
        """Numbers of the rows on a grid; see :func:`fcl.features.run.row_vectors`."""
        return row_vectors(values, step, units)

    def price(
        self, dual: DualPoint, watch: Ids, threshold: float, parts: range, number: int = 0
    ) -> Prices:
        """Step D: prices of some parts of the family at a dual point.

        Includes the excess that the bound needs if the penalty has squares.  number : of the pass; it
        determines the features that a sampled family draws.
        """
        query = self._query(watch, threshold, parts, dual.imbalance, number)
        limits = self.objective.penalty.limits
        if not len(limits.ids):
            return self._run(query, dual.residuals)
        wider = with_named(query, self.conditions)
        prices = self._run(wider, dual.residuals)
        return apart(prices, wider, query, self.conditions, self.keep)

    def _query(
        self, watch: Ids, threshold: float, parts: range, imbalance: Any, number: int
    ) -> PriceQuery:
        """The question about some parts of the family."""
        penalty, level, box = self.objective.penalty, None, None
        if not penalty.pure_l1 or penalty.limits.boxed:
            level = self.conditions.limit * (1.0 - 1e-12)
        if penalty.limits.boxed:
            box = Box(penalty.limits.low, penalty.limits.high, self.conditions.ridge)
        side = penalty.limits.side
        return PriceQuery(parts, watch, threshold, level, imbalance, number, side=side, box=box)

    def _run(self, query: PriceQuery, rows: Any) -> Prices:
        """The prices of a query, given the numbers of the rows."""
        progress = self.on_progress if query.find else silent
        return run(self.pricer, query, rows, self._blocks, progress, self._joining)

    def curvature_sums(self, ids: Ids, parts: range | None = None) -> Floats:
        """sum_i q_i phi_ij^2 over all rows for some features; 0 for features outside ``parts``."""
        values, bound = self.vectors.curvatures, self.family.integer_bound**2
        totals = self.objective.totals(values)
        steps = np.array([grid_step(float(total), bound) for total in np.ravel(totals)])
        return self._sums(ids, self._on_grid(values, steps.reshape(np.shape(totals))), 2, parts)

    def _sums(self, ids: Ids, rows: Any, power: int, parts: range | None = None) -> Floats:
        """Sums of numbers of the rows times features to a power; 0 for features outside ``parts``."""
        parts = self.parts if parts is None else parts
        query = PriceQuery(parts, ids, find=False, power=power)
        return self._run(query, rows).watched

    def gradients(self, ids: Ids) -> Floats:
        """g_j of some features at the residuals in the vectors."""
        return self._sums(ids, self.dual_point().residuals, 1)

    def counts(self, ids: Ids) -> Ids:
        """Number of rows where each of some features is not 0, int64 (k,)."""
        return np.rint(self._sums(ids, ones(), 0)).astype(np.int64)

    def bound(
        self,
        dual: DualPoint,
        largest: float,
        excess: float,
        by_output: Floats | None = None,
        cost: float = 0.0,
        widest: float = math.inf,
    ) -> float:
        """The dual bound, given the largest |g~_j| / f_j and the excess of the whole family.

        by_output : with K outputs the largest |g~_jk| / f_j of each, float64 (K,); outputs that only
            share features are scaled separately.
        cost, widest : as of :class:`Prices`, of the whole family.

        If the pass drew a sample of the features, the bound is for the problem restricted to the sample.
        """
        objective, residuals = self.objective, dual.residuals
        of: Any = by_output if objective.bounds_apart else largest
        slack = objective.slack(residuals, self.vectors.accepted)
        return objective.dual_bound(residuals, of, excess, slack, cost, widest)

    def prove(self, watch: Ids, threshold: float, number: int = 0) -> tuple[Prices, float]:
        """Prices of the whole family at the residuals in the vectors, and the bound that they prove."""
        dual = self.dual_point()
        prices = self.price(dual, watch, threshold, self.parts, number)
        return prices, self.bound_of(dual, prices)

    def bound_of(self, dual: DualPoint, prices: Prices) -> float:
        excess = math.fsum(prices.excess)
        own = prices.by_output, prices.cost, prices.widest
        return self.bound(dual, prices.largest, excess, *own)

    def rounding(self, point: Point, value: float, reach: float) -> float:
        """Estimate the relative gap that rounding alone may leave at the anchor.

        Rounding of a margin moves the objective in proportion to the row's residual, and moves slopes, by
        which the dual point must then be scaled.

        value : objective of the anchor.  reach : bound of |phi_ij| / f_j, see
        :class:`fcl.features.prices.Prices`.
        """
        values, slope = self.rounded(point, reach=reach)
        own = self.conditions.value(point)
        absolute = EPSILON * value + values + slope * own + slope * slope * value
        return absolute / value if value > 0.0 else 0.0

    def resolved(
        self, point: Point, shift: float, reach: float, violation: float
    ) -> tuple[float, bool]:
        """The largest violation with an allowance for rounding, and whether the margins resolve it."""
        rounded = self.rounded(point, shift, reach)[1]
        most = MOST_ROUNDING * violation
        return violation + min(rounded, most), rounded <= most

    def rounded(self, point: Point, shift: float = 0.0, reach: float = 0.0) -> tuple[float, float]:
        """Estimated largest change of the objective, and of any slope, by rounding of the margins.

        shift : added to the intercept later.
        """
        objective, n = self.objective, min(self.objective.n_rows, self.objective.block_rows)
        values, slopes = objective.rounding(self.vectors.accepted, point.intercept, shift)
        scale = EPSILON * objective.C * math.sqrt(n)  # rounding of sums over the rows of a block
        return scale * values, scale * slopes * reach / objective.penalty.rho

    def totals(self) -> Any:
        """Sums of residuals and curvatures over all rows, a pair; with K outputs float64 (K,) each."""
        objective, vectors = self.objective, self.vectors
        return objective.totals(vectors.residuals), objective.totals(vectors.curvatures)


def local_passes(
    objective: Objective, family: Family, prepared: PreparedRows, most_threads: int = 1
) -> Passes:
    """The steps of a pass with vectors in the memory of this process."""
    vectors = Vectors(objective.n_rows, n_outputs=objective.n_outputs)
    return Passes(objective, family, prepared, vectors, most_threads=most_threads)
