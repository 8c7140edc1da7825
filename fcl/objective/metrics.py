"""Ranking metrics in NumPy alone, so that training need not import scikit-learn."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def has_both_classes(y: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> bool:
    """Whether rows of weight above 0 are positive, and others are not; y, weights : float64 (n,).

    The average precision of positive rows alone is 1, whatever their order.
    """
    positive = y[weights > 0.0] > 0.0
    return bool(positive.any() and not positive.all())


def auroc(
    y: npt.NDArray[np.float64], scores: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]
) -> float:
    """Area under the ROC curve, as scikit-learn's ``roc_auc_score``; all arguments float64 (n,).

    The share of pairs of a positive row (y > 0) and another one whose scores are in this order; equal
    scores count half. NaN without both classes.
    """
    if not has_both_classes(y, weights):
        return float("nan")
    order = np.argsort(scores, kind="stable")
    ranked, counts, positive = scores[order], weights[order], y[order] > 0.0
    # rows of one score are one step
    first = np.append(0, np.flatnonzero(ranked[1:] != ranked[:-1]) + 1)
    hits = np.add.reduceat(counts * positive, first)
    others = np.add.reduceat(counts * ~positive, first)
    below = np.cumsum(others) - 0.5 * others
    return float((hits * below).sum() / (hits.sum() * others.sum()))


def average_precision(
    y: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float:
    """Area under the precision-recall curve, as a sum of steps: sum_k (R_k - R_{k-1}) P_k.

    This is scikit-learn's ``average_precision_score``. Equal scores form one threshold, so the result
    does not depend on the order of the rows.

    Parameters
    ----------
    y : array_like, shape (n,)
        Positive where y > 0 (-1/+1, 0/1 or bool).
    scores : array_like, shape (n,)
        Larger means more positive.
    weights : array_like, shape (n,), optional
        Weights of the rows, >= 0; 1 by default.

    Returns
    -------
    float
        NaN if no positive row has a weight above 0.

    Raises
    ------
    ValueError
        Scores hold NaN, or y and scores are not vectors of one length.

    Examples
    --------
    >>> fcl.average_precision([0, 1, 0, 1], [0.1, 0.4, 0.35, 0.8])
    1.0
    >>> fcl.average_precision([0, 1, 0, 1], [0.1, 0.3, 0.35, 0.8], weights=[1, 1, 2, 1])
    0.75
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
    # last row of each threshold
    last = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), ranked.size - 1)
    counts = counts[order]
    hits, seen = np.cumsum(counts * positive[order])[last], np.cumsum(counts)[last]
    precision = np.divide(hits, seen, out=np.zeros(len(last)), where=seen > 0.0)
    return float(np.sum(np.diff(hits, prepend=0.0) / hits[-1] * precision))
