"""The supervisor's desk: the outer loop's books, in private memory and in lists that are shared.

It knows what the numbers mean and no process, socket or clock: the supervisor asks it for what a task or
an order needs, gives it what came back, and lets it decide what a certified pass is followed by.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcl.cache.store import largest_column
from fcl.data.prepared import PreparedRows
from fcl.drivers.inline import last_certified
from fcl.drivers.plan import first_sample
from fcl.drivers.processes.layout import Layout
from fcl.drivers.processes.logic import Decided, Task
from fcl.drivers.processes.slots import SlotBook
from fcl.drivers.processes.writer import make_store, read_point, write_point
from fcl.drivers.saving import Snapshot
from fcl.drivers.session import MAX_IDLE, Session
from fcl.features.base import Prices
from fcl.solve.outer import Certified, Outer
from fcl.solve.passes import Passes, Vectors
from fcl.solve.solver import null_outer
from fcl.solve.state import Ids, Point

__all__ = ["Desk", "Handed"]

#: A sample that has proved too small grows by this factor.
GROWTH = 4
#: Share of the cache that what is cached now may take over a larger sample.
ROOM_SHARE = 0.8
#: A pass that leaves more of the gap than this, and the objective nearly where it was, belongs to the
#: end game: there the sample's own error is what is left. 832,374 windows, C = 0.03: 12.5 s to a gap of
#: 1e-3 instead of 25.
SLOW = 0.7
#: Rows of the sample for each cached column, at least: with fewer the columns' products are mostly noise
#: (17,000 columns on 370,000 of 6.2 M rows: a minute in steps of a quarter of their length).
ROWS_A_COLUMN = 50
STEADY = 0.98
#: What is told of each feature that a column is to be made of.
JOB = ("ids", "violations", "gradients", "curvatures", "weights")


@dataclass
class Handed:
    """A certified anchor as the trainer gets it."""

    margins: int  #: which vector of margins is the anchor's
    active: int
    intercept: float
    target: float  #: violation at which the trainer may stop
    violation: float  #: largest |C g_j| over the family
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
        self.store = make_store(layout)
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
        self._stored: dict[int, int] = {}  # columns stored, by serial of the task
        self._short = False  # whether room is too short for all columns of the list
        self._unmade = 0  # columns of the list that are not stored yet
        self._prices: Prices | None = None
        self._curvatures = np.empty(0)  # of the priced features
        self._watch_pass = -1
        self._watched_slots: Ids = np.empty(0, np.int64)
        self._n_watched = 0
        self._validated = self.outer.point
        self._score = np.nan
        # the sample
        self._wanted_sample = first_sample(job.train.n, self.config.view_rows)
        self._sample_size = 0
        self._redraws = 0
        self._drawn_at = np.inf  # objective when the sample was drawn
        self._gap_seen = self._objective_seen = np.inf  # after the pass before
        if session.resumed is not None:
            self._resume()
        self._offer()

    def _resume(self) -> None:
        resumed = self.session.resumed
        assert resumed is not None
        state, arrays = resumed.state, resumed.arrays
        self.outer.restore(dict(state), arrays["ids"], arrays["weights"])
        self.beta = float(state["beta"])
        self.certified = last_certified(state)
        self._recall = arrays["cached"][arrays["cached"] >= 0]
        point = self.outer.point
        fits = len(arrays.get("untried_ids", ())) <= self.config.max_active
        if "untried_intercept" in state and fits:  # the trainer was further than the anchor
            self._fallback = point
            ids, weights = arrays["untried_ids"], arrays["untried_weights"]
            point = Point(ids, weights, float(state["untried_intercept"]))
        write_point(self.layout, "proposed", point)
        self._taken = _Proposed(0, point)
        self._resuming = self._repeated = True

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
                return self._n_watched, 0, (outer.threshold,)
            case "certify":
                return 0, 0, (float(self.layout.array("priced_largest").max()),)
            case "draw":
                self.slots.clear()
                return self._redraws, self._wanted_sample, ()
            case "columns":
                slots = self.slots.allot(task.serial, task.size)
                self.layout.array("job_slots")[task.start : task.start + len(slots)] = slots
                return len(slots), int(self._short), (task.pass_number & 1,)
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
                self._sample_size = count
                self.layout.array("sample_size")[:] = (count, self._redraws)
            case "columns":
                self._columns_stored(task, stored)
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
            self._judged()

    def _judged(self) -> None:
        """What was taken is the anchor now, or worthless."""
        if self._untried is not None and self._untried.version == self._taken.version:
            self._untried = None
        self._offer()

    def _columns_stored(self, task: Task, stored: int) -> None:
        """Put the list in the order in which columns were stored."""
        layout = self.layout
        some = slice(task.start, task.stop)
        order = layout.array("job_order")[some]
        used = layout.array("job_slots")[task.start : task.start + stored].copy()
        for name in JOB:
            part = layout.array(f"job_{name}")[some]
            part[:] = part[order]
        self.slots.settle(task.serial, used)
        self._stored[task.serial] = stored
        self._unmade -= stored

    @property
    def too_many(self) -> int:
        """Columns that have to leave for those of the list: half of them at most in one round."""
        return min(max(0, self._unmade - self.slots.n_free), self.config.max_columns // 2)

    def stored(self, serial: int) -> int:
        """How many columns the task of this serial has stored; asked once."""
        return self._stored.pop(serial)

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
        self._redraws += 1

    # -- passes --------------------------------------------------------------------------------

    def _begin_pricing(self, pass_number: int) -> None:
        """Say which features are watched: the cached ones, and those with a frozen weight."""
        self._watch_pass = pass_number
        self._watched_slots, cached = self.cached()
        watch = np.concatenate([cached, self.outer.frozen(cached).ids])
        layout = self.layout
        self._n_watched = len(watch)
        layout.array("watch_ids")[: len(watch)] = watch
        layout.array("watched")[: len(watch)] = 0.0
        layout.array("watched_curvatures")[: len(watch)] = 0.0

    def stalled(self, pass_number: int) -> Decided:
        """The trainer has nothing better to offer than the anchor: lower its target, or stop."""
        session = self.session
        session.idle += 1
        if session.idle >= MAX_IDLE:
            return Decided(stop="stalled")
        self.outer.sharpen()
        self.handed[pass_number].target = self.outer.target()
        self.handed[pass_number].coming = 0
        return Decided(columns=self._select(pass_number), crowded=self.too_many > 0)

    def certify(self, pass_number: int) -> Certified:
        """The anchor is priced: what is proved of it; makes it ready to be handed over."""
        outer, layout = self.outer, self.layout
        self._merge_prices()
        assert self._prices is not None
        before, bound = self.certified, self._bound[0]
        self.certified = outer.certify(self._prices.largest, bound)
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

    def decide(self, pass_number: int) -> Decided:
        """What follows the certified pass."""
        assert self.certified is not None
        self._offer()
        stop = self.session.reason(self.certified)
        if stop:
            return Decided(stop=stop, score_first=True)
        redraw = self._wants_redraw()
        columns = self._select(pass_number, drop_cache=redraw)
        if redraw or not len(self.cached()[0]):
            self.handed[pass_number].coming = columns
        if redraw:
            parts = -(-self._wanted_sample // self.job.options.block_rows)
            return Decided(columns=columns, redraw=True, sample_parts=parts)
        return Decided(columns=columns, crowded=self.too_many > 0)

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
        self._prices = Prices(ids[order], gradients, largest, np.empty(0), n_features)
        self._curvatures = layout.array("priced_curvatures")[found][order]

    def _select(self, pass_number: int, drop_cache: bool = False) -> int:
        """Write the list of features to make columns of; returns how many.

        drop_cache : all columns are about to go, and those of features with a weight come back.
        """
        assert self._prices is not None
        outer, layout = self.outer, self.layout
        prices, curvatures = self._prices, self._curvatures
        _, cached = self.cached()
        # all that is known of gradients and curvatures at this anchor, by feature
        watched = slice(self._n_watched)
        known = np.concatenate([prices.ids, layout.array("watch_ids")[watched]])
        g = np.concatenate([prices.gradients, layout.array("watched")[watched]])
        h = np.concatenate([curvatures, layout.array("watched_curvatures")[watched]])
        there = np.empty(0, np.int64) if drop_cache else cached
        frozen = outer.frozen(there)
        if drop_cache:  # what is cached without a weight competes anew
            ids = np.setdiff1d(cached, frozen.ids)
            prices = replace(
                prices,
                ids=np.concatenate([prices.ids, ids]),
                gradients=np.concatenate([prices.gradients, _look_up(ids, known, g)]),
            )
        selection = outer.select(prices, frozen, _look_up(frozen.ids, known, g), there)
        # what was cached before the rows changed, or before a checkpoint, comes back as well
        back = frozen.ids if drop_cache else self._recall
        self._recall = np.empty(0, np.int64)
        back = back[~np.isin(back, selection.ids) & ~np.isin(back, there)]
        ids = np.concatenate([selection.ids, back])[: self.config.max_active]
        n = len(ids)
        violations = np.zeros(n)
        violations[: len(selection.ids)] = selection.violations[:n]
        for name, values in (
            ("ids", ids),
            ("violations", violations),
            ("gradients", _look_up(ids, known, g)),
            ("curvatures", _look_up(ids, known, h)),
            ("weights", outer.point.weights_of(ids)),
        ):
            layout.array(f"job_{name}")[:n] = values
        self._order_list(n)
        self._unmade = n
        return n

    def _order_list(self, n: int) -> None:
        """By violation if room is short, the largest first; else as columns are cheapest to make."""
        sizes = self.store.sizes[self.cached()[0]]
        n_view = self.config.view_rows or self.job.train.n
        column = largest_column(n_view, self.config.block_rows, self.job.family.binary)
        mean = float(sizes.mean()) if len(sizes) else 0.5 * column
        free = self.store.capacity - float(sizes.sum())
        self._short = 2.0 * n * mean > free or n > self.config.max_columns - len(sizes)
        if self._short or not n:
            return
        ids = self.layout.array("job_ids")[:n]
        order = np.argsort(ids, kind="stable")
        for name in JOB:
            part = self.layout.array(f"job_{name}")[:n]
            part[:] = part[order]

    # -- the sample ----------------------------------------------------------------------------

    def _wants_redraw(self) -> bool:
        """Whether to draw a new sample, and of what size.

        The first one goes by the curvatures of the null model. While the objective falls fast they soon
        are quite other ones, and there are few columns to be made again. Later the sample grows, to all
        rows if the cache allows, whenever it has foretold the last step badly, the gap hardly closes, or
        it has become small for the number of columns.
        """
        if not self.config.view_rows or self._sample_size == self.job.train.n:
            return False
        objective = self.outer.objective
        if self._redraws == 0:
            self._drawn_at = objective
            return True
        gap = self.outer.gap
        bad = self.beta < 0.5 or self._decrease < 0.5 * self._taken.promised
        slow = gap > SLOW * self._gap_seen and objective > STEADY * self._objective_seen
        self._gap_seen, self._objective_seen = gap, objective
        n_cached = len(self.cached()[0])
        thin = self._sample_size < ROWS_A_COLUMN * n_cached
        if bad or slow or thin:
            wanted = min(GROWTH * self._wanted_sample, self._largest_sample())
            if wanted > 1.2 * self._wanted_sample:
                self._wanted_sample, self._drawn_at = wanted, objective
                return True
        if objective < 0.7 * self._drawn_at:
            self._drawn_at = objective
            return True
        return False

    def _largest_sample(self) -> int:
        """Rows over which the cache can hold what is cached now, and some more."""
        used = float(self.store.sizes[self.cached()[0]].sum())
        fit = ROOM_SHARE * self.store.capacity / max(used / max(self._sample_size, 1), 1e-9)
        n = self.config.view_rows
        if fit >= n:
            return n
        return max(self._wanted_sample, int(fit))

    # -- checkpoints ---------------------------------------------------------------------------

    def _offer(self) -> None:
        """The state to go on from, should everything end now."""
        point, state = self.outer.point, self.outer.state()
        _, cached = self.cached()
        last: dict[str, Any] = {}
        if self.certified is not None:
            last = {"objective": self.certified.objective, "bound": self.certified.bound}
        numbers = {
            **state,
            **{"drawn": 0, "grown": 1.0, "idle": self.session.idle},
            **{"beta": self.beta, "evicted": 0, "last": last},
        }
        arrays = {
            "ids": point.ids,
            "weights": point.weights,
            "cached": cached,
            "seen": np.ones(len(cached), bool),
        }
        if self._untried is not None:
            numbers["untried_intercept"] = self._untried.point.intercept
            arrays["untried_ids"] = self._untried.point.ids
            arrays["untried_weights"] = self._untried.point.weights
        snapshot: Snapshot = numbers, arrays
        self.session.saver.offer(lambda: snapshot)


def _look_up(wanted: Ids, known: Ids, values: np.ndarray) -> np.ndarray:
    """Values of features by id; 0 where there is none."""
    out = np.zeros(len(wanted))
    if len(known):
        order = np.argsort(known, kind="stable")
        at = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
        here = known[order][at] == wanted
        out[here] = values[order][at[here]]
    return out
