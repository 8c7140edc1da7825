"""The loop of online learning: read, list, predict, learn, and report."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fcl.drivers.online.blocks import Blocks, RowBlock, ahead
from fcl.drivers.online.job import OnlineJob
from fcl.drivers.online.progress import Progressive, constant_loss
from fcl.drivers.rows import Rows
from fcl.drivers.saving import was_saved
from fcl.errors import ConvergenceWarning, OutputExistsError
from fcl.features.rows import RowChunk
from fcl.files.online import OnlineState
from fcl.files.result_file import Output
from fcl.memory.meter import rss_anon
from fcl.model.model import Model
from fcl.online import Learner
from fcl.run.bar import Progress
from fcl.run.events import Event, OnlineProgress, Started
from fcl.run.reasons import StopReason
from fcl.run.reporter import Reporter
from fcl.types import Floats

_log = logging.getLogger("fcl")

#: Rows after which a progressive loss above the constant's is worth a warning.
ENOUGH_ROWS = 4000
#: Seconds between two saves of the model during learning.
SAVE_EVERY = 300.0


class OnlineReporter(Reporter):
    """A reporter that keeps the progress of learning."""

    def __init__(
        self, progress: Progress | None, should_stop: Callable[[], bool] | None = None
    ) -> None:
        super().__init__(progress, should_stop)
        self.progress: list[OnlineProgress] = []

    def report(self, event: Event) -> None:
        """Pass an event on."""
        if isinstance(event, OnlineProgress):
            self.progress.append(event)
        super().report(event)

    def started(self, job: OnlineJob) -> None:
        """Report the start."""
        n_valid = 0 if job.valid is None else job.valid.n
        self.report(
            Started(
                plan=job.plan,
                options=job.described(),
                n_rows=job.train.n,
                n_features=job.family.n_features,
                C=job.C,
                alpha=job.alpha,
                learner="online",
                n_valid=n_valid,
            )
        )


@dataclass
class RunPosition:
    """Where a run stands: passes completed, rows of the current pass that are learnt, and its sums."""

    passes: int = 0
    rows: int = 0
    sums: Progressive = field(default_factory=Progressive)


def starting_intercept(loss: str, y: Floats, s: Floats) -> float:
    """The best constant margin of some rows, with one row of each label added for classification."""
    if loss == "squared":
        return float(np.average(y, weights=s))
    positive = float(s[y > 0].sum()) + 1.0
    negative = float(s[y < 0].sum()) + 1.0
    if loss == "logistic":
        return float(np.log(positive / negative))
    return (positive - negative) / (positive + negative)


class OnlineRun:
    """A learner on its way over the rows of a job.

    tracks : whether to sum the losses of the rows, which reports of progress need.
    warns : whether to warn if the losses are larger than those of a constant.
    """

    def __init__(
        self,
        job: OnlineJob,
        learner: Learner,
        place: RunPosition,
        report: Callable[[Event], None],
        should_stop: Callable[[], bool],
        save: Callable[[], object] = lambda: None,
        tracks: bool = True,
        warns: bool = True,
    ) -> None:
        self.job, self.learner, self.place = job, learner, place
        self._report, self._should_stop, self._save = report, should_stop, save
        self._loss = learner.options.kernel_loss
        train, running = job.train, job.running
        self._translates = job.loss.translates
        # the squared loss depends on y - m alone, so that offsets may be subtracted from its targets
        self._y = train.y
        if train.offset is not None and self._translates:
            self._y = train.y - train.offset
        self._blocks = Blocks(
            job.family,
            train,
            running.block_rows,
            running.seed,
            running.shuffle,
            job.plan.keeps_blocks,
        )
        self._begun = self._saved = time.monotonic()
        self._started_with = learner.rows
        self._telling = 0.0  # seconds spent on reports
        self._warned, self._tracks = not warns, tracks
        #: number of the row among the selected ones whose margin was not finite
        self.bad_row = -1
        self.failed = self  #: the run that could not learn a row

    def run(self) -> StopReason:
        """Learn all passes; returns why it ended."""
        passes = self.job.running.passes
        while self.place.passes < passes:
            end = self._pass()
            if end is not None:
                return end
            self.end_pass()
        return StopReason.DONE

    def end_pass(self) -> None:
        """End a pass."""
        self.learner.end_pass()
        self.report_progress()
        line = self.place.sums.next_line
        self.place = RunPosition(self.place.passes + 1, 0, Progressive(next_line=line))

    def _pass(self) -> StopReason | None:
        """Learn the rest of the current pass; returns why it ended early, or None."""
        with self._reading() as blocks:
            for block in blocks:
                if (end := self.learn_block(block)) is not None:
                    return end
                if time.monotonic() - self._saved >= SAVE_EVERY:
                    self._save()
                    self._saved = time.monotonic()
        return None

    def learn_block(self, block: RowBlock, others: Sequence[OnlineRun] = ()) -> StopReason | None:
        """Learn a block; returns why learning ended early, or None.

        others : runs over the same rows with other targets, which learn each chunk after this run.
        """
        runs = (self, *others)
        for run in runs:
            if not run.learner.rows and run.job.start is None:
                run._start_intercept(block)
        for chunk, rows in self._chunks(block):
            if self._should_stop():
                return StopReason.INTERRUPTED
            for run in runs:
                if not run._learn(chunk, rows):
                    self.failed = run
                    return StopReason.MEMORY if run.learner.is_full else StopReason.DIVERGED
        return None

    def _reading(self) -> AbstractContextManager[Iterator[RowBlock]]:
        """The blocks of the rest of the current pass."""
        return ahead(self._blocks.of_pass(self.place.passes, self.place.rows))

    def _start_intercept(self, block: RowBlock) -> None:
        rows = block.rows
        start = starting_intercept(self.job.loss.name, self._y[rows], self.job.train.s[rows])
        self.learner.start_at(start)

    def _chunks(self, block: RowBlock) -> Iterator[tuple[RowChunk, Any]]:
        """The chunks of a block, with the numbers of their rows; cut where a line of progress is due."""
        at, rows = 0, block.rows
        for chunk in self.job.view.chunks(block.raw, block.order):
            done = 0
            while done < len(chunk):
                stop = len(chunk)
                if self._tracks:
                    stop = min(stop, done + max(1, self.place.sums.next_line - self.learner.rows))
                part = replace(chunk, indptr=chunk.indptr[done : stop + 1])
                yield part, rows[at + done : at + stop]
                done = stop
            at += done

    def _learn(self, chunk: RowChunk, rows: Any) -> bool:
        """Learn a chunk; False if a row's margin is not finite, or the table is full."""
        train, place = self.job.train, self.place
        y, s = self._y[rows], train.s[rows]
        margins = np.zeros(len(rows))
        if train.offset is not None and not self._translates:
            margins = train.offset[rows]
        done = self.learner.learn(chunk, y, s, margins)
        place.rows += done
        if self._tracks:
            place.sums.add(self._loss, y[:done], s[:done], margins[:done])
        if done < len(rows):
            self.bad_row = int(rows[done])
            return False
        if self._tracks and self.learner.rows >= place.sums.next_line:
            place.sums.next_line = max(2 * place.sums.next_line, self.learner.rows + 1)
            self.report_progress()
        return True

    def report_progress(self) -> None:
        """Report progress, if it is tracked."""
        if not self._tracks:
            return
        place, learner = self.place, self.learner
        since_begun = time.monotonic() - self._begun
        learning = since_begun - self._telling
        mean, since = place.sums.mark()
        constant = constant_loss(self.job.loss.name, place.sums)
        ids, weights, _ = learner.point()
        self._warn(mean, constant)
        self._report(
            OnlineProgress(
                rows=learner.rows,
                number=place.passes + 1,
                seen=place.passes > 0,
                loss=mean,
                loss_since=since,
                constant_loss=constant,
                active=len(ids),
                norm=float(np.abs(weights).sum()),
                rows_per_second=(learner.rows - self._started_with) / max(learning, 1e-9),
                memory_bytes=rss_anon(os.getpid()),
                seconds=since_begun,
                validation=self._validate(),
            )
        )
        self._telling = time.monotonic() - self._begun - learning

    def _warn(self, mean: float, constant: float) -> None:
        if self._warned or self.learner.rows < min(ENOUGH_ROWS, self.job.train.n):
            return
        if mean > constant:
            self._warned = True
            warnings.warn(
                f"the progressive loss of {mean:.4g} after {self.learner.rows:,} rows is above "
                f"{constant:.4g}, that of the best constant: the rate {self.learner.rate:.3g} is too "
                "large, or the features say little; try a smaller rate, or step implicit",
                ConvergenceWarning,
                stacklevel=2,
            )

    def _validate(self) -> dict[str, Any] | None:
        """The score on the validation rows; None if there are none."""
        valid = self.job.valid
        if valid is None:
            return None
        margins = margins_of(self.job, valid, self.learner)
        return {
            self.job.loss.metric: self.job.loss.score(valid.y, valid.s, margins),
            "n_rows": valid.n,
        }


def write_model(output: Output, model: Model, state: OnlineState | None) -> bool:
    """Write the model so far, with what resumes the run; returns whether it was written.

    A failure never ends learning.
    """
    members = None if state is None else state.members()

    def write() -> None:
        try:
            output.write(lambda path, replaces: model.save(path, replaces, members))
        except OutputExistsError as error:  # it was written beside
            _log.warning("%s", error)

    return was_saved(write)


def margins_of(job: OnlineJob, rows: Rows, learner: Learner) -> Floats:
    """The margins of rows by what was learnt so far, float64 (n,)."""
    ids, weights, intercept = learner.point()
    scorer = job.family.scorer(ids, weights)
    out = np.empty(rows.n)
    blocks = job.family.read_rows(rows.data.rows, job.running.block_rows, rows.keep)
    for start, stop, raw in blocks:
        out[start:stop] = scorer.margins(raw) + intercept
    return out if rows.offset is None else out + rows.offset
