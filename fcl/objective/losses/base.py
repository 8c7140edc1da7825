"""The base class of losses; see CONTRIBUTING.md, "Adding a loss"."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass, fields
from typing import Any, ClassVar

import numpy as np

from fcl import kernels
from fcl.errors import InputError
from fcl.types import Floats


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
        (K, n), and targets are class numbers; :class:`fcl.objective.softmax.SoftmaxObjective` has its
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
        options = ",".join(f"{f.name}={_digits(getattr(self, f.name))}" for f in fields(self))
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


def _digits(value: float) -> str:
    """The shortest text that reads as the same number."""
    return repr(float(value)).removesuffix(".0")
