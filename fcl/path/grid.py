"""The values of C of a path, from the smallest at which a weight can be nonzero upwards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.errors import InputError
from fcl.types import Floats

#: C_max / C_min if C_max is not given, as in glmnet for more features than rows.
RATIO = 100.0


@dataclass(frozen=True)
class Grid:
    """What the user asked for: a number of points up to C_max, or the alphas themselves.

    C_max : the largest C; None for ``RATIO`` times C_min.
    alphas : decreasing weights of the penalty, float64 (points,), instead of ``C_max``.
    """

    points: int
    C_max: float | None = None
    alphas: Floats | None = None

    def facts(self) -> dict[str, Any]:
        """The grid as JSON values, for the folder of the path."""
        alphas = None if self.alphas is None else self.alphas.tolist()
        return {"points": self.points, "C_max": self.C_max, "alphas": alphas}

    def widens(self, facts: Mapping[str, Any], values: Floats) -> bool:
        """Whether this grid has the values of C of an earlier one, and larger ones.

        facts : of the earlier grid.  values : of C, increasing.
        """
        known = facts.get("alphas") or []
        if self.alphas is not None:
            return bool(known) and known == self.alphas[: len(known)].tolist()
        same = not known and facts.get("points") == self.points
        return same and self.C_max is not None and len(values) > 1 and self.C_max > values[-1]

    def extended(self, values: Floats) -> Floats:
        """The values of C of an earlier, narrower grid, and those that follow at about their factor."""
        if self.alphas is not None:
            more = values[:1] * self.alphas[0] / self.alphas[len(values) :]
            return np.concatenate([values, more])
        if self.C_max is None or len(values) < 2 or self.C_max <= values[-1]:
            return values
        factors = math.log(self.C_max / values[-1]) / math.log(values[-1] / values[-2])
        more = np.geomspace(values[-1], self.C_max, math.ceil(factors - 1e-6) + 1)[1:]
        more[-1] = self.C_max  # free of rounding
        return np.concatenate([values, more])


def check_alphas(alphas: Any) -> Floats:
    """Validate alphas given as an array; returns them decreasing, float64 (k,).

    Raises InputError unless all are finite, above 0 and distinct.
    """
    try:
        found = np.sort(np.asarray(alphas, np.float64).reshape(-1))[::-1]
    except (TypeError, ValueError):
        raise InputError(f"alphas: expected numbers above 0, got {alphas!r:.200}") from None
    wrong = ~(np.isfinite(found) & (found > 0.0))
    if not len(found) or wrong.any():
        raise InputError(f"alphas: expected finite numbers above 0, got {alphas!r:.200}")
    same = np.flatnonzero(found[1:] == found[:-1])
    if len(same):
        raise InputError(f"alphas: expected distinct numbers, got {found[same[0]]:g} twice")
    return np.ascontiguousarray(found)


def resolve_grid(grid: Grid, C_min: float, sum_weights: float) -> Floats:
    """The increasing values of C, float64 (points,).

    The first is C_min: the model without features, whose score shows what the features add. It costs
    the one pass that finds C_min. A grid of one point is C_max alone.

    C_min : the largest C at which the model is empty.
    sum_weights : of the samples, to convert alphas.
    """
    if grid.alphas is not None:
        return 1.0 / (grid.alphas * sum_weights)
    if not math.isfinite(C_min):
        raise InputError(
            "a path begins at the smallest C at which a weight can be nonzero, but no feature varies "
            "with the target: the model is empty at every C"
        )
    C_max = RATIO * C_min if grid.C_max is None else grid.C_max
    if C_max <= C_min:
        raise InputError(
            f"C_max: expected a number above {C_min:.6g}, up to which the model is empty, got "
            f"{C_max:.6g}; raise it"
        )
    if grid.points == 1:
        return np.array([C_max])
    found = np.geomspace(C_min, C_max, grid.points)
    found[[0, -1]] = C_min, C_max  # free of rounding
    return found
