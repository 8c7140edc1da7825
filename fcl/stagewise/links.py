"""Links, their calibrated losses, and the projection onto the probability simplex.

With margins u in R^K and targets y in R^K (one-hot for classes), a link g = grad Phi of a convex Phi has
the calibrated loss Phi(u) - <y, u> + Phi*(y), which is 0 where g(u) = y, and whose gradient is g(u) - y
(Agarwal et al., "Least squares revisited", ICML 2014, definitions 1 and 2). A new link is a class in this
module with its name in :data:`LINKS`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, log_softmax, logit, logsumexp, ndtr, ndtri, softmax, xlogy

from fcl.errors import InputError
from fcl.kinds import parse_kind
from fcl.types import Floats

#: Constant margins start no nearer to the ends of the range of a link.
LEAST_MEAN = 1e-6


@dataclass(frozen=True)
class Link(ABC):
    """A link g from K margins to the means of K targets; fields are options, as in ``power:p=2``.

    name : also of the loss.
    lipschitz : the smallest L with |g(u) - g(v)| <= L |u - v| (equation 16).
    is_quadratic : whether g(u) - g(v) is L (u - v) everywhere, so that a step minimises the loss itself.
    couples : whether means sum to 1, as probabilities of classes do.
    meaning : how margins become probabilities, in words.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    is_quadratic: ClassVar[bool] = False
    couples: ClassVar[bool] = False

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """See above."""

    @abstractmethod
    def potential(self, margins: Floats) -> Floats:
        """Phi of each row, float64 (n,)."""

    @abstractmethod
    def mean(self, margins: Floats) -> Floats:
        """g of each row, float64 (n, K)."""

    @abstractmethod
    def conjugate(self, means: Floats) -> Floats:
        """Phi* of each row, float64 (n,), in the closure of the range of g."""

    @abstractmethod
    def start(self, mean: Floats) -> Floats:
        """The best constant margins, float64 (K,), for targets with this weighted mean (K,)."""

    @abstractmethod
    def balance(self, means: Floats, wanted: Floats, found: Floats, total: float) -> Floats:
        """Move means (n, K) in the range of g, so that means and targets have the same weighted sums.

        wanted, found : weighted sums (K,) over all rows, of targets and of means.
        total : sum of the weights.
        """

    def gradient(self, margins: Floats, targets: Floats) -> Floats:
        """The gradient of the loss of each row: float64 (n, K), as both arguments."""
        return np.asarray(self.mean(margins) - targets)

    def losses(self, margins: Floats, targets: Floats) -> Floats:
        """The loss of each row, float64 (n,), at least 0 up to rounding."""
        at = np.einsum("ij,ij->i", margins, targets)
        return np.asarray(self.potential(margins) - at + self.conjugate(targets))

    def dual(self, residuals: Floats, targets: Floats) -> Floats:
        """The dual objective of each row, float64 (n,), at residuals ``y - g`` (n, K)."""
        return np.asarray(self.conjugate(targets) - self.conjugate(targets - residuals))

    def probabilities(self, margins: Floats) -> Floats:
        """Probabilities of the classes, float64 (n, K); rows sum to 1."""
        means = self.chances(margins)
        sums = means.sum(axis=1, keepdims=True)
        return np.where(sums > 0.0, means / np.where(sums > 0.0, sums, 1.0), 1.0 / means.shape[1])

    def chances(self, margins: Floats) -> Floats:
        """The probability of each label by itself, float64 (n, K)."""
        return np.clip(self.mean(margins), 0.0, 1.0)


class SquaredLink(Link):
    """The identity, whose loss is |u - y|^2 / 2."""

    name = "squared"
    meaning = "nearest point of the simplex to the margins; a class may have probability 0"
    is_quadratic = True
    lipschitz = 1.0

    def potential(self, margins: Floats) -> Floats:
        return np.asarray(0.5 * np.square(margins).sum(axis=1))

    def mean(self, margins: Floats) -> Floats:
        return margins

    def conjugate(self, means: Floats) -> Floats:
        return np.asarray(0.5 * np.square(means).sum(axis=1))

    def start(self, mean: Floats) -> Floats:
        return mean

    def balance(self, means: Floats, wanted: Floats, found: Floats, total: float) -> Floats:
        return np.asarray(means + (wanted - found) / total)

    def losses(self, margins: Floats, targets: Floats) -> Floats:
        return np.asarray(0.5 * np.square(margins - targets).sum(axis=1))

    def dual(self, residuals: Floats, targets: Floats) -> Floats:
        return np.asarray((residuals * targets - 0.5 * np.square(residuals)).sum(axis=1))

    def probabilities(self, margins: Floats) -> Floats:
        return project(margins)


class SoftmaxLink(Link):
    """The softmax, whose loss is the multinomial logistic one."""

    name = "softmax"
    meaning = "softmax of the margins"
    couples = True
    lipschitz = 0.5  # reached at p = (1/2, 1/2, 0, ...)

    def potential(self, margins: Floats) -> Floats:
        return np.asarray(logsumexp(margins, axis=1))

    def mean(self, margins: Floats) -> Floats:
        return np.asarray(softmax(margins, axis=1))

    def conjugate(self, means: Floats) -> Floats:
        # rounding may leave a value slightly below 0
        return np.asarray(xlogy(means, np.where(means > 0.0, means, 1.0)).sum(axis=1))

    def start(self, mean: Floats) -> Floats:
        logs = np.log(mean)
        return np.asarray(logs - logs.mean())

    def balance(self, means: Floats, wanted: Floats, found: Floats, total: float) -> Floats:
        excess = found - wanted
        over = excess > 0.0
        if not over.any():
            return means
        share = np.where(over, excess / found, 0.0)
        freed = means @ share
        lack = np.where(over, 0.0, -excess)
        return np.asarray(means * (1.0 - share) + np.outer(freed, lack / lack.sum()))

    def losses(self, margins: Floats, targets: Floats) -> Floats:
        return np.asarray(-(log_softmax(margins, axis=1) * targets).sum(axis=1))


class _SeparateLink(Link):
    """A link of each margin by itself to [0, 1], which fits labels of which a row has any number."""

    def balance(self, means: Floats, wanted: Floats, found: Floats, total: float) -> Floats:
        over = found > wanted
        down = np.where(over, wanted / np.where(over, found, 1.0), 1.0)
        up = np.where(
            over, 1.0, (total - wanted) / np.where(over | (total <= found), 1.0, total - found)
        )
        return np.asarray(np.where(over, down * means, 1.0 - up * (1.0 - means)))

    def start(self, mean: Floats) -> Floats:
        return self._inverse(np.clip(mean, LEAST_MEAN, 1.0 - LEAST_MEAN))

    @abstractmethod
    def _inverse(self, means: Floats) -> Floats:
        """The margins of some means inside (0, 1)."""


class LogisticLink(_SeparateLink):
    """1 / (1 + exp(-u)), whose loss is the logistic one of each label."""

    name = "logistic"
    meaning = "1 / (1 + exp(-margin)), divided by their sum over the classes"
    lipschitz = 0.25

    def potential(self, margins: Floats) -> Floats:
        return np.asarray(np.logaddexp(0.0, margins).sum(axis=1))

    def mean(self, margins: Floats) -> Floats:
        return np.asarray(expit(margins))

    def conjugate(self, means: Floats) -> Floats:
        inside = np.clip(means, 0.0, 1.0)
        return np.asarray((xlogy(inside, inside) + xlogy(1.0 - inside, 1.0 - inside)).sum(axis=1))

    def _inverse(self, means: Floats) -> Floats:
        return np.asarray(logit(means))


class ProbitLink(_SeparateLink):
    """The cumulative normal distribution."""

    name = "probit"
    meaning = "normal distribution function of the margins, divided by their sum over the classes"
    lipschitz = 1.0 / math.sqrt(2.0 * math.pi)

    def potential(self, margins: Floats) -> Floats:
        return np.asarray((margins * ndtr(margins) + _density(margins)).sum(axis=1))

    def mean(self, margins: Floats) -> Floats:
        return np.asarray(ndtr(margins))

    def conjugate(self, means: Floats) -> Floats:
        return np.asarray(-_density(ndtri(np.clip(means, 0.0, 1.0))).sum(axis=1))

    def _inverse(self, means: Floats) -> Floats:
        return np.asarray(ndtri(means))


@dataclass(frozen=True)
class PowerLink(_SeparateLink):
    """u^p between 0 and 1, and constant outside; p is at least 1."""

    name = "power"
    meaning = "margins cut to [0, 1], to the power p, divided by their sum over the classes"
    p: float = 2.0

    def __post_init__(self) -> None:
        if not self.p >= 1.0:
            raise InputError(f"loss power: expected p of at least 1, got {self.p:g}")

    @property
    def lipschitz(self) -> float:
        return self.p

    def potential(self, margins: Floats) -> Floats:
        inside = np.clip(margins, 0.0, 1.0)
        return np.asarray(
            (inside ** (self.p + 1.0) / (self.p + 1.0) + np.maximum(margins - 1.0, 0.0)).sum(axis=1)
        )

    def mean(self, margins: Floats) -> Floats:
        return np.asarray(np.clip(margins, 0.0, 1.0) ** self.p)

    def conjugate(self, means: Floats) -> Floats:
        inside = np.clip(means, 0.0, 1.0)
        return np.asarray(self.p / (self.p + 1.0) * (inside ** (1.0 + 1.0 / self.p)).sum(axis=1))

    def _inverse(self, means: Floats) -> Floats:
        return np.asarray(means ** (1.0 / self.p))


LINKS: dict[str, type[Link]] = {
    link.name: link for link in (SquaredLink, SoftmaxLink, LogisticLink, ProbitLink, PowerLink)
}


def find_link(text: str) -> Link:
    """Parse the text of a link: ``softmax``, or ``NAME:OPTION=NUMBER`` such as ``power:p=3``.

    Raises InputError that lists the links, or names the wrong option.
    """
    return parse_kind("loss", text, LINKS)


def _density(values: Floats) -> Floats:
    """The density of the normal distribution, 0 at infinity."""
    return np.exp(-0.5 * np.square(values)) / math.sqrt(2.0 * math.pi)


def project(points: Floats) -> Floats:
    """The nearest points (n, K) of the probability simplex, whose rows sum to 1 up to rounding.

    Duchi, Shalev-Shwartz, Singer and Chandra, "Efficient projections onto the l1-ball", ICML 2008.
    """
    ordered = -np.sort(-points, axis=1)
    excess = np.cumsum(ordered, axis=1) - 1.0
    counts = np.arange(1, points.shape[1] + 1)
    last = (ordered * counts > excess).sum(axis=1) - 1
    shift = excess[np.arange(len(points)), last] / (last + 1)
    return np.asarray(np.maximum(points - shift[:, None], 0.0))
