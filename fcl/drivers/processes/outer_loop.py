"""The outer loop of a run: anchors, proposals and certificates.

This module uses no process, socket or clock. The supervisor asks it for the values that a task or an
order needs, passes results to it, and lets it decide what follows a certified pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.drivers.processes.layout import Layout
from fcl.drivers.processes.logic.protocol import (
    Decided,
    Outcome,
    Published,
    Stage,
    TrainerAnchor,
    WriterTask,
)
from fcl.drivers.processes.slots import SlotBook
from fcl.drivers.processes.wanted import GradientTable, WantedColumns
from fcl.drivers.session import Session
from fcl.features.prices import Prices, merge_prices
from fcl.run.held_out import HeldOutScores
from fcl.solve.outer import Certified, Outer
from fcl.solve.passes import Passes, Searched, Vectors
from fcl.solve.polish import polish, polishable
from fcl.solve.run_state import RunState
from fcl.solve.sampling import LastStep, SampledPass
from fcl.solve.solver import null_outer
from fcl.solve.state import Point
from fcl.types import Floats, Ids
from fcl.units import format_bytes, least_memory

#: The trainer waits for the columns to come if they are more than this share of the cached ones: a step
#: without them would soon be worthless, and writers make them faster with its core.
WAIT_FROM = 0.1


@dataclass(frozen=True)
class _Proposal:
    """A point that may become an anchor."""

    version: int  #: of the trainer's proposal; 0 if it comes from elsewhere
    point: Point
    promised: float = 0.0  #: decrease of the objective that the trainer expects
    beta: float = 1.0  #: share of the step to the trainer's proposal
    models: str = ""  #: that the trainer minimised on the way, see :class:`Published`


class OuterLoopState:
    """State of the outer loop of a run whose rows are read, and whose features are measured.

    session : with the job, whose targets are in shared memory.
    layout : with a ready configuration: the cache is allocated.
    vectors : in shared memory.
    prepared : all training rows.
    """

    def __init__(
        self, session: Session, layout: Layout, vectors: Vectors, prepared: PreparedRows
    ) -> None:
        self.session = session
        self.job = job = session.job
        self.layout = layout
        self.config = layout.config
        self.store = layout.store()
        self.slots = SlotBook(self.store.ids)
        self.vectors = vectors
        self.passes = Passes(job.objective(), job.family, prepared, vectors)
        self.outer: Outer = null_outer(self.passes, job.options.tol)
        self.certified: Certified | None = None
        self.beta = 0.0
        self.anchor: TrainerAnchor | None = None  #: the last one that was certified
        self._proposal: _Proposal | None = None  # the trainer's latest
        self._tried = _Proposal(0, self.outer.point)  # the point that the present pass tries
        self._validated = self.outer.point
        # the latest point that no search has judged yet, which a resumed run tries first
        self._untried: _Proposal | None = None
        # the anchor of a checkpoint, while the untried point of that checkpoint is tried
        self._fallback: Point | None = None
        self._resuming = self._repeated = self._redraw_due = False
        self._redrawn = ""  # why the last decision was to draw another sample
        self._decrease = 0.0  # of the last accepted step
        # prices of the parts of the family in this pass, and curvatures of their candidates
        self._priced: dict[int, tuple[Prices, Floats]] = {}
        # the dual bound, and the sums of TrainerAnchor
        self._bound: tuple[float, tuple[Any, Any]] = 0.0, (0.0, 0.0)
        self._recall: Ids = np.empty(0, np.int64)  # features that the checkpoint had cached
        self._prices: Prices | None = None
        self._curvatures = np.empty(0)  # of the priced features, as their gradients
        self._watch_pass = -1
        self._watched_slots: Ids = np.empty(0, np.int64)
        self._n_watched = 0
        self._scores = HeldOutScores(math.nan, math.nan)
        self.columns = WantedColumns(self.config, self.store, job.family)
        self._sample = job.sample_size(self.config.view_rows, self.store.capacity)
        if session.state is not None:
            self._resume(session.state)
            return
        start = session.first_point()
        self._untried = None if start is None else _Proposal(0, start)
        self._offer()

    def _resume(self, state: RunState) -> None:
        """Resume from a checkpoint; the first pass computes the objective and the bound again."""
        self.outer.restore(state.outer)
        if not self.job.options.intercept:
            self.outer.point = replace(self.outer.point, intercept=0.0)
        self.beta, self.certified, self._recall = state.beta, state.last, state.cached
        point = self.outer.point
        self.session.saver.offer(state)
        if state.untried is not None:
            self._fallback, point = point, state.untried  # the trainer was ahead of the anchor
            self._untried = _Proposal(0, point)
        self._tried = _Proposal(0, point)
        self._resuming = self._repeated = True
        if state.sample is not None and self.config.view_rows:
            self._sample.restore(state.sample)
            self._redraw_due = self._sample.draws > 0  # the size is restored, but not the rows

    @property
    def verified(self) -> bool:
        """Whether this run itself has computed the objective of its anchor."""
        return not self._resuming

    def list_held(self) -> int:
        """Write the slots for a new trainer to the array ``held``; return their number."""
        slots, _ = self.slots.committed()
        self.layout.array("held")[: len(slots)] = slots
        return len(slots)

    # -- tasks ---------------------------------------------------------------------------------

    @property
    def _loss(self) -> float:
        """An upper bound of the sum of the losses at the anchor."""
        return self.outer.objective / self.outer.conditions.C

    def inputs(self, task: WriterTask) -> dict[str, Any]:
        """What a writer needs for a task besides shared memory: the arguments of its method."""
        outer, anchor = self.outer, self.vectors.anchor
        match task.kind:
            case Stage.MARGINS:
                return {"anchor": anchor, "point": self._tried.point}
            case Stage.SEARCH:
                value, point = outer.objective, self._tried.point
                return {"anchor": anchor, "start": outer.point, "value": value, "point": point}
            case Stage.ACCEPT:
                unknown = self._resuming and self._fallback is None
                value = math.inf if unknown else outer.objective
                point, beta = self._tried.point, self._tried.beta
                return {"anchor": anchor, "value": value, "point": point, "beta": beta}
            case Stage.RESIDUALS:
                intercept = outer.point.intercept
                return {"anchor": anchor, "intercept": intercept, "loss": self._loss}
            case Stage.PRICE:
                if self._watch_pass != task.pass_number:
                    self._begin_pricing(task.pass_number)
                n_watched, threshold = self._n_watched, outer.threshold
                return {"n_watched": n_watched, "threshold": threshold, "loss": self._loss}
            case Stage.CERTIFY:
                prices = self._merge_prices()
                some, none = prices.ids[:0], np.empty(0)
                prices = replace(prices, ids=some, gradients=none, watched=none)
                return {"anchor": anchor, "loss": self._loss, "prices": prices}
            case Stage.DRAW:
                self.slots.clear()
                return {"number": self._sample.draws, "n_rows": self._sample.wanted}
            case Stage.COLUMNS:
                part = self.columns.part(task)
                slots, short = self.slots.allot(task.serial, task.size), self.columns.short
                return {
                    "ids": part.ids,
                    "violations": part.violations,
                    "slots": slots,
                    "short": short,
                }
            case Stage.VALIDATE:
                return {"point": self._validated}
        return {}

    def done(self, task: WriterTask, result: Any) -> Outcome | None:
        """Record the result of a task; returns the outcome of a search."""
        match task.kind:
            case Stage.SEARCH | Stage.ACCEPT:
                return self._searched(task.kind, result)
            case Stage.PRICE:
                self._priced[task.start] = result
            case Stage.CERTIFY:
                self._bound = result
            case Stage.DRAW:
                self._sample.drawn = result
                self.layout.array("sample_size")[:] = (result, self._sample.draws)
            case Stage.COLUMNS:
                self._stored(task, result)
            case Stage.SCORE:
                self._scores = result
        return None

    def lost(self, task: WriterTask) -> None:
        """Note that the writer of a task died: the slots of a ``columns`` task are free again."""
        if task.kind == Stage.COLUMNS:
            self.slots.settle(task.serial, 0)

    def _stored(self, task: WriterTask, stored: Ids) -> None:
        """Write what the trainer needs to know of the columns that a task has stored, by slot."""
        layout, parity = self.layout, task.pass_number & 1
        made, slots = self.columns.made(task, stored), self.slots.settle(task.serial, len(stored))
        layout.array("slot_gradients")[parity][slots] = made.gradients
        layout.array("slot_curvatures")[parity][slots] = made.curvatures
        layout.array("slot_weights")[slots] = made.weights
        layout.array("extent_slots")[task.extent, : len(slots)] = slots

    def _searched(self, kind: Stage, found: Searched) -> Outcome:
        tried, fallback = self._tried, self._fallback
        if found.point is None and kind == Stage.ACCEPT and fallback is not None:
            self._fallback = None  # the untried point is not better
            self._tried = _Proposal(0, fallback)
            return Outcome.BLEND
        point = found.point
        if point is not None and kind == Stage.SEARCH and found.beta != 1.0:
            if len(point.ids) <= self.config.max_active:
                self._tried = replace(tried, point=point, beta=found.beta)
                return Outcome.BLEND
            point = None
        if point is None:
            if self._resuming:
                self.outer.confirm(math.nan)
            self._judged()
            return Outcome.REJECTED
        before = self.outer.objective
        if self._resuming:  # do not compare with the objective that the checkpoint claims
            self.outer.confirm(found.objective)
            before = self.outer.objective
        self.beta, self._resuming = found.beta, False
        if fallback is not None:
            self._fallback, self._repeated = None, False
        self._decrease = before - found.objective
        self.vectors.anchor = 1 - self.vectors.anchor
        self.outer.accept(point, min(found.objective, before))
        self._judged()
        return Outcome.ACCEPTED

    def _judged(self) -> None:
        """Note that the tried point was accepted or rejected."""
        if self._untried is not None and self._untried.version == self._tried.version:
            self._untried = None
        if not self._repeated:  # else the checkpoint holds more than this run knows so far
            self._offer()

    # -- proposals -----------------------------------------------------------------------------

    def proposed(self, proposal: Published) -> None:
        """Keep a point that the trainer proposes."""
        version, decrease = proposal.version, proposal.decrease
        assert proposal.point is not None
        self._proposal = _Proposal(version, proposal.point, decrease, models=proposal.models)
        self._untried = self._proposal
        self._offer()

    @property
    def choices(self) -> dict[str, str]:
        """What was chosen since the pass before, as fields of :class:`fcl.run.events.PassDone`."""
        return {"sample": self._redrawn, "models": self._tried.models}

    def take_proposal(self, version: int) -> None:
        """Try the trainer's latest proposal, which has this version, in the next pass."""
        assert self._proposal is not None
        assert self._proposal.version == version
        self._tried = self._proposal

    def validate(self) -> None:
        """Make the anchor the point to be validated."""
        self._validated = self.outer.point

    def scored(self, pass_number: int) -> None:
        """Report the scores of the anchor of a pass."""
        scores = self.session.scores(pass_number, self._validated, self._scores)
        self.session.validated(pass_number, scores)
        if self.session.patience.best is not None and not self._repeated:
            self._offer()  # else a checkpoint would have the scores, but not the point

    # -- passes --------------------------------------------------------------------------------

    def _begin_pricing(self, pass_number: int) -> None:
        """List the watched features: the cached, frozen and recalled ones.

        Their columns stay cached or are made again, and need the gradients at this anchor.
        """
        self._watch_pass = pass_number
        self._watched_slots, cached = self.slots.committed()
        watch = np.concatenate([cached, self.outer.frozen(cached).ids])
        # a checkpoint made with another budget may list more columns than there is room for now
        self._recall = self._recall[~np.isin(self._recall, watch)][: self.config.max_columns]
        watch = np.concatenate([watch, self._recall])
        layout = self.layout
        self._priced = {}
        self._n_watched = len(watch)
        layout.array("watch_ids")[: len(watch)] = watch
        layout.array("watched")[: len(watch)] = 0.0
        layout.array("watched_curvatures")[: len(watch)] = 0.0

    def stalled(self) -> Decided:
        """Continue after the trainer could not improve the anchor.

        Two lower targets are tried first, which cost no pass. Then the anchor is certified again: that
        counts as a pass without progress, proves the bound in other ways, polishes the anchor, and, for a
        sampled family, draws other features.
        """
        assert self.anchor is not None
        if self.anchor.n_coming:  # the trainer waited for columns for which there was no room
            self.anchor = replace(self.anchor, n_coming=0)
            return Decided()
        self._decrease = 0.0
        if self.outer.sharpened:
            self._tried = _Proposal(0, self.outer.point)
            return Decided(again=True)
        self.outer.sharpen()
        self.anchor = replace(self.anchor, target=self.outer.target())
        return self._prepare_columns()

    def certify(self, pass_number: int) -> Certified:
        """Certify the priced anchor, and prepare it for the trainer."""
        outer, layout = self.outer, self.layout
        assert self._prices is not None
        before, (bound, totals) = self.certified, self._bound
        watch = layout.array("watch_ids")[: self._n_watched].copy()
        drawn = self.job.family.features_in_pass(pass_number) if self.passes.sampled else None
        self.certified = outer.certify(self._prices, watch, bound, drawn)
        if outer.stands_still and polishable(self.passes, outer.point):
            polished = polish(self.passes, outer, watch)
            self.certified = outer.raise_bound(polished.bound, polished.ids)
            n_priced = len(self._prices.ids)
            self._prices = polished.added_to(self._prices)
            added = self.passes.curvature_sums(self._prices.ids[n_priced:])
            self._curvatures = np.concatenate([self._curvatures, added])
        if not self._repeated:  # a pass repeated after resuming cannot show progress
            self.session.counted(before, self.certified)
        self._repeated = False
        parity = pass_number & 1
        n = len(self._watched_slots)
        watched = layout.array("watched")[: self._n_watched]
        exact = layout.array("watched_curvatures")[: self._n_watched]
        layout.array("slot_gradients")[parity][self._watched_slots] = watched[:n]
        layout.array("slot_curvatures")[parity][self._watched_slots] = exact[:n]
        self.anchor = TrainerAnchor(
            pass_number=pass_number,
            margins=self.vectors.anchor,
            point=outer.point,
            target=outer.target(),
            violation=outer.max_violation,
            gap=outer.gap,
            totals=totals,
            version=self._tried.version,
            decrease=self._decrease,
            beta=self.beta,
        )
        return self.certified

    def _rounding(self) -> float:
        return self.passes.rounding(self.outer.point, self.outer.objective, self.outer.reach)

    def decide(self) -> Decided:
        """Decide what follows the certified pass."""
        assert self.certified is not None
        self._offer()
        stop = self.session.reason(self.certified, self._rounding)
        if stop:
            return Decided(stop=stop, score_first=True)
        if self._untried is not None and self._untried.version == 0:  # the initial point
            self._tried = self._untried
            return Decided(start=True)
        return self._prepare_columns()

    def _prepare_columns(self) -> Decided:
        """Choose the columns to make, over a new sample of rows if one is due."""
        slots, cached = self.slots.committed()
        step = LastStep(self.beta, self._decrease, self._tried.promised)
        now = SampledPass(
            self.outer.objective,
            self.outer.gap,
            step,
            len(slots),
            float(self.store.sizes[slots].sum()),
            len(self.outer.frozen(cached).ids),
        )
        self._redrawn = self._sample.redraw_reason(now)
        redraw = self._redraw_due or bool(self._redrawn)
        self._redraw_due = False
        columns = self._select(drop_cache=redraw)
        assert self.anchor is not None
        many = redraw or not len(slots) or columns > WAIT_FROM * len(slots)
        if many and not self.columns.short:
            self.anchor = replace(self.anchor, n_coming=columns)
        if self.columns.withheld:
            self.anchor = replace(self.anchor, crowded=True)
        self.session.lacking = self._lacking()
        if redraw:
            self._sample.draws += 1
            parts = -(-self._sample.wanted // self.job.options.block_rows)
            return Decided(columns=columns, redraw=True, sample_parts=parts)
        return Decided(columns=columns, crowded=self.too_many > 0)

    def _lacking(self) -> str:
        """What the memory budget has no room for, and the budget that continues; empty if nothing."""
        if not self.columns.withheld:
            return ""
        plan = self.job.plan
        return (
            f"memory: a budget of {format_bytes(plan.budget)} has room for {plan.max_active:,} features "
            "with a weight, and others violate their conditions; resume from a checkpoint, or start "
            f"again, with {least_memory(plan.more_active)}"
        )

    def _merge_prices(self) -> Prices:
        """Merge the prices of all parts of the family."""
        parts = [self._priced[part] for part in range(len(self.config.parts["price"]))]
        order = np.argsort(np.concatenate([prices.ids for prices, _ in parts]), kind="stable")
        self._curvatures = np.concatenate([curvatures for _, curvatures in parts])[order]
        self._prices = replace(
            merge_prices([prices for prices, _ in parts]),
            watched=self.layout.array("watched")[: self._n_watched],
            by_output=np.max([prices.by_output for prices, _ in parts], axis=0),
        )
        return self._prices

    def _select(self, drop_cache: bool = False) -> int:
        """Write the list of features whose columns are to be made; return its length."""
        assert self._prices is not None
        prices, watched = self._prices, slice(self._n_watched)
        names = ("watch_ids", "watched", "watched_curvatures")
        watch = (self.layout.array(name)[watched] for name in names)
        priced = (prices.ids, prices.gradients, self._curvatures)
        known = GradientTable(*(np.concatenate(both) for both in zip(priced, watch, strict=True)))
        recall, self._recall = self._recall, np.empty(0, np.int64)
        return self.columns.choose(
            self.outer, prices, known, self.slots.committed(), recall, drop_cache
        )

    @property
    def too_many(self) -> int:
        """Number of columns to evict to make slots for the list."""
        return self.columns.too_many(self.slots.n_free)

    # -- checkpoints ---------------------------------------------------------------------------

    def _offer(self) -> None:
        """Offer the present state for a checkpoint."""
        _, cached = self.slots.committed()
        cached = np.concatenate([cached, self._recall[~np.isin(self._recall, cached)]])
        sample = None
        if self.config.view_rows:
            step = LastStep(self.beta, self._decrease, self._tried.promised)
            sample = self._sample.state(pending=self._sample.draws > 0, step=step)
        self.session.saver.offer(
            RunState(
                outer=self.outer.state(),
                cached=cached,
                seen=np.ones(len(cached), bool),
                sample=sample,
                idle=self.session.idle,
                beta=self.beta,
                last=self.certified,
                untried=None if self._untried is None else self._untried.point,
                best_pass=self.session.patience.best,
            )
        )
