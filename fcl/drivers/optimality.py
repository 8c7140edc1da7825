"""How far a model is from the optimum: the result of :func:`fcl.certify`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fcl.checks import listed
from fcl.facts import C_fact, Fact, active_fact
from fcl.model.certificate import Certificate
from fcl.model.model import Model
from fcl.plain import plain
from fcl.units import format_gap


@dataclass(frozen=True)
class Violator:
    """A feature that breaks its optimality condition.

    Attributes
    ----------
    id : int
    feature : str
    weight : float, or list of K floats
    slope : float
        |C g_j + (1 - rho) f_j w_j| / (rho f_j), which is |C g_j| for an L1 norm and a factor of 1;
        with several outputs the largest, or the norm if the penalty is grouped.
    violation : float
        Distance of the slope from its value at the optimum.
    """

    id: int
    feature: str
    weight: Any
    slope: float
    violation: float

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True)
class Optimality:
    """How far a model is from the optimum of its problem on given rows.

    Attributes
    ----------
    C, alpha : float
        The weight of the losses, given in two ways: C = 1 / (alpha * sum of the sample weights).
    certificate : Certificate
        Objective with the best intercept; the better of the point's own bound and a given one; the gap.
    own_bound, own_gap : float
        The bound that this point proves by itself, and the gap to it.
    own_objective : float or None
        The objective with the model's own intercept; None if it has none.
    losses, penalty : float
        The parts of the objective: sum_i s_i loss(y_i, m_i), and the penalty.
    intercept : float, or list of K floats
        The best one.
    n_active : int
        Number of features with a weight.
    best_C, best_gap : float or None
        The C at which the own gap is smallest, and this gap; None if C was given and the penalty has
        squares, or norms of several weights, since that takes several passes. Infinite if no price is
        above 0.
    radius : float
        Of the ball sum_j f_j |w_j| <= radius.
    ball_gap : float
        An upper bound on how much larger ``losses`` are than the smallest sum of losses in the ball.
    violators : tuple of Violator
        The strongest ones, by decreasing violation.
    n_rows : int
    sum_weights : float
        Of the sample weights.
    fingerprint : str
        Hash of the data.
    same_data : bool or None
        Whether the model was trained on these data; None if the file does not say.
    model : Model or None
        The model with the best intercept and this certificate, if it was asked for.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> found = fcl.certify(([1.0, 0.0, 0.0, -1.0, 0.0], 0.0), data, C=1.0)
    >>> round(found.objective, 3), found.bound < found.objective
    (68.626, True)
    >>> [violator.feature for violator in found.violators[:2]]
    ['x3', 'x0']
    """

    C: float
    alpha: float
    certificate: Certificate
    own_bound: float
    own_gap: float
    own_objective: float | None
    losses: float
    penalty: float
    intercept: Any
    n_active: int
    best_C: float | None
    best_gap: float | None
    radius: float
    ball_gap: float
    violators: tuple[Violator, ...]
    n_rows: int
    sum_weights: float
    fingerprint: str
    same_data: bool | None
    model: Model | None = None

    @property
    def objective(self) -> float:
        """The objective with the best intercept."""
        return self.certificate.objective

    @property
    def bound(self) -> float:
        """A lower bound on the optimum."""
        return self.certificate.bound

    @property
    def gap(self) -> float:
        """max(0, objective - bound) / objective."""
        return self.certificate.gap

    def facts(self) -> list[Fact]:
        """How far the model is from the optimum, as data and in words."""
        same = {None: "", True: "; the training data", False: "; not the training data"}
        rows = f"{self.n_rows:,}, sum of weights {self.sum_weights:.10g}{same[self.same_data]}"
        facts = [
            Fact("rows", rows, self.n_rows),
            C_fact(self.C, self.alpha),
            *self.certificate.facts(),
            active_fact(self.n_active, self.certificate.n_priced),
        ]
        if self.own_bound < self.bound:
            gap = format_gap(self.own_gap)
            text = f"{self.own_bound:.10g}, gap {gap}: what this model proves by itself"
            facts.append(Fact("own bound", text, self.own_bound))
        return [
            *facts,
            Fact("intercept", self._intercept_text(), self.intercept),
            Fact("best C", self._best_text(), plain(self.best_C)),
            self.ball_fact(),
        ]

    def ball_fact(self) -> Fact:
        """How far the losses are above the least in a ball."""
        if not self.losses > 0.0:
            return Fact("ball", f"radius {self.radius:.8g}: no losses are left", 0.0)
        text = (
            f"radius {self.radius:.8g}: losses {self.losses:.8g}, at most {self.ball_gap:.4g} "
            f"({self.ball_gap / self.losses:.3g} of them) above the best in the ball"
        )
        return Fact("ball", text, self.ball_gap)

    def _intercept_text(self) -> str:
        own = self.intercept if isinstance(self.intercept, list) else [self.intercept]
        text = listed(own, 20, lambda b: f"{b:.8g}")
        if self.own_objective is None:
            return f"{text} is the best one; the model has none"
        if self.own_objective - self.objective <= 1e-9 * abs(self.objective):
            return text
        return f"{text} is the best one; with the model's own the objective is {self.own_objective:.10g}"

    def _best_text(self) -> str:
        if self.best_C is None or self.best_gap is None:
            return "not computed: for this penalty only --C best does it, in several passes"
        if math.isinf(self.best_C):
            return "none: no feature has a price, and the model is optimal for the losses alone"
        gap = format_gap(self.best_gap)
        return f"{self.best_C:.8g}, where the model is most nearly optimal: gap {gap}"

    def to_dict(self) -> Mapping[str, Any]:
        """The fields except ``model`` as JSON values; numbers that are not finite become None."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self) if f.name != "model"}

    def __repr__(self) -> str:
        return (
            f"<Optimality at C {self.C:.6g}: objective {self.objective:.8g}, bound {self.bound:.8g}, "
            f"gap {self.gap:.3g}>"
        )
