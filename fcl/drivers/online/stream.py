"""Online learning from a stream of rows, which is read once and need not end."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fcl import kernels
from fcl.clock import parts_of
from fcl.data.columns import ColumnRecord
from fcl.data.dataset import DataSet
from fcl.data.sparse import SparseRows, from_matrix
from fcl.drivers.initial import online_start
from fcl.drivers.kinds import JOB_SECONDS
from fcl.drivers.online.blocks import RowBlock
from fcl.drivers.online.job import OnlineJob, make_online_job
from fcl.drivers.online.run import OnlineReporter, OnlineRun, RunPosition, write_model
from fcl.drivers.online.train import (
    OnlineResult,
    _state,
    begin,
    full_message,
    kept_options,
    model_of,
    output_of,
)
from fcl.drivers.rows import weighted_by_class
from fcl.errors import InputError
from fcl.features import Spec
from fcl.files.online import OnlineState, read_state
from fcl.files.result_file import Output
from fcl.memory.meter import peak_memory
from fcl.model.columns import difference
from fcl.model.model import Model, load_model
from fcl.online import Learner
from fcl.options import OnlineOptions, OnlineRunOptions
from fcl.options.online import RUNNING
from fcl.parallel import one_blas_thread
from fcl.run.bar import Progress
from fcl.run.events import Compiling
from fcl.run.reasons import StopReason
from fcl.types import Floats

#: Rows of the first block, if the stream has as many: they decide labels, first intercept and rate.
FIRST_ROWS = 4096


@dataclass(frozen=True)
class StreamBlock:
    """Some rows of a stream, at least one.

    x : float64, m rows.
    y : float64 (m,), targets or labels.
    line : returns the number of the line of a row of the block, from 1, for messages.
    columns : what is known about the columns; the same for all blocks.
    """

    x: SparseRows
    y: Floats
    line: Callable[[int], int]
    columns: ColumnRecord = field(default_factory=ColumnRecord)


def learn_stream(
    blocks: Iterator[StreamBlock],
    features: Spec | str | None = None,
    *,
    name: str = "standard input",
    initial: Model | None = None,
    resume: str | os.PathLike[str] | None = None,
    valid: DataSet | None = None,
    save: str | os.PathLike[str] | Output | None = None,
    bare: bool = False,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
    **given: Any,
) -> OnlineResult:
    """Learn a sparse linear model from rows in their order, each of weight 1, until they end.

    The model is the same however the rows after the first block are cut into blocks.

    blocks : the first one should have ``FIRST_ROWS`` rows, unless the stream ends before; for
        classification both labels must be among them.
    name : of the stream, for messages.
    resume : model file of an earlier stream, which this one continues: the rows must be those that
        follow. The weights are the same, bit for bit, as if the stream had never ended; the fingerprint
        is that of both parts. Of the options only ``memory`` and those of reporting are used.
    bare : whether to leave the learner's state out of the file of ``save``.
    **given : options of :func:`fcl.train_online`, with alpha instead of C = 1 / (alpha n), which is known
        at the end. The first block decides how much class weights change the sum of the weights.

    The model has no certificate, since the rows cannot be read again. Raises InputError: the stream is
    empty, a label does not occur in the first block, or an option is wrong.
    """
    first = next(blocks, None)
    if first is None:
        raise InputError(f"{name}: expected rows, found none")
    own = {option: given.pop(option) for option in RUNNING if option in given}
    options, running = OnlineOptions(1.0, **given), OnlineRunOptions(**own, shuffle=False)
    data, state = _data_set(first, name), None
    before = ""
    if resume is not None:
        model, state = load_model(resume), read_state(resume)
        job = _resumed(model, state, first, data, running.memory, valid)
        before = model.fingerprint
        if initial is not None:
            raise InputError("initial: a resumed stream has weights already; leave initial out")
    else:
        if features is None or running.alpha is None:
            raise InputError("features, alpha: expected both for a new stream, got none")
        job = make_online_job(data, features, options, running, endless=True, valid=valid)
    if initial is not None:
        job = replace(job, start=online_start(job, initial))
    reporter = OnlineReporter(progress, should_stop)
    since = time.monotonic()
    seconds: dict[str, float] = {}
    reporter.started(job)
    compilation = kernels.compilation.Compilation(lambda: reporter.report(Compiling(JOB_SECONDS)))
    with compilation, one_blas_thread():
        job, learner, place = begin(job, state, seconds, all_rows=True)
        begun, output = time.monotonic(), output_of(save)

        def written() -> bool:
            state = None if bare or output is None else run.state()
            return output is not None and write_model(output, run.model(), state)

        report, stop = reporter.report, reporter.should_stop
        run = _StreamRun(job, learner, place, (first, blocks), report, stop, written, before)
        try:
            reason = reporter.cause(run.run())
        except InputError as error:
            if output is None or not learner.rows or not written():
                raise
            kept = f"the model of the {learner.rows:,} rows before is in {output.path}"
            raise InputError(f"{error}; {kept}") from None
        seconds["learning"] = time.monotonic() - begun
        if reporter.error is not None:
            written()
    result = OnlineResult(
        model=run.model(),
        reason=reason,
        message=_message(reason, run, name),
        seconds=parts_of(time.monotonic() - since, seconds),
        peak_memory=peak_memory(),
        learner=learner,
        progress=reporter.progress,
        state=run.state(),
        bad_row=learner.rows if reason is StopReason.DIVERGED else None,
    )
    reporter.report(result.stopped())
    return reporter.finish(result)


class _StreamRun(OnlineRun):
    """A learner on its way over the rows of a stream; ``job.train`` is the block that it learns."""

    def __init__(
        self,
        job: OnlineJob,
        learner: Learner,
        place: RunPosition,
        blocks: tuple[StreamBlock, Iterator[StreamBlock]],
        report: Callable[[Any], None],
        should_stop: Callable[[], bool],
        save: Callable[[], object],
        fingerprint: str,
    ) -> None:
        # a block that was read is learnt to its end, since it could not be read again
        super().__init__(job, learner, place, report, lambda: False, save)
        (self.block, self._others), self._ended = blocks, should_stop
        self._hash = _StreamHash(fingerprint)

    def run(self) -> StopReason:
        if (end := self._pass()) is not None:
            return end
        # the pass does not end: the learner stays as it is, for a stream that continues this one
        self.report_progress()
        return StopReason.INTERRUPTED if self._ended() else StopReason.DONE

    def _reading(self) -> AbstractContextManager[Iterator[RowBlock]]:
        return nullcontext(self._read())

    def _read(self) -> Iterator[RowBlock]:
        """Blocks of raw rows, and before each the targets of its rows."""
        while True:
            self._hash.add(self.block)
            rows, size = self.job.train.data.rows, self.job.running.block_rows
            for start, stop, raw in self.job.family.read_rows(rows, size, None):
                yield RowBlock(start, raw, np.arange(stop - start))
            following = None if self._ended() else next(self._others, None)
            if following is None:
                return
            self._take(following)

    def _take(self, block: StreamBlock) -> None:
        train = self.job.train
        data, labels = _data_set(block, train.data.name), self.job.labels
        y = block.y if labels is None else _signs(block, labels, data.name)
        train = replace(train, data=data, y=y, s=np.ones(len(y)))
        if self.job.class_weight is not None:
            train = weighted_by_class(train, self.job.class_weight)
        self.job = replace(self.job, train=train)
        self.block, self._y = block, y

    def model(self) -> Model:
        """The model of the rows so far."""
        n, alpha = self.learner.rows, self.job.options.alpha
        # of the problem that was learnt; class weights change the sum of the weights, and alpha with it
        C = 1.0 / max(alpha * self.learner.weight, 5e-324)
        if not 0.0 < C < math.inf:
            raise InputError(
                f"alpha: the weight {alpha:g} of the penalty over {n:,} rows is beyond the range of "
                "numbers; choose another one"
            )
        job = replace(self.job, C=C, alpha=1.0 / (C * n), sum_weights=float(n))
        return replace(model_of(job, self.learner, self._hash.text()), n_rows=n)

    def state(self) -> Any:
        """What a model file keeps of the learner."""
        kept = _state(self.job, self.learner, self.place, self._hash.text())
        return replace(kept, run={**kept.run, "stream": True})


class _StreamHash:
    """SHA-256 of the rows that were read, which does not depend on how they were cut into blocks."""

    def __init__(self, before: str) -> None:
        self._parts = [hashlib.sha256(f"fcl stream {part}{before}".encode()) for part in range(4)]

    def add(self, block: StreamBlock) -> None:
        arrays = (block.y, np.diff(block.x.indptr), block.x.indices.astype(np.int64), block.x.data)
        for part, array in zip(self._parts, arrays, strict=True):
            part.update(np.ascontiguousarray(array).data)

    def text(self) -> str:
        return hashlib.sha256(b"".join(part.digest() for part in self._parts)).hexdigest()


def _signs(block: StreamBlock, labels: tuple[Any, ...], name: str) -> Floats:
    """The labels of a block as -1 and +1; InputError for another one."""
    if (wrong := np.flatnonzero(~np.isin(block.y, labels))).size:
        row = int(wrong[0])
        raise InputError(
            f"{name}: line {block.line(row)}: expected one of the labels of the first rows, "
            f"{labels[0]:g} and {labels[1]:g}, got {block.y[row]:g}"
        )
    return np.where(block.y == labels[1], 1.0, -1.0)


def _resumed(
    model: Model,
    state: OnlineState,
    first: StreamBlock,
    data: DataSet,
    memory: Any,
    valid: DataSet | None,
) -> OnlineJob:
    """The job of a stream that continues the one of a saved model."""
    options, running = kept_options(state)
    if not state.run.get("stream"):
        raise InputError(
            f"resume: expected the model of a stream, got one that learnt stored rows; give its DATA in "
            f"place of {data.name}, or --initial to start from its weights"
        )
    if other := difference(model.column_record, replace(data.column_record, is_stated=False)):
        raise InputError(f"{data.name}: {other}; the rows must count ids as those before")
    labels = None
    if model.labels is not None:
        labels = (model.labels[0], model.labels[1])
        _signs(first, labels, data.name)
    job = make_online_job(
        data,
        model.family,
        options,
        replace(running, memory=memory),
        endless=True,
        labels=labels,
        valid=valid,
    )
    # as it was, to the last bit, though the first rows are others
    options = replace(job.options, alpha=state.run["gravity"])
    return replace(job, options=options, features=state.run["options"]["features"])


def _data_set(block: StreamBlock, name: str) -> DataSet:
    rows = from_matrix(block.x, name)
    label = f"{name}: label"
    return DataSet(name, rows, block.y, target_name=label, column_record=block.columns)


def _message(reason: StopReason, run: _StreamRun, name: str) -> str:
    rows = f"{run.learner.rows:,} rows"
    if reason is StopReason.MEMORY:
        return full_message(run.learner)
    if reason is StopReason.DIVERGED:
        line = run.block.line(run.bad_row)
        return (
            f"{name}: line {line}: the margin is not finite or beyond 1e100, after {rows}: the rate "
            f"{run.job.options.rate:.3g} is too large for these features; lower rate, or choose step "
            "implicit"
        )
    what = reason.sentence if reason.is_interrupt else "the input ended"
    return f"{what} after {rows}; no certificate, since {name} cannot be read again"
