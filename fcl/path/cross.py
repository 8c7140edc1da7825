"""Cross-validation of a path: the tracks of the folds, and where their mean score ends the path."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.errors import InputError
from fcl.path.folds import Folds
from fcl.path.result import PathPoint
from fcl.path.rules import PathStop, Rules
from fcl.path.scores import fold_scores
from fcl.path.track import Track

__all__ = ["extend_folds", "held_out_margins", "never", "split_data"]

Floats = npt.NDArray[np.float64]


def split_data(data: DataSet, folds: Folds, fold: int) -> tuple[DataSet, DataSet]:
    """The rows to train on, and the rows that a fold holds out: the others have weight 0."""
    held = folds == fold
    weights = np.ones(data.n_rows) if data.weights is None else data.weights
    parts = []
    for kept, purpose in ((~held, "to train on"), (held, "held out")):
        some = np.where(kept, weights, 0.0)
        if not some.any():
            raise InputError(
                f"cv: fold {fold + 1} has no rows of weight above 0 {purpose}; use fewer folds"
            )
        parts.append(data.with_target(data.target, some, data.target_name))
    return parts[0], parts[1]


def never(points: list[PathPoint]) -> PathStop | None:
    """No reason to stop before the requested number of points."""
    return None


def scores_of(tracks: list[Track]) -> Floats:
    """Scores of the points that all folds have, float64 (folds, points)."""
    common = min(len(track.points) for track in tracks)
    return np.array([track.scores[:common] for track in tracks])


def extend_folds(tracks: list[Track], rules: Rules, sign: float) -> tuple[int, PathStop]:
    """Train the folds until their mean score ends the path.

    One fold after the other runs until its own score ends it; then the shorter ones continue, until the
    mean over all folds has not improved for ``patience`` points, or a fold cannot continue.

    Parameters
    ----------
    tracks : list of Track
        One for each fold.
    rules : Rules
    sign : float
        1 if larger scores are better, else -1.

    Returns
    -------
    tuple of int, PathStop
        The number of points at which the path ends, and why.

    Raises
    ------
    KeyboardInterrupt
        A fold was interrupted; there is no model over all rows yet.
    """

    def own(points: list[PathPoint]) -> PathStop | None:
        return rules.reason(sign * np.array([p.score for p in points]), points[-1].active)

    ends = [_extended(track, own) for track in tracks]
    while True:
        scores = scores_of(tracks)
        common = scores.shape[1]
        found = rules.patient_until(sign * fold_scores(scores)[0])
        if found is not None:
            return found, PathStop.PATIENCE
        final = [
            end
            for track, end in zip(tracks, ends, strict=True)
            if len(track.points) == common and end is not None and end is not PathStop.PATIENCE
        ]
        if final:
            return common, final[0]
        most = common + (rules.patience or 1)
        for number, track in enumerate(tracks):
            if len(track.points) < most:
                ends[number] = _extended(
                    track, lambda points: rules.reason(np.empty(0), points[-1].active), most
                )


def _extended(
    track: Track, enough: Callable[[list[PathPoint]], PathStop | None], most: int | None = None
) -> PathStop | None:
    """Extend a track; an interrupt ends all folds."""
    end = track.extend(enough, most)
    if end is PathStop.INTERRUPTED:
        raise KeyboardInterrupt
    return end


def held_out_margins(data: DataSet, tracks: list[Track], folds: Folds, number: int) -> Floats:
    """The margin of each row by the model of a point in the fold that held the row out.

    float64 (n,); NaN for rows that no fold held out.
    """
    margins = np.full(data.n_rows, np.nan)
    for fold, track in enumerate(tracks):
        held = folds == fold
        margins[held] = track.points[number].model.margins(data)[held]
    return margins
