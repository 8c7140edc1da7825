"""Gram matrix and gradient of a block of features, streamed over the tiles of the rows.

Each tile is the work of one thread, with products by BLAS in the precision of the features. The sums over
tiles are in float64 and in the order of the rows, so that they have the same bits for any number of
threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fcl.parallel import Team
from fcl.stagewise.blocks import FeatureBlock, Part
from fcl.stagewise.links import Link
from fcl.types import Floats

#: Tiles for each thread whose sums may wait to be added.
AHEAD = 2


@dataclass
class Sums:
    """Sums over rows, for p features and K margins.

    gradient : float64 (p, K), sum_i s_i phi_i r_i', with the gradients r of the loss.
    features : float64 (p,), sum_i s_i phi_i.
    residuals : float64 (K,), sum_i s_i r_i.
    gram : float64 (p, p) or None, sum_i s_i phi_i phi_i'; its lower triangle is defined.
    """

    gradient: np.ndarray
    features: np.ndarray
    residuals: np.ndarray
    gram: np.ndarray | None

    def add(self, other: Sums) -> None:
        """Add the sums of the next tile."""
        self.gradient += other.gradient
        self.features += other.features
        self.residuals += other.residuals
        if self.gram is not None:
            self.gram += other.gram

    def exact(self) -> Sums:
        """A copy in float64, to add others to."""
        gram = None if self.gram is None else self.gram.astype(np.float64)
        gradient, features, residuals = (
            np.array(array, np.float64) for array in (self.gradient, self.features, self.residuals)
        )
        return Sums(gradient, features, residuals, gram)


@dataclass(frozen=True)
class Update:
    """A step of a block: ``margins += features @ weights + intercept``.

    weights : float32 or float64 (p, K), products with features are in the dtype of the features.
    intercept : float64 (K,)
    """

    weights: np.ndarray
    intercept: Floats

    def apply(self, features: np.ndarray, margins: Floats) -> None:
        """Change the margins (k, K) of a tile, in place."""
        margins += self.change(features)

    def change(self, features: np.ndarray) -> Floats:
        """What is added to the margins (k, K) of a tile, in float64."""
        weights = self.weights.astype(features.dtype, copy=False)
        return (weights.T @ features.T).T + self.intercept

    @staticmethod
    def total(updates: Sequence[Update]) -> Update:
        """One update in place of several of the same block."""
        if len(updates) == 1:
            return updates[0]
        weights = np.sum([update.weights for update in updates], axis=0)
        return Update(weights, np.sum([update.intercept for update in updates], axis=0))


class Sweeper:
    """Sweeps over the tiles of a part: updates margins, then sums.

    team : threads, each of which works on one tile at a time.
    """

    def __init__(self, link: Link, team: Team) -> None:
        self.link, self.team = link, team

    def update(self, block: FeatureBlock, part: Part, update: Update) -> None:
        """Apply a step to the margins of all rows."""

        def work(tile: int) -> None:
            margins = part.margins[part.prepared.rows_of(tile)]
            update.apply(block.tile(part, tile), margins)

        self.team.map(work, range(part.prepared.n_blocks))

    def direction(self, block: FeatureBlock, part: Part, update: Update) -> Floats:
        """What a step would add to the margins of all rows, float64 (n, K)."""
        out = np.empty_like(part.margins)

        def work(tile: int) -> None:
            out[part.prepared.rows_of(tile)] = update.change(block.tile(part, tile))

        self.team.map(work, range(part.prepared.n_blocks))
        return out

    def sums(self, block: FeatureBlock, part: Part, gram: bool = True) -> Sums:
        """The sums at the current margins; ``gram``: whether to sum the Gram matrix too."""

        def work(tile: int) -> Sums:
            return self._tile(block.tile(part, tile), part, tile, gram)

        total = None
        for group in _groups(part.prepared.n_blocks, AHEAD * self.team.most):
            for found in self.team.map(work, group):
                if total is None:
                    total = found.exact()
                else:
                    total.add(found)
        assert total is not None
        return total

    def _tile(self, features: np.ndarray, part: Part, tile: int, gram: bool) -> Sums:
        rows = part.prepared.rows_of(tile)
        s = part.s[rows]
        residuals = self.link.gradient(part.margins[rows], part.targets.rows(rows)) * s[:, None]
        both = np.column_stack([residuals, s]).astype(features.dtype)
        crossed = features.T @ both
        product = _gram(features, s) if gram else None
        return Sums(crossed[:, :-1], crossed[:, -1], residuals.sum(axis=0), product)


def _groups(n: int, size: int) -> Iterable[range]:
    return (range(at, min(at + size, n)) for at in range(0, n, size))


def _gram(features: np.ndarray, s: Floats) -> np.ndarray:
    """F' S F of a tile; BLAS computes half of a product of a matrix with itself."""
    if (s != 1.0).any():
        features = features * np.sqrt(s)[:, None].astype(features.dtype)
    return np.asarray(features.T @ features)
