"""Convex losses of several margins, and the projection onto the probability simplex.

With margins u in R^K and targets y in R^K (one-hot for classes), a calibrated loss is Phi(u) - <y, u>
plus a constant; its gradient is g(u) - y with g = grad Phi (Agarwal et al., "Least squares revisited",
ICML 2014, equations 12 and 13).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax, softmax

__all__ = ["LINKS", "Link", "Softmax", "Squared", "project"]

Floats = npt.NDArray[np.float64]


class Link(ABC):
    """A loss of K margins.

    Attributes
    ----------
    name : str
    bend : float
        The smallest L with |g(u) - g(v)| <= L |u - v|.
    is_quadratic : bool
        Whether g(u) - g(v) is L (u - v) everywhere, so that a step minimises the loss itself.
    """

    name: ClassVar[str]
    bend: ClassVar[float]
    is_quadratic: ClassVar[bool] = False

    @abstractmethod
    def gradient(self, margins: Floats, targets: Floats) -> Floats:
        """The gradient of the loss of each row: float64 (n, K), as both arguments."""

    @abstractmethod
    def losses(self, margins: Floats, targets: Floats) -> Floats:
        """The loss of each row, float64 (n,), at least 0."""

    @abstractmethod
    def start(self, mean: Floats) -> Floats:
        """The best constant margins, float64 (K,), for targets with this weighted mean (K,)."""

    @abstractmethod
    def probabilities(self, margins: Floats) -> Floats:
        """Probabilities of the classes, float64 (n, K); rows sum to 1."""

    @abstractmethod
    def dual(self, residuals: Floats, targets: Floats) -> Floats:
        """The dual objective of each row, float64 (n,), at residuals ``y - g`` (n, K)."""


class Squared(Link):
    """|u - y|^2 / 2."""

    name = "squared"
    bend = 1.0
    is_quadratic = True

    def gradient(self, margins: Floats, targets: Floats) -> Floats:
        return margins - targets

    def losses(self, margins: Floats, targets: Floats) -> Floats:
        return np.asarray(0.5 * np.square(margins - targets).sum(axis=1))

    def start(self, mean: Floats) -> Floats:
        return mean

    def probabilities(self, margins: Floats) -> Floats:
        return project(margins)

    def dual(self, residuals: Floats, targets: Floats) -> Floats:
        return np.asarray((residuals * targets - 0.5 * np.square(residuals)).sum(axis=1))


class Softmax(Link):
    """log sum_k exp(u_k) - <u, y>: the multinomial logistic loss."""

    name = "softmax"
    bend = 0.5  # reached at p = (1/2, 1/2, 0, ...)

    def gradient(self, margins: Floats, targets: Floats) -> Floats:
        return np.asarray(softmax(margins, axis=1) - targets)

    def losses(self, margins: Floats, targets: Floats) -> Floats:
        return np.asarray(-(log_softmax(margins, axis=1) * targets).sum(axis=1))

    def start(self, mean: Floats) -> Floats:
        logs = np.log(mean)
        return np.asarray(logs - logs.mean())

    def probabilities(self, margins: Floats) -> Floats:
        return np.asarray(softmax(margins, axis=1))

    def dual(self, residuals: Floats, targets: Floats) -> Floats:
        # the entropy of the labels a = y - r; rounding may leave a value slightly below 0
        labels = np.maximum(targets - residuals, 0.0)
        return np.asarray(-(labels * np.log(np.where(labels > 0.0, labels, 1.0))).sum(axis=1))


LINKS: dict[str, Link] = {link.name: link for link in (Squared(), Softmax())}


def project(points: Floats) -> Floats:
    """The nearest points of the probability simplex.

    Parameters
    ----------
    points : float64 (n, K)

    Returns
    -------
    float64 (n, K)
        Values of at least 0; each row sums to 1 up to rounding.

    References
    ----------
    Duchi, Shalev-Shwartz, Singer and Chandra, "Efficient projections onto the l1-ball", ICML 2008.
    """
    ordered = -np.sort(-points, axis=1)
    excess = np.cumsum(ordered, axis=1) - 1.0
    counts = np.arange(1, points.shape[1] + 1)
    last = (ordered * counts > excess).sum(axis=1) - 1
    shift = excess[np.arange(len(points)), last] / (last + 1)
    return np.asarray(np.maximum(points - shift[:, None], 0.0))
