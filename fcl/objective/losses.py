"""The losses by name, and their base class; see CONTRIBUTING.md, "Adding a loss"."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fcl.checks import positive, shown
from fcl.errors import InputError
from fcl.objective.metrics import average_precision

__all__ = ["LOSSES", "Loss", "find_loss"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Loss(ABC):
    """A loss(y, m) >= 0 of a target y and a margin m, convex in m with infimum 0.

    Fields of a subclass are the options of the loss, as in ``huber:delta=2``. Below, u is a residual
    divided by its sample weight: a slope of the loss. The domain of the dual is the interval of u where
    the conjugate is finite; it contains 0, where the conjugate is 0.

    Attributes
    ----------
    name : str
        Name without options.
    code : int
        Number of the loss's branch in :mod:`fcl.kernels.losses`.
    formula : str
        Formula in the margin m_i, for display.
    metric : str
        Name of the metric that :meth:`score` computes.
    classifies : bool
        Whether targets are two labels, -1 and +1; else they are numbers.
    clipped : bool
        Whether this is the squared loss with its slope 2 (m - y) clipped to the domain of the dual. The
        second derivative jumps at the ends of the domain.
    translates : bool
        Whether loss(y - c, m - c) = loss(y, m). If so, targets are centred, since rounding would cost
        targets of 1e6 +- 1 six digits, and offsets are subtracted from the targets.
    conic : bool
        Whether the domain of the dual is a cone, on which the conjugate is u^2 / 4 + u y: residuals may
        be scaled up as well as down.
    unbounded : bool
        Whether the domain of the dual is the real line. If so, residuals are balanced by a shift;
        otherwise by scaling down the heavier side, which never leaves an interval that contains 0.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    formula: ClassVar[str]
    metric: ClassVar[str]
    classifies: ClassVar[bool] = False
    clipped: ClassVar[bool] = False
    translates: ClassVar[bool] = False
    conic: ClassVar[bool] = False
    unbounded: ClassVar[bool] = False

    @property
    def text(self) -> str:
        """The name with all options, as :func:`fcl.objective.find_loss` reads it."""
        options = ",".join(f"{f.name}={getattr(self, f.name):.17g}" for f in fields(self))
        return f"{self.name}:{options}" if options else self.name

    @property
    def kernel(self) -> tuple[int, float]:
        """Code and parameter, for the kernels."""
        return self.code, 0.0

    @abstractmethod
    def domain(self, y: Floats) -> tuple[Any, Any]:
        """Lower and upper end of the domain of the dual for each row: arrays or numbers."""

    @abstractmethod
    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        """The value of ``metric`` over rows with weights s; NaN where it is undefined."""

    def check_targets(self, y: Floats, name: str) -> None:  # noqa: B027 most losses take any number
        """Raise InputError for a target that the loss does not allow; name : of the array."""

    def check_training(self, y: Floats, name: str) -> None:
        """Raise InputError if the targets of all training rows determine no model."""
        if self.classifies and len(np.unique(y)) < 2:
            raise InputError(
                f"{name}: only one class is left among the {len(y)} training rows with a weight above 0"
            )

    def mean(self, margins: Floats) -> Floats:
        """The expected target, by the inverse link; for labels, the probability of +1."""
        raise InputError(
            f"{self.name} loss has no link from margins to a mean or probability; ask for margins"
        )

    @property
    def has_mean(self) -> bool:
        """Whether :meth:`mean` is defined."""
        return type(self).mean is not Loss.mean

    def intercept_step(self, slope: float, curvature: float) -> float:
        """The intercept's step towards a root of its slope; NaN if there is none."""
        return -slope / curvature if curvature > 0.0 else np.nan


@dataclass(frozen=True)
class Logistic(Loss):
    """For labels, modelled by their log-odds: log(1 + exp(-y m)).

    Its second derivative is at most 1/4. With a = -y u in [0, 1] the conjugate is
    a log a + (1 - a) log(1 - a).
    """

    name: ClassVar[str] = "logistic"
    code: ClassVar[int] = 0
    formula: ClassVar[str] = "log(1 + exp(-y_i m_i))"
    metric: ClassVar[str] = "auprc"
    classifies: ClassVar[bool] = True

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        return average_precision(y, margins, s)

    def mean(self, margins: Floats) -> Floats:
        # does not overflow at any margin
        small = np.exp(-np.abs(margins))
        return np.where(margins >= 0.0, 1.0, small) / (1.0 + small)


@dataclass(frozen=True)
class Squared(Loss):
    """For numeric targets, modelled by their mean: (y - m)^2, twice the usual least squares loss.

    The conjugate is u^2 / 4 + u y.
    """

    name: ClassVar[str] = "squared"
    code: ClassVar[int] = 1
    formula: ClassVar[str] = "(y_i - m_i)^2"
    metric: ClassVar[str] = "mse"
    clipped: ClassVar[bool] = True
    translates: ClassVar[bool] = True
    conic: ClassVar[bool] = True
    unbounded: ClassVar[bool] = True

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return -np.inf, np.inf

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        return float(np.average((y - margins) ** 2, weights=s))

    def mean(self, margins: Floats) -> Floats:
        return margins


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """For labels, separated by a margin of at least 1: max(0, 1 - y m)^2.

    With a = -y u >= 0 the conjugate is a^2 / 4 - a.
    """

    name: ClassVar[str] = "squared_hinge"
    code: ClassVar[int] = 2
    formula: ClassVar[str] = "max(0, 1 - y_i m_i)^2"
    metric: ClassVar[str] = "auprc"
    classifies: ClassVar[bool] = True
    clipped: ClassVar[bool] = True
    conic: ClassVar[bool] = True

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return np.where(y > 0.0, -np.inf, 0.0), np.where(y > 0.0, 0.0, np.inf)

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        return average_precision(y, margins, s)


@dataclass(frozen=True)
class Huber(Loss):
    """For numeric targets with outliers: the squared loss, continued by tangents.

    It is (y - m)^2 up to |y - m| = delta, and beyond that its tangents, delta (2 |y - m| - delta).
    Like the squared loss it has no factor 1/2: it is twice the loss of Huber (1964). Its slope lies in
    [-2 delta, 2 delta], which is the domain of the dual; there the conjugate is that of the squared
    loss, u^2 / 4 + u y.

    Parameters
    ----------
    delta : float
        In the units of the target, > 0; rows with |y - m| > delta are outliers.
    """

    name: ClassVar[str] = "huber"
    code: ClassVar[int] = 3
    formula: ClassVar[str] = "huber_delta(y_i - m_i)"
    metric: ClassVar[str] = "mae"
    clipped: ClassVar[bool] = True
    translates: ClassVar[bool] = True

    delta: float = 1.0

    @property
    def kernel(self) -> tuple[int, float]:
        return self.code, self.delta

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return -2.0 * self.delta, 2.0 * self.delta

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        return float(np.average(np.abs(y - margins), weights=s))

    def mean(self, margins: Floats) -> Floats:
        return margins


@dataclass(frozen=True)
class Poisson(Loss):
    """For counts and rates, modelled by the logarithm of their mean.

    It is half the unit deviance, exp(m) - y m + y log y - y, of a target y >= 0 with the mean exp(m).
    The terms in y alone make its minimum 0, so that relative gaps are meaningful. For counts y with
    exposures E, pass the offset log E, or the target y / E with the sample weight E.

    With v = y + u the conjugate is v log v - v - y log y + y for v >= 0, else infinite. A residual over
    its weight is exp(m) - y >= -y, which lies in this domain. The domain is an interval that contains 0,
    so a residual stays in it when scaled by a number in [0, 1]: balancing, scaling and truncation towards
    0 give points of the dual. Scaling up a residual near -y would leave the domain.

    The second derivative exp(m) is unbounded. A Newton step upwards from m < log y is too long; one
    downwards from m > log y is too short (it lowers m by less than 1). Line searches shorten steps of the
    first kind, and so do curvatures that are raised to a share of y.
    """

    name: ClassVar[str] = "poisson"
    code: ClassVar[int] = 4
    formula: ClassVar[str] = "(exp(m_i) - y_i m_i + y_i log y_i - y_i)"
    metric: ClassVar[str] = "deviance"

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return -y, np.inf

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        from fcl.kernels import losses

        total = losses.weighted_loss(self.kernel, y, s, margins, 0.0)
        return float(2.0 * total / math.fsum(s))

    def mean(self, margins: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(margins))

    def check_targets(self, y: Floats, name: str) -> None:
        if (y < 0.0).any():
            row = int((y < 0.0).argmax())
            raise InputError(
                f"{name}: poisson loss needs targets of at least 0, got {y[row]:g} in row {row}; choose "
                "another loss, such as squared"
            )

    def check_training(self, y: Floats, name: str) -> None:
        if not y.any():
            raise InputError(
                f"{name}: all targets of training rows are 0, so no finite intercept is optimal; poisson "
                "loss needs at least one target above 0"
            )

    def intercept_step(self, slope: float, curvature: float) -> float:
        # exact if only the loss has a slope: curvature = sum s exp(m), slope = curvature - sum s y
        if curvature <= 0.0 or slope >= (1.0 - 1e-12) * curvature:
            return math.nan  # rounding leaves no correct digit
        return math.log1p(-slope / curvature)


LOSSES: dict[str, type[Loss]] = {
    kind.name: kind for kind in (Logistic, Squared, SquaredHinge, Huber, Poisson)
}


def find_loss(text: str) -> Loss:
    """Parse the text of a loss: ``logistic``, or ``NAME:OPTION=NUMBER`` such as ``huber:delta=2``.

    Raises InputError that lists the losses, or names the wrong option.
    """
    name, _, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    kind = LOSSES.get(name.replace("-", "_"))
    if kind is None:
        raise InputError(f"unknown loss {shown(text)}; expected one of {', '.join(LOSSES)}")
    known = {field.name for field in fields(kind)}
    options: dict[str, float] = {}
    for part in rest.split(",") if rest else ():
        option, _, value = part.partition("=")
        if option not in known or option in options:
            expected = f"{', '.join(known)}, once" if known else "no options"
            raise InputError(f"loss {shown(text)}: expected {expected}, got {shown(part)}")
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        options[option] = positive(f"loss {shown(text)}: {option}", number)
    return kind(**options)
