"""The supervisor's desk: the outer loop's books, in private memory and in lists that are shared.

It knows what the numbers mean and no process, socket or clock: the supervisor asks it for what a task or
an order needs, gives it what came back, and lets it decide what a certified pass is followed by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.drivers.plan import first_sample
from fcl.drivers.processes.layout import Layout
from fcl.drivers.processes.logic import Decided, Task
from fcl.drivers.processes.points import read_point, write_point
from fcl.drivers.processes.slots import SlotBook
from fcl.drivers.processes.wanted import Known, WantedColumns
from fcl.drivers.saving import Snapshot, last_certified
from fcl.drivers.session import Session
from fcl.features.prices import Prices
from fcl.model.checkpoint import Checkpoint
from fcl.solve.outer import Certified, Outer
from fcl.solve.passes import Passes, Vectors
from fcl.solve.polish import polished_bound
from fcl.solve.sampling import SampleSize, Seen
from fcl.solve.solver import null_outer
from fcl.solve.state import Ids, Point

__all__ = ["Desk", "Handed"]


@dataclass
class Handed:
    """A certified anchor as the trainer gets it."""

    margins: int  #: which vector of margins is the anchor's
    active: int
    intercept: float
    target: float  #: violation at which the trainer may stop
    violation: float  #: largest |slope_j| over the family
    total_r: float
    total_q: float
    version: int  #: of the proposal that led there
    decrease: float  #: of the objective on all rows
    beta: float
    coming: int = 0  #: columns that are worth waiting for, since nothing is cached


@dataclass(frozen=True)
class _Proposed:
    """A point on its way to become an anchor."""

    version: int
    point: Point
    promised: float = 0.0  #: decrease that the trainer expects
    beta: float = 1.0


class Desk:
    """Books of a run whose rows are read.

    Parameters
    ----------
    session : Session
        With the job; its targets lie in shared memory.
    layout : Layout
        Ready: the cache is allocated.
    vectors : Vectors
        In shared memory.
    prepared : PreparedRows
        All training rows.
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
        self.handed: dict[int, Handed] = {}  #: by pass
        self.scores: dict[str, Any] | None = None
        self._proposal: _Proposed | None = None
        self._taken = _Proposed(0, self.outer.point)  # whose margins are being made
        # the latest point that no search has judged yet, for a checkpoint to try first
        self._untried: _Proposed | None = None
        self._fallback: Point | None = None  # the anchor of a checkpoint, while that is tried
        self._resuming = self._repeated = False
        self._decrease = 0.0  # of the last accepted step
        self._bound = (0.0, 0.0, 0.0)  # dual bound, sums of residuals and curvatures
        self._recall: Ids = np.empty(0, np.int64)  # to be cached again after a checkpoint
        self._prices: Prices | None = None
        self._curvatures = np.empty(0)  # of the priced features
        self._watch_pass = -1
        self._watched_slots: Ids = np.empty(0, np.int64)
        self._n_watched = 0
        self._validated = self.outer.point
        self._score = np.nan
        n_view = self.config.view_rows or job.train.n
        self.columns = WantedColumns(layout, self.store, n_view, job.family)
        first = first_sample(job.train.n, self.config.view_rows, job.options.row_view)
        wished = job.options.row_view != "auto"
        self._sample = SampleSize(
            job.train.n, self.config.view_rows, first, self.store.capacity, wished
        )
        if session.continued is not None:
            self._resume(session.continued)
        self._offer()

    def _resume(self, resumed: Checkpoint) -> None:
        """Go on from a checkpoint: the first pass proves objective and bound anew, by writers."""
        state, arrays = dict(resumed.state), dict(resumed.arrays)
        self.outer.restore(state, arrays)
        if not self.job.options.intercept:
            self.outer.point = replace(self.outer.point, intercept=0.0)
        self.beta = state["beta"]
        self.certified = last_certified(state)
        self._recall = arrays["cached"]
        point = self.outer.point
        fits = len(arrays.get("untried_ids", ())) <= self.config.max_active
        if "untried_intercept" in state and fits:  # the trainer was further than the anchor
            self._fallback = point
            ids, weights = arrays["untried_ids"], arrays["untried_weights"]
            point = Point(ids, weights, state["untried_intercept"])
        write_point(self.layout, "proposed", point)
        self._taken = _Proposed(0, point)
        self._resuming = self._repeated = True

    @property
    def verified(self) -> bool:
        """Whether this run has computed the objective of its anchor."""
        return not self._resuming

    def cached(self) -> tuple[Ids, Ids]:
        """Slots of the committed columns, and their features."""
        return self.slots.committed()

    # -- tasks ---------------------------------------------------------------------------------

    def task(self, task: Task) -> tuple[int, int, tuple[float, ...]]:
        """What a writer has to know of its task: a count, an argument, numbers."""
        outer, taken = self.outer, self._taken
        anchor = self.vectors.anchor
        match task.kind:
            case "margins":
                return len(taken.point.ids), anchor, ()
            case "search":
                sizes = (len(outer.point.ids), len(taken.point.ids))
                intercepts = (outer.point.intercept, taken.point.intercept)
                parity = (task.pass_number - 1) & 1
                return parity, anchor, (outer.objective, *intercepts, *sizes)
            case "accept":
                b, n = taken.point.intercept, len(taken.point.ids)
                if self._fallback is not None:
                    return 0, anchor, (outer.objective, b, taken.beta, n, 1)
                value = np.inf if self._resuming else outer.objective
                return 0, anchor, (value, b, taken.beta, n, 0)
            case "residuals":
                return 0, anchor, (outer.point.intercept,)
            case "price":
                if self._watch_pass != task.pass_number:
                    self._begin_pricing(task.pass_number)
                return self._n_watched, task.pass_number, (outer.threshold,)
            case "certify":
                largest = float(self.layout.array("priced_largest").max())
                return 0, 0, (largest, math.fsum(self.layout.array("priced_excess")))
            case "draw":
                self.slots.clear()
                return self._sample.draws, self._sample.wanted, ()
            case "columns":
                slots = self.slots.allot(task.serial, task.size)
                self.columns.allot(task.start, slots)
                return len(slots), int(self.columns.short), (task.pass_number & 1,)
            case "validate":
                return len(self._validated.ids), 0, (self._validated.intercept,)
        return 0, 0, ()

    def done(
        self, task: Task, outcome: str, stored: int, count: int, numbers: tuple[float, ...]
    ) -> None:
        """A task was completed; with its results."""
        match task.kind:
            case "search" | "accept":
                self._searched(outcome, count, *numbers[:3])
            case "certify":
                self._bound = numbers[0], numbers[1], numbers[2]
            case "draw":
                self._sample.drawn = count
                self.layout.array("sample_size")[:] = (count, self._sample.draws)
            case "columns":
                slots = self.columns.made(task.serial, task.start, task.stop, stored)
                self.slots.settle(task.serial, slots)
            case "score":
                self._score = numbers[0]

    def lost(self, task: Task) -> None:
        """The writer of a task is dead."""
        if task.kind == "columns":
            self.slots.settle(task.serial, np.empty(0, np.int64))

    def _searched(self, outcome: str, count: int, beta: float, b: float, objective: float) -> None:
        taken = self._taken
        if outcome == "blend" and self._fallback is not None:  # not better than its checkpoint
            self._taken, self._fallback = _Proposed(0, self._fallback), None
            write_point(self.layout, "proposed", self._taken.point)
        elif outcome == "blend":
            point = read_point(self.layout, "found", count, b)
            write_point(self.layout, "proposed", point)
            self._taken = _Proposed(taken.version, point, taken.promised, beta)
        elif outcome == "accepted":
            before = self.outer.objective
            if self._resuming:  # what a checkpoint says of its anchor is no value to compare with
                self.outer.confirm(objective)
                before = self.outer.objective
            self.beta, self._resuming = beta, False
            if self._fallback is not None:
                self._fallback, self._repeated = None, False
            self._decrease = before - objective
            self.vectors.anchor = 1 - self.vectors.anchor
            self.outer.accept(
                Point(taken.point.ids, taken.point.weights, b), min(objective, before)
            )
            self._judged()
        elif outcome == "rejected":
            if self._resuming:
                self.outer.confirm(math.nan)
            self._judged()

    def _judged(self) -> None:
        """What was taken is the anchor now, or worthless."""
        if self._untried is not None and self._untried.version == self._taken.version:
            self._untried = None
        self._offer()

    # -- proposals -----------------------------------------------------------------------------

    def published(self, version: int, n: int, b: float, decrease: float) -> None:
        """The trainer proposes a point: it is copied, so that the next one can be put there."""
        self._proposal = _Proposed(version, read_point(self.layout, "mailbox", n, b), decrease)
        self._untried = self._proposal
        self._offer()

    def take_proposal(self) -> None:
        """The last proposal is the point of the next pass."""
        assert self._proposal is not None
        self._taken = self._proposal
        write_point(self.layout, "proposed", self._taken.point)

    def validate(self) -> None:
        """The anchor is the point to be validated."""
        self._validated = self.outer.point
        write_point(self.layout, "validated", self._validated)

    def scored(self, pass_number: int) -> None:
        """The score of the anchor of a pass is known."""
        rows = self.job.valid
        assert rows is not None
        name = "auprc" if self.job.loss.classifies else "mse"
        value = None if np.isnan(self._score) else self._score
        self.scores = {name: value, "n_rows": rows.n}
        self.session.validated(pass_number, self.scores)

    def redraw(self) -> None:
        """A new sample is on its way."""
        self._sample.draws += 1

    # -- passes --------------------------------------------------------------------------------

    def _begin_pricing(self, pass_number: int) -> None:
        """Say which features are watched: the cached ones, those with a frozen weight, those recalled.

        Without its gradient a column would come back with a wrong one.
        """
        self._watch_pass = pass_number
        self._watched_slots, cached = self.cached()
        watch = np.concatenate([cached, self.outer.frozen(cached).ids])
        # another budget may have cached more than there is room for now
        self._recall = self._recall[~np.isin(self._recall, watch)][: self.config.max_columns]
        watch = np.concatenate([watch, self._recall])
        layout = self.layout
        self._n_watched = len(watch)
        layout.array("watch_ids")[: len(watch)] = watch
        layout.array("watched")[: len(watch)] = 0.0
        layout.array("watched_curvatures")[: len(watch)] = 0.0

    def stalled(self, pass_number: int) -> Decided:
        """The trainer has nothing better to offer than the anchor: lower its target, or stop."""
        session = self.session
        session.idle += 1
        assert self.certified is not None
        stop = session.stalled(self.certified, self._rounding)
        if stop:
            return Decided(stop=stop)
        self.outer.sharpen()
        self.handed[pass_number].target = self.outer.target()
        self.handed[pass_number].coming = 0
        return self._prepare_columns(pass_number, decrease=0.0)

    def certify(self, pass_number: int) -> Certified:
        """The anchor is priced: what is proved of it; makes it ready to be handed over."""
        outer, layout = self.outer, self.layout
        self._merge_prices()
        assert self._prices is not None
        before, bound = self.certified, self._bound[0]
        watch = layout.array("watch_ids")[: self._n_watched].copy()
        drawn = self.job.family.drawn(pass_number) if self.passes.sampled else None
        self.certified = outer.certify(self._prices, watch, bound, drawn)
        if outer.stands_still:
            polished = polished_bound(self.passes, outer.point, outer.threshold)
            self.certified = outer.raise_bound(polished)
        if not self._repeated:  # a pass that was made before the checkpoint too shows no progress
            self.session.counted(before, self.certified)
        self._repeated = False
        parity = pass_number & 1
        n = len(self._watched_slots)
        watched = layout.array("watched")[: self._n_watched]
        exact = layout.array("watched_curvatures")[: self._n_watched]
        layout.array("slot_gradients")[parity][self._watched_slots] = watched[:n]
        layout.array("slot_curvatures")[parity][self._watched_slots] = exact[:n]
        write_point(layout, f"anchor{parity}", outer.point)
        self.handed = {k: v for k, v in self.handed.items() if k >= pass_number - 1}
        self.handed[pass_number] = Handed(
            margins=self.vectors.anchor,
            active=len(outer.point.ids),
            intercept=outer.point.intercept,
            target=outer.target(),
            violation=outer.max_violation,
            total_r=self._bound[1],
            total_q=self._bound[2],
            version=self._taken.version,
            decrease=self._decrease,
            beta=self.beta,
        )
        return self.certified

    def _rounding(self) -> float:
        return self.passes.rounding(self.outer.point, self.outer.objective, self.outer.reach)

    def decide(self, pass_number: int) -> Decided:
        """What follows the certified pass."""
        assert self.certified is not None
        self._offer()
        stop = self.session.reason(self.certified, self._rounding)
        if stop:
            return Decided(stop=stop, score_first=True)
        if self._try_start():
            return Decided(start=True)
        return self._prepare_columns(pass_number, self._decrease)

    def _prepare_columns(self, pass_number: int, decrease: float) -> Decided:
        """Choose the columns to make, over other rows if it is time for those.

        decrease : of the objective on all rows, by the last step that the trainer proposed.
        """
        slots, _ = self.cached()
        redraw = self._sample.should_redraw(
            Seen(
                self.outer.objective,
                self.outer.gap,
                self.beta,
                decrease,
                self._taken.promised,
                len(slots),
                float(self.store.sizes[slots].sum()),
            )
        )
        columns = self._select(drop_cache=redraw)
        if redraw or not len(slots):
            self.handed[pass_number].coming = columns
        if redraw:
            parts = -(-self._sample.wanted // self.job.options.block_rows)
            return Decided(columns=columns, redraw=True, sample_parts=parts)
        return Decided(columns=columns, crowded=self.too_many > 0)

    def _try_start(self) -> bool:
        """Make the point to begin with that of the next pass, if there is one and room for it."""
        start, self.session.start = self.session.first_point(), None
        if start is None or len(start.ids) > self.config.max_active:
            return False
        self._taken = self._untried = _Proposed(0, start)
        write_point(self.layout, "proposed", start)
        self._offer()
        return True

    def _merge_prices(self) -> None:
        """Bring together what the parts of the family have found."""
        layout, config = self.layout, self.config
        counts = layout.array("priced_counts")
        found = np.concatenate(
            [
                np.arange(count) + config.keep * part[1]
                for part, count in zip(config.parts["price"], counts, strict=True)
            ]
        ).astype(np.int64)
        ids = layout.array("priced_ids")[found]
        order = np.argsort(ids, kind="stable")
        gradients = layout.array("priced_gradients")[found][order]
        largest = float(layout.array("priced_largest").max())
        n_features = self.job.family.n_features
        watched = layout.array("watched")[: self._n_watched]
        excess = layout.array("priced_excess")
        reach = float(layout.array("priced_reach").max())
        self._prices = Prices(ids[order], gradients, largest, watched, n_features, excess, reach)
        self._curvatures = layout.array("priced_curvatures")[found][order]

    def _select(self, drop_cache: bool = False) -> int:
        """Make the list of features to make columns of; returns its length."""
        assert self._prices is not None
        prices, watched = self._prices, slice(self._n_watched)
        names = ("watch_ids", "watched", "watched_curvatures")
        watch = (self.layout.array(name)[watched] for name in names)
        priced = (prices.ids, prices.gradients, self._curvatures)
        known = Known(*(np.concatenate(both) for both in zip(priced, watch, strict=True)))
        recall, self._recall = self._recall, np.empty(0, np.int64)
        return self.columns.choose(self.outer, prices, known, self.cached(), recall, drop_cache)

    @property
    def too_many(self) -> int:
        """Columns that have to leave for those of the list."""
        return self.columns.too_many(self.slots.n_free)

    # -- checkpoints ---------------------------------------------------------------------------

    def _offer(self) -> None:
        """The state to go on from, should everything end now."""
        numbers, arrays = self.outer.state()
        _, cached = self.cached()
        last: dict[str, Any] = {}
        if self.certified is not None:
            last = {"objective": self.certified.objective, "bound": self.certified.bound}
        numbers |= {"drawn": 0, "grown": 1.0, "idle": self.session.idle}
        numbers |= {"beta": self.beta, "evicted": 0, "last": last}
        arrays |= {"cached": cached, "seen": np.ones(len(cached), bool)}
        if self._untried is not None:
            numbers["untried_intercept"] = self._untried.point.intercept
            arrays["untried_ids"] = self._untried.point.ids
            arrays["untried_weights"] = self._untried.point.weights
        snapshot: Snapshot = numbers, arrays
        self.session.saver.offer(lambda: snapshot)
