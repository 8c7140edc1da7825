"""The gap of a model to the joint ridge optimum over all its blocks.

The problem is to minimise sum_i s_i loss(u_i, y_i) + alpha / 2 |W|^2 over all weights W and the
intercepts. A bound comes from residuals V whose weighted sum is 0 for each margin: with G = Phi' S V,

    sum_i s_i dual(v_i, y_i) - |G|^2 / (2 alpha)

is at most the optimum for t V in place of V, for every t from 0 to 1. All sums here are in float64, from
the weights of the model: neither the rounding of the training nor its history matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from fcl.errors import InputError
from fcl.stagewise.blocks import Part
from fcl.stagewise.learner import StagewiseLearner
from fcl.stagewise.links import Link, SquaredLink
from fcl.stagewise.margins import at_weights, blocks_of
from fcl.stagewise.settings import Settings
from fcl.stagewise.sums import Sweeper
from fcl.types import Floats


@dataclass(frozen=True)
class JointGap:
    """The certificate of a stagewise model.

    objective : of the model, over the training rows.
    bound : a lower bound on the objective of all models with these features.
    """

    objective: float
    bound: float
    n_features: int

    def to_dict(self) -> dict[str, float]:
        """The numbers, with the gap, for JSON."""
        return {**asdict(self), "gap": self.gap}

    @property
    def gap(self) -> float:
        """(objective - bound) / objective, at least 0."""
        if self.objective <= 0.0:
            return 0.0
        return max(0.0, (self.objective - self.bound) / self.objective)


class _Given(SquaredLink):
    """A link whose gradients are the margins: it sums given residuals."""

    def gradient(self, margins: Floats, targets: Floats) -> Floats:
        return margins


def check_certifiable(settings: Settings) -> None:
    """Raise InputError if no certificate is defined for these options."""
    if settings.update == "cls":
        raise InputError(
            "certify: the update cls has no joint objective, and so no gap; set update to ls or gls"
        )
    if not settings.alpha:
        raise InputError("certify: the bound needs alpha above 0, got 0")


def certify(learner: StagewiseLearner) -> JointGap:
    """Compute the objective and the bound of the best model of a learner, in two passes.

    Raises InputError as :func:`check_certifiable` does.
    """
    check_certifiable(learner.settings)
    alpha, weights = learner.settings.alpha, learner.state.best
    link, team = learner.sweeper.link, learner.sweeper.team
    part = at_weights(learner, learner.parts[0], weights)
    objective = _total(part, link.losses)
    objective += 0.5 * alpha * float(np.square(weights.features).sum())
    _to_dual_residuals(link, part)
    given = Sweeper(_Given(), team)
    squares = 0.0
    for block in blocks_of(learner):
        squares += float(np.square(given.sums(block, part, gram=False).gradient).sum())
    bound = _bound(link, part, squares / alpha)
    return JointGap(objective, bound, learner.family.n_features)


def _total(part: Part, of: Callable[[Floats, Floats], Floats]) -> float:
    """The weighted sum over the rows of a function of margins and targets, exactly rounded."""
    values = np.empty(part.n)
    for rows in part.tiles():
        values[rows] = of(part.margins[rows], part.targets.rows(rows))
    values *= part.s
    return math.fsum(values)


def _to_dual_residuals(link: Link, part: Part) -> None:
    """Replace the margins by residuals y - g(u) whose weighted sums are 0 for each margin."""
    found, wanted = np.zeros((2, part.margins.shape[1]))
    for rows in part.tiles():
        part.margins[rows] = link.mean(part.margins[rows])
        found += part.s[rows] @ part.margins[rows]
        wanted += part.s[rows] @ part.targets.rows(rows)
    total = float(part.s.sum())
    for rows in part.tiles():
        means = link.balance(part.margins[rows], wanted, found, total)
        part.margins[rows] = part.targets.rows(rows) - means


def _bound(link: Link, part: Part, squares: float) -> float:
    """The largest bound over scaled residuals; part.margins are the residuals, squares |G|^2/alpha.

    The dual of a loss of u + o, with an offset o, is less by <v, o>.
    """
    moved = 0.0
    if part.offset is not None:
        moved = math.fsum(part.s * np.einsum("ik,ik->i", part.margins, part.offset))

    def at(t: float) -> float:
        dual = _total(part, lambda residuals, targets: link.dual(t * residuals, targets))
        return dual - t * moved - 0.5 * t * t * squares

    found = minimize_scalar(lambda t: -at(t), bounds=(0.0, 1.0), method="bounded")
    return max(at(0.0), at(float(found.x)), at(1.0))
