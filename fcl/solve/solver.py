"""The steps in lock-step, in one process.

A pass, from the accepted anchor (w_e, b_e) and a proposed point (w', b'):

    A  margins of the proposed point           propose()
    B  search along the step; accept           propose()
    C  residuals at the accepted point         price()
    D  prices of the whole family; certificate price()

and between passes:

    select features, make their columns, admit them, evict others     admit()
    solve the local problem on the cached columns                     train()

The objective never rises from one anchor to the next. The steps are implemented in
:mod:`fcl.solve.passes` (all rows), :mod:`fcl.solve.outer` (anchors and certificates) and
:mod:`fcl.solve.local` (the trainer); other drivers run the same steps concurrently.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fcl.cache import ColumnCache
from fcl.data.prepared import PreparedRows
from fcl.errors import InputError
from fcl.features.prices import Prices
from fcl.solve.admission import Admission
from fcl.solve.exact import MOST_COLUMNS
from fcl.solve.make import make_local
from fcl.solve.outer import COUPLED_SHARE, LISTS_SHARE, TRAIN_SHARE, Certified, Outer
from fcl.solve.passes import Passes
from fcl.solve.polish import polish, polishable, polished_bound
from fcl.solve.run_state import RunState
from fcl.solve.sampling import LastStep, SampledPass, Sampler
from fcl.solve.select import Selection
from fcl.solve.state import Point, is_active
from fcl.solve.trainer import Solved
from fcl.solve.view import RowView
from fcl.types import Floats, Ids

#: Maximum steps of the trainer between two passes.
TRAIN_STEPS = 6
#: ... if a pass only reads lists of nonzeros, which takes less time than a step.
QUICK_PASS_STEPS = 3


def null_outer(passes: Passes, tol: float) -> Outer:
    """The outer loop at its start, at the model without features."""
    point, value = passes.null_model()
    if not math.isfinite(value):
        raise InputError(
            f"the objective of the model without features is {value}: C = {passes.objective.C:g} "
            "times the losses exceeds the range of float64; lower C (raise alpha), or scale the target"
        )
    if not passes.conditions.limit > 0.0:
        raise InputError(
            f"C {passes.objective.C:g} and {passes.objective.penalty.share_text}: their ratio is 0 in "
            "float64; lower C (raise alpha), or raise the share of the L1 norm in the penalty"
        )
    n_features = None if passes.sampled else passes.family.n_features
    share = TRAIN_SHARE
    if passes.objective.coupled:
        share = COUPLED_SHARE
    elif passes.family.lists_columns and not passes.objective.loss.clipped:
        share = LISTS_SHARE
    return Outer(passes.conditions, tol, n_features, point, value, share)


class Solver:
    """The state of a run and its steps.

    passes : over all rows.
    view, view_rows : rows of the trainer; by default all.
    sampler : draws samples of rows for the trainer, which replace ``view`` and ``view_rows``.
    cache : over the rows of the view, or over as many as the sampler has room for.
    entries : gathered entries that the trainer has room for.
    staging : bytes for columns on their way to the cache.
    hessian_columns : number of columns whose whole Hessian fits in memory.
    """

    def __init__(
        self,
        passes: Passes,
        cache: ColumnCache,
        *,
        tol: float,
        entries: int,
        staging: int,
        hessian_columns: int = MOST_COLUMNS,
        seed: int = 0,
        view: RowView | None = None,
        view_rows: PreparedRows | None = None,
        sampler: Sampler | None = None,
    ) -> None:
        self.passes = passes
        self.objective, self.family = objective, family = passes.objective, passes.family
        self.outer = null_outer(self.passes, tol)
        self.cache = cache
        self.sampler = sampler
        if sampler is not None:
            view = sampler.nothing(self.passes)
        if view is None:
            view = RowView.all_rows(objective, family)
            view_rows = passes.rows_here()
        most_rows = view.objective.n_rows if sampler is None else sampler.most
        self.local = make_local(
            view, cache, family, objective.n_rows, most_rows, entries, seed, hessian_columns
        )
        self.admission = Admission(passes, cache, self.local, staging, view_rows or passes.prepared)
        self._all_blocks = passes.blocks
        self._prices: Prices | None = None
        #: the threshold of these prices; infinite if they cannot be reused
        self._priced_to = math.inf
        self._loss = math.inf  # an upper bound of the sum of the losses at the anchor
        self._reused: Prices | None = None  # prices of the anchor that a change of C left valid
        self._frozen = Point(np.empty(0, np.int64), np.empty(0), 0.0)
        self._frozen_gradients = np.empty(0)
        self._totals: Any = 0.0, 0.0  # of the residuals and curvatures at the priced anchor
        self._solved: Solved | None = None
        #: why the trainer got another sample at the last certified anchor; empty if it did not
        self.redrawn = ""
        self._cut_short = False  # whether more features violated than were admitted last
        #: sorted ids, and curvatures over all rows, of features that may be cached at the anchor
        self._exact: tuple[Ids, Floats] | None = None

    # -- a pass --------------------------------------------------------------------------------

    def propose(self, proposed: Point) -> float:
        """Steps A and B: search from the anchor along the step, and accept a point; returns beta.

        The margins of the new anchor are always computed from its weights. Rejects an anchor whose
        objective exceeds the old one by more than rounding; beta is 0 then.
        """
        before = self.outer.objective
        beta = self._propose(proposed)
        if self.sampler is not None and self._solved is not None:
            decrease, promised = before - self.outer.objective, self._solved.decrease
            self.local.view.trust(decrease, promised, beta)
            self.sampler.step = LastStep(beta, decrease, promised)
        return beta

    def _propose(self, proposed: Point) -> float:
        outer, passes = self.outer, self.passes
        proposed = proposed.within(self.objective.penalty.limits)  # a path extrapolates
        passes.write_margins(proposed, self._all_blocks)
        found = passes.search(outer.point, outer.objective, proposed)
        if found.point is not None and found.beta != 1.0:
            passes.write_margins(found.point, self._all_blocks)
            found = passes.fit_at(found.point, outer.objective, found.beta, found.point.intercept)
        if found.point is None:
            return 0.0
        # margins first: an interrupt between the two statements leaves the old anchor in place
        passes.vectors.anchor = 1 - passes.vectors.anchor
        outer.accept(found.point, found.objective)
        return found.beta

    def price(self, number: int = 0) -> Certified:
        """Steps C and D: price the family at the anchor, certify it, and move the view to it.

        number : of the pass; it determines the features that a sampled family draws.
        """
        outer, passes, cached = self.outer, self.passes, self.cache.ids
        if self._reused is None:  # prices that are reused belong to the grid of this limit
            self._loss = outer.objective / self.objective.C
        passes.write_residuals(outer.point.intercept, self._all_blocks, self._loss)
        self._frozen = outer.frozen(cached)
        watch = np.concatenate([cached, self._frozen.ids])
        reused, self._reused = self._reused, None
        dual = passes.dual_point()
        if reused is None:
            self._priced_to = outer.threshold
            reused = passes.price(dual, watch, self._priced_to, passes.parts, number)
        self._prices = prices = reused
        bound = passes.bound_of(dual, prices)
        self._totals = passes.totals()  # now, since a search overwrites the residuals
        n = len(cached)
        self._frozen_gradients = prices.watched[n:]
        drawn = self.family.features_in_pass(number) if passes.sampled else None
        certified = outer.certify(prices, watch, bound, drawn)
        if outer.stands_still and polishable(passes, outer.point):
            polished = polish(passes.near(), outer, watch)
            certified = outer.raise_bound(polished.bound, polished.ids)
            self._prices, self._priced_to = polished.added_to(prices), math.inf
        self._exact = None
        if not self._wants_sample():
            if not self.local.view.complete:
                # candidates are included, since another pass over the rows would take as long again
                ids = np.concatenate([watch, self._prices.ids])
                order = np.argsort(ids, kind="stable")
                self._exact = ids[order], passes.curvature_sums(ids)[order]
            self.local.move_anchor(
                outer.point,
                passes.vectors.accepted,
                prices.watched[:n],
                self._exact_curvatures(cached),
                *self._totals,
            )
            self.local.return_to_anchor()
        return certified

    def change_C(self, C: float) -> None:
        """Continue at the priced anchor with another C, keeping rows, columns, sample and weights.

        Prices do not contain C. With the L1 norm, the next :meth:`price` therefore certifies the anchor
        from the prices of the last one, if these include all violators at the new C. With squares in the
        penalty it prices the family again, since the excess of the prices depends on C.
        """
        outer, passes, view = self.outer, self.passes, self.local.view
        self.objective = passes.objective = objective = replace(self.objective, C=C)
        passes.conditions = conditions = replace(passes.conditions, C=C)
        view.objective = replace(view.objective, C=C)
        value = passes.value(outer.point, passes.vectors.accepted)
        if self.sampler is not None and outer.objective > 0.0:
            self.sampler.size.change_objective(value / outer.objective)
        if self.sampler is not None:
            self.sampler.step = LastStep()
        reusable = objective.penalty.pure_l1 and not objective.penalty.limits.exact
        reusable = reusable and not passes.sampled
        if reusable and outer.priced and self._priced_to <= conditions.limit:
            self._reused = self._prices
        outer.change_conditions(conditions, value)
        self._solved = None

    def _wants_sample(self) -> bool:
        """Whether the trainer needs another sample of rows, which :meth:`admit` then draws."""
        sampler, cache = self.sampler, self.cache
        self.redrawn = ""
        if sampler is None:
            return False
        if not sampler.pending:
            now = SampledPass(
                self.outer.objective,
                self.outer.gap,
                sampler.step,
                cache.n,
                float(cache.used),
                len(self._frozen.ids),
            )
            self.redrawn = sampler.size.redraw_reason(now)
            sampler.pending = bool(self.redrawn)
        return sampler.pending

    def rounding(self) -> float:
        """The relative gap that rounding alone may leave at the anchor."""
        return self.passes.rounding(self.outer.point, self.outer.objective, self.outer.reach)

    def _exact_curvatures(self, ids: Ids) -> Floats | None:
        """Curvatures over all rows for cached features or candidates; None if the view is complete."""
        if self.local.view.complete:
            return None
        if self._exact is None:
            return self.passes.curvature_sums(ids)
        known, sums = self._exact
        return sums[np.searchsorted(known, ids)]

    # -- between passes ------------------------------------------------------------------------

    def admit(self) -> int:
        """Admit the most promising features to the cache; returns the number of columns evicted."""
        if self._prices is None:
            raise RuntimeError("admit() needs the prices of the anchor; call price() first")
        self._priced_to = math.inf  # other features will be watched
        self._cut_short = False
        if self.sampler is not None and self.sampler.pending:
            selection = self._draw(self.sampler, self._prices)
        else:
            selection = self.outer.select(
                self._prices, self._frozen, self._frozen_gradients, self.cache.ids
            )
            new = np.count_nonzero(~is_active(selection.weights))
            self._cut_short = bool(new >= self.outer.most_admitted)
        evicted, roomy = self.admission.admit(selection, self._exact_curvatures)
        # features that left may come back: more steps are worth it
        self._cut_short = self._cut_short and roomy
        return evicted

    def _draw(self, sampler: Sampler, prices: Prices) -> Selection:
        """Draw a new sample for the trainer, at the anchor; returns the features to cache over it.

        These are the features that would have entered anyway and all features with a weight. Cached
        features without a weight compete again as candidates.
        """
        outer, passes, point = self.outer, self.passes, self.outer.point
        ids = np.concatenate([self.cache.ids, self._frozen.ids])
        order = np.argsort(ids, kind="stable")
        ids, gradients = ids[order], prices.watched[order]
        weights = point.weights_of(ids)
        idle = ~is_active(weights)
        new = ~np.isin(prices.ids, ids)
        prices = replace(
            prices,
            ids=np.concatenate([prices.ids[new], ids[idle]]),
            gradients=np.concatenate([prices.gradients[new], gradients[idle]]),
        )
        weighted = Point(ids[~idle], weights[~idle], 0.0)
        nothing: Ids = np.empty(0, np.int64)
        selection = outer.select(prices, weighted, gradients[~idle], nothing)
        back = ~np.isin(weighted.ids, selection.ids)
        settled = np.zeros(int(back.sum()))
        self._take_rows(*sampler.draw(passes, point))
        none = gradients[:0]
        self.local.move_anchor(point, passes.vectors.accepted, none, none, *self._totals)
        self.local.return_to_anchor()
        return Selection(
            np.concatenate([selection.ids, weighted.ids[back]]),
            np.concatenate([selection.violations, settled]),
            np.concatenate([selection.gradients, gradients[~idle][back]]),
            np.concatenate([selection.weights, weighted.weights[back]]),
        )

    def _take_rows(self, view: Any, prepared: PreparedRows) -> None:
        """Give the trainer another sample of rows, and empty the cache."""
        mean = self.cache.mean
        self.local.working.evict(np.zeros(self.cache.n, bool))
        view.proximal = self.local.view.proximal
        self.local.change_view(view)
        if self.cache.resize(view.objective.n_rows, mean):
            self.local.change_room()
        self.admission.change_rows(prepared)

    def train(self) -> Solved:
        """Solve the local problem on the cached columns, from the anchor.

        If a pass only reads lists of nonzeros, it takes less time than a step, and comes after at most
        QUICK_PASS_STEPS; after one while many features are still to come, which change the weights more
        than a second step does.
        """
        reads = self.family.lists_columns and not self.objective.coupled
        reads = reads and self.local.view.complete
        steps = (1 if self._cut_short else QUICK_PASS_STEPS) if reads else TRAIN_STEPS
        self.local.trainer.most_decrease, self.local.trainer.foresees = self.outer.gap, reads
        self._solved = self.local.solve(self.outer.target(), steps)
        return self._solved

    def proposal(self) -> Point:
        """The trainer's point, for the next pass."""
        if self._solved is None:
            raise RuntimeError("proposal() needs a point of the trainer; call train() first")
        return self.local.point()

    # -- checkpoints ---------------------------------------------------------------------------

    def snapshot(self) -> RunState:
        """All state that the rest of the run depends on.

        Take it at an anchor, before :meth:`price`: margins, columns and gradients are then recomputed
        from it, bitwise the same.
        """
        sampler = self.sampler
        return RunState(
            outer=self.outer.state(),
            cached=self.cache.ids.copy(),
            seen=self.local.working.seen[: self.cache.n].copy(),
            trainer=self.local.trainer.state,
            sample=None if sampler is None else sampler.state(self.local.view.proximal),
            slots=self.cache.max_columns if self.cache.grows else 0,
        )

    def restore(self, state: RunState) -> None:
        """Resume from a :meth:`snapshot` of this driver or another; the cache must be empty.

        Makes the columns of the cached features again, in the order of the snapshot, as far as there is
        room now. Recomputes the objective, and proves bound and ``C_min`` again by pricing two points:
        the null model, which is the anchor of a new solver, and the point that gave the bound.
        """
        outer, passes = self.outer, self.passes
        null = outer.point
        outer.restore(state.outer)
        best, claimed = state.outer.best, state.outer.bound
        if not passes.sampled:
            prices, bound = self._bound_at(null, 0.0)
            largest = outer.conditions.largest(prices, np.empty(0, np.int64))
            outer.C_min = outer.conditions.penalty.least_C(largest)
            if best is not None:
                same = np.array_equal(best.covariates, null.covariates)
                if len(best.ids) or best.intercept != null.intercept or not same:
                    self._place(best)
                    _, bound = self._bound_at(best, outer.threshold)
                if bound < claimed and polishable(passes, best):  # as price() does
                    bound = max(bound, polished_bound(passes.near(), best, outer.threshold))
                outer.prove(best, bound, claimed)
        cached = state.cached
        if self.sampler is not None:
            sampled = None
            if state.sample is not None:
                sampled = self.sampler.restore(passes, state.sample)
                self.local.view.proximal = state.sample.proximal
            if sampled is None:  # columns are made once there are rows
                cached = np.empty(0, np.int64)
            else:
                self._take_rows(*sampled)
        if self.cache.grows and self.cache.extend(state.slots):
            self.local.change_room()
        self._place(outer.point)
        if not self.objective.intercept:
            outer.point = replace(outer.point, intercept=0.0)
        outer.confirm(passes.value(outer.point, passes.vectors.accepted))
        self.local.trainer.state = state.trainer
        kept = self.admission.admit_again(cached)
        self.local.working.seen[: len(kept)] = state.seen[kept]

    def _place(self, point: Point) -> None:
        """Write the margins of a point as the anchor's margins."""
        self.passes.write_margins(point, self._all_blocks)
        self.objective.add_covariates(point.covariates, self.passes.vectors.proposed)
        self.passes.vectors.anchor = 1 - self.passes.vectors.anchor

    def _bound_at(self, point: Point, threshold: float) -> tuple[Prices, float]:
        """The prices and the dual bound at a point whose margins are in place."""
        passes = self.passes
        loss = passes.value(point, passes.vectors.accepted) / self.objective.C
        passes.write_residuals(point.intercept, self._all_blocks, loss)
        return passes.prove(np.empty(0, np.int64), threshold)
