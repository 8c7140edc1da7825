"""How far a point is from the optimum, whoever found it: one pass that prices the whole family there.

The pass gives margins m, the best intercept, slopes r_i = s_i loss'(m_i), and the prices g_j = sum_i r_i
phi_ij of all features. None of these contain C. With an L1 penalty they therefore give, without another
pass, the objective and the dual bound at every C (:meth:`CertifiedPoint.change_C`), the C at which the
point is most nearly optimal (:meth:`CertifiedPoint.best_C`), and the gap to the best point of an L1 ball
(:meth:`CertifiedPoint.ball_gap`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.interpolate import KroghInterpolator
from scipy.optimize import minimize_scalar

from fcl.errors import InputError
from fcl.features.prices import Prices, RowVector
from fcl.objective import relative_gap
from fcl.solve.outer import Certified, Outer
from fcl.solve.passes import DualPoint, Passes
from fcl.solve.polish import polishable, polished_bound
from fcl.solve.state import Point
from fcl.types import Floats, Ids

#: Distance of log C from the best one at which the search for it ends ...
NEAR = 1e-4
#: ... or the number of evaluations.
MOST_TRIED = 40
#: Furthest step of log C beyond the values that were tried.
FURTHEST = 2.0
#: Number of points through which the search interpolates.
NODES = 4


@dataclass(frozen=True)
class Violators:
    """Features that are furthest from their optimality conditions, by decreasing violation.

    slopes : sizes of the slopes (:mod:`fcl.objective.penalty`); |C g_j| with an L1 norm and factors of 1.
    violations : distances of the slopes from their values at the optimum.
    weights : float64 (k,), or (k, K) with K outputs.
    """

    ids: Ids
    slopes: Floats
    violations: Floats
    weights: Floats


class CertifiedPoint:
    """A point with its best intercept (or coefficients of covariates), priced over the whole family.

    passes : of the problem; its pricer should keep few candidates.
    point : in the solver's units.
    """

    def __init__(self, passes: Passes, point: Point) -> None:
        self.passes = passes
        blocks = range(passes.prepared.n_blocks)
        passes.write_margins(point, blocks)
        margins = passes.vectors.proposed
        own = None
        if len(point.covariates):
            moved = passes.vectors.residuals
            moved[:] = margins
            passes.objective.add_covariates(point.covariates, moved)
            own = passes.objective.loss_sum(moved, point.intercept)
        b, v = passes.fit_unpenalised(margins, point.intercept, point.covariates)
        self.point = Point(point.ids, point.weights, b, v)
        self.loss = passes.objective.loss_sum(margins, b)  #: sum of the losses
        if own is None:
            own = (
                self.loss
                if b == point.intercept
                else passes.objective.loss_sum(margins, point.intercept)
            )
        self.own_loss: float = own  #: ... with the intercept that was given
        if not math.isfinite(self.objective):
            raise InputError(
                "the objective of the model is not finite on these rows: expected weights of the units "
                "of the data, and a target that suits the loss"
            )
        passes.vectors.anchor = 1 - passes.vectors.anchor
        passes.write_residuals(b, blocks, self.loss)
        self._dual: DualPoint = passes.dual_point()
        self._price()

    def _price(self) -> None:
        """Price the family at the point, and certify it."""
        passes = self.passes
        # with a threshold of 0 the largest price is exact, even if no price violates a condition; norms
        # of K prices are bounded better from those above the limit
        threshold = passes.conditions.limit if self._grouped else 0.0
        self.prices: Prices = passes.price(self._dual, self.point.ids, threshold, passes.parts)
        self._certify()

    def polish(self) -> None:
        """Try to prove a better bound near the point, as the training does where rounding limits it."""
        if polishable(self.passes, self.point):
            bound = polished_bound(self.passes, self.point, self.passes.conditions.limit)
            self._dual = self.passes.dual_point()  # in memory that was used for other residuals
            self._certify(bound)

    def _certify(self, known: float = -math.inf) -> None:
        passes = self.passes
        n_features = None if passes.sampled else passes.family.n_features
        outer = Outer(passes.conditions, 1.0, n_features, self.point, self.objective)
        if self._grouped:
            outer.C_min = math.inf  # so that it, too, assumes a threshold at the limit
        drawn = passes.family.features_in_pass(0) if passes.sampled else None
        bound = max(known, passes.bound_of(self._dual, self.prices))
        self.certificate: Certified = outer.certify(self.prices, self.point.ids, bound, drawn)

    @property
    def C(self) -> float:
        """The factor of the losses in the problem."""
        return self.passes.objective.C

    @property
    def penalty(self) -> float:
        return self.passes.conditions.value(self.point)

    @property
    def objective(self) -> float:
        return self.penalty + self.C * self.loss

    @property
    def largest(self) -> float:
        """The largest |g_j| / f_j over the family."""
        return self.passes.conditions.largest(self.prices, self.point.ids)

    @property
    def serves_every_C(self) -> bool:
        """Whether the prices give the bound at every C: not with squares, norms or finite limits."""
        penalty = self.passes.objective.penalty
        return bool(penalty.pure_l1 and not penalty.limits.exact) and not self._grouped

    @property
    def _grouped(self) -> bool:
        return bool(self.passes.objective.penalty.grouped)

    def change_C(self, C: float) -> None:
        """Certify the same point at another C; prices the family again if that is needed."""
        passes = self.passes
        passes.objective = replace(passes.objective, C=C)
        passes.conditions = replace(passes.conditions, C=C)
        if self.serves_every_C:
            self._certify()
        else:
            self._price()

    def resolves(self, shift: float) -> bool:
        """Whether float64 margins resolve the largest violation; overwrites residuals.

        shift : added to the intercept later.
        """
        violation = self.certificate.max_violation
        return self.passes.resolved(self.point, shift, self.prices.reach, violation)[1]

    def violators(self, top: int) -> Violators:
        """The features of largest violation, at most ``top``; without features that have none."""
        point, prices, conditions = self.point, self.prices, self.passes.conditions
        ids = np.concatenate([point.ids, prices.ids])
        gradients = np.concatenate([prices.watched, prices.gradients])
        weights = point.weights_of(ids)
        violations = conditions.violations(ids, gradients, weights)
        order = np.lexsort((ids, -violations))[:top]
        order = order[violations[order] > 0.0]
        slopes = conditions.slopes(ids[order], gradients[order], weights[order])
        return Violators(ids[order], slopes, violations[order], weights[order])

    # -- the ball ------------------------------------------------------------------------------

    @property
    def norm(self) -> float:
        """sum_j f_j |w_j|, the norm in the penalty without squares."""
        alone = replace(self.passes.objective.penalty, rho=1.0)
        return alone.value(self.point.weights, self.passes.conditions.factors(self.point.ids))

    def ball_gap(self, radius: float) -> float:
        """An upper bound on L(w) - min L(v) over sum_j f_j |v_j| <= radius, L the sum of the losses.

        L is convex and r sums to 0 against all unpenalised columns, so L(v) >= L(w) + <g, v - w>, and
        <g, v> >= -radius max_j |g_j| / f_j: the gap of Frank and Wolfe (Jaggi 2013, "Revisiting
        Frank-Wolfe"). It needs neither conjugates nor scaling. The slopes of a loss with a kink sum to 0
        only after they were balanced; then L(v) >= <g, v> - sum of their conjugates.
        """
        below = self._inner
        objective = self.passes.objective
        if not objective.loss.smooth:
            r = self._dual.residuals
            value = objective.dual_value(r, objective.dual_balance(r), 1.0)
            below = self.loss - value / objective.C
        return max(0.0, below + radius * self.largest)

    @property
    def _inner(self) -> float:
        """<g, w>."""
        return math.fsum((self.point.weights * self.prices.watched).ravel())

    # -- the best C ----------------------------------------------------------------------------

    def best_C(self) -> tuple[float, float]:
        """The C at which the relative gap of the point is smallest, and this gap.

        It needs prices that serve every C.

        With G = max_j |g_j| / f_j, every C <= 1 / G leaves the slopes r feasible for the dual, and the
        gap falls with C, since the objective has ever less of the penalty, which the dual does not know.
        Beyond 1 / G the dual point is u r with u = 1 / (C G), and D / P = d(u) / (u G penalty(w) + L),
        where d is the concave dual of the losses: a quasi-concave function of u. Its derivative at u = 1
        is L (A - G penalty(w)) up to a positive factor, where A = -<g, w> is the sum of |w_j| times the
        prices of the active features. It is 0 if these all have the largest price, as at an optimum; then
        C = 1 / G is the best. Otherwise a larger C is best, at which more of the prices of the active
        features reach 1. An evaluation of d takes a sum over the rows, but no pass.

        The C of an empty model is the largest at which it is optimal. Without any price above 0 the point
        is optimal for the losses alone, and C is infinite.
        """
        if self.largest == 0.0:
            return math.inf, 0.0
        objective, point = self.passes.objective, self._dual
        first = objective.penalty.least_C(self.largest)
        if isinstance(point.residuals, RowVector):  # to truncate them each time would take long
            point = replace(point, residuals=point.residuals.values)

        def dual(x: float) -> float:
            """D / (C u), where x = log u and C = first / u."""
            self.passes.objective = replace(objective, C=first * math.exp(-x))
            return self.passes.bound_of(point, self.prices) / first

        def primal(x: float) -> float:
            """P / (C u)."""
            return self.penalty / first + self.loss * math.exp(-x)

        try:
            x, value = 0.0, math.nan
            if len(self.point.ids):
                x, value = highest(dual, primal, self._at_first())
            else:
                value = dual(x)
        finally:
            self.passes.objective = objective
        return first * math.exp(-x), relative_gap(primal(x), value)

    def _at_first(self) -> tuple[float, float] | None:
        """What is known of D / (C u) at u = 1: its value and slope, as d(1) = L + A and d'(1) = A.

        None if another multiple of r is better there, or each output has a multiple of its own.
        """
        objective, inner = self.passes.objective, self._inner
        if objective.outputs or (objective.loss.conic and inner > 0.0):
            return None
        if not objective.loss.smooth:  # the slopes had to be balanced
            return None
        return self.loss - inner, -self.loss

    def go_to_best_C(self) -> None:
        """Certify the point at the best C, pricing again at each C that is tried if need be."""
        if self.serves_every_C:
            C = self.best_C()[0]
            if math.isfinite(C):
                self.change_C(C)
        elif self.largest > 0.0:
            x = math.log(self.passes.objective.penalty.least_C(self.largest))
            if len(self.point.ids):
                x = float(minimize_scalar(self._gap_at, (x, x + 0.5), tol=NEAR).x)
            self._gap_at(x)

    def _gap_at(self, log_C: float) -> float:
        self.change_C(math.exp(log_C))
        return self.certificate.gap


def highest(
    dual: Callable[[float], float],
    primal: Callable[[float], float],
    known: tuple[float, float] | None = None,
) -> tuple[float, float]:
    """The x <= 0 at which dual(x) / primal(x), a quasi-concave function, is largest, to about NEAR.

    ``dual`` is expensive, and smooth below 0: a polynomial through the values takes its place, and a few
    evaluations suffice. A bounded search that evaluates ``dual`` at each of its steps needs 8 to 30.

    known : the value and the slope of ``dual`` at 0.

    Returns x and dual(x).
    """
    if known is None:
        nodes, slopes = [(-0.05, dual(-0.05)), (0.0, dual(0.0))], []
    else:
        nodes, slopes = [(0.0, known[0])], [(0.0, known[1])]
    for _ in range(MOST_TRIED):
        best, value = max(nodes, key=lambda node: node[1] / primal(node[0]))
        left = max((x for x, _ in nodes if x < best), default=best - FURTHEST)
        right = min((x for x, _ in nodes if x > best), default=0.0)
        near = sorted(nodes, key=lambda node: abs(node[0] - best))[:NODES]
        near += [node for node in slopes if node[0] in dict(near)]
        # the second value at a place is the slope
        model = KroghInterpolator(*zip(*sorted(near, key=lambda node: node[0]), strict=True))
        x = _peak(model, primal, left, right)
        if abs(x - best) < NEAR:
            break
        for end in (left, right):  # the model may be poor: halve the bracket
            if abs(x - end) < NEAR:
                x = 0.5 * (best + end)
        if abs(x - best) < NEAR:
            break
        nodes.append((x, dual(x)))
    return best, value


def _peak(
    dual: Callable[[float], float], primal: Callable[[float], float], left: float, right: float
) -> float:
    """Where the ratio of two cheap functions is largest."""
    found = minimize_scalar(
        lambda x: -float(dual(x)) / primal(x),
        bounds=(left, right),
        method="bounded",
        options={"xatol": 0.01 * NEAR},
    )
    return float(found.x)
