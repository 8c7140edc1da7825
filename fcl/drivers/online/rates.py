"""The choice of a rate by short trials on the first rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fcl import kernels
from fcl.drivers.online.blocks import Blocks, RowBlock
from fcl.drivers.online.job import OnlineJob
from fcl.drivers.online.run import starting_intercept

#: Share of a pass that all trials together may take.
SHARE = 0.08
#: Rates of the first round, and most trials to follow where the best one is at an end.
FIRST = (0.0625, 0.25, 0.016)
FACTOR, MOST_EXTENSIONS = 4.0, 8
#: If no trial has less than this share of the loss of the first intercept, nothing can be learnt from so
#: few rows, and small rates only look better since they do nothing: then the choice is the largest rate
#: whose loss is at most MOST_WORSE times as large.
CLEAR, MOST_WORSE = 0.98, 1.25
#: Fewest rows of a trial, even if all trials together then take more of a small data set: where positives
#: are rare, shorter trials have too few of them to compare rates.
LEAST_ROWS = 1000
#: Fewest steps of a trial with batches of rows, if the first block has so many rows.
LEAST_STEPS = 8


def choose_rate(job: OnlineJob, all_rows: bool = False) -> float:
    """The rate with the least loss on the rows after those that it learnt from.

    all_rows : whether each trial reads all rows of the first block, of which there are few.

    Trials learn from the same rows, the first of the first pass. They try rates that differ by a factor
    of 4, further ones as long as the best is at an end, and then its neighbours at a factor of 2. Where
    no rate is clearly better than none, the choice is the largest that does little harm; but after the
    weights of a model, from which there may be nothing to learn, the best of them.
    """
    run = job.running
    blocks = Blocks(job.family, job.train, run.block_rows, run.seed, run.shuffle)
    block = next(blocks.of_pass(0))
    n_trials = len(FIRST) + 4
    most = max(LEAST_ROWS, LEAST_STEPS * job.options.batch, int(SHARE * job.train.n / n_trials))
    trial = _Trial(job, block if all_rows else replace(block, order=block.order[:most]))
    constant = trial.constant()
    enough = math.inf if job.start is not None else MOST_WORSE * constant
    found: dict[float, float] = {}
    for rate in FIRST:
        found[rate] = trial.score(rate, max(enough, min(found.values(), default=math.inf)))
    for _ in range(MOST_EXTENSIONS):
        best = min(found, key=lambda rate: (found[rate], rate))
        if best == max(found):
            new = best * FACTOR
        elif best == min(found):
            new = best / FACTOR
        else:
            break
        found[new] = trial.score(new, max(enough, found[best]))
    best = min(found, key=lambda rate: (found[rate], rate))
    if job.start is None and found[best] > CLEAR * constant:
        return max((rate for rate in found if found[rate] <= MOST_WORSE * constant), default=best)
    for rate in (best / 2.0, best * 2.0):
        found[rate] = trial.score(rate, min(found.values()))
    return min(found, key=lambda rate: (found[rate], rate))


class _Trial:
    """Rows on which rates are tried: the same for all of them."""

    def __init__(self, job: OnlineJob, block: RowBlock) -> None:
        self._job, self._block = job, block
        rows = block.rows
        train = job.train
        self._y, self._s = train.y[rows], train.s[rows]
        self._offset = np.zeros(len(rows)) if train.offset is None else train.offset[rows]
        if job.loss.translates:
            self._y, self._offset = self._y - self._offset, np.zeros(len(rows))

    def constant(self) -> float:
        """The mean loss of the first intercept alone over the later half of the rows."""
        later = slice(len(self._y) // 2, None)
        y, s, margins = self._y[later], self._s[later], self._offset[later].copy()
        if self._job.options.intercept:
            margins += starting_intercept(self._job.loss.name, self._y, self._s)
        return float(
            kernels.online.sum_losses(self._job.options.kernel_loss, y, s, margins) / s.sum()
        )

    def score(self, rate: float, most: float = math.inf) -> float:
        """The mean progressive loss over the later half of the rows; infinite if it is above ``most``.

        Losses add up, so that a trial ends as soon as this is known.

        The penalty of the weights is left out. After so few rows it says nothing of that after a pass:
        the gravity has hardly begun to act, and where labels are rare the least objective is that of a
        rate near 0.
        """
        job = self._job
        options = replace(job.options, rate=rate)
        learner = replace(job, options=options).new_learner()
        if job.start is None:
            learner.start_at(starting_intercept(job.loss.name, self._y, self._s))
        margins, at, half = self._offset.copy(), 0, len(self._offset) // 2
        total, most = 0.0, most * float(self._s[half:].sum())
        for chunk in job.view.chunks(self._block.raw, self._block.order):
            some = slice(at, at + len(chunk))
            if learner.learn(chunk, self._y[some], self._s[some], margins[some]) < len(chunk):
                return math.inf
            at += len(chunk)
            later = slice(max(some.start, half), at)
            if later.start < at:
                given = (self._y[later], self._s[later], margins[later])
                total += kernels.online.sum_losses(options.kernel_loss, *given)
            if total > most:
                return math.inf
        return total / float(self._s[half:].sum())
