"""The options of online learners, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fcl.checks import at_least_0, choice, flag, positive, shown, up_to_one, whole
from fcl.errors import InputError
from fcl.objective import find_loss

#: Losses of online learners.
LOSSES = ("logistic", "squared", "squared_hinge", "hinge")
TRUNCATIONS = ("soft", "round", "subgradient")
STEPS = ("implicit", "explicit", "adagrad")
RATES = ("feature", "global")
#: dtypes of the table of weights.
TABLES = ("float64", "float32")


@dataclass(frozen=True)
class OnlineOptions:
    """How an online learner learns, apart from its method.

    The problem is (1/S) sum_i s_i loss(y_i, m_i) + alpha sum_j f_j (rho |w_j| + (1 - rho) w_j^2 / 2),
    with S the sum of the sample weights: fcl's problem at C = 1 / (alpha S), divided by C S.

    Attributes
    ----------
    alpha : float
        Coefficient of the penalty, at least 0; of truncated gradient the gravity.
    loss : {"logistic", "squared", "squared_hinge", "hinge"}
    rate : float
        Rate of the first row, above 0.
    power : float
        Truncated gradient, ball: the rate of row t is rate / t^power, with power from 0 to 1.
    decay : float
        Factor of the rate at the end of a pass, above 0 and at most 1.
    step : {"implicit", "explicit", "adagrad"}
        Truncated gradient, ball: the slope of a step is that at the margin after the step, which cannot
        overshoot, or before it. Truncated gradient: ``adagrad`` is explicit with a rate for each feature.
    period : int
        Truncated gradient: rows between truncations, K.
    theta : float
        Truncated gradient: only weights up to this size are truncated; at least 0, may be infinite. With
        sub-gradients, the model has weights of 0 in place of those up to this size.
    truncation : {"soft", "round", "subgradient"}
        Truncated gradient: small weights are shrunk (equation 6 of the paper of this method), or set to 0
        (equation 4), or a sub-gradient of the penalty is subtracted from all weights (equation 5), which
        takes time in proportion to the number of features.
    average : bool
        Truncated gradient: the model has the mean of the weights before each row and after the last
        (theorem 3.2), which has few weights of 0.
    l1_ratio : float
        rho, above 0 and at most 1; below 1 the penalty is an elastic net.
    intercept : bool
        Whether to learn an intercept, which is not penalised.
    weights : str
        dtype of the table of weights, float64 or float32, or ``qN.M`` of 1 + N + M bits, from 4 to 32,
        with randomised rounding. The ball has float64.
    gamma : float, optional
        ogd with such weights: a weight is rounded to steps of gamma times its rate, down to a power of 2,
        but not to finer steps than the grid has (adaptive precision); above 0. None: to the grid's steps.
    max_weight : float, optional
        ogd: the largest size of a weight, R, above 0; of a grid one of its numbers. None: the grid's.
    rates : {"feature", "global"}
        ogd: a rate for each feature, or one for all, with which the penalty is not used.
    most_nonzero : int, optional
        Truncated gradient: the table keeps only weights that are not 0, at most so many; None: all. Jobs
        set it where all weights do not fit in the memory.
    seed : int
        Of the random rounding of such weights.
    batch : int
        Ball: rows of a step, which follows their mean gradient; above 1 the step must be explicit. At
        the end of a pass the rows that are left make a step.
    radius : float, optional
        Ball: largest sum_j f_j |w_j|, above 0. The ball has no penalty, and does not use ``alpha``.
    """

    alpha: float
    loss: str = "logistic"
    rate: float = 0.1
    power: float = 0.5
    decay: float = 1.0
    step: str = "implicit"
    period: int = 100
    theta: float = math.inf
    truncation: str = "soft"
    average: bool = False
    l1_ratio: float = 1.0
    intercept: bool = True
    weights: str = "float64"
    gamma: float | None = None
    max_weight: float | None = None
    rates: str = "feature"
    most_nonzero: int | None = None
    seed: int = 0
    batch: int = 1
    radius: float | None = None

    def __post_init__(self) -> None:
        loss = self.loss.replace("-", "_") if isinstance(self.loss, str) else self.loss
        checked = {
            "alpha": at_least_0("alpha", self.alpha),
            "loss": choice("loss of an online learner", loss, LOSSES),
            "rate": positive("rate", self.rate),
            "power": at_least_0("power", self.power),
            "decay": up_to_one("decay", self.decay),
            "step": choice("step", self.step, STEPS),
            "period": whole("period", self.period, 1),
            "theta": _theta(self.theta),
            "truncation": choice("truncation", self.truncation, TRUNCATIONS),
            "average": flag("average", self.average),
            "l1_ratio": up_to_one("l1_ratio", self.l1_ratio),
            "intercept": flag("intercept", self.intercept),
            "weights": checked_weights(self.weights),
            "rates": choice("rates", self.rates, RATES),
            "seed": whole("seed", self.seed, 0),
            "batch": whole("batch", self.batch, 1),
        }
        if self.most_nonzero is not None:
            checked["most_nonzero"] = whole("most_nonzero", self.most_nonzero, 1)
        for name in ("radius", "gamma", "max_weight"):
            if getattr(self, name) is not None:
                checked[name] = positive(name, getattr(self, name))
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.power > 1.0:
            raise InputError(f"power must be from 0 to 1, got {shown(self.power)}")

    @property
    def kernel_loss(self) -> tuple[int, float, float]:
        """Code and parameter of the loss, for the kernels."""
        return find_loss(self.loss).kernel


def checked_weights(value: Any) -> str:
    """A dtype; ``q``, for which a grid is chosen; or a grid such as q2.13. Raises InputError."""
    from fcl.online.table import WeightGrid

    if isinstance(value, str) and value[:1] == "q":
        return value if value == "q" else WeightGrid.parse(value).text
    return choice("weights", value, TABLES)


def _theta(value: Any) -> float:
    """Return the value as a float; raises InputError unless it is at least 0, or inf."""
    if value == math.inf:
        return math.inf
    try:
        return at_least_0("theta", value)
    except InputError:
        raise InputError(
            f"theta must be a finite number of at least 0 or inf, got {shown(value)}"
        ) from None
