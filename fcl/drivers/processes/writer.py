"""A writer: does the tasks that it is given, one by one, on shared memory.

A task writes only to its own places, and its results count once its completion message has arrived.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.cache.store import Store
from fcl.data import open_data
from fcl.drivers.processes.child import ChildLink
from fcl.drivers.processes.faults import fault
from fcl.drivers.processes.layout import Config, Layout
from fcl.drivers.processes.logic.protocol import (
    WRITER,
    Outcome,
    Ready,
    SharedPoint,
    Total,
    WriterTask,
)
from fcl.drivers.processes.messages import (
    Assign,
    BoundResult,
    ColumnRoom,
    ColumnsStored,
    Input,
    PricingInput,
    ResidualsInput,
    Result,
    RowsDrawn,
    SampleRequest,
    Score,
    SearchResult,
    SetUp,
    TaskDone,
    TriedPoint,
)
from fcl.features.base import ColumnMaker
from fcl.options import TrainOptions
from fcl.parallel import Team
from fcl.run.held_out import HeldOutScores
from fcl.solve import passes as steps
from fcl.solve.margins import write_margins
from fcl.solve.passes import KEEP_PER_GROUP, DualPoint, Passes, Vectors
from fcl.solve.sampling import draw_rows, seed_of_draw
from fcl.solve.state import is_active

if TYPE_CHECKING:
    from fcl.data import DataSet

#: If room is short, an extent is full when less than this share of it is left.
FULL_SHARE = 0.1


class Writer:
    """The role of a child; see :mod:`fcl.drivers.processes.child`."""

    def __init__(self, link: ChildLink) -> None:
        self.link = link
        self._passes: Passes | None = None
        self._store: Store | None = None
        self._maker: tuple[int, ColumnMaker] | None = None
        self._dual: tuple[int, DualPoint] | None = None  # pass priced last, and its dual point
        self._opened: tuple[int, DataSet] | None = None  # rows that are read, until all are
        self._sampled = 0  # number of the draw whose rows we have prepared
        self._sides_end: int | None = None  # where our side arrays of the sample begin

    def _set_up(self, config: Config) -> None:
        self.config = config
        self.options = TrainOptions(**self.config.options)
        self.layout = Layout(self.config, self.link.segment)
        self.family = self.layout.family()
        self._team = Team(self.config.cores)

    def run(self) -> None:
        """Work until the supervisor closes the connection."""
        self.link.send(Ready(WRITER, self.link.number))
        while True:
            match self.link.receive():
                case SetUp(config):
                    self._set_up(Config.from_json(config))
                case Assign(task, given):
                    self._do(task, given)

    def _do(self, task: WriterTask, given: Input | None) -> None:
        """Do a task by the method that has the name of its kind."""
        do: Callable[[WriterTask, Any], Result | None] = getattr(self, f"_{task.kind}")
        self.link.doing = f"in the task {task.kind}, parts {task.start} to {task.stop}"
        fault(f"{task.kind}-begin")
        if task.kind != "prepare":
            self._opened = None
        self._team.threads = task.threads
        since = time.process_time()
        result = do(task, given)
        spent = time.process_time() - since
        fault(f"{task.kind}-done")
        self.link.send(TaskDone(task.serial, spent, result))

    # -- reading -------------------------------------------------------------------------------

    def _prepare(self, task: WriterTask, _: None) -> None:
        which, first, stop = self.config.parts["prepare"][task.start]
        source = self.config.sources[which]
        if source is None:  # the supervisor has prepared these rows, which only it can read
            return
        if self._opened is None or self._opened[0] != which:
            # kept for the next part, since it takes several requests to open a store
            self._opened = which, open_data(**source, y=None)
        data, layout = self._opened[1], self.layout
        data.rows.most_ahead = self.config.most_ahead
        keep = layout.array(f"keep{which}") if self.config.n_kept[which] else None
        prepared, before = layout.prepared(which), layout.first_block(which)
        for number, sides in self.family.fill(prepared, data.rows, keep, range(first, stop)):
            layout.keep_sides("sides", before + number, self.link.number, sides)
            del sides
            prepared.forget_sides(number)
            fault("prepare-block")
        data.check_unchanged()

    # -- passes --------------------------------------------------------------------------------

    @property
    def passes(self) -> Passes:
        """The steps over all rows; first used when all rows are read."""
        if self._passes is None:
            layout, config = self.layout, self.config
            objective = layout.objective(self.options, self._team)
            vectors = Vectors(config.n_rows, layout.allocator, config.n_outputs)
            self._passes = Passes(objective, self.family, layout.prepared(0), vectors)
            self._passes.on_progress = self._on_progress
        return self._passes

    def _on_progress(self, share: float) -> None:
        self.layout.array("shares")[self.link.number] = share

    def _part(self, kind: str, task: WriterTask) -> range:
        _, first, stop = self.config.parts[kind][task.start]
        return range(first, stop)

    def _measure(self, task: WriterTask, _: None) -> None:
        self.passes.measure(self._part("price", task))

    def _margins(self, task: WriterTask, tried: TriedPoint) -> None:
        self.passes.vectors.anchor = tried.margins
        point = self.layout.read_point(tried.point)
        self.passes.write_margins(point, self._part("margins", task))

    def _search(self, _: WriterTask, tried: TriedPoint) -> SearchResult:
        self.passes.vectors.anchor = tried.margins
        anchor = self.layout.read_point(tried.anchor)
        proposal = self.layout.read_point(tried.point)
        found = self.passes.search(anchor, tried.objective, proposal)
        if found.point is None or found.beta == 1.0:
            return self._found(found, tried.point)
        if not self.layout.has_room(found.point):
            return SearchResult(Outcome.REJECTED, found.objective)
        point = self.layout.write_point("found", found.point)
        return SearchResult(Outcome.BLEND, found.objective, found.beta, point)

    def _accept(self, _: WriterTask, tried: TriedPoint) -> SearchResult:
        self.passes.vectors.anchor = tried.margins
        point = self.layout.read_point(tried.point)
        found = self.passes.fit_at(point, tried.objective, tried.beta, point.intercept)
        if tried.has_fallback and found.point is None:
            return SearchResult(Outcome.BLEND)
        return self._found(found, tried.point)

    @staticmethod
    def _found(found: steps.Searched, tried: SharedPoint) -> SearchResult:
        if found.point is None:
            return SearchResult(Outcome.REJECTED, found.objective)
        v = tuple(found.point.covariates.tolist())
        point = replace(tried, intercept=found.point.intercept, covariates=v)
        return SearchResult(Outcome.ACCEPTED, found.objective, found.beta, point)

    def _residuals(self, task: WriterTask, anchor: ResidualsInput) -> None:
        self.passes.vectors.anchor = anchor.margins
        blocks = self._part("margins", task)
        self.passes.write_residuals(anchor.intercept, blocks, anchor.loss)

    def _price(self, task: WriterTask, given: PricingInput) -> None:
        passes, layout, config = self.passes, self.layout, self.config
        part = self._part("price", task)
        watch = layout.array("watch_ids")[: given.n_watched]
        if self._dual is None or self._dual[0] != task.pass_number:
            passes.vectors.loss = given.loss
            self._dual = task.pass_number, passes.dual_point()
        prices = passes.price(self._dual[1], watch, given.threshold, part, task.pass_number)
        self._scatter(layout.array("watched"), prices.watched)
        at = KEEP_PER_GROUP * part.start
        found = len(prices.ids)
        layout.array("priced_ids")[at : at + found] = prices.ids
        layout.array("priced_gradients")[at : at + found] = prices.gradients
        # a trainer with a view of all rows computes the curvatures itself
        if config.view_rows and layout.array("sample_size")[0] < config.n_rows:
            ids = np.concatenate([watch, prices.ids])
            sums = passes.curvature_sums(ids, part)
            self._scatter(layout.array("watched_curvatures"), sums[: len(watch)])
            layout.array("priced_curvatures")[at : at + found] = sums[len(watch) :]
        layout.array("priced_counts")[task.start] = found
        layout.array("priced_largest")[task.start] = prices.largest
        if config.n_outputs > 1:
            layout.array("priced_by_output")[task.start] = prices.by_output
        layout.array("priced_reach")[task.start] = prices.reach
        layout.array("priced_cost")[task.start] = prices.cost
        layout.array("priced_widest")[task.start] = prices.widest
        layout.array("priced_excess")[part.start : part.stop] = prices.excess

    @staticmethod
    def _scatter(target: np.ndarray, part: np.ndarray) -> None:
        """Write the sums of this part's features, and skip zeros, the sums of other parts' features."""
        own = np.flatnonzero(is_active(part))
        target[own] = part[own]

    def _certify(self, _: WriterTask, anchor: ResidualsInput) -> BoundResult:
        passes = self.passes
        passes.vectors.anchor, passes.vectors.loss = anchor.margins, anchor.loss
        largest = float(self.layout.array("priced_largest").max())
        by_output = self.layout.array("priced_by_output").max(axis=0)
        excess = math.fsum(self.layout.array("priced_excess"))
        cost = math.fsum(self.layout.array("priced_cost"))
        widest = float(self.layout.array("priced_widest").max())
        bound = passes.bound(passes.dual_point(), largest, excess, by_output, cost, widest)
        return BoundResult(bound, *(_plain(total) for total in passes.totals()))

    # -- the sample ----------------------------------------------------------------------------

    def _draw(self, _: WriterTask, size: SampleRequest) -> RowsDrawn:
        layout, passes = self.layout, self.passes
        blocks = -(-size.n_rows // self.config.block_rows)  # the number of sample tasks
        rows = layout.array("sample_rows")[: blocks * self.config.block_rows]
        n = draw_rows(
            passes.objective,
            passes.vectors.curvatures,
            size.n_rows,
            seed_of_draw(self.options.seed, size.draw),
            rows,
            layout.array("sample_s"),
        )
        return RowsDrawn(n)

    def _sample(self, task: WriterTask, _: None) -> None:
        chosen = self.layout.prepared(2)
        number = task.start
        drawn = int(self.layout.array("sample_size")[1])
        if drawn != self._sampled:  # overwrite the side arrays of the sample before
            own = self.link.segment(f"sample_sides_{self.link.number}")
            self._sampled, self._sides_end = drawn, own.rewind(self._sides_end)
        if number >= chosen.n_blocks:  # fewer rows were drawn than expected
            return
        rows = self.layout.array("sample_rows")[: chosen.n_rows]
        self.family.select(self.passes.prepared, rows, chosen, number)
        self.layout.keep_sides("sample_sides", number, self.link.number, chosen.sides(number))

    # -- columns -------------------------------------------------------------------------------

    def _columns(self, task: WriterTask, room: ColumnRoom) -> ColumnsStored:
        """Make columns of a part of the list, and store as many as fit into the granted extent.

        If room is short, batches of larger violations come first, and in each the columns that promise
        most for the slots or bytes that they take. The order of storing is written to ``job_order``,
        followed by the other features. The supervisor reorders the list, so that a writer that dies here
        leaves the list unchanged.
        """
        start, stop, short = task.start, task.stop, room.is_short
        layout, config = self.layout, self.config
        store = self._columns_store()
        ids = layout.array("job_ids")[start:stop].copy()
        # violations are relative to the penalty factors; the promise depends on absolute slopes
        violations = layout.array("job_violations")[start:stop] * self.family.penalty_factors(ids)
        maker = self._column_maker()
        if start == 0:  # the first of the list has the largest violation of all, and always enters
            violations[0] = np.inf
        order = maker.order(ids)
        if short:
            batch = np.empty(len(ids), np.intp)
            batch[np.argsort(-violations, kind="stable")] = np.arange(len(ids)) // maker.batch
            order = order[np.argsort(batch[order], kind="stable")]
        begin = task.extent * config.extent_bytes
        into, end = begin, begin + config.extent_bytes
        slots = layout.array("job_slots")[start:stop]
        stored: list[int] = []
        for at in range(0, len(ids), maker.batch):
            part = order[at : at + maker.batch]
            staged = store.measure(ids[part], maker.make(ids[part]))
            turn = np.arange(len(part))
            if short:
                # a column alone promises a decrease of violation^2 / 2h, where h grows with its entries
                worth = violations[part] ** 2 / np.maximum(staged.nonzeros, 1)
                if room.n_slots >= len(ids):  # bytes are short, not slots
                    worth /= np.maximum(staged.sizes, 8)
                turn = np.argsort(-worth, kind="stable")
            some, places, before = [], [], len(stored)
            for t in turn:
                size = int(staged.sizes[t])
                if len(stored) < room.n_slots and into + size <= end:
                    some.append(t)
                    # an empty column is placed at the beginning, since the end belongs to the next extent
                    places.append(into if size else begin)
                    into += size
                    stored.append(int(part[t]))
            own = slots[before : len(stored)]
            store.write(own, staged, np.array(some, np.intp), np.array(places, np.intp))
            for _ in some:  # faults are counted by columns
                fault("columns-piece")
            full = into + FULL_SHARE * config.extent_bytes >= end if short else False
            if full or (not short and len(stored) < min(at + len(part), len(order))):
                break  # the rest is dealt again
        self._enter(task, stored)
        fault("columns-commit")
        return ColumnsStored(len(stored))

    def _enter(self, task: WriterTask, stored: list[int]) -> None:
        """Write what the trainer needs to know of the stored columns, by slot."""
        layout, start, stop = self.layout, task.start, task.stop
        parity = task.pass_number & 1
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
        layout.array("extent_slots")[task.extent, : len(first)] = slots

    def _columns_store(self) -> Store:
        if self._store is None:
            self._store = self.layout.store()
        return self._store

    def _column_maker(self) -> ColumnMaker:
        """The maker of columns over the rows of the trainer's view."""
        drawn = -1
        if self.config.view_rows:
            drawn = int(self.layout.array("sample_size")[1])
        if self._maker is None or self._maker[0] != drawn:
            rows = self.passes.prepared if drawn < 0 else self.layout.prepared(2)
            self._maker = drawn, self.family.column_maker(rows, self.config.staging)
        return self._maker[1]

    # -- validation ----------------------------------------------------------------------------

    def _validate(self, task: WriterTask, validated: SharedPoint) -> None:
        valid = self.layout.prepared(1)
        point = self.layout.read_point(validated)
        blocks = self._part("validate", task)
        margins = self.layout.array("valid_margins")
        offset, covariates = self.layout.offset("valid_"), self.layout.covariates("valid_")
        write_margins(self.family, valid, point, margins, offset, covariates, blocks)

    def _score(self, _: WriterTask, __: None) -> Score:
        rows = (self.layout.array(f"valid_{name}") for name in ("y", "s", "margins"))
        found = HeldOutScores.of(self.options, *rows)
        return Score(found.metric, found.loss)


def _plain(total: Any) -> Total:
    """A sum over rows as a number, or as a tuple with several outputs."""
    return tuple(total.tolist()) if isinstance(total, np.ndarray) else total
