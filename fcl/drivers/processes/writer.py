"""A writer: does the tasks that it is given, one by one, on shared memory.

A task writes only to its own places, and its results count once its completion message has arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fcl.cache.store import Store
from fcl.data import DataSet, open_data
from fcl.drivers.processes.child import ChildLink
from fcl.drivers.processes.faults import fault
from fcl.drivers.processes.layout import Layout
from fcl.drivers.processes.logic.protocol import (
    WRITER,
    Assign,
    Ready,
    SetUp,
    TaskDone,
    WriterTask,
)
from fcl.features.base import ColumnMaker
from fcl.features.prices import Prices
from fcl.parallel import Team
from fcl.run.held_out import HeldOutScores
from fcl.solve.margins import write_margins
from fcl.solve.passes import DualPoint, Passes, Searched, Vectors
from fcl.solve.sampling import draw_rows, seed_of_draw
from fcl.solve.state import Point, is_active
from fcl.types import Floats, Ids

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

    def run(self) -> None:
        """Work until the supervisor closes the connection."""
        self.link.send(Ready(WRITER, self.link.number))
        while True:
            match self.link.receive():
                case SetUp(config):
                    self.config = config
                    self.layout = Layout(config, self.link.segment)
                    self.family = self.layout.family()
                    self._team = Team(config.cores)
                case Assign(task, inputs):
                    self._do(task, inputs)

    def _do(self, task: WriterTask, inputs: dict[str, Any]) -> None:
        """Do a task by the method that has the name of its kind."""
        do: Callable[..., Any] = getattr(self, f"_{task.kind}")
        self.link.doing = f"in the task {task.kind}, parts {task.start} to {task.stop}"
        fault(f"{task.kind}-begin")
        if task.kind != "prepare":
            self._opened = None
        self._team.threads = task.threads
        since = time.process_time()
        result = do(task, **inputs)
        spent = time.process_time() - since
        fault(f"{task.kind}-done")
        self.link.send(TaskDone(task.serial, spent, result))

    # -- reading -------------------------------------------------------------------------------

    def _prepare(self, task: WriterTask) -> None:
        which, blocks = self.config.parts["prepare"][task.start]
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
        for number, sides in self.family.fill(prepared, data.rows, keep, blocks):
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
            objective = layout.objective(self._team)
            vectors = Vectors(config.n_rows, layout.allocator, config.n_outputs)
            self._passes = Passes(objective, self.family, layout.prepared(0), vectors)
            self._passes.on_progress = self._on_progress
        return self._passes

    def _at(self, anchor: int) -> Passes:
        """The steps, where the anchor's margins are the vector of this index."""
        self.passes.vectors.anchor = anchor
        return self.passes

    def _on_progress(self, share: float) -> None:
        self.layout.array("shares")[self.link.number] = share

    def _part(self, kind: str, task: WriterTask) -> range:
        return self.config.parts[kind][task.start][1]

    def _measure(self, task: WriterTask) -> None:
        self.passes.measure(self._part("price", task))

    def _margins(self, task: WriterTask, anchor: int, point: Point) -> None:
        self._at(anchor).write_margins(point, self._part("margins", task))

    def _search(
        self, _: WriterTask, anchor: int, start: Point, value: float, point: Point
    ) -> Searched:
        return self._at(anchor).search(start, value, point)

    def _accept(
        self, _: WriterTask, anchor: int, value: float, point: Point, beta: float
    ) -> Searched:
        return self._at(anchor).fit_at(point, value, beta, point.intercept)

    def _residuals(self, task: WriterTask, anchor: int, intercept: float, loss: float) -> None:
        self._at(anchor).write_residuals(intercept, self._part("margins", task), loss)

    def _price(
        self, task: WriterTask, n_watched: int, threshold: float, loss: float
    ) -> tuple[Prices, Floats]:
        """The prices of a part, and the candidates' curvatures; watched sums go to shared memory."""
        passes, layout, config = self.passes, self.layout, self.config
        part = self._part("price", task)
        watch = layout.array("watch_ids")[:n_watched]
        if self._dual is None or self._dual[0] != task.pass_number:
            passes.vectors.loss = loss
            self._dual = task.pass_number, passes.dual_point()
        prices = passes.price(self._dual[1], watch, threshold, part, task.pass_number)
        self._scatter(layout.array("watched"), prices.watched)
        curvatures = np.zeros(prices.gradients.shape)
        # a trainer with a view of all rows computes the curvatures itself
        if config.view_rows and layout.array("sample_size")[0] < config.n_rows:
            sums = passes.curvature_sums(np.concatenate([watch, prices.ids]), part)
            self._scatter(layout.array("watched_curvatures"), sums[:n_watched])
            curvatures = sums[n_watched:]
        return replace(prices, watched=prices.watched[:0]), curvatures

    @staticmethod
    def _scatter(target: np.ndarray, part: np.ndarray) -> None:
        """Write the sums of this part's features, and skip zeros, the sums of other parts' features."""
        own = np.flatnonzero(is_active(part))
        target[own] = part[own]

    def _certify(
        self, _: WriterTask, anchor: int, loss: float, prices: Prices
    ) -> tuple[float, tuple[Any, Any]]:
        """The dual bound at the anchor, and the sums of residuals and curvatures."""
        passes = self._at(anchor)
        passes.vectors.loss = loss
        return passes.bound_of(passes.dual_point(), prices), passes.totals()

    # -- the sample ----------------------------------------------------------------------------

    def _draw(self, _: WriterTask, number: int, n_rows: int) -> int:
        """Draw a sample of rows; returns their number."""
        layout, passes = self.layout, self.passes
        blocks = -(-n_rows // self.config.block_rows)  # the number of sample tasks
        rows = layout.array("sample_rows")[: blocks * self.config.block_rows]
        seed = seed_of_draw(self.config.options.seed, number)
        curvatures, weights = passes.vectors.curvatures, layout.array("sample_s")
        return draw_rows(passes.objective, curvatures, n_rows, seed, rows, weights)

    def _sample(self, task: WriterTask) -> None:
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

    def _columns(
        self, task: WriterTask, ids: Ids, violations: Floats, slots: Ids, short: bool
    ) -> Ids:
        """Make columns, and store as many as fit into the granted extent and the slots.

        If room is short, batches of larger violations come first, and in each the columns that promise
        most for the slots or bytes that they take. Returns the positions of the columns in the order of
        storing.

        short : whether there may be too little room for all columns of the list.
        """
        config = self.config
        if self._store is None:
            self._store = self.layout.store()
        store = self._store
        # violations are relative to the penalty factors; the promise depends on absolute slopes
        violations = violations * self.family.penalty_factors(ids)
        maker = self._column_maker()
        if task.start == 0:  # the largest violation of the list always enters
            violations[0] = np.inf
        order = maker.order(ids)
        if short:
            batch = np.empty(len(ids), np.intp)
            batch[np.argsort(-violations, kind="stable")] = np.arange(len(ids)) // maker.batch
            order = order[np.argsort(batch[order], kind="stable")]
        begin = task.extent * config.extent_bytes
        into, end = begin, begin + config.extent_bytes
        stored: list[int] = []
        for at in range(0, len(ids), maker.batch):
            part = order[at : at + maker.batch]
            staged = store.measure(ids[part], maker.make(ids[part]))
            turn = np.arange(len(part))
            if short:
                # a column alone promises a decrease of violation^2 / 2h, where h grows with its entries
                worth = violations[part] ** 2 / np.maximum(staged.nonzeros, 1)
                if len(slots) >= len(ids):  # bytes are short, not slots
                    worth /= np.maximum(staged.sizes, 8)
                turn = np.argsort(-worth, kind="stable")
            some, places, before = [], [], len(stored)
            for t in turn:
                size = int(staged.sizes[t])
                if len(stored) < len(slots) and into + size <= end:
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
        fault("columns-commit")
        return np.array(stored, np.int64)

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

    def _validate(self, task: WriterTask, point: Point) -> None:
        layout, margins = self.layout, self.layout.array("valid_margins")
        offset, covariates = layout.offset("valid_"), layout.covariates("valid_")
        blocks = self._part("validate", task)
        valid = layout.prepared(1)
        write_margins(self.family, valid, point, margins, offset, covariates, blocks)

    def _score(self, _: WriterTask) -> HeldOutScores:
        rows = (self.layout.array(f"valid_{name}") for name in ("y", "s", "margins"))
        return HeldOutScores.of(self.config.options, *rows)
