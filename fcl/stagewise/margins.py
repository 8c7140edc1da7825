"""The margins of given weights, for the certificate and for a job that continues from a checkpoint.

A checkpoint may come from a stranger. The margins of its weights are computed again; those of the file
are used only if they agree up to rounding, since an uninterrupted job would have them, to the last bit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fcl.stagewise.blocks import FeatureBlock, Part
from fcl.stagewise.calibration import calibrate
from fcl.stagewise.learner import BlockDone, RoundWeights, StagewiseLearner
from fcl.stagewise.sums import Update
from fcl.types import Floats

#: Largest relative difference of margins by rounding, for features in float32 and in float64.
_ROUNDING = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-8}

_log = logging.getLogger("fcl")


def blocks_of(learner: StagewiseLearner) -> Iterator[FeatureBlock]:
    """All blocks of features, in float64 and without origins."""
    width, D = learner.settings.block, learner.family.n_features
    for first in range(0, D, width):
        yield FeatureBlock(learner.family, np.arange(first, min(first + width, D)), np.float64)


def at_weights(learner: StagewiseLearner, part: Part, weights: RoundWeights) -> Part:
    """Rows with the margins of some weights, computed block by block in float64."""
    K, sweeper = part.targets.width, learner.sweeper
    moved = replace(part, margins=part.constant(weights.intercepts[0, :K]))
    for number in range(weights.intercepts.shape[1] // K):
        columns = slice(number * K, (number + 1) * K)
        for block, intercept in zip(blocks_of(learner), weights.intercepts[1:], strict=True):
            own = weights.features[block.ids, columns]
            if own.any() or intercept[columns].any():
                sweeper.update(block, moved, Update(own, intercept[columns]))
        if number < len(weights.calibration):
            calibrate(moved, weights.calibration[number], sweeper.team)
    return moved


def verify_state(learner: StagewiseLearner) -> None:
    """Compute the margins and losses of a resumed learner again, and replace wrong ones."""
    state = learner.state
    for k, part in enumerate(learner.parts):
        found = at_weights(learner, part, state.weights).margins
        if not _agree(part.margins, found, _ROUNDING[np.dtype(learner.dtype)]):
            _log.warning(
                "the margins in the checkpoint do not follow from its weights; they were computed again"
            )
            part.margins = state.margins[k] = found
    if not state.history:
        return
    measured = replace(learner.measure(len(state.history)), seconds=state.history[-1].seconds)
    state.history[-1] = measured
    if state.best is not state.weights and 0 < state.best_number < len(state.history):
        _verify_best(learner)


def _verify_best(learner: StagewiseLearner) -> None:
    """Replace the validation loss of the best block if it is not the one of the best weights."""
    state, at = learner.state, learner.state.best_number - 1
    kept = learner.parts
    learner.parts = [at_weights(learner, part, state.best) for part in kept]
    found: BlockDone = replace(learner.measure(at + 1), seconds=state.history[at].seconds)
    learner.parts = kept
    before = state.history[at]
    stored, measured = ((row.loss, row.valid_loss or 0.0) for row in (before, found))
    if not np.allclose(stored, measured, rtol=1e-3, atol=1e-6):
        _log.warning(
            "the losses in the checkpoint do not follow from its weights; they were computed again"
        )
        state.history[at] = found


def _agree(stored: Floats, found: Floats, rounding: float) -> bool:
    """Whether two arrays of margins differ by rounding alone."""
    size = float(np.sqrt(np.mean(np.square(found)))) if found.size else 0.0
    return bool(np.isfinite(stored).all()) and bool(
        np.abs(stored - found).max(initial=0.0) <= rounding * (1.0 + size)
    )
