"""The trainer: optimises the weights of its committed columns without pause.

Between two steps it carries out orders: it takes over anchors and columns, makes room, or drops all
columns. It publishes its point after each step that improved it, and reports when it is idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fcl.cache import ExtentCache, Rotation
from fcl.drivers.processes.child import ChildLink
from fcl.drivers.processes.faults import fault
from fcl.drivers.processes.layout import Config, Layout
from fcl.drivers.processes.logic.protocol import (
    TRAINER,
    AnchorTaken,
    Commit,
    DropAll,
    Freed,
    Lend,
    MakeRoom,
    Published,
    Ready,
    Rejected,
    Restore,
    SendAnchor,
    SetUp,
    TrainerIdle,
)
from fcl.parallel import Team
from fcl.solve.admission import Newcomers, admit_needed
from fcl.solve.local import LocalProblem
from fcl.solve.make import make_local
from fcl.solve.state import Columns
from fcl.solve.view import RowView
from fcl.types import Floats, Ids

#: A pass is worth its time once the local violation is at most this share of the family's ...
WORTH_SHARE = 0.1
#: ... or after this many steps from one anchor.
WORTH_STEPS = 4
#: If the trainer is to wait for the coming columns, the first step waits for this share of them.
WAIT_SHARE = 0.98
#: While the trainer waits, this many columns enter the local problem together.
ENTER_TOGETHER = 4096

#: Order -> its name, also used for its method (after an underscore), fault point and error messages.
_ORDERS = {
    SendAnchor: "anchor",
    Restore: "restore",
    Commit: "commit",
    Lend: "lend",
    MakeRoom: "make_room",
    DropAll: "drop_all",
    Rejected: "rejected",
}


class _SharedTeam(Team):
    """A team whose number of threads the supervisor sets, at any time, in a shared cell."""

    def __init__(self, cell: np.ndarray, most: int) -> None:
        self._cell = cell
        super().__init__(most)

    @property
    def threads(self) -> int:
        return int(self._cell[0])

    @threads.setter
    def threads(self, value: int) -> None:
        pass


class TrainerProcess:
    """The role of a child; see :mod:`fcl.drivers.processes.child`."""

    def __init__(self, link: ChildLink) -> None:
        self.link = link
        self._order = 0  # the last order handled
        self._idle_at = 0  # the last order after which we reported that there is nothing to do
        self._local: LocalProblem | None = None
        self._working = False
        self._target = 0.0
        self._outer_violation = np.inf  # over the family, at the anchor
        self._steps = 0  # since the anchor
        self._below = 0.0  # local objective at the point minus that at the anchor, <= 0
        self._version = 0
        self._drawn = 0  # number of the draw that gave our sample
        self._parity = 0  # of the anchor's pass
        self._lacking = 0  # columns to wait for before a step is worth its time
        # weights, gradients and curvatures of the last columns of the cache, by commit, which have yet to
        # enter the local problem
        self._entering: list[tuple[Floats, Floats, Floats | None]] = []
        self._untested: set[int] = set()  # ids of columns that came since the last step
        self._promised: dict[int, float] = {}  # promised decrease of Q, by version of the proposal

    def run(self) -> None:
        """Work until the supervisor closes the connection."""
        self.link.send(Ready(TRAINER, 0))
        while True:
            if not (self._working or self.link.pending() or self._idle_at == self._order):
                # reported again after each order, which makes earlier reports out of date
                self._idle_at = self._order
                self.link.send(TrainerIdle(self._order))
            if not self._working or self.link.pending():
                self._handle(self.link.receive())
            else:
                self._idle_at = -1
                self._step()

    # -- setting up ----------------------------------------------------------------------------

    def _set_up(self, config: Config) -> None:
        """Allocate buffers, once all rows are read and the cache exists."""
        if not config.extents:
            return
        self.config = config
        self.layout = layout = Layout(config, self.link.segment)
        family = layout.family()
        self._team = _SharedTeam(layout.array("threads"), config.cores)
        self._objective = layout.objective(self._team)
        self._family = family
        store = layout.store()
        cache = ExtentCache(store, config.extent_bytes)
        self._rotation = Rotation(cache.capacity, cache.max_columns)
        # the first sample is drawn after the first pass; all rows may be more than there is room for
        view = self._sampled(np.empty(0, np.int64)) if config.view_rows else self._all_rows()
        self._local = make_local(
            view,
            cache,
            family,
            config.n_rows,
            config.n_view,
            config.entries,
            config.options.seed,
            config.hessian_columns,
        )
        self._local.trainer.inner.hurry = self.link.hurry
        self._margins = [layout.array(f"margins{i}") for i in range(2)]

    def _all_rows(self) -> RowView:
        return RowView.all_rows(self._objective, self._family)

    @property
    def local(self) -> LocalProblem:
        """The local problem, which exists once all rows are read."""
        assert self._local is not None
        return self._local

    @property
    def cache(self) -> ExtentCache:
        """The cache with the trainer's columns."""
        cache = self.local.cache
        assert isinstance(cache, ExtentCache)
        return cache

    def _take_sample(self) -> None:
        """Change to a view of the sample that was drawn last, unless we have it already.

        The view uses the shared arrays directly: another sample is drawn only after we have dropped all
        columns, and then we do nothing until the next anchor.
        """
        layout = self.layout
        n, drawn = (int(x) for x in layout.array("sample_size"))
        if drawn == self._drawn:
            return
        self._drawn = drawn
        if n == self.config.n_rows:  # a view of all rows needs no correction and no proximal weight
            self.local.change_view(self._all_rows())
            return
        proximal = self.local.view.proximal
        self.local.change_view(self._sampled(layout.array("sample_rows")[:n]))
        self.local.view.proximal = proximal

    def _sampled(self, rows: Ids) -> RowView:
        objective, n = self._objective, len(rows)
        y, s = self.layout.array("sample_y")[:n], self.layout.array("sample_s")[:n]
        return RowView(rows, objective.take(rows, s, y))

    # -- orders --------------------------------------------------------------------------------

    def _handle(self, message: Any) -> None:
        match message:
            case SetUp(config):
                self._set_up(config)
            case _:
                self._order = message.order
                name = _ORDERS[type(message)]
                self.link.doing = f"in order {message.order} ({name})"
                fault(f"order-{name}")
                if not isinstance(message, Commit | DropAll | Lend):
                    self._enter()
                getattr(self, f"_{name}")(message)

    def _lend(self, order: Lend) -> None:
        self.cache.take(order.extent, np.empty(0, np.int64))

    def _drop_all(self, _: DropAll) -> None:
        self._entering.clear()
        self._freed(self.cache.give_back_all(), spare=0)
        self._untested.clear()
        self._working = False

    def _anchor(self, order: SendAnchor | Restore) -> None:
        anchor, local, layout = order.anchor, self.local, self.layout
        assert anchor is not None
        if self.config.view_rows:
            self._take_sample()
            # compare the decrease of the last proposal with the one that we promised
            promised = self._promised.get(anchor.version, 0.0)
            self.local.view.trust(anchor.decrease, promised, anchor.beta)
        slots = self.cache.slots
        self._parity = parity = anchor.pass_number & 1
        local.move_anchor(
            anchor.point,
            self._margins[anchor.margins],
            layout.array("slot_gradients")[parity][slots],
            layout.array("slot_curvatures")[parity][slots] if self.config.view_rows else None,
            *anchor.totals,
        )
        self.link.send(AnchorTaken(self._order))
        fault("anchor-taken")
        if self._steps == 0 and self._below == 0.0:
            local.return_to_anchor()
            self._below = 0.0
        else:
            local.keep_point()
            self._update_below()
        self._target, self._outer_violation = anchor.target, anchor.violation
        local.trainer.most_decrease = anchor.gap
        self._lacking = int(WAIT_SHARE * anchor.n_coming)
        self._steps, self._working = 0, not self._lacking
        self._promised = {}
        self._rotation.restart()
        if anchor.crowded:
            keep = local.live_weights != 0.0
            if not keep.all():
                local.evict(keep)

    def _update_below(self) -> None:
        """Recompute how far the point is below the anchor; return to the anchor if the point is above."""
        local = self.local
        self._below = local.rise()
        if self._below > 0.0:
            local.return_to_anchor()
            self._below = 0.0

    def _restore(self, order: Restore) -> None:
        """Take over from a trainer that died: its columns, and the anchor."""
        cache, layout = self.cache, self.layout
        if self.config.view_rows:
            self._take_sample()  # before there are columns
        slots = layout.array("held")[: order.n_held].copy()
        where = cache.store.first[slots] // cache.extent_bytes
        for extent in order.extents:
            cache.take(extent, slots[where == extent])
        cache.adopt(slots[cache.store.ids[slots] >= 0])
        self._steps, self._below = 0, 0.0
        self._promised = {}
        self._anchor(order)

    def _commit(self, order: Commit) -> None:
        """Take over columns that equal no cached one; the next step tests their violations."""
        extent, count, parity = order.extent, order.count, order.pass_number & 1
        self._lacking = max(0, self._lacking - count)
        local, layout, cache = self.local, self.layout, self.cache
        slots = layout.array("extent_slots")[extent, :count].copy()
        gradients = layout.array("slot_gradients")[parity][slots]
        weights = layout.array("slot_weights")[slots]
        cache.take(extent, slots)
        store = cache.store
        found = store.ids[slots], store.nonzeros[slots], store.hashes[slots]

        def adopt(some: Columns) -> Columns:
            cache.adopt(slots[some])
            return some

        entered = admit_needed(local, Newcomers(*found, weights, gradients), adopt)
        for slot in np.delete(slots, entered).tolist():
            cache.drop(slot)
        exact = None
        if self.config.view_rows:
            exact = layout.array("slot_curvatures")[parity][slots[entered]]
        self._entering.append((weights[entered], gradients[entered], exact))
        if not self._lacking or sum(len(w) for w, *_ in self._entering) >= ENTER_TOGETHER:
            self._enter()
        self._working = self._working or (cache.n > 0 and not self._lacking)

    def _enter(self) -> None:
        """Let the columns that came last enter the local problem together.

        Their moments need the residuals of all rows of the view, which take longer to read than a few
        columns.
        """
        entering, self._entering = self._entering, []
        weights, gradients = (
            np.concatenate([e[i] for e in entering] or [np.empty(0)]) for i in (0, 1)
        )
        if not len(weights):
            return
        exact = None
        if self.config.view_rows:
            exact = np.concatenate([e for *_, e in entering if e is not None])
        first = self.cache.n - len(weights)
        self.local.entered(first, weights, gradients, exact)
        self._untested.update(self.cache.ids[first:].tolist())

    def _make_room(self, order: MakeRoom) -> None:
        """Evict columns until enough extents are empty and enough columns are gone, if possible.

        All dead columns may go; of columns with a weight only as many as the rotation allows for each
        anchor, however often room is requested.
        """
        local, cache = self.local, self.cache
        wanted, leaving = order.wanted, order.columns
        given = cache.give_back(wanted, all_but=1) if wanted else []
        short = wanted - len(given)
        if short or leaving:
            n = cache.n
            sizes, weights = cache.sizes, local.live_weights
            # one extent more than wanted, since the remaining columns have to be compacted
            need = (short + 1) * cache.extent_bytes if short else 0
            keep = np.ones(n, bool)
            room = gone = 0
            for j in local.leaving_order():
                if room >= need and gone >= leaving:
                    break
                if weights[j] != 0.0:
                    if not self._rotation.allows(int(sizes[j])):
                        break
                    self._rotation.count(int(sizes[j]))
                keep[j] = False
                room += int(sizes[j])
                gone += 1
            if gone:
                local.evict(keep)
                self._update_below()  # evictions may have raised the point above the anchor
                fault("compaction")
                if short:
                    given += cache.give_back(short, all_but=1)
        self._freed(given, spare=len([e for e in cache.held if cache.empty(int(e))]))

    def _freed(self, extents: Sequence[int], spare: int) -> None:
        self.link.send(Freed(tuple(map(int, extents)), spare, self._order))

    def _rejected(self, _: Rejected) -> None:
        """Handle the rejection of our point, which is worse than the anchor over all rows.

        That happens on a sample, whose model must then be trusted less.
        """
        view = self.local.view
        raised = view.distrust()
        self.local.return_to_anchor()
        self._below = 0.0
        if not view.complete and raised:  # else the same point would be rejected again
            exact = self.layout.array("slot_curvatures")[self._parity][self.cache.slots]
            view.correct(self.local.working, 0, exact)
            self._steps, self._working = 0, True

    # -- steps ---------------------------------------------------------------------------------

    def _step(self) -> None:
        """Take one step, drop new columns that do not violate after it, and publish the point."""
        local = self.local
        self._enter()
        fault("step")
        taken = local.step(self._target)
        self._below -= taken.decrease
        self._drop_tested(local)
        self._steps += taken.moved
        last_word = not taken.moved
        if last_word:
            self._working = False
        if taken.moved or (last_word and (self._steps or self._below < 0.0)):
            self._publish(last_word, taken.violation)

    def _drop_tested(self, local: Any) -> None:
        """Drop new columns that violated at the anchor, but do not at the present point."""
        if not self._untested:
            return
        keep = local.wanted(self._untested)
        self._untested.clear()
        if not keep.all():
            local.evict(keep)

    def _publish(self, last_word: bool, violation: float) -> None:
        """Propose the point."""
        point = self.local.point()
        if len(point.ids) > self.config.max_active:  # the next pass makes room (crowded anchors)
            self.local.return_to_anchor()
            self._below, self._working = 0.0, False
            return
        self._version += 1
        worth = bool(
            last_word
            or self._steps >= WORTH_STEPS
            or violation <= WORTH_SHARE * max(self._outer_violation - 1.0, 0.0)
        )
        self._promised[self._version] = -self._below
        fault("publish")
        models, below = self.local.trainer.models, float(-self._below)
        self.link.send(Published(self._version, worth, last_word, point, below, models))
