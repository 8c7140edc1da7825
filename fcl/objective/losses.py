"""The losses by name; see CONTRIBUTING.md, "Adding a loss"."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from fcl import kernels
from fcl.errors import InputError
from fcl.kinds import parse_kind
from fcl.objective.metrics import average_precision, has_both_classes
from fcl.types import Floats

#: The largest |target| of the pinball loss; squares of margins must not overflow.
MOST_TARGET = 1e150


@dataclass(frozen=True)
class Loss(ABC):
    """A loss(y, m) >= 0 of a target y and a margin m, convex in m with infimum 0.

    Fields of a subclass are the options of the loss, as in ``huber:delta=2``: at most two numbers above
    0, which must be below 1 if the metadata of the field has ``below=1.0``.

    Below, u is a residual divided by its sample weight: a slope of the loss. The domain of the dual is
    the interval of u where the conjugate is finite; it contains 0, where the conjugate is 0.

    Attributes
    ----------
    name : str
        Name without options.
    code : int
        Number of the loss in :mod:`fcl.kernels.losses`.
    formula : str
        Formula in the margin m_i, for display.
    metric : str
        Name of the metric that :meth:`score` computes.
    metric_title : str
        The metric in words, of a loss for numbers.
    classifies : bool
        Whether targets are two labels, -1 and +1; else they are numbers.
    clipped : bool
        Whether the slope is ``most_curvature`` times (m - y), clipped to the domain of the dual. The
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
    smooth : bool
        Whether the loss has a derivative everywhere, which the solver of fcl.train needs. Slopes at a
        kink are one of the subgradients, so that the slopes at the best intercept need not sum to 0.
    couples : bool
        Whether the loss is one function of the margins of K outputs. Margins and means are then
        (K, n), and targets are class numbers; :class:`fcl.objective.softmax.SoftmaxOutputs` has its
        sums, since it has no functions of a single margin.
    most_curvature : float
        The largest second derivative (of a loss that couples: eigenvalue of the Hessian); infinite unless
        a subclass sets it.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    formula: ClassVar[str]
    metric: ClassVar[str]
    metric_title: ClassVar[str] = ""
    classifies: ClassVar[bool] = False
    clipped: ClassVar[bool] = False
    translates: ClassVar[bool] = False
    conic: ClassVar[bool] = False
    unbounded: ClassVar[bool] = False
    smooth: ClassVar[bool] = True
    couples: ClassVar[bool] = False

    @property
    def text(self) -> str:
        """The name with all options, as :func:`fcl.objective.find_loss` reads it."""
        numbers = ((f.name, repr(float(getattr(self, f.name)))) for f in fields(self))
        options = ",".join(f"{name}={number.removesuffix('.0')}" for name, number in numbers)
        return f"{self.name}:{options}" if options else self.name

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger :meth:`score` is better: true of a ranking metric, false of an error."""
        return self.classifies

    @property
    def kernel(self) -> tuple[int, float, float]:
        """Code and options, for the kernels; 0.0 for options that the loss lacks."""
        first, second, *_ = (*map(float, astuple(self)), 0.0, 0.0)
        return kernels.losses.TRIPLES[self.code](self.code, first, second)

    @property
    def quantile(self) -> float | None:
        """The quantile of the target that margins estimate; None if they estimate none."""
        return None

    @property
    def most_curvature(self) -> float:
        """The largest second derivative, which may be infinite."""
        return math.inf

    @abstractmethod
    def domain(self, y: Floats) -> tuple[Any, Any]:
        """Lower and upper end of the domain of the dual for each row: arrays or numbers."""

    @abstractmethod
    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        """The value of ``metric`` over rows with weights s; NaN where it is undefined."""

    def score_outputs(self, y: Floats, s: Floats, margins: Floats) -> float:
        """The :meth:`score`; of targets and margins (K, n), the mean over the outputs that have one."""
        if y.ndim == 1:
            return self.score(y, s, margins)
        found = [self.score(own, s, m) for own, m in zip(y, margins, strict=True)]
        known = [score for score in found if not np.isnan(score)]
        return float(np.mean(known)) if known else np.nan

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

    @property
    def mean_name(self) -> str:
        """What :meth:`mean` is called in tables; empty if there is none, or margins are it."""
        if not self.has_mean or (not self.classifies and self.mean(np.array([2.0]))[0] == 2.0):
            return ""
        return "probability" if self.classifies else "mean"

    def intercept_step(self, slope: float, curvature: float) -> float:
        """The intercept's step towards a root of its slope; NaN if no step can be computed."""
        return -slope / curvature if curvature > 0.0 else np.nan


@dataclass(frozen=True)
class _LabelLoss(Loss):
    """A loss of labels -1 and +1; in its dual 0 <= -y u <= 1, unless a subclass says otherwise."""

    metric: ClassVar[str] = "auprc"
    classifies: ClassVar[bool] = True

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        return average_precision(y, margins, s) if has_both_classes(y, s) else math.nan


@dataclass(frozen=True)
class Logistic(_LabelLoss):
    """log(1 + exp(-y m)), with a second derivative of at most 1/4.

    With a = -y u in [0, 1] the conjugate is a log a + (1 - a) log(1 - a).
    """

    name: ClassVar[str] = "logistic"
    code: ClassVar[int] = 0
    formula: ClassVar[str] = "log(1 + exp(-y_i m_i))"
    most_curvature = 0.25

    def mean(self, margins: Floats) -> Floats:
        # does not overflow at any margin
        small = np.exp(-np.abs(margins))
        return np.where(margins >= 0.0, 1.0, small) / (1.0 + small)


@dataclass(frozen=True)
class SquaredHinge(_LabelLoss):
    """max(0, 1 - y m)^2. With a = -y u >= 0 the conjugate is a^2 / 4 - a."""

    name: ClassVar[str] = "squared_hinge"
    code: ClassVar[int] = 2
    formula: ClassVar[str] = "max(0, 1 - y_i m_i)^2"
    clipped: ClassVar[bool] = True
    conic: ClassVar[bool] = True
    most_curvature = 2.0

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return np.where(y > 0.0, -np.inf, 0.0), np.where(y > 0.0, 0.0, np.inf)


@dataclass(frozen=True)
class Hinge(_LabelLoss):
    """max(0, 1 - y m), which has a kink at y m = 1. With a = -y u in [0, 1] the conjugate is -a."""

    name: ClassVar[str] = "hinge"
    code: ClassVar[int] = 5
    formula: ClassVar[str] = "max(0, 1 - y_i m_i)"
    smooth: ClassVar[bool] = False


@dataclass(frozen=True)
class _ClippedLoss(Loss):
    """A loss of y - m whose slope is clipped, and whose margins are predictions."""

    clipped: ClassVar[bool] = True
    translates: ClassVar[bool] = True

    def mean(self, margins: Floats) -> Floats:
        return margins


@dataclass(frozen=True)
class Squared(_ClippedLoss):
    """(y - m)^2, without 1/2: twice the usual least squares loss. The conjugate is u^2 / 4 + u y."""

    name: ClassVar[str] = "squared"
    code: ClassVar[int] = 1
    formula: ClassVar[str] = "(y_i - m_i)^2"
    metric: ClassVar[str] = "mse"
    metric_title: ClassVar[str] = "mean squared error"
    conic: ClassVar[bool] = True
    unbounded: ClassVar[bool] = True
    most_curvature = 2.0

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return -np.inf, np.inf

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        return float(np.average((y - margins) ** 2, weights=s))


@dataclass(frozen=True)
class Huber(_ClippedLoss):
    """(y - m)^2 up to |y - m| = delta, and beyond that its tangents, delta (2 |y - m| - delta).

    Like the squared loss it has no factor 1/2: it is twice the loss of Huber (1964). Its slope lies in
    [-2 delta, 2 delta], which is the domain of the dual; there the conjugate is as for the squared loss,
    u^2 / 4 + u y.

    Parameters
    ----------
    delta : float
        In the units of the target, > 0; rows with |y - m| > delta are outliers.
    """

    name: ClassVar[str] = "huber"
    code: ClassVar[int] = 3
    formula: ClassVar[str] = "huber_delta(y_i - m_i)"
    metric: ClassVar[str] = "mae"
    metric_title: ClassVar[str] = "mean absolute error"
    most_curvature = 2.0

    delta: float = 1.0

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return -2.0 * self.delta, 2.0 * self.delta

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        return float(np.average(np.abs(y - margins), weights=s))


@dataclass(frozen=True)
class Pinball(_ClippedLoss):
    """The loss of quantile regression, max(tau u, (tau - 1) u) of u = y - m, smoothed over a width.

    It is the Moreau envelope of the pinball loss: u^2 / (2 width) for -(1 - tau) width <= u <= tau width,
    and beyond that its tangents, tau u - tau^2 width / 2 above and (tau - 1) u - (1 - tau)^2 width / 2
    below. It lies below the pinball loss, by at most max(tau, 1 - tau)^2 width / 2. The slope lies in
    [-tau, 1 - tau], which is the domain of the dual; there the conjugate is width u^2 / 2 + u y. (Koenker
    and Bassett 1978; Chen 2007, "A finite smoothing algorithm for quantile regression", smooths alike.)

    The metric is the mean of the pinball loss without smoothing.

    tau : the quantile, 0 < tau < 1: the share of the targets below the prediction.
    width : length of the interval of residuals over which the slope changes, in the units of the target,
        > 0.
    """

    name: ClassVar[str] = "pinball"
    code: ClassVar[int] = 6
    formula: ClassVar[str] = "pinball_tau,width(y_i - m_i)"
    metric: ClassVar[str] = "pinball"
    metric_title: ClassVar[str] = "mean pinball loss"

    tau: float = field(default=0.5, metadata={"below": 1.0})
    width: float = 0.1

    @property
    def quantile(self) -> float:
        return self.tau

    @property
    def most_curvature(self) -> float:
        return 1.0 / self.width

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return -self.tau, 1.0 - self.tau

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        u = y - margins
        return float(np.average(np.maximum(self.tau * u, (self.tau - 1.0) * u), weights=s))

    def check_training(self, y: Floats, name: str) -> None:
        largest = float(np.abs(y).max())
        if largest > MOST_TARGET:
            raise InputError(
                f"{name}: pinball loss needs targets of at most {MOST_TARGET:g} in size, got "
                f"{largest:g}; scale the target"
            )
        # half of the targets may be outliers of any size
        size = float(np.median(np.abs(y[y != 0.0]))) if y.any() else 0.0
        least = max(size * np.finfo(np.float64).eps, np.finfo(np.float64).tiny)
        if self.width < least:
            raise InputError(
                f"loss {self.text}: expected a width of at least the rounding of {name}, {least:.1g}, "
                f"got {self.width:g}; give a tenth of the spread of the residuals"
            )


@dataclass(frozen=True)
class Poisson(Loss):
    """Half the unit deviance, exp(m) - y m + y log y - y, of a target y >= 0 with the mean exp(m).

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
    metric_title: ClassVar[str] = "mean deviance"

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return -y, np.inf

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        work = kernels.losses.workspace()
        total = kernels.losses.weighted_loss(self.kernel, y, s, margins, 0.0, work)
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


@dataclass(frozen=True)
class Softmax(Loss):
    """log sum_k exp(m_k) - m_y, for a row of class y = 0 .. K - 1 and its margins m.

    The probability of class k is exp(m_k) / sum_j exp(m_j). The Hessian diag(p) - p p' is at most 1/2.
    With a = u + e_y the conjugate is sum_k a_k log a_k on the simplex, and infinite elsewhere. With two
    classes it is the logistic loss at the margin m_1 - m_0.

    The metric is the log loss, in natural units: the mean of -log p_y. Unlike the accuracy it compares
    models where classes are rare, and changes with every step.
    """

    name: ClassVar[str] = "softmax"
    code: ClassVar[int] = -1
    formula: ClassVar[str] = "(log sum_k exp(m_ik) - m_i,y_i)"
    metric: ClassVar[str] = "log_loss"
    classifies: ClassVar[bool] = True
    couples: ClassVar[bool] = True
    most_curvature = 0.5

    @property
    def higher_is_better(self) -> bool:
        return False

    def domain(self, y: Floats) -> tuple[Any, Any]:
        raise NotImplementedError(
            "the domain of the dual is a simplex, not an interval for each row"
        )

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        """The mean log loss; margins : float64 (K, n). NaN without rows."""
        if not len(y):
            return math.nan
        K, n = margins.shape
        work = np.empty((K + 3, kernels.softmax.TILE))
        rows = np.ascontiguousarray(margins, dtype=np.float64)
        total: float = kernels.softmax.weighted_loss(y, s, rows, np.zeros(K), 0, n, work)
        return total / math.fsum(s)

    def mean(self, margins: Floats) -> Floats:
        """The probabilities of the classes, float64 (K, n), of margins (K, n)."""
        p = np.exp(margins - margins.max(axis=0))
        p /= p.sum(axis=0)
        return np.asarray(p)

    def check_targets(self, y: Floats, name: str) -> None:
        wrong = (y < 0.0) | (y != np.floor(y))
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"{name}: softmax loss needs class numbers 0, 1, 2 and so on, got {y[row]:g} in row {row}"
            )


#: The losses of a single output that fcl.train minimises.
LOSSES: dict[str, type[Loss]] = {
    kind.name: kind for kind in (Logistic, Squared, SquaredHinge, Huber, Poisson, Pinball)
}
#: The losses that couple K outputs (:attr:`Loss.couples`).
COUPLED_LOSSES: dict[str, type[Loss]] = {Softmax.name: Softmax}
#: The losses that are not smooth (:attr:`Loss.smooth`), for online learners and certificates.
KINKED_LOSSES: dict[str, type[Loss]] = {Hinge.name: Hinge}


def find_loss(text: str) -> Loss:
    """Parse the text of a loss: ``logistic``, or ``NAME:OPTION=NUMBER`` such as ``huber:delta=2``.

    Raises InputError that lists the losses, or names the wrong option.
    """
    return parse_kind("loss", text, LOSSES | COUPLED_LOSSES | KINKED_LOSSES)
