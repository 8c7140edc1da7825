"""When a path stops, and which of its points is chosen. Scores are oriented: larger is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.options import PathOptions
from fcl.run.reasons import StopReason
from fcl.types import Floats

#: Standard errors by which a score must exceed the one of the empty model: the best of several points of
#: noise exceeds it by one.
GAIN_ERRORS = 2.0
#: Without standard errors, the share of the possible gain that a model must reach.
GAIN_SHARE = 0.02
#: The best score of a ranking.
PERFECT = 1.0


@dataclass(frozen=True)
class Rules:
    """When a path ends before the end of its grid; the options are those of :class:`PathOptions`.

    sign : 1 if larger scores of the path's own points are better, -1 if smaller ones are, 0 if they do
        not count.
    """

    patience: int | None = 3
    min_gain: float = 0.0
    max_active: int | None = None
    sign: float = 0.0

    @classmethod
    def of(cls, options: PathOptions) -> Rules:
        """The rules that the options of a path set."""
        return cls(options.patience, options.min_gain, options.max_active)

    def __call__(self, points: list[Any]) -> StopReason | None:
        """Why to stop after these points (:class:`fcl.path.PathPoint`); None to continue."""
        scores = [self.sign * point.score for point in points] if self.sign else []
        return self.reason(np.array(scores), points[-1].active)

    def reason(self, scores: Floats, active: int) -> StopReason | None:
        """Why to stop after points with these scores, and so many features in the last; or None.

        scores : float64 (points,), larger is better; NaN where undefined, empty without validation.
        """
        if self.max_active is not None and active >= self.max_active:
            return StopReason.MAX_ACTIVE
        if self.patience is not None and self._waited(scores) >= self.patience:
            return StopReason.PATIENCE
        return None

    def patient_until(self, scores: Floats) -> int | None:
        """The number of points after which patience ended the path; None if it has not."""
        ends = range(1, len(scores) + 1)
        ended = (n for n in ends if self.reason(scores[:n], 0) is StopReason.PATIENCE)
        return next(ended, None)

    def _waited(self, scores: Floats) -> int:
        """Number of points since the last better score; 0 if no score is defined.

        A point with the score of the one before it is not counted, unless the score is perfect: a
        single feature puts rows in the same order at every weight, and a ranking says nothing then.
        """
        best, before, waited = -np.inf, np.nan, 0
        for score in scores:
            if score > best + self.min_gain:
                best, waited = score, 0
            elif score != before or score == PERFECT:
                waited += 1
            before = score
        return 0 if np.isnan(scores).all() else waited


def best_point(scores: Floats) -> int:
    """The number of the best score, the first of equal ones; scores must not all be NaN."""
    return int(np.nanargmax(scores))


def is_no_gain(score: float, empty: float, se: float, higher_is_better: bool) -> bool:
    """Whether a score is no better than the one of the empty model on the same rows, or not clearly.

    se : standard error of the score; NaN, as other numbers, if it is unknown.
    higher_is_better : then the best score is 1, otherwise it is 0.
    """
    gain, possible = (score - empty, 1.0 - empty) if higher_is_better else (empty - score, empty)
    least = GAIN_ERRORS * se if np.isfinite(se) else GAIN_SHARE * possible
    return bool(gain <= least)


def one_se_point(scores: Floats, errors: Floats) -> int:
    """The first point, of smallest C, within one standard error of the best score.

    Hence never a point after the best one (Breiman, Friedman, Olshen and Stone 1984, section 3.4.3). An
    unknown error (NaN) counts as 0.
    """
    best = best_point(scores)
    lowest = scores[best] - np.nan_to_num(errors[best])
    return int(np.flatnonzero(scores[: best + 1] >= lowest)[0])
