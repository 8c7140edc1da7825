"""Scores on held-out rows, and their standard errors."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from fcl.drivers.job import Job
from fcl.drivers.rows import Rows
from fcl.model.model import Model
from fcl.objective import Loss
from fcl.types import Floats, Ids

#: Samples of the bootstrap: the standard error is known to about 10 %.
SAMPLES = 50


@cache
def _poisson_of_bits() -> npt.NDArray[np.uint8]:
    """A number of mean 1, distributed as Poisson, for each value of 16 random bits."""
    chances = np.cumsum([math.exp(-1.0) / math.factorial(k) for k in range(10)])
    levels = (np.arange(1 << 16) + 0.5) / (1 << 16)
    return np.searchsorted(chances, levels).astype(np.uint8)


def bootstrap_error(
    loss: Loss, rows: Rows, margins: Floats, seed: int, groups: Ids | None = None
) -> float:
    """The standard error of a score over rows, by the Poisson bootstrap of rows or of groups.

    Each sample counts each row, or each group as a whole, a Poisson number of times with mean 1 (Hanley
    and MacGibbon 2006). NaN if the score is undefined on nearly all samples.

    margins : float64 (n,), or (K, n) with K outputs.
    groups : int64 (n,), the group of each row, from 0; None for rows.
    """
    random = np.random.default_rng([seed, 0xB007])
    # metrics of rankings then need not sort again
    order = np.argsort(-margins, kind="stable") if margins.ndim == 1 else np.arange(rows.n)
    y, s, margins = rows.y[..., order], rows.s[order], margins[..., order]
    unit = None if groups is None else groups[order]
    n = len(s) if groups is None else int(groups.max()) + 1
    found = np.empty(SAMPLES)
    for sample in range(SAMPLES):
        counts = _poisson_of_bits()[random.integers(1 << 16, size=n, dtype=np.uint16)]
        weights = s * (counts if unit is None else counts[unit])
        found[sample] = loss.score_outputs(y, weights, margins) if weights.any() else np.nan
    found = found[np.isfinite(found)]
    return float(found.std(ddof=1)) if len(found) > 1 else math.nan


def ranking(job: Job) -> bool:
    """Whether the scores of a job put rows of two classes in an order."""
    return job.loss.classifies and job.n_outputs == 1


def margins_on(job: Job, rows: Rows, model: Model) -> Floats:
    """The margins of a model on rows of a job, as the job's targets need them.

    float64 (n,), or (K, n) with K outputs.
    """
    assert rows.data.target is not None
    keep = slice(None) if rows.keep is None else rows.keep
    # of losses of y - m, the job shifts the targets
    shift = rows.data.target[keep].T - rows.y if job.loss.translates else 0.0
    margins: Floats = model.margins(rows.data)[keep].T - shift
    return margins


def empty_score(job: Job, rows: Rows, own: float = math.nan) -> float:
    """The score to beat: the one of the model without features, or of a random order where it has none.

    own : the score of the model without features; NaN if it was not measured.
    """
    has_order = rows.covariates is not None or rows.offset is not None
    if not job.loss.higher_is_better or has_order:
        return own
    found = [random_order(y, rows.s) for y in np.atleast_2d(rows.y)]
    return float(np.mean(found)) if np.isfinite(found).all() else math.nan


def random_order(y: Floats, s: Floats) -> float:
    """The mean average precision of random orders of rows, float64 y and weights s (n,).

    With n rows of which r are positive it is ((r - 1) / (n - 1) (n - H) + H) / n, where H is the n-th
    harmonic number (Bestgen 2015); weights scale the share of positive rows. NaN without both classes.
    """
    n, r = len(y), int((y > 0.0).sum())
    if not 0 < r < n:
        return math.nan
    harmonic = float((1.0 / np.arange(1, n + 1)).sum())
    mean = ((r - 1) / (n - 1) * (n - harmonic) + harmonic) / n
    return float(s[y > 0.0].sum() / s.sum()) + mean - r / n


def fold_scores(scores: Floats) -> tuple[Floats, Floats]:
    """Means over folds and their standard errors, each float64 (points,).

    scores : float64 (folds, points), NaN where a score is undefined; such a fold does not count.
    An infinite error does, and makes the mean infinite.
    """
    known = ~np.isnan(scores)
    n = known.sum(axis=0)
    filled = np.where(known, scores, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=0) / n
        squares = (np.where(known, scores - mean, 0.0) ** 2).sum(axis=0)
        return mean, np.sqrt(squares / (n - 1) / n)
