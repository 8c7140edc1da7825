"""The steps in their order, over arrays: no process, no clock, no file.

A pass, at a proposed point (w', b') with the accepted anchor (w_e, b_e) at hand:

    A  margins of the proposed point           propose()
    B  search along the step, accept           propose()
    C  residuals at the accepted point         price()
    D  prices of the whole family; certificate price()

and between passes:

    select features, make their columns, admit them, evict others     admit()
    solve the local problem on the cached columns                     train()

The objective never rises from one anchor to the next, and the certificate of an anchor is exact
whatever the trainer does meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.cache import ColumnCache, StagedColumns, evict_order, fit_in_room
from fcl.data.prepared import PreparedRows
from fcl.errors import InputError
from fcl.features.base import Family, Prices
from fcl.kernels import descent
from fcl.objective import ROUNDING, Objective, relative_gap
from fcl.solve.search import search
from fcl.solve.select import SAME_GRADIENT, Selection, select
from fcl.solve.state import Anchor, Floats, Ids, Point, WorkingSet
from fcl.solve.trainer import Solved, Trainer
from fcl.solve.view import RowView

#: Candidates that the pricer reports from each of its groups (positions of k-mers): neighbours of one
#: strong motif would fill the list otherwise.
KEEP_PER_GROUP = 16
#: Features admitted after a pass: at least so many, or as many as are active.
LEAST_ADMITTED = 512
#: The trainer stops at this share of the largest violation over the family.
TRAIN_SHARE = 0.1
TRAIN_STEPS = 6


@dataclass(frozen=True)
class Certified:
    """What a pass proved of the anchor."""

    objective: float
    bound: float  #: the best over all passes
    gap: float  #: relative
    max_violation: float  #: upper bound of |C g_j| over the family
    n_priced: int


@dataclass(frozen=True)
class Admitted:
    """What changed in the cache."""

    admitted: int
    equal: int  #: left out, since an equal column is cached
    evicted: int


class Solver:
    """The state of a run and its steps.

    Parameters
    ----------
    objective, family, prepared
        Over all rows.
    view : RowView
        Rows of the trainer; by default all.
    cache : ColumnCache
        Over the rows of the view.
    entries : int
        Room of the trainer for gathered entries.
    staging : int
        Bytes for columns on their way to the cache.
    """

    def __init__(
        self,
        objective: Objective,
        family: Family,
        prepared: PreparedRows,
        cache: ColumnCache,
        *,
        tol: float,
        entries: int,
        staging: int,
        seed: int = 0,
        view: RowView | None = None,
    ) -> None:
        self.objective = objective
        self.family = family
        self.prepared = prepared
        self.tol = tol
        self.view = view or RowView.all_rows(prepared, objective)
        self.working = WorkingSet(cache)
        self.pricer = family.pricer(prepared, KEEP_PER_GROUP)
        self.maker = family.column_maker(self.view.prepared, staging)
        self.trainer = Trainer(
            self.view.objective.n_rows, cache.max_columns, entries, seed, family.binary
        )
        n = objective.n_rows
        self._margins = np.zeros(n)  # of the proposed point
        self._step = np.empty(n)
        self._residuals = np.empty(n)
        self._curvatures = np.empty(n)
        margins = np.zeros(n)
        b = objective.best_intercept(margins)
        null = objective.value(0.0, margins, b)
        if not math.isfinite(null):
            raise InputError(
                f"the objective of the model without features is {null}: C = {objective.C:g} times the "
                "losses is more than a float64 holds; lower C (raise alpha), or scale the target"
            )
        point = Point(np.empty(0, np.int64), np.empty(0), b)
        self.anchor = Anchor(point, margins, null)
        self.bound = -math.inf
        self.max_violation = math.inf
        self.C_min = math.nan  #: known after the first pricing
        self._priced: Anchor | None = None  # the anchor that max_violation belongs to
        self._gap = math.inf  # after the last pass
        self._sharpness = 1.0  # lowers the target of the trainer while the gap stands still
        self._prices: Prices | None = None
        self._frozen_gradients = np.empty(0)
        self._solved: Solved | None = None

    # -- a pass --------------------------------------------------------------------------------

    def propose(self, proposed: Point) -> float:
        """Steps A and B: search between anchor and proposed point, accept. Returns beta.

        The new anchor's margins are made from its weights, also where beta is not 1; an anchor whose
        objective is above the old one's by more than rounding is not accepted (beta = 0).
        """
        self.family.write_margins(self.prepared, proposed.ids, proposed.weights, self._margins)
        found = search(self.objective, self.anchor, proposed, self._margins, self._step)
        if found.beta == 0.0:
            return 0.0
        point = proposed
        if found.beta != 1.0:
            point = self.anchor.point.toward(proposed, found.beta, found.intercept)
            self.family.write_margins(self.prepared, point.ids, point.weights, self._margins)
        b = self.objective.best_intercept(self._margins, found.intercept)
        value = self.objective.value(point.penalty, self._margins, b)
        lowest = self.anchor.objective
        if not value <= lowest * (1.0 + ROUNDING):
            return 0.0
        value = min(value, lowest)
        # one assignment accepts: whoever is interrupted here is left with a whole anchor
        before = self.anchor
        self.anchor = Anchor(Point(point.ids, point.weights, b), self._margins, value)
        self._margins = before.margins
        return found.beta

    def price(self) -> Certified:
        """Steps C and D: price the whole family at the anchor, certify, re-anchor the view."""
        point = self.anchor.point
        self.objective.residuals_curvatures(self._shifted(), 0.0, self._residuals, self._curvatures)
        cached = self.working.cache.ids
        frozen = self._frozen()
        watch = np.concatenate([cached, frozen.ids])
        first = math.isnan(self.C_min)
        # the first pass is of the null model: its exact maximum is C_min
        threshold = 0.0 if first else 1.0 / self.objective.C
        prices = self.pricer.price(self._residuals, watch, threshold)
        if first:
            self.C_min = 1.0 / prices.largest if prices.largest > 0.0 else math.inf
        n = len(cached)
        self.working.gradients[:n] = prices.watched[:n]
        self._prices = prices
        self._frozen_gradients = prices.watched[n:]
        bound = self.objective.dual_bound(self._residuals, prices.largest, self.family.max_abs)
        gap = self.anchor.objective - max(self.bound, bound)
        self._sharpness = 1.0 if gap < 0.9 * self._gap else max(0.3 * self._sharpness, 1e-6)
        self.bound, self._gap = max(self.bound, bound), gap
        self.max_violation = self.objective.C * prices.largest
        self._priced = self.anchor
        self.working.seen[:n] = True
        self.working.weights[:n] = self.working.anchor_weights[:n] = point.weights_of(cached)
        return self.certified()

    def certified(self) -> Certified:
        """What is proved of the anchor now.

        The bound holds for every point, so it certifies a newer anchor too; what that one violates is
        not known before it is priced.
        """
        return Certified(
            self.anchor.objective,
            self.bound,
            relative_gap(self.anchor.objective, self.bound),
            self.max_violation if self._priced is self.anchor else math.inf,
            self.family.n_features,
        )

    def _shifted(self) -> Floats:
        """Margins of the anchor with its intercept."""
        np.add(self.anchor.margins, self.anchor.point.intercept, out=self._step)
        return self._step

    def _frozen(self) -> Point:
        """The anchor's weights whose columns are not cached."""
        point = self.anchor.point
        out = ~np.isin(point.ids, self.working.cache.ids)
        return Point(point.ids[out], point.weights[out], 0.0)

    # -- between passes ------------------------------------------------------------------------

    def admit(self) -> Admitted:
        """Bring the features that promise most into the cache, evicting what is dispensable."""
        if self._prices is None:
            raise RuntimeError("admit() needs the prices of the anchor: call price() first")
        cache = self.working.cache
        point = self.anchor.point
        most = max(LEAST_ADMITTED, len(point.ids))
        selection = select(
            self._prices,
            self._frozen_gradients,
            self._frozen(),
            self.working,
            self.objective.C,
            most,
            0.1 * self._target(),
        )
        evicted = 0
        if len(selection.ids) * cache.largest > cache.free or (
            len(selection.ids) > cache.max_columns - cache.n
        ):
            selection, evicted = self._make_room(selection)
        admitted = equal = 0
        for part, staged in self._staged(selection.ids):
            for t, s in enumerate(part):
                weight = float(selection.weights[s])
                # a frozen weight needs its own column, a new feature none that is there already
                gradient = float(selection.gradients[s])
                if weight == 0.0 and self._has_equal(staged, t, gradient):
                    equal += 1
                elif cache.admit(staged, t):
                    self.working.reset(cache.n - 1, weight, float(selection.gradients[s]))
                    admitted += 1
        self._reanchor()
        return Admitted(admitted, equal, evicted)

    def _has_equal(self, staged: StagedColumns, t: int, gradient: float) -> bool:
        """Whether a cached column equals a staged one.

        On a sampled view columns that differ on other rows look equal: their gradients over all rows
        have to agree too.
        """
        j = self.working.cache.find_equal(staged, t)
        if j is None or self.view.complete:
            return j is not None
        other = float(self.working.gradients[j])
        return abs(gradient - other) <= SAME_GRADIENT * abs(gradient)

    def _staged(self, ids: Ids) -> Iterator[tuple[npt.NDArray[np.intp], StagedColumns]]:
        """Make the columns of features batch by batch: (which of them, measured columns)."""
        order = self.maker.order(ids)
        for at in range(0, len(ids), self.maker.batch):
            part = order[at : at + self.maker.batch]
            yield part, self.working.cache.measure(ids[part], self.maker.make(ids[part]))

    def _make_room(self, selection: Selection) -> tuple[Selection, int]:
        """Evict for a selection that may not fit; returns what of it is to enter, and how many left.

        Sizes are measured first, so this makes the columns twice: room is short, not time. Dead columns
        may all go; of columns with a weight at most half the cache in one round, lest the working set
        lose its hold.
        """
        working, cache = self.working, self.working.cache
        sizes = np.empty(len(selection.ids), np.int64)
        for part, staged in self._staged(selection.ids):
            sizes[part] = staged.sizes
        n = cache.n
        gradients = self.objective.C * working.gradients[:n]
        violations = np.empty(n)
        descent.violations(1.0, gradients, working.weights[:n], violations)
        order = evict_order(working.weights[:n], gradients, violations, working.seen[:n])
        room, slots = cache.free, cache.max_columns - n
        live_room = 0
        keep = np.ones(n, bool)
        need = int(sizes.sum())
        for j in order:
            if room >= need and slots >= len(sizes):
                break
            size = int(cache.sizes[j])
            if working.weights[j] != 0.0:
                enough = room >= int(sizes[0]) and slots > 0
                if enough and live_room + size > cache.capacity // 2:
                    break
                live_room += size
            keep[j] = False
            room += size
            slots += 1
        evicted = int(n - keep.sum())
        if evicted:
            working.evict(keep)
        curvatures = self.pricer.sums(self._curvatures, selection.ids)
        chosen = np.flatnonzero(fit_in_room(selection.violations, curvatures, sizes, cache.free))
        chosen = chosen[: cache.max_columns - cache.n]  # the largest violation is the first
        return selection.take(chosen), evicted

    def train(self) -> Solved:
        """Solve the local problem on the cached columns, from the anchor."""
        self._solved = self.trainer.solve(
            self.view, self.working, self.anchor.point.intercept, self._target(), TRAIN_STEPS
        )
        return self._solved

    def proposal(self) -> Point:
        """The trainer's point, for the next pass."""
        if self._solved is None:
            raise RuntimeError("proposal() needs a point of the trainer: call train() first")
        return self.working.point(self.anchor.point, self._solved.intercept)

    def _target(self) -> float:
        """Violation at which the trainer may stop.

        Scaling the residuals by t = 1 / (1 + delta) for a violation of delta costs the bound about
        delta * ||w||_1 + delta^2 * P, and tol * P is what may be lost. Less than a tenth of the largest
        violation over the family is not worth the trainer's time before the next pass. Where a pass
        has brought the gap no further all the same, the target falls.
        """
        penalty = max(self.anchor.point.penalty, 1e-3 * self.anchor.objective)
        allowed = math.sqrt(0.1 * self.tol)
        if penalty > 0.0:
            allowed = min(allowed, 0.3 * self.tol * self.anchor.objective / penalty)
        return self._sharpness * max(allowed, TRAIN_SHARE * (self.max_violation - 1.0))

    def _reanchor(self) -> None:
        self.view.anchor(
            self.anchor,
            self.working,
            self.pricer,
            self.objective,
            self._residuals,
            self._curvatures,
        )
