"""The choice of a rate by short trials on the first rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fcl.drivers.online.blocks import Block, Blocks
from fcl.drivers.online.job import OnlineJob
from fcl.drivers.online.run import starting_intercept

__all__ = ["choose_rate"]

#: Share of a pass that all trials together may take.
SHARE = 0.08
#: Rates of the first round, and most trials to follow where the best one is at an end.
FIRST = (0.004, 0.016, 0.0625, 0.25, 1.0)
FACTOR, MOST_EXTENSIONS = 4.0, 8
#: Fewest rows of a trial.
LEAST_ROWS = 64


def choose_rate(job: OnlineJob, all_rows: bool = False) -> float:
    """The rate with the least objective on the rows after those that it learnt from.

    all_rows : whether each trial reads all rows of the first block, of which there are few.

    Trials learn from the same rows, the first of the first pass. They try rates that differ by a factor
    of 4, further ones as long as the best is at an end, and then its neighbours at a factor of 2.
    """
    run = job.running
    blocks = Blocks(job.family, job.train, run.block_rows, run.seed, run.shuffle)
    block = next(blocks.of_pass(0))
    n_trials = len(FIRST) + 2
    most = max(LEAST_ROWS, int(SHARE * job.train.n / n_trials))
    trial = _Trial(job, block if all_rows else replace(block, order=block.order[:most]))
    found = {rate: trial.score(rate) for rate in FIRST}
    for _ in range(MOST_EXTENSIONS):
        best = min(found, key=lambda rate: (found[rate], rate))
        if best == max(found):
            new = best * FACTOR
        elif best == min(found):
            new = best / FACTOR
        else:
            break
        found[new] = trial.score(new)
    best = min(found, key=lambda rate: (found[rate], rate))
    for rate in (best / 2.0, best * 2.0):
        found[rate] = trial.score(rate)
    return min(found, key=lambda rate: (found[rate], rate))


class _Trial:
    """Rows on which rates are tried: the same for all of them."""

    def __init__(self, job: OnlineJob, block: Block) -> None:
        self._job, self._block = job, block
        rows = block.rows
        train = job.train
        self._y, self._s = train.y[rows], train.s[rows]
        self._offset = np.zeros(len(rows)) if train.offset is None else train.offset[rows]
        if job.loss.translates:
            self._y, self._offset = self._y - self._offset, np.zeros(len(rows))

    def score(self, rate: float) -> float:
        """The mean progressive loss over the later half of the rows, plus the penalty at the end."""
        from fcl.kernels import online

        job = self._job
        options = replace(job.options, rate=rate)
        learner = replace(job, options=options).new_learner()
        if job.start is None:
            learner.start_at(starting_intercept(job.loss.name, self._y, self._s))
        margins, at = self._offset.copy(), 0
        for chunk in job.view.chunks(self._block.raw, self._block.order):
            some = slice(at, at + len(chunk))
            if learner.learn(chunk, self._y[some], self._s[some], margins[some]) < len(chunk):
                return math.inf
            at += len(chunk)
        later = slice(len(margins) // 2, None)
        y, s = self._y[later], self._s[later]
        loss = online.sum_losses(options.kernel_loss, y, s, margins[later]) / s.sum()
        if options.radius is not None:  # the ball has no penalty
            return float(loss)
        ids, weights, _ = learner.point()
        factors = 1.0 if job.factors is None else job.factors[ids]
        rho = options.l1_ratio
        size = np.abs(weights)
        return float(loss + options.alpha * (factors * size * (rho + (1 - rho) * size / 2)).sum())
