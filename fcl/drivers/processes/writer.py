"""A writer: does the tasks that it is dealt, one by one, on shared memory.

A task writes its own places alone, and counts when its completion message has arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from fcl.cache.store import Store
from fcl.data.prepared import PreparedRows, pack_sides
from fcl.drivers.processes.channel import Message
from fcl.drivers.processes.child import Link
from fcl.drivers.processes.faults import fault
from fcl.drivers.processes.layout import Config, Layout
from fcl.drivers.processes.messages import OUTCOMES, TASKS, From, To
from fcl.drivers.processes.points import read_point, write_point
from fcl.features.base import ColumnMaker
from fcl.model.metrics import average_precision
from fcl.objective import Objective, Penalty, find_loss
from fcl.solve.passes import DualPoint, Passes, Searched, Vectors
from fcl.solve.sample import draw_rows
from fcl.solve.sampling import seed_of_draw

__all__ = ["Writer"]

#: Room is short and an extent is full when less than this share of it is left.
FULL_SHARE = 0.1
#: (stored columns, outcome, count, numbers)
Result = tuple[int, str, int, tuple[float, ...]]
NOTHING: Result = (0, "", 0, ())


class Writer:
    """The role of a child; see :mod:`fcl.drivers.processes.child`."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._read_config()
        self._passes: Passes | None = None
        self._store: Store | None = None
        self._maker: tuple[int, ColumnMaker] | None = None
        self._dual: tuple[int, DualPoint] | None = None  # of the pass that was priced last
        self._sampled = 0  # the sample that we have prepared rows of
        self._sides_end: int | None = None  # of the side arrays that are not a sample's
        self._tasks: dict[str, Callable[[Message], Result]] = {
            name: getattr(self, f"_{name}") for name in TASKS
        }

    def _read_config(self) -> None:
        self.config = Config(**self.link.config())
        self.layout = Layout(self.config, self.link.segment)
        self.family = self.layout.family()
        self.shape = self.family.record_shape(self.config.block_rows)

    def run(self) -> None:
        """Work until the supervisor closes the connection."""
        self.link.send(Message.make(From.READY))
        while True:
            message = self.link.receive()
            assert message is not None
            if message.kind == To.SETUP:
                self._read_config()
            elif message.kind == To.TASK:
                self._work(message)

    def _work(self, message: Message) -> None:
        code, start, stop, serial = message.ints[:4]
        name = TASKS[code]
        self.link.task = (code, start, stop, serial)
        fault(f"{name}-begin")
        since = time.process_time()
        stored, outcome, count, numbers = self._tasks[name](message)
        spent = time.process_time() - since
        fault(f"{name}-done")
        self.link.send(
            Message.make(
                From.DONE,
                *(serial, stored, OUTCOMES.index(outcome), count),
                floats=(*numbers, *(0.0,) * (7 - len(numbers)), spent),
            )
        )

    # -- reading -------------------------------------------------------------------------------

    def _prepare(self, message: Message) -> Result:
        from fcl.data import open_data

        which, first, stop = self.config.parts["prepare"][message.ints[1]]
        source = self.config.sources[which]
        if source is None:  # the supervisor has prepared what it alone can see
            return NOTHING
        data = open_data(source["source"], x=source["x"], y=None)
        keep = self.layout.array(f"keep{which}") if self.config.n_kept[which] else None
        prepared = self.layout.prepared(which, self.shape)
        size = self.config.block_rows
        rows = self.family.read_rows(
            data.rows, size, keep, first * size, min(stop * size, prepared.n_rows)
        )
        for start, _, raw in rows:
            number = start // size
            sides = self.family.prepare(raw, prepared.writable(number))
            prepared.commit(number, sides)
            self._keep_sides("sides", number + (self._first_valid if which else 0), sides)
            fault("prepare-block")
        data.check_unchanged()
        return NOTHING

    @property
    def _first_valid(self) -> int:
        return -(-self.config.n_rows // self.config.block_rows)

    def _keep_sides(self, directory: str, block: int, sides: object) -> None:
        """Append side arrays to our own segment, and say where."""
        data = pack_sides(sides)  # type: ignore[arg-type]
        at = self.link.segment(f"sides_{self.link.number}").append(data)
        self.layout.array(directory)[block] = (self.link.number, at, len(data))

    # -- passes --------------------------------------------------------------------------------

    @property
    def passes(self) -> Passes:
        """The steps over all rows, made when they are first needed: by then all rows are read."""
        if self._passes is None:
            layout, config = self.layout, self.config
            objective = Objective(
                find_loss(config.loss),
                layout.array("y"),
                layout.array("s"),
                config.C,
                config.intercept,
                config.block_rows,
                penalty=Penalty(config.l1_ratio),
            )
            vectors = Vectors(config.n_rows, layout.allocator)
            self._passes = Passes(objective, self.family, self._rows(), vectors)
            self._passes.on_progress = self._on_progress
        return self._passes

    def _on_progress(self, share: float) -> None:
        self.layout.array("shares")[self.link.number] = share

    def _rows(self) -> PreparedRows:
        return self.layout.prepared(0, self.shape)

    def _part(self, kind: str, message: Message) -> range:
        _, first, stop = self.config.parts[kind][message.ints[1]]
        return range(first, stop)

    def _measure(self, message: Message) -> Result:
        self.passes.measure(self._part("price", message))
        return NOTHING

    def _margins(self, message: Message) -> Result:
        self.passes.vectors.anchor = message.ints[6]
        point = read_point(self.layout, "proposed", message.ints[5], 0.0)
        self.passes.write_margins(point, self._part("margins", message))
        return NOTHING

    def _search(self, message: Message) -> Result:
        """floats: value and intercept of the anchor, intercept of the proposed point; their sizes."""
        passes = self.passes
        passes.vectors.anchor = message.ints[6]
        value, b_anchor, b_proposed, n_anchor, n_proposed = message.floats[:5]
        anchor = read_point(self.layout, f"anchor{message.ints[5]}", int(n_anchor), b_anchor)
        proposed = read_point(self.layout, "proposed", int(n_proposed), b_proposed)
        found = passes.search(anchor, value, proposed)
        if found.point is not None and found.beta != 1.0:
            write_point(self.layout, "found", found.point)
            numbers = (found.beta, found.point.intercept, found.objective)
            return (0, "blend", len(found.point.ids), numbers)
        return self._found(found)

    def _accept(self, message: Message) -> Result:
        """floats: value of the anchor, intercept of the point, beta; size of the point, fallback.

        With a fallback a point that is worse makes way for it: its margins are to be made.
        """
        passes = self.passes
        passes.vectors.anchor = message.ints[6]
        value, b, beta, n, fallback = message.floats[:5]
        point = read_point(self.layout, "proposed", int(n), b)
        found = passes.settled(point, value, beta, b)
        return (0, "blend", 0, ()) if fallback and found.point is None else self._found(found)

    @staticmethod
    def _found(found: Searched) -> Result:
        if found.point is None:
            return (0, "rejected", 0, (0.0, 0.0, found.objective))
        return (0, "accepted", 0, (found.beta, found.point.intercept, found.objective))

    def _residuals(self, message: Message) -> Result:
        self.passes.vectors.anchor = message.ints[6]
        self.passes.write_residuals(message.floats[0], self._part("margins", message))
        return NOTHING

    def _price(self, message: Message) -> Result:
        """Argument: number of the pass. floats: threshold."""
        passes, layout, config = self.passes, self.layout, self.config
        number = message.ints[1]
        part = self._part("price", message)
        watch = layout.array("watch_ids")[: message.ints[5]]
        pass_number = message.ints[6]
        if self._dual is None or self._dual[0] != pass_number:
            self._dual = pass_number, passes.dual_point()
        prices = passes.price(self._dual[1], watch, message.floats[0], part, pass_number)
        self._scatter(layout.array("watched"), prices.watched)
        at = config.keep * part.start
        found = len(prices.ids)
        layout.array("priced_ids")[at : at + found] = prices.ids
        layout.array("priced_gradients")[at : at + found] = prices.gradients
        # a view of all rows sees the curvatures itself
        if config.view_rows and layout.array("sample_size")[0] < config.n_rows:
            ids = np.concatenate([watch, prices.ids])
            sums = passes.curvature_sums(ids, part)
            self._scatter(layout.array("watched_curvatures"), sums[: len(watch)])
            layout.array("priced_curvatures")[at : at + found] = sums[len(watch) :]
        layout.array("priced_counts")[number] = found
        layout.array("priced_largest")[number] = prices.largest
        layout.array("priced_reach")[number] = prices.reach
        layout.array("priced_excess")[part.start : part.stop] = prices.excess
        return NOTHING

    @staticmethod
    def _scatter(target: np.ndarray, part: np.ndarray) -> None:
        """Write sums that are 0 for features of other parts; the places were 0 before."""
        own = np.flatnonzero(part)
        target[own] = part[own]

    def _certify(self, message: Message) -> Result:
        """floats: largest |g~_j| / f_j and excess over the family."""
        bound = self.passes.bound(self.passes.dual_point(), *message.floats[:2])
        return (0, "", 0, (bound, *self.passes.totals()))

    # -- the sample ----------------------------------------------------------------------------

    def _draw(self, message: Message) -> Result:
        """Count: how often rows were drawn; argument: how many are wanted."""
        layout, passes = self.layout, self.passes
        blocks = -(-message.ints[6] // self.config.block_rows)  # there are tasks for so many
        rows = layout.array("sample_rows")[: blocks * self.config.block_rows]
        n = draw_rows(
            passes.objective,
            passes.vectors.curvatures,
            message.ints[6],
            seed_of_draw(self.config.seed, message.ints[5]),
            rows,
            layout.array("sample_s"),
        )
        layout.array("sample_y")[:n] = passes.objective.y[rows[:n]]
        return (0, "", n, ())

    def _sample(self, message: Message) -> Result:
        chosen = self.layout.prepared(2, self.shape)
        number = message.ints[1]
        drawn = int(self.layout.array("sample_size")[1])
        if drawn != self._sampled:  # what the sample before had is not wanted any more
            own = self.link.segment(f"sides_{self.link.number}")
            self._sampled, self._sides_end = drawn, own.rewind(self._sides_end)
        if number >= chosen.n_blocks:  # fewer rows were drawn than expected
            return NOTHING
        rows = self.layout.array("sample_rows")[: chosen.n_rows]
        self.family.select(self.passes.prepared, rows, chosen, number)
        self._keep_sides("sample_sides", number, chosen.sides(number))
        return NOTHING

    # -- columns -------------------------------------------------------------------------------

    def _columns(self, message: Message) -> Result:
        """Make columns of a part of the list, and store as many as fit into the extent granted.

        If the last argument says that room is short, those that promise most for their bytes come
        first. ``job_order`` gets the order in which they were stored, the others behind; the supervisor
        puts the list in that order, for whoever dies here must leave it as it was.
        """
        _, start, stop, _, extent, n_slots, short = message.ints
        layout, config = self.layout, self.config
        store = self._columns_store()
        ids = layout.array("job_ids")[start:stop].copy()
        # where slopes are off by as much, a larger factor promises more
        violations = layout.array("job_violations")[start:stop] * self.family.penalty_factors(ids)
        maker = self._column_maker()
        order = maker.order(ids)
        begin = extent * config.extent_bytes
        into, end = begin, begin + config.extent_bytes
        slots = layout.array("job_slots")[start:stop]
        stored: list[int] = []
        for at in range(0, len(ids), maker.batch):
            part = order[at : at + maker.batch]
            staged = store.measure(ids[part], maker.make(ids[part]))
            turn = np.arange(len(part))
            if short:
                # the decrease that a column alone promises is violation^2 / 2h, and h goes with its count
                worth = violations[part] ** 2
                worth /= np.maximum(staged.nonzeros, 1) * np.maximum(staged.sizes, 8)
                # the largest violation of all is the first of the list, and always enters
                turn = np.argsort(np.where(part + start == 0, -np.inf, -worth), kind="stable")
            for t in turn:
                size = int(staged.sizes[t])
                if len(stored) < n_slots and into + size <= end:
                    # one without entries lies at the beginning: the end is the next extent's
                    place = into if size else begin
                    store.write(int(slots[len(stored)]), staged, int(t), place)
                    fault("columns-piece")
                    into += size
                    stored.append(int(part[t]))
            full = into + FULL_SHARE * config.extent_bytes >= end if short else False
            if full or (not short and len(stored) < min(at + len(part), len(order))):
                break  # others will make the rest
        self._enter(start, stop, stored, extent, int(message.floats[0]))
        fault("columns-commit")
        return (len(stored), "", into - begin, ())

    def _enter(self, start: int, stop: int, stored: list[int], extent: int, parity: int) -> None:
        """Tell by slot what the trainer needs to know of the columns that were stored."""
        layout = self.layout
        first = np.array(stored, np.int64)
        rest = np.setdiff1d(np.arange(stop - start), first)
        layout.array("job_order")[start:stop] = np.concatenate([first, rest])
        slots = layout.array("job_slots")[start : start + len(first)]
        for name, target in (
            ("gradients", layout.array("slot_gradients")[parity]),
            ("curvatures", layout.array("slot_curvatures")[parity]),
            ("weights", layout.array("slot_weights")),
        ):
            target[slots] = layout.array(f"job_{name}")[start:stop][first]
        layout.array("extent_slots")[extent, : len(first)] = slots

    def _columns_store(self) -> Store:
        if self._store is None:
            self._store = self.layout.store()
        return self._store

    def _column_maker(self) -> ColumnMaker:
        """The maker of columns on the rows of the trainer's view."""
        drawn = -1
        if self.config.view_rows:
            drawn = int(self.layout.array("sample_size")[1])
        if self._maker is None or self._maker[0] != drawn:
            rows = self.passes.prepared if drawn < 0 else self.layout.prepared(2, self.shape)
            self._maker = drawn, self.family.column_maker(rows, self.config.staging)
        return self._maker[1]

    # -- validation ----------------------------------------------------------------------------

    def _validate(self, message: Message) -> Result:
        """floats: the intercept."""
        valid = self.layout.prepared(1, self.shape)
        n, b = message.ints[5], message.floats[0]
        point = read_point(self.layout, "validated", n, b)
        blocks = self._part("validate", message)
        margins = self.layout.array("valid_margins")
        self.family.write_margins(valid, point.ids, point.weights, margins, blocks)
        rows = slice(valid.rows_of(blocks.start).start, valid.rows_of(blocks.stop - 1).stop)
        margins[rows] += b
        return NOTHING

    def _score(self, message: Message) -> Result:
        y, margins = self.layout.array("valid_y"), self.layout.array("valid_margins")
        if find_loss(self.config.loss).classifies:
            return (0, "", 0, (average_precision(y, margins),))
        weights = self.layout.array("valid_s")
        return (0, "", 0, (float(np.average((y - margins) ** 2, weights=weights)),))
