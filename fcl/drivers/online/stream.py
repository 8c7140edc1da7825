"""Online learning from a stream of rows, which is read once and need not end."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.data.dataset import DataSet
from fcl.data.sparse import SparseRows, from_matrix
from fcl.drivers.bar import Progress, on_event
from fcl.drivers.events import Compiling
from fcl.drivers.initial import online_start
from fcl.drivers.kinds import JOB_SECONDS
from fcl.drivers.memory import peak_memory
from fcl.drivers.online.blocks import Block
from fcl.drivers.online.job import OnlineJob, Running, make_online_job
from fcl.drivers.online.progress import OnlineProgress, OnlineStarted, OnlineStopped
from fcl.drivers.online.rates import choose_rate
from fcl.drivers.online.run import End, OnlineRun, Place
from fcl.drivers.online.train import OnlineResult, _state, model_of
from fcl.errors import InputError
from fcl.features.base import Floats
from fcl.model.model import Model
from fcl.online import Learner
from fcl.parallel import one_blas_thread

if TYPE_CHECKING:
    from fcl.features import Spec

__all__ = ["FIRST_ROWS", "StreamBlock", "learn_stream"]

#: Rows of the first block, if the stream has as many: they decide labels, first intercept and rate.
FIRST_ROWS = 4096


@dataclass(frozen=True)
class StreamBlock:
    """Some rows of a stream, at least one.

    Attributes
    ----------
    x : SparseRows
        float64, m rows.
    y : float64 (m,)
        Targets or labels.
    line : callable
        Returns the number of the line of a row of the block, from 1, for messages.
    """

    x: SparseRows
    y: Floats
    line: Callable[[int], int]


def learn_stream(
    blocks: Iterator[StreamBlock],
    features: Spec | str,
    *,
    alpha: float,
    name: str = "standard input",
    method: str = "ftrl",
    rate: float | str = "auto",
    seed: int = 0,
    memory: int | str = "4GiB",
    initial: Model | None = None,
    save: str | os.PathLike[str] | None = None,
    bare: bool = False,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
    **learning: Any,
) -> OnlineResult:
    """Learn a sparse linear model from rows in their order, each of weight 1, until they end.

    The model is the same however the rows after the first block are cut into blocks.

    Parameters
    ----------
    blocks : iterator of StreamBlock
        The first one should have ``FIRST_ROWS`` rows, unless the stream ends before; for classification
        both labels must be among them.
    features : family or str
        As for :func:`fcl.train`, over rows of sparse numbers.
    alpha : float
        Weight of the penalty; C = 1 / (alpha n) is known at the end.
    name : str
        Of the stream, for messages.
    method, rate, seed, memory, initial, progress
        As for :func:`fcl.train_online`.
    save : path
        File to which the model is written every five minutes, and before a wrong row is refused.
    bare : bool
        Whether to leave the learner's state out of this file.
    should_stop : callable
        Polled between blocks; True ends learning.
    **learning
        Further options of :class:`fcl.online.OnlineOptions`.

    Returns
    -------
    OnlineResult
        Its model has no certificate, since the rows cannot be read again.

    Raises
    ------
    InputError
        The stream is empty, a label is none of the two of the first block, or an option is wrong.
    """
    first = next(blocks, None)
    if first is None:
        raise InputError(f"{name}: expected rows, found none")
    running = Running(method, rate, shuffle=False, seed=seed, memory=memory)  # type: ignore[arg-type]
    data = _data_set(first, name)
    job = make_online_job(data, features, running, alpha=alpha, endless=True, **learning)
    if initial is not None:
        job = replace(job, start=online_start(job, initial))
    events: list[OnlineProgress] = []
    tell = on_event(progress)

    def report(event: Any) -> None:
        if isinstance(event, OnlineProgress):
            events.append(event)
        tell(event)

    seconds: dict[str, float] = {}
    n, p = job.train.n, job.family.n_features
    report(OnlineStarted(job.plan, job.described(), n, p, job.C, job.alpha))
    from fcl.kernels import Compilation

    with Compilation(lambda: report(Compiling(JOB_SECONDS))), one_blas_thread():
        begun = time.monotonic()
        if job.running.rate == "auto":
            found = choose_rate(job, all_rows=True)
            job = replace(job, options=replace(job.options, rate=found))
            seconds["rate"] = time.monotonic() - begun
        learner = job.new_learner()

        def written() -> None:
            if save is not None:
                more = None if bare else run.state().members()
                run.model().save(save, overwrite=True, more=more)

        stop = should_stop or (lambda: False)
        run = _StreamRun(job, learner, first, blocks, report, stop, written)
        try:
            end = run.run()
        except InputError as error:
            if save is None or not learner.rows:
                raise
            written()
            kept = f"the model of the {learner.rows:,} rows before is in {os.fspath(save)}"
            raise InputError(f"{error}; {kept}") from None
        seconds["learning"] = time.monotonic() - begun - seconds.get("rate", 0.0)
    message = _message(end, run, name)
    peak = peak_memory()
    report(OnlineStopped(end, message, learner.rows, sum(seconds.values()), peak))
    bad = learner.rows if end is End.DIVERGED else None
    return OnlineResult(run.model(), learner, events, end, message, seconds, peak, run.state(), bad)


class _StreamRun(OnlineRun):
    """A learner on its way over the rows of a stream; ``job.train`` is the block that it learns."""

    def __init__(
        self,
        job: OnlineJob,
        learner: Learner,
        first: StreamBlock,
        others: Iterator[StreamBlock],
        report: Callable[[Any], None],
        should_stop: Callable[[], bool],
        save: Callable[[], None],
    ) -> None:
        # a block that was read is learnt to its end, since it could not be read again
        super().__init__(job, learner, Place(), report, lambda: False, save)
        self.block, self._others, self._ended = first, others, should_stop
        self._hash = _StreamHash()

    def run(self) -> End:
        end = super().run()
        return End.INTERRUPTED if end is End.PASSES and self._ended() else end

    def _reading(self) -> AbstractContextManager[Iterator[Block]]:
        return nullcontext(self._read())

    def _read(self) -> Iterator[Block]:
        """Blocks of raw rows, and before each the targets of its rows."""
        while True:
            self._hash.add(self.block)
            rows, size = self.job.train.data.rows, self.job.running.block_rows
            for start, stop, raw in self.job.family.read_rows(rows, size, None):
                yield Block(start, raw, np.arange(stop - start))
            following = None if self._ended() else next(self._others, None)
            if following is None:
                return
            self._take(following)

    def _take(self, block: StreamBlock) -> None:
        train = self.job.train
        y = self._encoded(block)
        data = _data_set(block, train.data.name)
        self.job = replace(self.job, train=replace(train, data=data, y=y, s=np.ones(len(y))))
        self.block, self._y = block, y

    def _encoded(self, block: StreamBlock) -> Floats:
        """The targets, or labels as -1 and +1."""
        labels = self.job.labels
        if labels is None:
            return block.y
        if (wrong := np.flatnonzero(~np.isin(block.y, labels))).size:
            row = int(wrong[0])
            raise InputError(
                f"{self.job.train.data.name}: line {block.line(row)}: expected one of the labels of the "
                f"first rows, {labels[0]:g} and {labels[1]:g}, got {block.y[row]:g}"
            )
        return np.where(block.y == labels[1], 1.0, -1.0)

    def model(self) -> Model:
        """The model of the rows so far."""
        n = self.learner.rows
        job = replace(self.job, C=1.0 / (self.job.alpha * n), sum_weights=float(n))
        return replace(model_of(job, self.learner, self._hash.text()), n_rows=n)

    def state(self) -> Any:
        """What a model file keeps of the learner."""
        return _state(self.job, self.learner, self.place, self._hash.text())


class _StreamHash:
    """SHA-256 of the rows that were read, which does not depend on how they were cut into blocks."""

    def __init__(self) -> None:
        self._parts = [hashlib.sha256(f"fcl stream {part}".encode()) for part in range(4)]

    def add(self, block: StreamBlock) -> None:
        arrays = (block.y, np.diff(block.x.indptr), block.x.indices.astype(np.int64), block.x.data)
        for part, array in zip(self._parts, arrays, strict=True):
            part.update(np.ascontiguousarray(array).data)

    def text(self) -> str:
        return hashlib.sha256(b"".join(part.digest() for part in self._parts)).hexdigest()


def _data_set(block: StreamBlock, name: str) -> DataSet:
    return DataSet(name, from_matrix(block.x, name), block.y, target_name=f"{name}: label")


def _message(end: End, run: _StreamRun, name: str) -> str:
    rows = f"{run.learner.rows:,} rows"
    if end is End.DIVERGED:
        line = run.block.line(run.bad_row)
        return (
            f"{name}: line {line}: the margin is not finite or beyond 1e100, after {rows}: the rate "
            f"{run.job.options.rate:.3g} is too large for these features; lower rate, or choose step "
            "implicit"
        )
    what = "interrupted" if end is End.INTERRUPTED else "the input ended"
    return f"{what} after {rows}; no certificate, since {name} cannot be read again"
