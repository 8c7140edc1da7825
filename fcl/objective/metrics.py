"""Measures of ranking, in plain numpy: training must not import scikit-learn for one number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["average_precision"]


def average_precision(
    y: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float:
    """Area under the precision-recall curve, as a sum of steps: sum_k (R_k - R_{k-1}) P_k.

    y : (n,), positive where y > 0 (-1/+1, 0/1 or bool).
    scores : (n,), larger is more positive. Equal scores are one threshold, so that the result does
        not depend on the order of the rows; this is scikit-learn's ``average_precision_score``.
    weights : (n,), of the rows, >= 0; None: 1.

    NaN without a positive row that has a weight. Raises ValueError for NaN scores or different lengths.
    """
    positive, scores = np.asarray(y) > 0, np.asarray(scores, dtype=np.float64)
    if positive.shape != scores.shape or scores.ndim != 1:
        raise ValueError(f"y and scores must be (n,), got {positive.shape} and {scores.shape}")
    if np.isnan(scores).any():
        raise ValueError(f"scores hold NaN, first in row {int(np.isnan(scores).argmax())}")
    counts = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not (counts * positive).any():
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    last = np.append(
        np.flatnonzero(ranked[1:] != ranked[:-1]), ranked.size - 1
    )  # of each threshold
    counts = counts[order]
    hits, seen = np.cumsum(counts * positive[order])[last], np.cumsum(counts)[last]
    precision = np.divide(hits, seen, out=np.zeros(len(last)), where=seen > 0.0)
    return float(np.sum(np.diff(hits, prepend=0.0) / hits[-1] * precision))
