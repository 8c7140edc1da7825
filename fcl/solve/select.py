"""Which features to make columns of after a pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.features.base import Prices
from fcl.solve.state import Floats, Ids, Point

#: Gradients nearer than this (relative) are taken for those of equal columns.
SAME_GRADIENT = 1e-10


@dataclass(frozen=True)
class Selection:
    """Features to admit, the largest violation first, each with what it has now."""

    ids: Ids
    violations: Floats  #: |C g_j| - 1 for weight 0, |C g_j + sign w_j| for a frozen weight
    gradients: Floats
    weights: Floats

    def take(self, which: npt.NDArray[np.intp]) -> Selection:
        """Some of them."""
        return Selection(
            self.ids[which], self.violations[which], self.gradients[which], self.weights[which]
        )


def select(
    prices: Prices,
    frozen_gradients: Floats,
    frozen: Point,
    cached: Ids,
    C: float,
    most: int,
    tolerance: float,
) -> Selection:
    """New and frozen features in one list by violation; the largest comes first.

    Of new features with the same gradient only the first is taken: they are columns that differ nowhere
    (a fixed letter in every window makes many). Should they differ after all, the other one is still
    there to be chosen after the next pass, so nothing is lost.

    frozen : the anchor's weights that are not cached, ``frozen_gradients`` their g_j.
    cached : ids of the cached features.
    most : number of features. tolerance : violations at most this are left alone.
    """
    from fcl.kernels import descent

    new = ~np.isin(prices.ids, cached) & ~np.isin(prices.ids, frozen.ids)
    ids, gradients = prices.ids[new], prices.gradients[new]
    violations = np.abs(C * gradients) - 1.0

    order = np.lexsort((ids, -np.abs(gradients)))
    ids, gradients, violations = ids[order], gradients[order], violations[order]
    size = np.abs(gradients)
    near = np.zeros(len(ids), bool)
    near[1:] = (size[:-1] - size[1:]) <= SAME_GRADIENT * size[:-1]
    near[1:] &= np.sign(gradients[:-1]) == np.sign(gradients[1:])
    ids, gradients, violations = ids[~near], gradients[~near], violations[~near]

    frozen_violations = np.empty(len(frozen.ids))
    descent.violations(C, frozen_gradients, frozen.weights, frozen_violations)
    ids = np.concatenate([ids, frozen.ids])
    gradients = np.concatenate([gradients, frozen_gradients])
    weights = np.concatenate([np.zeros(len(violations)), frozen.weights])
    violations = np.concatenate([violations, frozen_violations])
    order = np.lexsort((ids, -violations))
    order = order[violations[order] > tolerance][:most]
    return Selection(ids[order], violations[order], gradients[order], weights[order])
